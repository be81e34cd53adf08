//! What a call costs, idle and loaded: the assumption on which all figures stand.
//!
//! The Cluster Service runs at user level. For each message that comes it has to get the processor first, "to compete with
//! other applications that are engaged in IO" (§7.8). So a message waits for a *wake-up* before it is handled, and all that came
//! meanwhile are handled with it. A call takes two: the callee's for the request and the caller's for the answer. Heartbeats
//! take none: ClusNet is in the kernel. Timers take none.
//!
//! [`comb_sim::Fault::Slow`] would be simpler, but it makes the processor busy where it is only late, and charges the kernel
//! too: at 100 ms for each input, 26 heartbeats a second would use up a node.

use std::time::Duration;

use crate::Dice;
use crate::mscs::Kind;

/// How busy the nodes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// Nothing else runs. "RPC to 30 nodes takes between 100 and 150 milliseconds": 3 to 5 ms a call (§7.7.1).
    Idle,
    /// Computing and IO. "the RPC times vary widely from 3 millisecond to 3 second per RPC" (§7.7.1); each doubling of
    /// the time in between is as likely as any other, which gives 0.4 s in the mean and 13 s for 30 nodes. The thesis
    /// saw more than 20 s, with exceptions up to a minute.
    Loaded,
}

/// Half of the least call, without the network's 0.2 to 0.4 ms.
const LEAST_WAKE_UP: Duration = Duration::from_micros(1350);

/// Half of what an idle call varies by.
const IDLE_SPREAD: Duration = Duration::from_millis(1);

/// From 1.35 ms to 1.4 s in ten doublings.
const LOADED_DOUBLINGS: u32 = 10;

/// Copying and marshalling. From §7.8: with 32 nodes an update of 2 KB takes 250 ms and one of 50 bytes 167 ms, so 1998 more
/// bytes cost 2.6 ms a call.
const EACH_BYTE: Duration = Duration::from_nanos(1300);

/// Setting up a security context, beyond a call. From §7.7.1, phase 3: 98 calls to 31 nodes take 2 to 4 s, and 98 plain ones
/// take 0.4.
const SECURITY_CONTEXT: (Duration, Duration) = (Duration::from_millis(40), Duration::from_millis(105));

/// A challenge and its response go to and fro once more and are checked with the system's authority, and for each of that
/// somebody has to wake up. With it, phase three takes 70 s with 31 loaded nodes in the mean, and "frequently ... longer than
/// 60 seconds" it does.
const SECURITY_WAKE_UPS: u32 = 4;

impl Load {
    /// How long a message of so many bytes waits.
    pub(super) fn wake_up(self, dice: &mut Dice, kind: Option<Kind>, bytes: usize) -> Duration {
        let mut wait = self.turn(dice);
        if kind == Some(Kind::SecurityContext) {
            let (least, most) = SECURITY_CONTEXT;
            wait += dice.between(least..most);
            wait += (0..SECURITY_WAKE_UPS).map(|_| self.turn(dice)).sum::<Duration>();
        }
        wait + EACH_BYTE * u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// How long it takes to get the processor.
    fn turn(self, dice: &mut Dice) -> Duration {
        match self {
            Self::Idle => LEAST_WAKE_UP + dice.between(Duration::ZERO..IDLE_SPREAD),
            Self::Loaded => {
                let least = LEAST_WAKE_UP * (1 << dice.below(LOADED_DOUBLINGS));
                dice.between(least..2 * least)
            }
        }
    }
}
