//! What this kernel can do, and what we were told to do without ([`comb_types::mechanism`]).

pub use comb_types::mechanism::{Mechanism, Mechanisms};

/// Whether there is a mechanism, for those that this crate uses.
pub trait Probe {
    /// Whether the kernel has it and it was not switched off. Never, of a mechanism that is not this crate's.
    fn is_available(&self) -> bool;
}

impl Probe for Mechanism {
    fn is_available(&self) -> bool {
        !self.is_switched_off() && kernel_has(*self)
    }
}

fn kernel_has(mechanism: Mechanism) -> bool {
    match mechanism {
        Mechanism::Membarrier => crate::fence::kernel_has_membarrier(),
        Mechanism::AfXdp => {
            rustix::net::socket(rustix::net::AddressFamily::from_raw(44), rustix::net::SocketType::RAW, None)
                .is_ok()
        }
        Mechanism::SocketPidfd => crate::agent::credentials::kernel_has_socket_pidfd(),
        Mechanism::Userfaultfd
        | Mechanism::UserfaultfdContinueWp
        | Mechanism::Landlock
        | Mechanism::Cgroups
        | Mechanism::Bpf
        | Mechanism::BpfCast
        | Mechanism::PagemapScan => false,
    }
}

/// `COMB_WITHOUT` has a name that is no mechanism.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct UnknownMechanism(String);

/// Checks `COMB_WITHOUT`; programs call it first, so that a misspelt name is an error and not a silent no-op.
pub fn check_environment() -> Result<(), UnknownMechanism> {
    let list = std::env::var("COMB_WITHOUT").unwrap_or_default();
    Mechanisms::parse(&list).map(drop).map_err(|unknown| UnknownMechanism(unknown.to_string()))
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
