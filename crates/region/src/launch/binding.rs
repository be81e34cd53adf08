//! Which cores components run on.

use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};

/// Cores that components are bound to: one each, in turn.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Binding {
    /// All cores that the launcher may use.
    All,
    /// These, by the kernel's numbers.
    Cores(Vec<u32>),
}

/// The text names no cores.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no list of cores: say numbers and ranges from 0 to {last}, such as 0,2,4-7", last = CpuSet::MAX_CPU - 1)]
pub struct BadCores(String);

/// A list as the kernel writes it: `0,2,4-7`.
impl std::str::FromStr for Binding {
    type Err = BadCores;

    fn from_str(text: &str) -> Result<Self, BadCores> {
        let wrong = || BadCores(text.to_owned());
        let number = |text: &str| {
            text.parse().ok().filter(|&core: &u32| (core as usize) < CpuSet::MAX_CPU).ok_or_else(wrong)
        };
        let mut cores = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = number(first)?..=number(last)?;
            if range.is_empty() {
                return Err(wrong());
            }
            cores.extend(range);
        }
        Ok(Self::Cores(cores))
    }
}

impl Binding {
    /// The core of each component of this host in turn. An error names a core that is not ours to use.
    pub(super) fn cores(&self) -> Result<Vec<u32>, String> {
        let allowed = rustix::thread::sched_getaffinity(None).map_err(|error| error.to_string())?;
        let limit = u32::try_from(CpuSet::MAX_CPU).expect("few cores");
        match self {
            Self::All => Ok((0..limit).filter(|&core| allowed.is_set(core as usize)).collect()),
            Self::Cores(cores) => match cores.iter().find(|&&core| !allowed.is_set(core as usize)) {
                Some(core) => Err(format!("there is no core {core} here, or this process may not use it")),
                None => Ok(cores.clone()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_read_as_the_kernel_writes_them() {
        assert_eq!("0,2,4-6".parse(), Ok(Binding::Cores(vec![0, 2, 4, 5, 6])));
        for text in ["", "a", "1-", "3-1", "-1", "0,", "1024", "0-99999999999"] {
            assert!(text.parse::<Binding>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn only_cores_that_are_there_are_given() {
        let all = Binding::All.cores().unwrap();
        assert!(!all.is_empty());
        assert_eq!(Binding::Cores(vec![all[0]; 2]).cores(), Ok(vec![all[0]; 2]));
        assert!(Binding::Cores(vec![1023]).cores().unwrap_err().contains("no core 1023"));
    }
}
