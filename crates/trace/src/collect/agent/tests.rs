use super::*;
use crate::trace_file::{Frame, Head, Moment, framed};

const SECOND: Duration = Duration::from_secs(1);

fn agent(buffer_bytes: usize) -> Agent {
    let limits = AgentLimits { buffer_bytes, ..AgentLimits::default() };
    Agent::new("one", limits, Dice::new(1))
}

fn says(agent: &mut Agent, now: Duration, message: &Message) {
    agent.received(now, &message.bytes());
}

/// One that has begun a recording, which the collector has opened.
fn recording(buffer_bytes: usize) -> Agent {
    let mut agent = agent(buffer_bytes);
    assert!(agent.poll_connect(Duration::ZERO));
    agent.connected(Duration::ZERO);
    agent.received(Duration::ZERO, MAGIC);
    says(&mut agent, Duration::ZERO, &Message::Welcome { version: VERSION, most_frame_bytes: 1 << 20 });
    assert_eq!(events(&mut agent), [Event::Connected, Event::Record]);
    agent.begin(Duration::ZERO, 7, 0);
    assert_eq!(agent.put(7, &framed(&Frame::Head(Box::<Head>::default()))), Put::Taken);
    says(&mut agent, Duration::ZERO, &Message::Opened { frames: 0 });
    while agent.poll_transmit(Duration::ZERO).is_some() {}
    agent
}

fn events(agent: &mut Agent) -> Vec<Event> {
    std::iter::from_fn(|| agent.poll_event()).collect()
}

fn moment() -> Vec<u8> {
    framed(&Frame::Moment(Moment::default()))
}

#[test]
fn it_connects_again_at_growing_times_and_not_all_at_once() {
    let mut agent = agent(1000);
    let mut now = Duration::ZERO;
    let mut waits = Vec::new();
    for _ in 0..15 {
        assert!(agent.poll_connect(now));
        assert!(!agent.poll_connect(now), "one at a time");
        agent.disconnected(now);
        waits.push(agent.next_timeout() - now);
        now = agent.next_timeout();
    }
    assert!(waits[0] >= SHORTEST_RETRY / 2 && waits[0] < SHORTEST_RETRY, "{waits:?}");
    assert!(waits[..8].is_sorted(), "{waits:?}");
    assert!(waits[10..].iter().all(|&wait| (LONGEST_RETRY / 2..LONGEST_RETRY).contains(&wait)), "{waits:?}");
    assert!(waits[10..].windows(2).any(|pair| pair[0] != pair[1]));
}

#[test]
fn a_collector_that_says_nothing_is_taken_for_dead_and_one_that_is_alive_is_not() {
    let mut agent = recording(1000);
    for second in 1..30 {
        agent.tick(SECOND * second);
        assert_eq!(agent.poll_transmit(SECOND * second), Some(Message::Alive.bytes()), "it says so, too");
        says(&mut agent, SECOND * second, &Message::Alive);
    }
    let last = SECOND * 29;
    agent.tick(last + SILENCE_LIMIT - SECOND);
    assert!(agent.is_linked());
    agent.tick(last + SILENCE_LIMIT);
    assert!(!agent.is_linked());
    assert_eq!(events(&mut agent), [Event::Disconnected(Some(PeerFault::Silent))]);
}

#[test]
fn it_is_suspended_before_the_buffer_is_full_and_still_ends_in_order() {
    let mut agent = recording(1000);
    let mut taken = 0;
    while agent.put(7, &moment()) == Put::Taken {
        taken += moment().len();
        assert!(taken < 1000);
    }
    assert!(taken > 800, "what the source has seen already finds room: {taken}");
    assert_eq!(events(&mut agent), [Event::Suspend(SuspensionCause::Slow)]);
    assert_eq!(agent.put(7, &framed(&Frame::End(Moment::default()))), Put::Taken);
    // It is delivered, and the next recording begins.
    while agent.poll_transmit(SECOND).is_some() {}
    let frames = 2 + (taken / moment().len()) as u64;
    says(&mut agent, SECOND, &Message::Acknowledged { frames });
    assert_eq!(events(&mut agent), [Event::Delivered { recording: 7 }, Event::Record]);
    assert_eq!(agent.put(7, &moment()), Put::Refused, "of the old one nothing more");
}

