//! What this kernel can do, and what we were told to do without.
//!
//! Newer mechanisms are used where they are present. `COMB_WITHOUT=membarrier,af_xdp` switches each off, and
//! `COMB_WITHOUT=all` every one, so that the way without is tested on machines that have it.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// A mechanism of the kernel that Comb has a way without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mechanism {
    /// Fences on another process's cores, paid by the one who goes to sleep. Without: a fence at every send.
    Membarrier,
    /// Sockets in the address family XDP. Without: UDP.
    AfXdp,
    /// The peer's process descriptor straight from its socket. Without: from its number, checked afterwards.
    SocketPidfd,
}

impl Mechanism {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Membarrier, Self::AfXdp, Self::SocketPidfd];

    /// Its name in `COMB_WITHOUT` and in `comb doctor`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Membarrier => "membarrier",
            Self::AfXdp => "af_xdp",
            Self::SocketPidfd => "socket_pidfd",
        }
    }

    /// What happens without it.
    pub const fn fallback(self) -> &'static str {
        match self {
            Self::Membarrier => "a full fence at every send",
            Self::AfXdp => "UDP between hosts",
            Self::SocketPidfd => "pidfd_open by process number, credentials read again afterwards",
        }
    }

    /// Whether it was switched off by `COMB_WITHOUT`.
    pub fn is_switched_off(self) -> bool {
        switched_off().contains(&self)
    }

    /// Whether the kernel has it and it was not switched off.
    pub fn is_available(self) -> bool {
        !self.is_switched_off() && self.kernel_has_it()
    }

    fn kernel_has_it(self) -> bool {
        match self {
            Self::Membarrier => crate::fence::kernel_has_membarrier(),
            Self::AfXdp => rustix::net::socket(
                rustix::net::AddressFamily::from_raw(44),
                rustix::net::SocketType::RAW,
                None,
            )
            .is_ok(),
            Self::SocketPidfd => crate::agent::credentials::kernel_has_socket_pidfd(),
        }
    }
}

/// A name in `COMB_WITHOUT` that is no mechanism.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("COMB_WITHOUT names {0:?}, which is no mechanism; known: {known}, or all", known = known())]
pub struct UnknownMechanism(pub String);

fn known() -> String {
    Mechanism::ALL.map(Mechanism::name).join(", ")
}

impl FromStr for Mechanism {
    type Err = UnknownMechanism;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|m| m.name() == name).ok_or_else(|| UnknownMechanism(name.to_owned()))
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reads a list as it stands in `COMB_WITHOUT`.
pub fn parse_without(list: &str) -> Result<Vec<Mechanism>, UnknownMechanism> {
    if list.trim() == "all" {
        return Ok(Mechanism::ALL.to_vec());
    }
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::parse).collect()
}

/// Checks `COMB_WITHOUT`; programs call it first, so that a misspelt name is an error and not a silent no-op.
pub fn check_environment() -> Result<(), UnknownMechanism> {
    parse_without(&std::env::var("COMB_WITHOUT").unwrap_or_default()).map(drop)
}

fn switched_off() -> &'static [Mechanism] {
    static OFF: OnceLock<Vec<Mechanism>> = OnceLock::new();
    OFF.get_or_init(|| parse_without(&std::env::var("COMB_WITHOUT").unwrap_or_default()).unwrap_or_default())
}

/// For the test of a fallback: runs that test, and nothing else, once more in a process where the mechanism is switched
/// off, and says so by `true`; `false` there.
#[cfg(test)]
pub(crate) fn runs_again_without(mechanism: Mechanism, test: &str) -> bool {
    if mechanism.is_switched_off() {
        return false;
    }
    let run = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env("COMB_WITHOUT", mechanism.name())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && said.contains("1 passed"), "without {mechanism}: {said}");
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_and_a_misspelt_name_is_an_error_that_lists_the_right_ones() {
        assert_eq!(parse_without(" membarrier, af_xdp,").unwrap(), [Mechanism::Membarrier, Mechanism::AfXdp]);
        assert_eq!(parse_without("all").unwrap(), Mechanism::ALL);
        let error = parse_without("membarier").unwrap_err().to_string();
        assert!(error.contains("membarier") && error.contains("socket_pidfd"), "{error}");
    }
}
