use super::SourceEvent as Event;
use super::*;
use crate::Flow;
use alloc::vec::Vec;
use comb_types::Time;
use proptest::prelude::*;

const LEASE: Duration = Duration::from_micros(900);
const FLOW: Flow = Flow(0);
const PATH_BYTES: u32 = 100;

fn at(micros: u64) -> Time {
    Time::from_micros(micros)
}

fn quencher() -> Quencher {
    let mut quencher = Quencher::new(Marks::for_path(PATH_BYTES), LEASE);
    quencher.open(FLOW);
    quencher
}

fn arrive(quencher: &mut Quencher, now: Time, bytes: u32) -> Result<(), Overrun> {
    quencher.handle(now, QuencherInput::Arrived { flow: FLOW, bytes })
}

fn serve(quencher: &mut Quencher, now: Time, bytes: u32) {
    quencher.handle(now, QuencherInput::Served { flow: FLOW, bytes }).unwrap();
}

fn orders(quencher: &mut Quencher) -> Vec<Order> {
    core::iter::from_fn(|| quencher.poll_transmit()).map(|transmit| transmit.signal.order).collect()
}

const QUENCH: Order = Order::Quench { lease: LEASE };

#[test]
fn quench_at_the_high_mark_and_unquench_at_the_low_one() {
    let mut quencher = quencher();
    arrive(&mut quencher, at(0), 199).unwrap();
    assert_eq!(orders(&mut quencher), []);
    arrive(&mut quencher, at(0), 1).unwrap();
    assert_eq!(orders(&mut quencher), [QUENCH]);
    serve(&mut quencher, at(1), 99);
    assert_eq!(orders(&mut quencher), [], "101 bytes are left, above the low mark");
    serve(&mut quencher, at(1), 1);
    assert_eq!(orders(&mut quencher), [Order::Unquench]);
    assert_eq!(quencher.next_timeout(), None);
}

#[test]
fn renewed_while_above_the_low_mark() {
    let mut quencher = quencher();
    arrive(&mut quencher, at(0), 200).unwrap();
    assert_eq!(orders(&mut quencher), [QUENCH]);
    for third in 1..5 {
        let due = quencher.next_timeout().unwrap();
        assert_eq!(due, at(300 * third));
        quencher.handle(at(300 * third - 1), QuencherInput::Timeout).unwrap();
        assert_eq!(orders(&mut quencher), [], "not before its time");
        quencher.handle(due, QuencherInput::Timeout).unwrap();
        assert_eq!(orders(&mut quencher), [QUENCH]);
    }
    serve(&mut quencher, at(1300), 100);
    assert_eq!(orders(&mut quencher), [Order::Unquench]);
}

#[test]
fn a_source_that_did_not_hear_is_told_again() {
    let mut quencher = quencher();
    arrive(&mut quencher, at(0), 200).unwrap();
    assert_eq!(orders(&mut quencher), [QUENCH]);
    // What was on the way is no reason to repeat.
    arrive(&mut quencher, at(1), 100).unwrap();
    assert_eq!(orders(&mut quencher), []);
    arrive(&mut quencher, at(2), 1).unwrap();
    assert_eq!(orders(&mut quencher), [QUENCH]);
}

#[test]
fn beyond_the_capacity_is_an_overrun_that_changes_nothing() {
    let mut quencher = quencher();
    arrive(&mut quencher, at(0), 390).unwrap();
    let overrun = Overrun { flow: FLOW, queued_bytes: 390, bytes: 11, capacity_bytes: 400 };
    assert_eq!(arrive(&mut quencher, at(0), 11), Err(overrun));
    assert_eq!(arrive(&mut quencher, at(0), u32::MAX), Err(Overrun { bytes: u32::MAX, ..overrun }));
    assert_eq!(quencher.queued_bytes(FLOW), 390);
    arrive(&mut quencher, at(0), 10).unwrap();
}

