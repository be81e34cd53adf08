//! What the world around the nodes shows of them. (Galaxy §8.5.1, environmental failure detectors)

use alloc::collections::VecDeque;

use comb_types::Time;

use super::{Evidence, Kind, Source};
use crate::view::Member;

/// A detector of one kind of evidence, for instance: the end of a process, as the agent of its host sees it; errors of ICMP; the
/// state of links; an uninterruptible power supply that runs on its battery; a switch that says by SNMP which port went down.
///
/// It reads its device outside of here, and is polled. It says what it saw once; the [`super::Verdict`] keeps it for as long as
/// it counts.
pub trait Environment {
    /// The next piece of evidence. Ask until there is none.
    fn poll_evidence(&mut self, now: Time) -> Option<Evidence>;

    /// When it wants to be asked again even if its device is silent; none if it needs not.
    fn next_timeout(&self) -> Option<Time> {
        None
    }
}

/// The simplest of them: a device that pushes, of which the driver tells each notice.
#[derive(Debug)]
pub struct Notices {
    number: u32,
    noticed: VecDeque<Evidence>,
}

impl Notices {
    /// A plug-in with a number of the driver's choice.
    pub fn new(number: u32) -> Self {
        Self { number, noticed: VecDeque::new() }
    }

    /// The device has shown this of a node.
    pub fn notice(&mut self, subject: Member, kind: Kind) {
        self.noticed.push_back(Evidence::new(subject, kind, Source::PlugIn(self.number)));
    }
}

impl Environment for Notices {
    fn poll_evidence(&mut self, _now: Time) -> Option<Evidence> {
        self.noticed.pop_front()
    }
}
