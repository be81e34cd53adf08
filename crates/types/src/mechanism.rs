//! Mechanisms of the kernel that Comb has a way without, by name.
//!
//! Newer mechanisms are used where they are present. `COMB_WITHOUT=membarrier,userfaultfd` switches each off, and
//! `COMB_WITHOUT=all` every one, so that the way without is tested on machines that have it. Whether the kernel has one, says the
//! crate that uses it.

use core::fmt;
use core::str::FromStr;

/// A mechanism of the kernel that Comb has a way without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mechanism {
    /// Fences on another process's cores, paid by the one who goes to sleep. Without: a fence at every send.
    Membarrier,
    /// Sockets in the address family XDP. Without: UDP.
    AfXdp,
    /// The peer's process descriptor straight from its socket. Without: from its number, checked afterwards.
    SocketPidfd,
    /// Page faults that the faulting thread serves itself, for any number of pages. Without: protections of mappings.
    Userfaultfd,
    /// Pages mapped write-protected at once, by userfaultfd. Without: no userfaultfd, for a store could come in between.
    UserfaultfdContinueWp,
    /// Tasks in cells that can signal and debug nobody but themselves. Without: whoever their user may.
    Landlock,
    /// A cgroup for each cell, which is killed as a whole. Without: by the mark that its processes have in their environment.
    Cgroups,
    /// Programs of ours in the kernel, at its tracepoints. Without: a library that programs load.
    Bpf,
    /// Such programs may be told a pointer's type. Without: each field by a call.
    BpfCast,
    /// Notes of first stores, and the pages of a process with these notes, asked for many at once. Without: one by one, and nobody knows.
    PagemapScan,
}

impl Mechanism {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Membarrier,
        Self::AfXdp,
        Self::SocketPidfd,
        Self::Userfaultfd,
        Self::UserfaultfdContinueWp,
        Self::Landlock,
        Self::Cgroups,
        Self::Bpf,
        Self::BpfCast,
        Self::PagemapScan,
    ];

    /// Its name in `COMB_WITHOUT` and in `comb doctor`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Membarrier => "membarrier",
            Self::AfXdp => "af_xdp",
            Self::SocketPidfd => "socket_pidfd",
            Self::Userfaultfd => "userfaultfd",
            Self::UserfaultfdContinueWp => "userfaultfd_continue_wp",
            Self::Landlock => "landlock",
            Self::Cgroups => "cgroups",
            Self::Bpf => "bpf",
            Self::BpfCast => "bpf_cast",
            Self::PagemapScan => "pagemap_scan",
        }
    }

    /// What happens without it.
    pub const fn fallback(self) -> &'static str {
        match self {
            Self::Membarrier => "a full fence at every send",
            Self::AfXdp => "UDP between hosts",
            Self::SocketPidfd => "pidfd_open by process number, credentials read again afterwards",
            Self::Userfaultfd => "mprotect, with fewer pages of mixed rights (vm.max_map_count)",
            Self::UserfaultfdContinueWp => "no userfaultfd, mprotect",
            Self::Landlock => "what runs in a cell may signal and debug what its user may",
            Self::Cgroups => "a cell's processes are found by COMB_CELL in their environment",
            Self::Bpf => {
                "comb trace sees programs through a library that they load, and not all that they do"
            }
            Self::PagemapScan => "the cache kernel looks at pages one by one, and takes all for modified",
            Self::BpfCast => "comb trace reads each field of the kernel's by a call, and costs a third more",
        }
    }

    /// Whether it was switched off by `COMB_WITHOUT`.
    #[cfg(feature = "std")]
    pub fn is_switched_off(self) -> bool {
        static OFF: std::sync::OnceLock<Mechanisms> = std::sync::OnceLock::new();
        OFF.get_or_init(|| {
            let list = std::env::var("COMB_WITHOUT").unwrap_or_default();
            Mechanisms::parse(&list).unwrap_or_default()
        })
        .contains(self)
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no mechanism.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownMechanism<'a>(pub &'a str);

impl fmt::Display for UnknownMechanism<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "COMB_WITHOUT names {:?}, which is no mechanism; known:", self.0)?;
        Mechanism::ALL.iter().try_for_each(|mechanism| write!(f, " {mechanism},"))?;
        f.write_str(" or all")
    }
}

impl core::error::Error for UnknownMechanism<'_> {}

/// A name without its list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoMechanism;

impl FromStr for Mechanism {
    type Err = NoMechanism;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|mechanism| mechanism.name() == name).ok_or(NoMechanism)
    }
}

/// Some of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Mechanisms(u32);

impl Mechanisms {
    /// Reads a list as it stands in `COMB_WITHOUT`.
    pub fn parse(list: &str) -> Result<Self, UnknownMechanism<'_>> {
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        if list.trim() == "all" {
            return Ok(Mechanism::ALL.into_iter().collect());
        }
        names.map(|name| name.parse().map_err(|NoMechanism| UnknownMechanism(name))).collect()
    }

    /// Whether it is one of these.
    pub const fn contains(self, mechanism: Mechanism) -> bool {
        self.0 & 1 << mechanism as u32 != 0
    }

    /// Each of these, in the order of [`Mechanism::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Mechanism> {
        Mechanism::ALL.into_iter().filter(move |&mechanism| self.contains(mechanism))
    }
}

impl FromIterator<Mechanism> for Mechanisms {
    fn from_iter<T: IntoIterator<Item = Mechanism>>(mechanisms: T) -> Self {
        Self(mechanisms.into_iter().fold(0, |all, mechanism| all | 1 << mechanism as u32))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::{string::ToString, vec::Vec};

    #[test]
    fn a_list_is_read_and_a_misspelt_name_is_an_error_that_lists_the_right_ones() {
        let read = |list| Mechanisms::parse(list).map(|set| set.iter().collect::<Vec<_>>());
        assert_eq!(read(" userfaultfd, af_xdp,").unwrap(), [Mechanism::AfXdp, Mechanism::Userfaultfd]);
        assert_eq!(read("all").unwrap(), Mechanism::ALL);
        assert_eq!(read(" ").unwrap(), []);
        let error = read("membarrier,userfault").unwrap_err().to_string();
        assert!(error.contains("\"userfault\"") && error.contains(" socket_pidfd,"), "{error}");
    }

    #[test]
    fn every_name_is_its_own() {
        for mechanism in Mechanism::ALL {
            assert_eq!(mechanism.name().parse(), Ok(mechanism));
        }
    }
}
