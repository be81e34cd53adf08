//! Fair shares: of all flows that have something to deliver, whose turn is it?
//!
//! Quenching keeps queues short, but says nothing about which queue is served. A receiver that takes
//! "whatever is there" serves the greediest; the cLAN switch schedules its VCIs so that competing streams get
//! equal parts (thesis §4.3, measured in §4.6.2 to §4.6.4).
//!
//! This is round robin by bytes in the *surplus* form: a flow whose account is positive is served, pays
//! afterwards what the message turned out to cost, and goes to the end of the line when its account is used
//! up. The deficit form must know a message's length before it is taken; ours is an allegation in a peer's
//! ring until it has been copied and checked, so we pay afterwards.
//!
//! Two flows that always have something to deliver never differ by more than three quanta, whatever the sizes
//! of their messages. Every operation takes constant time, and a flow without messages is not in line at all.

use crate::Flow;
use crate::line::Line;
use alloc::vec::Vec;

/// Says whose turn it is. It holds no messages; see [`quench`](crate::quench) for their queues.
///
/// ```
/// use comb_congestion::{Flow, share::Share};
///
/// let (long, short) = (Flow(0), Flow(1));
/// let mut share = Share::new(1000);
/// share.open(long);
/// share.open(short);
/// share.ready(long);
/// share.ready(short);
/// let mut served_bytes = [0, 0];
/// for _ in 0..1000 {
///     let flow = share.next().unwrap();
///     let bytes = if flow == long { 1000 } else { 50 };
///     served_bytes[flow.0 as usize] += bytes;
///     share.served(flow, bytes, true); // `true`: there is more in this flow
/// }
/// assert!(served_bytes[0].abs_diff(served_bytes[1]) <= 3000);
/// ```
#[derive(Debug)]
pub struct Share {
    quantum_bytes: u32,
    line: Line,
    accounts: Vec<Account>,
}

/// What a flow may still take in this turn. Above the negative of a quantum, because a flow is served only
/// while this is positive and no message costs more than a quantum; so one quantum on top makes it positive
/// again, and each flow in line is served in each round.
#[derive(Clone, Debug, Default)]
struct Account {
    open: bool,
    bytes: i64,
}

impl Share {
    /// `quantum_bytes`: what a flow gets in one turn. At least the cost of the largest message; a larger one
    /// makes turns longer, which is kinder to caches and less kind to the latency of others.
    ///
    /// # Panics
    /// When it is zero.
    pub fn new(quantum_bytes: u32) -> Share {
        assert!(quantum_bytes > 0, "a turn in which nothing may be taken is none");
        Share { quantum_bytes, line: Line::default(), accounts: Vec::new() }
    }

    /// Admits a flow. It is not in line until [`ready`](Share::ready).
    ///
    /// # Panics
    /// When it is open already.
    pub fn open(&mut self, flow: Flow) {
        if self.accounts.len() <= flow.index() {
            self.accounts.resize(flow.index() + 1, Account::default());
        }
        self.line.admit(flow);
        let account = &mut self.accounts[flow.index()];
        assert!(!account.open, "{flow:?} is open already");
        *account = Account { open: true, bytes: 0 };
    }

    /// Forgets a flow, wherever it stands.
    ///
    /// # Panics
    /// When it is not open.
    pub fn close(&mut self, flow: Flow) {
        self.account(flow).open = false;
        self.line.leave(flow);
    }

    /// Call when `flow` has something to deliver. Repetition does no harm and moves nothing.
    ///
    /// # Panics
    /// When the flow is not open.
    pub fn ready(&mut self, flow: Flow) {
        let quantum = i64::from(self.quantum_bytes);
        if self.line.contains(flow) {
            return;
        }
        // What was left of an earlier turn is gone, or a flow could save up and then crowd out the others.
        // Debts stay, or a flow could evade them by pausing after every large message.
        let account = self.account(flow);
        account.bytes = account.bytes.min(0) + quantum;
        self.line.join(flow);
    }

    /// Whose turn it is; the same flow until [`served`](Share::served) says that it used its turn up. `None`
    /// when no flow is ready.
    pub fn next(&self) -> Option<Flow> {
        self.line.first()
    }

    /// Call after a message of `flow` has been taken, or after a look that found none: then with zero bytes
    /// and `more` false. `bytes` is its cost, with everything that took time or space; `more` says whether
    /// another one is waiting.
    ///
    /// # Panics
    /// When `bytes` exceeds the quantum, which must be checked when the message's length is, or when the flow
    /// is not open.
    pub fn served(&mut self, flow: Flow, bytes: u32, more: bool) {
        let quantum_bytes = self.quantum_bytes;
        assert!(bytes <= quantum_bytes, "{flow:?}: a message of {bytes} bytes in turns of {quantum_bytes}");
        let account = self.account(flow);
        account.bytes -= i64::from(bytes);
        if !more {
            self.line.leave(flow);
        } else if account.bytes <= 0 {
            account.bytes += i64::from(quantum_bytes);
            self.line.leave(flow);
            self.line.join(flow);
        }
    }