/// A message that can never fit must not quench a flow whose queue is empty: nothing would be served, so
/// nothing would ever let the flow go on.
#[test]
fn an_impossible_message_does_not_stop_the_flow() {
    let mut quencher = quencher();
    assert!(arrive(&mut quencher, at(0), 401).is_err());
    assert!(!quencher.is_quenched(FLOW));
    assert_eq!(orders(&mut quencher), []);
}

#[test]
fn changes_between_polls_cancel_out() {
    let mut quencher = quencher();
    arrive(&mut quencher, at(0), 200).unwrap();
    serve(&mut quencher, at(0), 200);
    assert_eq!(orders(&mut quencher), [], "nobody was told to stop");

    let mut source = Source::new(LEASE);
    source.handle(at(0), SourceInput::Signal(Signal { number: 1, order: QUENCH })).unwrap();
    source.handle(at(0), SourceInput::Signal(Signal { number: 2, order: Order::Unquench })).unwrap();
    assert_eq!(source.poll_event(), None);
}

#[test]
fn closing_a_quenched_flow_leaves_nothing_behind() {
    let mut quencher = quencher();
    arrive(&mut quencher, at(0), 200).unwrap();
    let before = quencher.poll_transmit().unwrap().signal.number;
    arrive(&mut quencher, at(0), 101).unwrap();
    quencher.close(FLOW);
    assert_eq!(orders(&mut quencher), []);
    assert_eq!(quencher.next_timeout(), None);
    quencher.open(FLOW);
    assert_eq!((quencher.queued_bytes(FLOW), quencher.is_quenched(FLOW)), (0, false));
    arrive(&mut quencher, at(0), 200).unwrap();
    assert_eq!(quencher.poll_transmit().unwrap().signal.number, before + 1, "an old signal stays old");
}

#[test]
fn other_marks_let_everybody_go_and_old_signals_stay_old() {
    let mut quencher = quencher();
    arrive(&mut quencher, at(0), 200).unwrap();
    let before = quencher.poll_transmit().unwrap().signal.number;
    quencher.begin_anew(Marks::for_path(10));
    let signal = quencher.poll_transmit().unwrap().signal;
    assert_eq!(signal, Signal { number: before + 1, order: Order::Unquench });
    assert_eq!((quencher.poll_transmit(), quencher.next_timeout()), (None, None));
    arrive(&mut quencher, at(1), 20).unwrap();
    assert_eq!(quencher.poll_transmit().unwrap().signal, Signal { number: before + 2, order: QUENCH });
}

#[test]
#[should_panic(expected = "Flow(0): 1 bytes served of 0")]
fn serving_what_never_came_is_our_own_defect() {
    serve(&mut quencher(), at(0), 1);
}

#[test]
#[should_panic(expected = "is not open")]
fn a_closed_flow_is_our_own_defect() {
    let mut quencher = quencher();
    quencher.close(FLOW);
    let _ = arrive(&mut quencher, at(0), 1);
}

#[test]
fn a_dead_quencher_frees_its_source() {
    let mut source = Source::new(LEASE);
    assert!(source.may_send(at(0)));
    source.handle(at(10), SourceInput::Signal(Signal { number: 1, order: QUENCH })).unwrap();
    assert_eq!(source.poll_event(), Some(Event::Stopped));
    assert!(!source.may_send(at(909)));
    assert_eq!(source.next_timeout(), Some(at(910)));
    assert!(source.may_send(at(910)), "even if the driver is late with the timeout");
    source.handle(at(910), SourceInput::Timeout).unwrap();
    assert_eq!(source.poll_event(), Some(Event::Resumed));
    assert_eq!((source.next_timeout(), source.leases_run_out()), (None, 1));
}

#[test]
fn an_unquench_lets_go_at_once() {
    let mut source = Source::new(LEASE);
    source.handle(at(0), SourceInput::Signal(Signal { number: 1, order: QUENCH })).unwrap();
    assert_eq!(source.poll_event(), Some(Event::Stopped));
    source.handle(at(5), SourceInput::Signal(Signal { number: 2, order: Order::Unquench })).unwrap();
    assert_eq!(source.poll_event(), Some(Event::Resumed));
    assert!(source.may_send(at(5)));
    assert_eq!((source.next_timeout(), source.leases_run_out()), (None, 0));
}

