//! What the world around the members shows of them: plug-ins that a member polls. (Galaxy §8.5.1)
//!
//! Two are here: [`Icmp`] and [`Links`]. Whoever has other devices writes their own: `examples/ups.rs` watches power supplies,
//! `examples/switch` hears a switch.

use std::fmt;

pub use comb_membership::detect::environment::{Environment, Notice, Notices};
pub use comb_membership::detect::{Confidence, Kind};
use comb_types::Time;

mod icmp;
mod links;
mod netlink;

pub use icmp::Icmp;
pub use links::Links;

/// What a plug-in may say at once; the rest it is asked for the next time. One that always has something to say must not hold up its
/// member.
const MOST_AT_ONCE: usize = 1024;

/// Those of one member.
#[derive(Default)]
pub(crate) struct PlugIns(Vec<Box<dyn Environment + Send>>);

impl PlugIns {
    pub(crate) fn add(&mut self, plug_in: Box<dyn Environment + Send>) {
        self.0.push(plug_in);
    }

    /// What they say now, and who says it: the first is 1.
    pub(crate) fn poll(&mut self, now: Time) -> Vec<(u32, Notice)> {
        let mut said = Vec::new();
        for (number, plug_in) in (1..).zip(&mut self.0) {
            let notices = std::iter::from_fn(|| plug_in.poll_notice(now));
            said.extend(notices.take(MOST_AT_ONCE).map(|notice| (number, notice)));
        }
        said
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.0.iter().filter_map(|plug_in| plug_in.next_timeout()).min()
    }
}

impl fmt::Debug for PlugIns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} plug-ins", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comb_types::NodeId;

    struct Babbler;

    impl Environment for Babbler {
        fn poll_notice(&mut self, _now: Time) -> Option<Notice> {
            Some(Notice::Over { node: NodeId(1), kind: Kind::LinkDown })
        }
    }

    #[test]
    fn each_is_heard_under_its_number_and_none_for_ever() {
        let mut plug_ins = PlugIns::default();
        assert_eq!((plug_ins.poll(Time::ZERO), plug_ins.next_timeout()), (Vec::new(), None));
        let mut notices = Notices::new();
        notices.seen(NodeId(2), Kind::PowerFailure, Confidence::CERTAIN);
        plug_ins.add(Box::new(Babbler));
        plug_ins.add(Box::new(notices));
        let said = plug_ins.poll(Time::ZERO);
        assert_eq!(said.iter().filter(|(number, _)| *number == 1).count(), MOST_AT_ONCE);
        assert!(matches!(said.last(), Some((2, Notice::Seen { node: NodeId(2), .. }))));
        assert_eq!(plug_ins.next_timeout(), Some(Time::from_millis(5000)));
    }
}
