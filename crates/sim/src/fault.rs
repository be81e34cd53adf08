//! What goes wrong, and weather: many things that go wrong by chance.

use std::time::Duration;

use comb_types::{Dice, NodeId, Time};

use crate::disk::DiskConditions;
use crate::network::Link;

/// Something that happens to the world.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A node that is down starts, with the address that it had.
    Start(NodeId),
    /// A node stops in the middle of everything. What its disk had not synchronised may be lost.
    Crash(NodeId),
    /// A node stands still for a time, and does not know it: what comes meanwhile waits.
    Pause {
        /// Who.
        node: NodeId,
        /// How long.
        lasting: Duration,
    },
    /// A node runs and stands still by turns, until [`Fault::Steady`].
    Stutter {
        /// Who.
        node: NodeId,
        /// How long it runs.
        runs: Duration,
        /// How long it stands.
        stands: Duration,
    },
    /// A node needs so long for each input, until [`Fault::Steady`].
    Slow {
        /// Who.
        node: NodeId,
        /// How long.
        each_input: Duration,
    },
    /// Ends [`Fault::Pause`], [`Fault::Stutter`] and [`Fault::Slow`].
    Steady(NodeId),
    /// Only nodes of one side hear each other. Who is on no side is on one with all others that are on none.
    Partition(Vec<Vec<NodeId>>),
    /// Nothing goes from one node to another. The other way is as it was.
    Cut {
        /// Who is not heard.
        from: NodeId,
        /// Who does not hear.
        to: NodeId,
    },
    /// One direction works and does not, by turns.
    Flap {
        /// Who sends.
        from: NodeId,
        /// Who receives.
        to: NodeId,
        /// How long it works.
        up: Duration,
        /// How long it does not.
        down: Duration,
    },
    /// What goes to or from a node waits on the way. It is not lost: when the node is unclogged, it comes.
    Clog(NodeId),
    /// Ends that.
    Unclog(NodeId),
    /// Ends partitions, cuts, flaps and clogs.
    Heal,
    /// Every link that has no own is so from now on.
    Links(Link),
    /// A node's clock runs too fast, or too slow, by so many parts in a million.
    Drift {
        /// Whose.
        node: NodeId,
        /// By how much.
        ppm: i32,
    },
    /// A node's clock jumps.
    ClockJump {
        /// Whose.
        node: NodeId,
        /// Or back.
        forwards: bool,
        /// How far.
        by: Duration,
    },
    /// A node's disk is so from now on.
    Disk {
        /// Whose.
        node: NodeId,
        /// How.
        conditions: DiskConditions,
    },
}

/// Rolls faults for a while, after which everything works again. What it rolls depends on the dice alone.
#[derive(Clone, Debug)]
pub struct Weather {
    /// The nodes that it touches: those with a smaller number than this.
    pub nodes: u32,
    /// When the first fault may come.
    pub from: Time,
    /// When all is well again.
    pub until: Time,
    /// How long it is from one fault to the next, in the mean.
    pub every: Duration,
    /// The longest that one fault lasts.
    pub longest: Duration,
    /// Nodes crash, and start again.
    pub crashes: bool,
    /// All nodes crash at once, and start again.
    pub mass_restarts: bool,
    /// Nodes stand still, stutter, and are slow.
    pub pauses: bool,
    /// The network falls into parts, links are cut one way, flap and clog.
    pub partitions: bool,
    /// Clocks drift and jump forwards, as one does that counts on while its machine sleeps.
    pub clocks: bool,
    /// Clocks jump back, too. A machine's clock that only counts does not; this is for those who trust none.
    pub backwards: bool,
}

impl Weather {
    /// All kinds of it.
    pub fn storm(nodes: u32, from: Time, until: Time) -> Self {
        Self {
            nodes,
            from,
            until,
            every: Duration::from_millis(500),
            longest: Duration::from_secs(5),
            crashes: true,
            mass_restarts: true,
            pauses: true,
            partitions: true,
            clocks: true,
            backwards: false,
        }
    }

    /// The faults, and what ends them.
    pub fn roll(&self, dice: &mut Dice) -> Vec<(Time, Fault)> {
        let mut faults = Vec::new();
        let mut now = self.from;
        loop {
            now = now.saturating_add(dice.between(Duration::ZERO..2 * self.every));
            if now >= self.until || self.nodes == 0 {
                break;
            }
            self.roll_one(now, dice, &mut faults);
        }
        self.clear(&mut faults);
        faults
    }