#[test]
fn overtaken_and_repeated_signals_are_ignored() {
    let mut source = Source::new(LEASE);
    let mut signal = |now, number, order| {
        source.handle(at(now), SourceInput::Signal(Signal { number, order })).unwrap();
        source.next_timeout()
    };
    // Numbers wrap, so start just before.
    assert_eq!(signal(0, u32::MAX, QUENCH), Some(at(900)));
    assert_eq!(signal(50, u32::MAX, QUENCH), Some(at(900)), "a copy does not lengthen the lease");
    assert_eq!(signal(100, 1, Order::Unquench), None);
    assert_eq!(signal(110, 0, QUENCH), None, "a delayed quench does not stop a flow that was let go since");
    assert_eq!(signal(120, 2, QUENCH), Some(at(1020)));
}

#[test]
fn too_long_a_lease_is_refused_without_a_trace() {
    let mut source = Source::new(LEASE);
    let lease = LEASE + Duration::from_nanos(1);
    let signal = Signal { number: 1, order: Order::Quench { lease } };
    assert_eq!(
        source.handle(at(0), SourceInput::Signal(signal)),
        Err(PeerError::LeaseTooLong { lease, limit: LEASE })
    );
    assert!(source.may_send(at(0)));
    let allowed = Signal { number: 1, order: QUENCH };
    source.handle(at(0), SourceInput::Signal(allowed)).unwrap();
    assert!(!source.may_send(at(0)), "the refused signal must not have used up its number");
}

/// One source and one receiver, a network that loses signals by a given pattern, delays of one step; each
/// step is 10 µs long. Knows the truth that the two sides only allege.
struct World {
    quencher: Quencher,
    source: Source,
    now: Time,
    message_bytes: u32,
    in_flight_bytes: u32,
    signals_in_flight: Vec<Signal>,
    /// What the source's events said last; a program asleep until it is woken knows nothing else.
    runs: bool,
}

const STEP: Duration = Duration::from_micros(10);

impl World {
    fn new(message_bytes: u32) -> World {
        World {
            quencher: quencher(),
            source: Source::new(LEASE),
            now: Time::ZERO,
            message_bytes,
            in_flight_bytes: 0,
            signals_in_flight: Vec::new(),
            runs: true,
        }
    }

    fn timers(&mut self) {
        if self.quencher.next_timeout().is_some_and(|due| due <= self.now) {
            self.quencher.handle(self.now, QuencherInput::Timeout).unwrap();
        }
        if self.source.next_timeout().is_some_and(|due| due <= self.now) {
            self.source.handle(self.now, SourceInput::Timeout).unwrap();
        }
    }

    /// Returns whether the queue overran.
    fn step(&mut self, serve_bytes: u32, loses_signals: bool, greedy: bool) -> bool {
        self.now = self.now.saturating_add(STEP);
        self.timers();
        for signal in core::mem::take(&mut self.signals_in_flight) {
            self.source.handle(self.now, SourceInput::Signal(signal)).unwrap();
        }
        let mut overrun = false;
        let arriving = core::mem::take(&mut self.in_flight_bytes);
        if arriving > 0 {
            overrun = arrive(&mut self.quencher, self.now, arriving).is_err();
        }
        let served = serve_bytes.min(self.quencher.queued_bytes(FLOW));
        if served > 0 {
            serve(&mut self.quencher, self.now, served);
        }
        while let Some(transmit) = self.quencher.poll_transmit() {
            assert_eq!(transmit.flow, FLOW);
            if !loses_signals {
                self.signals_in_flight.push(transmit.signal);
            }
        }
        while let Some(event) = self.source.poll_event() {
            self.runs = event == Event::Resumed;
        }
        assert_eq!(self.runs, self.source.may_send(self.now), "events and state disagree");
        if self.runs && greedy {
            self.in_flight_bytes = self.message_bytes;
        }
        overrun
    }
}

