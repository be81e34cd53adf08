//! Who uses more of the network than it was granted is cut off for a while. (Cache Kernel §4.3)

use std::time::Duration;

use comb_kernel::objects::Tag;

/// What kernels communicate by, as far as it is to be limited: who counts, and can cut off.
pub trait Network {
    /// What a kernel has sent and received since it is there, in bytes.
    fn used(&mut self, kernel: Tag) -> u64;

    /// Takes all of a kernel's channels from it.
    fn disconnect(&mut self, kernel: Tag);

    /// Gives them back.
    fn connect(&mut self, kernel: Tag);
}

/// Where kernels have no network.
#[derive(Debug)]
pub struct NoNetwork;

impl Network for NoNetwork {
    fn used(&mut self, _: Tag) -> u64 {
        0
    }

    fn disconnect(&mut self, _: Tag) {}

    fn connect(&mut self, _: Tag) {}
}

/// What follows from a look at a meter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Stays,
    Disconnect,
    Connect,
}

/// One kernel's use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meter {
    seen: u64,
    /// What it has used beyond its quota, less what it has left of it since.
    debt: u64,
    is_cut: bool,
}

impl Meter {
    /// It may be ahead of its quota by what that allows in a second; who is further ahead is cut off until the quota has caught up.
    pub(super) fn look(&mut self, used: u64, quota: u64, elapsed: Duration) -> Verdict {
        let allowed = u128::from(quota) * elapsed.as_micros() / 1_000_000;
        let allowed = u64::try_from(allowed).unwrap_or(u64::MAX);
        self.debt = self.debt.saturating_add(used.saturating_sub(self.seen)).saturating_sub(allowed);
        self.seen = used;
        match self.is_cut {
            false if self.debt > quota => {
                self.is_cut = true;
                Verdict::Disconnect
            }
            true if self.debt == 0 => {
                self.is_cut = false;
                Verdict::Connect
            }
            _ => Verdict::Stays,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_over_its_quota_is_cut_off_until_it_has_caught_up() {
        let (mut meter, second) = (Meter::default(), Duration::from_secs(1));
        // As much as it may, and once twice as much.
        assert_eq!(meter.look(100, 100, second), Verdict::Stays);
        assert_eq!(meter.look(300, 100, second), Verdict::Stays);
        // Twice as much again is more than it can make good in a second.
        assert_eq!(meter.look(501, 100, second), Verdict::Disconnect);
        assert_eq!(meter.look(501, 100, second), Verdict::Stays);
        assert_eq!(meter.look(501, 100, second / 2), Verdict::Stays);
        assert_eq!(meter.look(501, 100, second), Verdict::Connect);
        assert_eq!(meter.look(550, 100, second / 2), Verdict::Stays);
        let mut none = Meter::default();
        assert_eq!(none.look(1, 0, second), Verdict::Disconnect);
        assert_eq!(none.look(1, 0, 1000 * second), Verdict::Stays, "there is nothing to catch up with");
    }
}