#[test]
fn it_goes_on_while_the_collector_is_away_for_as_long_as_it_has_patience() {
    let mut agent = recording(1000);
    agent.disconnected(SECOND);
    let patience = AgentLimits::default().patience;
    agent.tick(SECOND + patience - Duration::from_millis(1));
    assert_eq!(agent.put(7, &moment()), Put::Taken);
    assert_eq!(events(&mut agent), [Event::Disconnected(None)]);
    agent.tick(SECOND + patience);
    agent.tick(SECOND + patience * 2);
    assert_eq!(events(&mut agent), [Event::Suspend(SuspensionCause::Unreachable)], "once");
}

#[test]
fn a_collector_without_room_suspends_at_once_and_is_asked_ever_more_seldom() {
    let mut agent = recording(1000);
    let mut waits = Vec::new();
    let mut now = SECOND;
    for _ in 0..8 {
        says(&mut agent, now, &Message::Refused(Refusal::Full));
        waits.push(agent.next_timeout() - now);
        now = agent.next_timeout();
        assert!(agent.poll_connect(now));
        agent.connected(now);
        agent.received(now, MAGIC);
        says(&mut agent, now, &Message::Welcome { version: VERSION, most_frame_bytes: 1 << 20 });
        says(&mut agent, now, &Message::Opened { frames: 0 });
    }
    assert!(waits[7] > waits[0] * 32, "{waits:?}");
    let suspensions: Vec<_> =
        events(&mut agent).into_iter().filter(|event| matches!(event, Event::Suspend(_))).collect();
    assert_eq!(suspensions, [Event::Suspend(SuspensionCause::Full)]);
}

#[test]
fn what_a_collector_lost_is_given_up_and_counted() {
    let mut agent = recording(100_000);
    let mut encoder = crate::codec::Encoder::default();
    for _ in 0..3 {
        encoder.add(&crate::event::Event { operation: 3, ..Default::default() }, &[]);
    }
    agent.put(7, &framed(&Frame::Events(encoder.take().unwrap())));
    says(&mut agent, SECOND, &Message::Refused(Refusal::Lost));
    assert_eq!(
        events(&mut agent),
        [Event::Refused(Refusal::Lost), Event::Abandon { undelivered: 3 }, Event::Disconnected(None)]
    );
    assert_eq!(agent.put(7, &moment()), Put::Refused);
}

#[test]
fn whatever_a_collector_says_nothing_breaks() {
    let frames = |dice: &mut Dice| [0, 1, 2, 3, 7, u64::MAX][dice.index(6)];
    for seed in 0..3000 {
        let mut dice = Dice::new(seed);
        let mut agent = agent(1000);
        let (mut now, mut number) = (Duration::ZERO, 0);
        for _ in 0..60 {
            now += Duration::from_millis(u64::from(dice.below(3000)));
            if agent.poll_connect(now) {
                agent.connected(now);
                agent.received(now, MAGIC);
            }
            agent.tick(now);
            while let Some(event) = agent.poll_event() {
                if event == Event::Record {
                    number += 1;
                    agent.begin(now, number, 0);
                    agent.put(number, &framed(&Frame::Head(Box::<Head>::default())));
                }
            }
            agent.put(number, &moment());
            for _ in 0..dice.below(3) {
                agent.poll_transmit(now);
            }
            let mut bytes = match dice.below(8) {
                0..3 => Message::Welcome { version: VERSION, most_frame_bytes: u64::MAX },
                3 | 4 => Message::Opened { frames: frames(&mut dice) },
                5 | 6 => Message::Acknowledged { frames: frames(&mut dice) },
                _ => Message::Refused([Refusal::Full, Refusal::Lost, Refusal::Busy][dice.index(3)]),
            }
            .bytes();
            if dice.below(10) == 0 {
                let at = dice.index(bytes.len());
                bytes[at] ^= 1 << dice.below(8);
            }
            agent.received(now, &bytes);
            assert!(agent.buffer.as_ref().is_none_or(|buffer| buffer.bytes() <= 1000));
        }
    }
}