proptest! {
    /// The two promises of a quench that nothing disturbs: no message is lost, and the receiver is never idle
    /// for want of a source that was told to stop (after the start, as long as the source is the faster one).
    #[test]
    fn lossless_and_never_dry(
        message_bytes in 1u32..=50,
        serve in prop::collection::vec(0u32..=50, 50..400),
    ) {
        let mut world = World::new(message_bytes);
        for serve_bytes in serve {
            prop_assert!(!world.step(serve_bytes, false, true), "overrun");
            let queued = world.quencher.queued_bytes(FLOW);
            prop_assert!(world.runs || queued > 0, "idle while its source stands still");
        }
    }

    /// No wake is ever lost. Signals are lost in any pattern, and the receiver may stop serving for as long
    /// as it likes; once it serves again, the source goes on within a lease and what it takes to drain the
    /// queue.
    #[test]
    fn every_quenched_source_resumes(
        message_bytes in 1u32..=50,
        weather in prop::collection::vec((0u32..=30, any::<bool>()), 0..300),
        unquench_is_lost in any::<bool>(),
    ) {
        let mut world = World::new(message_bytes);
        for (serve_bytes, loses_signals) in weather {
            world.step(serve_bytes, loses_signals, true);
        }
        // Fair weather, at least 50 bytes in each step: 8 steps for a full queue, 90 for a lease, 3 for
        // delays.
        for step in 0..101 {
            world.step(50, unquench_is_lost && step < 9, false);
        }
        prop_assert!(world.runs, "still stopped");
        prop_assert!(!world.quencher.is_quenched(FLOW));
        prop_assert_eq!(world.quencher.next_timeout(), None);
    }

    /// A receiver that dies at any moment holds its source for one lease at most.
    #[test]
    fn a_receiver_that_dies_frees_its_source(
        weather in prop::collection::vec(0u32..=30, 0..300),
    ) {
        let mut world = World::new(50);
        for serve_bytes in weather {
            world.step(serve_bytes, false, true);
        }
        let deadline = world.now.saturating_add(STEP).saturating_add(LEASE);
        for signal in core::mem::take(&mut world.signals_in_flight) {
            world.source.handle(world.now, SourceInput::Signal(signal)).unwrap();
        }
        prop_assert!(world.source.may_send(deadline));
        prop_assert!(world.source.next_timeout().is_none_or(|due| due <= deadline));
    }

    /// Above the high mark a source is stopped, at the low mark it is not, with any number of flows, and no
    /// signal is ever about a flow that nothing happened to.
    #[test]
    fn marks_hold_for_many_flows(
        steps in prop::collection::vec((0u32..8, 1u32..=100, any::<bool>()), 0..500),
    ) {
        let mut quencher = Quencher::new(Marks::for_path(PATH_BYTES), LEASE);
        (0..9).for_each(|number| quencher.open(Flow(number)));
        for (step, (number, bytes, arrives)) in steps.into_iter().enumerate() {
            let (now, flow) = (at(step as u64), Flow(number));
            let input = if arrives {
                QuencherInput::Arrived { flow, bytes }
            } else {
                QuencherInput::Served { flow, bytes: bytes.min(quencher.queued_bytes(flow)) }
            };
            let _ = quencher.handle(now, input);
            quencher.handle(now, QuencherInput::Timeout).unwrap();
            for number in 0..9 {
                let flow = Flow(number);
                let queued = quencher.queued_bytes(flow);
                prop_assert!(queued <= 400);
                prop_assert!(queued < 200 || quencher.is_quenched(flow));
                prop_assert!(queued > 100 || !quencher.is_quenched(flow));
            }
            prop_assert!(quencher.next_timeout().is_none_or(|due| due > now));
            while let Some(transmit) = quencher.poll_transmit() {
                prop_assert_ne!(transmit.flow, Flow(8));
                let told = transmit.signal.order != Order::Unquench;
                prop_assert_eq!(told, quencher.is_quenched(transmit.flow));
            }
        }
    }
}