    fn account(&mut self, flow: Flow) -> &mut Account {
        let account = &mut self.accounts[flow.index()];
        assert!(account.open, "{flow:?} is not open");
        account
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn share(flows: u32, quantum_bytes: u32) -> Share {
        let mut share = Share::new(quantum_bytes);
        (0..flows).for_each(|number| share.open(Flow(number)));
        share
    }

    #[test]
    fn turns_go_round() {
        let mut share = share(3, 100);
        assert_eq!(share.next(), None);
        (0..3).for_each(|number| share.ready(Flow(number)));
        let turns: Vec<u32> = (0..6)
            .map(|_| {
                let flow = share.next().unwrap();
                share.served(flow, 100, true);
                flow.0
            })
            .collect();
        assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn an_idle_flow_is_never_asked() {
        let mut share = share(1000, 100);
        share.ready(Flow(7));
        for _ in 0..50 {
            assert_eq!(share.next(), Some(Flow(7)));
            share.served(Flow(7), 60, true);
        }
        share.served(Flow(7), 60, false);
        assert_eq!(share.next(), None);
    }

    #[test]
    fn a_flow_that_comes_and_goes_saves_nothing_up() {
        let mut share = share(2, 100);
        for _ in 0..1000 {
            share.ready(Flow(0));
            share.served(Flow(0), 0, false);
        }
        share.ready(Flow(0));
        share.ready(Flow(1));
        let mut first_turn_bytes = 0;
        while share.next() == Some(Flow(0)) {
            share.served(Flow(0), 10, true);
            first_turn_bytes += 10;
        }
        assert_eq!(first_turn_bytes, 100);
    }

    /// Without debts that outlive a pause, a flow that sends one byte less than a turn, then a whole turn,
    /// and then pauses for a moment gets twice what a steady one gets.
    #[test]
    fn pausing_does_not_pay() {
        let mut share = share(2, 100);
        let mut served_bytes = [0u32; 2];
        share.ready(Flow(1));
        for _ in 0..1000 {
            share.ready(Flow(0));
            for bytes in [99, 100] {
                while share.next() == Some(Flow(1)) {
                    share.served(Flow(1), 50, true);
                    served_bytes[1] += 50;
                }
                share.served(Flow(0), bytes, bytes == 99);
                served_bytes[0] += bytes;
            }
        }
        let [sly, steady] = served_bytes;
        assert!(sly <= steady + 300, "sly {sly}, steady {steady}");
    }

    #[test]
    fn closing_and_opening_again() {
        let mut share = share(2, 100);
        share.ready(Flow(0));
        share.ready(Flow(1));
        share.served(Flow(0), 99, true);
        share.served(Flow(0), 100, false);
        share.close(Flow(0));
        assert_eq!(share.next(), Some(Flow(1)));
        share.open(Flow(0));
        assert_eq!(share.next(), Some(Flow(1)));
        share.served(Flow(1), 1, false);
        assert_eq!(share.next(), None, "an open flow is not a ready one");
        share.ready(Flow(0));
        share.ready(Flow(1));
        share.served(Flow(0), 99, true);
        assert_eq!(share.next(), Some(Flow(0)), "a new flow does not pay for the old one");
    }

    /// A driver says "ready" for every message that arrives; only the first one counts.
    #[test]
    fn being_ready_twice_gives_no_more() {
        let mut share = share(2, 100);
        let mut served_bytes = [0; 2];
        share.ready(Flow(1));
        for _ in 0..1000 {
            share.ready(Flow(0));
            let flow = share.next().unwrap();
            share.served(flow, 50, true);
            served_bytes[flow.index()] += 50;
        }
        assert_eq!(served_bytes, [25_000, 25_000]);
    }

    #[test]
    #[should_panic(expected = "a message of 101 bytes in turns of 100")]
    fn a_message_beyond_the_quantum_is_our_own_defect() {
        let mut share = share(1, 100);
        share.ready(Flow(0));
        share.served(Flow(0), 101, true);
    }

    proptest! {
        /// The promise of this module, with messages of any size: three quanta at any time, and a ratio of
        /// the smallest to the largest share of at least 0.8 after some rounds.
        #[test]
        fn greedy_flows_get_equal_shares(
            flows in 2u32..12,
            sizes in prop::collection::vec(1u32..=1000, 1..300),
        ) {
            let quantum = 1000;
            let mut share = share(flows, quantum);
            (0..flows).for_each(|number| share.ready(Flow(number)));
            let mut served = vec![0u64; flows as usize];
            // Each flow goes through the sizes from a place of its own, so that some are small for long.
            let mut position: Vec<usize> = (0..flows as usize).map(|flow| flow * 7).collect();
            while served.iter().max() < Some(&u64::from(20 * quantum)) {
                let flow = share.next().unwrap();
                let bytes = sizes[position[flow.index()] % sizes.len()];
                position[flow.index()] += 1;
                served[flow.index()] += u64::from(bytes);
                share.served(flow, bytes, true);
                let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
                prop_assert!(most - least <= u64::from(3 * quantum), "{served:?}");
            }
            let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
            prop_assert!(*least * 10 >= *most * 8, "{served:?}");
        }

        /// Flows come and go; one that is ready gets its turn before any other had three.
        #[test]
        fn nobody_waits_for_long(
            steps in prop::collection::vec((0u32..5, 1u32..=100, any::<bool>()), 1..400),
        ) {
            let mut share = share(6, 100);
            share.ready(Flow(5));
            let mut waited_bytes = 0;
            for (number, bytes, more) in steps {
                share.ready(Flow(number));
                let flow = share.next().unwrap();
                let more = more || flow == Flow(5);
                share.served(flow, bytes, more);
                waited_bytes = if flow == Flow(5) { 0 } else { waited_bytes + bytes };
                prop_assert!(waited_bytes <= 5 * 200, "flow 5 waited for {waited_bytes} bytes");
            }
        }
    }
}