    fn roll_one(&self, now: Time, dice: &mut Dice, faults: &mut Vec<(Time, Fault)>) {
        let lasting = dice.between(Duration::ZERO..self.longest);
        let then = now.saturating_add(lasting);
        let (node, other) = (self.node(dice), self.node(dice));
        let (kind, variant) = (dice.below(10), dice.below(4));
        match kind {
            0..3 if self.crashes => {
                faults.push((now, Fault::Crash(node)));
                faults.push((then, Fault::Start(node)));
            }
            3 if self.mass_restarts && variant == 0 => {
                let everybody = || (0..self.nodes).map(NodeId);
                faults.extend(everybody().map(|node| (now, Fault::Crash(node))));
                let starts: Vec<_> =
                    everybody().map(|node| (self.soon(now, dice), Fault::Start(node))).collect();
                faults.extend(starts);
            }
            4..6 if self.pauses => {
                let (runs, stands) = (Duration::from_millis(100), Duration::from_millis(100));
                let each_input = Duration::from_micros(500 * u64::from(1 + dice.below(10)));
                let fault = match variant {
                    0 => Fault::Stutter { node, runs, stands },
                    1 => Fault::Slow { node, each_input },
                    _ => Fault::Pause { node, lasting },
                };
                faults.push((now, fault));
                faults.push((then, Fault::Steady(node)));
            }
            6..9 if self.partitions => {
                match variant {
                    0 => faults.push((now, self.split(dice))),
                    1 => faults.push((now, Fault::Cut { from: node, to: other })),
                    2 => {
                        let (up, down) =
                            (dice.between(Duration::ZERO..lasting), dice.between(Duration::ZERO..lasting));
                        faults.push((now, Fault::Flap { from: node, to: other, up, down }));
                    }
                    _ => return self.swizzle(now, then, dice, faults),
                }
                faults.push((then, Fault::Heal));
            }
            9 if self.clocks => {
                let ppm = dice.below(2000).cast_signed() - 1000;
                faults.push((
                    now,
                    match variant {
                        0 => Fault::ClockJump { node, forwards: true, by: lasting },
                        1 if self.backwards => Fault::ClockJump { node, forwards: false, by: lasting },
                        _ => Fault::Drift { node, ppm },
                    },
                ));
            }
            _ => {}
        }
    }

    /// Some nodes are clogged one after the other, and freed in another order.
    fn swizzle(&self, now: Time, then: Time, dice: &mut Dice, faults: &mut Vec<(Time, Fault)>) {
        let span = then.since(now) / 2;
        for node in (0..self.nodes).map(NodeId) {
            if dice.below(2) == 0 {
                faults.push((now.saturating_add(dice.between(Duration::ZERO..span)), Fault::Clog(node)));
                faults.push((then.saturating_add(dice.between(Duration::ZERO..span)), Fault::Unclog(node)));
            }
        }
    }

    fn split(&self, dice: &mut Dice) -> Fault {
        let (left, right) = (0..self.nodes).map(NodeId).partition(|_| dice.below(2) == 0);
        Fault::Partition(vec![left, right])
    }

    /// All that may still go on ends.
    fn clear(&self, faults: &mut Vec<(Time, Fault)>) {
        for (at, _) in faults.iter_mut() {
            *at = (*at).min(self.until);
        }
        faults.sort_by_key(|(at, _)| *at);
        faults.push((self.until, Fault::Heal));
        for node in (0..self.nodes).map(NodeId) {
            faults.push((self.until, Fault::Unclog(node)));
            faults.push((self.until, Fault::Steady(node)));
            faults.push((self.until, Fault::Start(node)));
            faults.push((self.until, Fault::Drift { node, ppm: 0 }));
        }
    }

    fn node(&self, dice: &mut Dice) -> NodeId {
        NodeId(dice.below(self.nodes))
    }

    fn soon(&self, now: Time, dice: &mut Dice) -> Time {
        now.saturating_add(dice.between(Duration::ZERO..self.longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roll(seed: u64) -> Vec<(Time, Fault)> {
        Weather::storm(5, Time::from_millis(100), Time::from_millis(60_000)).roll(&mut Dice::new(seed))
    }

    #[test]
    fn a_seed_is_a_weather() {
        assert_eq!(roll(1), roll(1));
        assert_ne!(roll(1), roll(2));
    }

    #[test]
    fn every_kind_of_fault_comes_and_nothing_comes_after_the_end() {
        let all: Vec<_> = (0..50).flat_map(roll).collect();
        let last = Time::from_millis(60_000);
        assert!(all.iter().all(|(at, _)| *at <= last));
        let has = |wanted: fn(&Fault) -> bool| all.iter().any(|(at, fault)| *at < last && wanted(fault));
        assert!(has(|fault| matches!(fault, Fault::Crash(_))));
        assert!(has(|fault| matches!(fault, Fault::Pause { .. })));
        assert!(has(|fault| matches!(fault, Fault::Stutter { .. })));
        assert!(has(|fault| matches!(fault, Fault::Slow { .. })));
        assert!(has(|fault| matches!(fault, Fault::Partition(_))));
        assert!(has(|fault| matches!(fault, Fault::Cut { .. })));
        assert!(has(|fault| matches!(fault, Fault::Flap { .. })));
        assert!(has(|fault| matches!(fault, Fault::Clog(_))));
        assert!(has(|fault| matches!(fault, Fault::Unclog(_))));
        assert!(has(|fault| matches!(fault, Fault::Drift { .. })));
        assert!(has(|fault| matches!(fault, Fault::ClockJump { .. })));
    }
}
