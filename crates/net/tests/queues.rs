//! U-Net's queues and upcalls (thesis §2.3.1, §2.3.4): back-pressure at every queue, and no message lost to it.
#![expect(clippy::cast_possible_truncation, reason = "byte patterns are cut out of counters")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use comb_net::queues::{
    Buffer, Content, PushError, Queues, QueuesOptions, SendDescriptor, SendState, Ticket,
};
use comb_net::upcall::Upcalls;
use comb_net::{ChannelKey, Endpoint, InProcess};

const SOON: Duration = Duration::from_secs(10);

struct Pair {
    agent: InProcess,
    queues: Queues,
    peer: Endpoint,
    to_peer: ChannelKey,
    to_queues: ChannelKey,
}

fn pair_with(options: QueuesOptions) -> Pair {
    let agent = InProcess::start();
    let mut queues = Queues::new(agent.connect("alice").unwrap().endpoint("desk").unwrap(), options);
    let mut peer = agent.connect("bob").unwrap().endpoint("desk").unwrap();
    let to_peer = queues.open("bob/desk").unwrap();
    let to_queues = peer.accept(SOON).unwrap();
    Pair { agent, queues, peer, to_peer, to_queues }
}

fn pair() -> Pair {
    pair_with(QueuesOptions::default())
}

fn part(offset: usize, length: usize) -> Buffer {
    Buffer { offset, length }
}

fn message(channel: ChannelKey, parts: &[Buffer]) -> SendDescriptor {
    SendDescriptor { channel, kind: 7, parts: parts.to_vec() }
}

#[test]
fn a_message_is_gathered_from_the_segment_and_its_descriptor_tells_when_it_is_gone() {
    let Pair { agent: _agent, mut queues, mut peer, to_peer, .. } = pair();
    queues.segment()[100..105].copy_from_slice(b"hello");
    queues.segment()[5000..6000].fill(b'x');
    let ticket = queues.push(message(to_peer, &[part(100, 5), part(5000, 1000), part(102, 2)])).unwrap();
    assert_eq!(queues.send_state(ticket), Some(&SendState::Queued));
    assert!(!queues.is_injected(ticket));
    assert_eq!(queues.service(), Ok(1));
    assert!(queues.is_injected(ticket));
    queues.segment().fill(0);
    let mut buffer = [0; 2000];
    let got = peer.receive_within(&mut buffer, SOON).unwrap().unwrap();
    assert_eq!((got.kind, got.bytes), (7, 1007));
    assert_eq!(buffer[..1007], [&b"hello"[..], &[b'x'; 1000], b"ll"].concat());
}

#[test]
fn a_full_ring_leaves_descriptors_queued_and_a_full_queue_refuses() {
    let Pair { agent, mut queues, mut peer, to_peer, .. } =
        pair_with(QueuesOptions { send: 100, ..QueuesOptions::default() });
    let mut other = agent.connect("carol").unwrap().endpoint("desk").unwrap();
    let to_other = queues.open("carol/desk").unwrap();
    let mut tickets: Vec<Ticket> = Vec::new();
    for number in 0..99_u8 {
        queues.segment()[usize::from(number)] = number;
        tickets.push(queues.push(message(to_peer, &[part(number.into(), 1)])).unwrap());
    }
    let aside = queues.push(message(to_other, &[part(3, 1)])).unwrap();
    assert_eq!(queues.push(message(to_peer, &[part(0, 1)])), Err(PushError::Full));
    queues.service().unwrap();
    let injected = tickets.iter().filter(|&&ticket| queues.is_injected(ticket)).count();
    assert_eq!(injected, 64, "as many as the ring has slots");
    assert_eq!(queues.state().to_send, 35);
    assert!(queues.is_injected(aside), "one full channel does not hold up another");
    assert_eq!(other.receive_within(&mut [0], SOON).unwrap().unwrap().bytes, 1);
    let mut buffer = [0; 8];
    for number in 0..99 {
        while peer.receive(&mut buffer).unwrap().is_none() {
            queues.service().unwrap();
        }
        assert_eq!(buffer[0], number, "in order");
    }
    assert_eq!(queues.state().to_send, 0);
    assert_eq!(queues.state().injected, 100);
    for _ in 0..100 {
        queues.push(message(to_other, &[part(3, 1)])).unwrap();
    }
    assert_eq!(queues.send_state(tickets[0]), None, "its place was taken");
}

#[test]
fn small_messages_stand_in_the_descriptor_and_larger_ones_in_free_buffers() {
    let Pair { agent: _agent, mut queues, mut peer, to_queues, .. } = pair();
    peer.send(to_queues, 1, b"small").unwrap();
    let large: Vec<u8> = (0..3000_u32).map(|i| i as u8).collect();
    peer.send(to_queues, 2, &large).unwrap();
    peer.send(to_queues, 3, b"behind").unwrap();
    queues.service().unwrap();
    let first = queues.pop().unwrap();
    assert!(matches!(&first.content, Content::Small(small) if **small == *b"small"));
    assert_eq!(queues.pop(), None, "no buffer: it stays, and what is behind it");
    assert_eq!((queues.state().no_buffer, queues.state().lacking_bytes), (1, 3000));
    queues.push_free(part(0, 2048)).unwrap();
    queues.service().unwrap();
    assert_eq!(queues.pop(), None, "one buffer is not enough");
    queues.push_free(part(10_000, 2048)).unwrap();
    queues.service().unwrap();
    let second = queues.pop().unwrap();
    assert_eq!((second.kind, queues.read(&second)), (2, large));
    assert_eq!(queues.state().free_bytes, 0);
    queues.release(second);
    assert_eq!((queues.state().free_buffers, queues.state().free_bytes), (2, 4096));
    assert_eq!(queues.pop().unwrap().kind, 3);
    peer.send(to_queues, 4, &[9; 100]).unwrap();
    queues.service().unwrap();
    let third = queues.pop().unwrap();
    assert_eq!(queues.read(&third), [9; 100]);
    assert_eq!(queues.state().free_buffers, 1, "one was enough");
}

#[test]
fn a_full_receive_queue_holds_the_sender_back_and_loses_nothing() {
    let options = QueuesOptions { receive: 4, almost_full: 3, ..QueuesOptions::default() };
    let Pair { agent: _agent, mut queues, mut peer, to_queues, .. } = pair_with(options);
    let mut sent = 0_u32;
    while peer.send(to_queues, 0, &sent.to_le_bytes()).is_ok() {
        sent += 1;
        queues.service().unwrap();
    }
    assert!(sent >= 3, "half of the queue, and one more that tells the sender of it");
    // A lease that runs out because this thread was not scheduled lets some more through.
    if peer.counters(to_queues).unwrap().quenches == 1 {
        assert_eq!(sent, 3, "told to stop long before its ring is full");
    }
    // Nobody services the queues: the lease runs out, and the sender goes on until its ring is full.
    let started = Instant::now();
    while peer.counters(to_queues).unwrap().outstanding < 64 {
        sent += u32::from(peer.send(to_queues, 0, &sent.to_le_bytes()).is_ok());
        assert!(started.elapsed() < SOON, "{sent} sent");
    }
    assert!(peer.send(to_queues, 0, b"x").is_err());
    queues.service().unwrap();
    queues.service().unwrap();
    assert!(queues.is_almost_full() && queues.state().no_descriptor > 0);
    for number in 0..sent {
        let received = queues.pop().unwrap_or_else(|| {
            queues.service().unwrap();
            queues.pop().unwrap()
        });
        assert_eq!(queues.read(&received), number.to_le_bytes());
    }
}

/// Messages were taken for more than the segment holds, and the endpoint asserted that this cannot be.
#[test]
fn a_buffer_that_is_given_twice_spoils_messages_and_nothing_else() {
    let Pair { agent: _agent, mut queues, mut peer, to_queues, .. } =
        pair_with(QueuesOptions { segment_bytes: 1000, ..QueuesOptions::default() });
    for _ in 0..4 {
        queues.push_free(part(0, 1000)).unwrap();
        peer.send(to_queues, 1, &[1; 1000]).unwrap();
    }
    queues.service().unwrap();
    for _ in 0..4 {
        let received = queues.pop().unwrap();
        assert_eq!(queues.read(&received), [1; 1000]);
    }
    peer.send_within(to_queues, 1, &[b"on it goes"], SOON).unwrap();
}

/// Queues kept the count of what they had read for some hundred looks at a channel that had nothing more.
#[test]
fn queues_that_find_nothing_owe_no_room() {
    let Pair { agent: _agent, mut queues, mut peer, to_queues, .. } = pair();
    queues.push_free(part(0, 4096)).unwrap();
    peer.send(to_queues, 1, &[1; 4096]).unwrap();
    assert_eq!(queues.service(), Ok(1));
    peer.send(to_queues, 1, &[2; 20_480]).unwrap();
}

/// A wait for messages looked again and again at one for which there were no buffers.
#[test]
fn a_message_that_lacks_buffers_does_not_keep_a_waiting_program_busy() {
    let Pair { agent: _agent, mut queues, mut peer, to_queues, .. } = pair();
    peer.send(to_queues, 1, &[1; 100]).unwrap();
    assert_eq!(queues.wait(Duration::from_millis(50)), Ok(false));
    let looks = queues.state().no_buffer;
    assert!((1..=52).contains(&looks), "{looks} looks, where each waits for a millisecond");
    queues.push_free(part(0, 100)).unwrap();
    assert_eq!(queues.wait(SOON), Ok(true));
}

#[test]
fn what_lies_outside_the_segment_is_refused() {
    let Pair { agent: _agent, mut queues, to_peer, .. } =
        pair_with(QueuesOptions { segment_bytes: 1000, ..QueuesOptions::default() });
    for outside in [part(1000, 1), part(0, 1001), part(usize::MAX, 2), part(999, usize::MAX)] {
        assert_eq!(queues.push(message(to_peer, &[outside])), Err(PushError::Outside(outside)));
        assert_eq!(queues.push_free(outside), Err(PushError::Outside(outside)));
    }
    queues.push_free(part(1000, 0)).unwrap();
    assert_eq!(queues.state().free_buffers, 0);
}

#[test]
fn what_can_never_be_sent_is_told_by_its_descriptor() {
    let Pair { agent: _agent, mut queues, peer, to_peer, .. } = pair();
    let long = queues.push(message(to_peer, &[part(0, 30_000)])).unwrap();
    let after = queues.push(message(to_peer, &[part(0, 3)])).unwrap();
    assert_eq!(queues.service(), Ok(1));
    assert!(matches!(queues.send_state(long), Some(SendState::Failed(_))));
    assert!(queues.is_injected(after) && !queues.is_injected(long));
    drop(peer);
    let ended = queues.wait(SOON).unwrap_err();
    assert_eq!(ended.channel, to_peer);
    let late = queues.push(message(to_peer, &[part(0, 3)])).unwrap();
    queues.service().unwrap();
    assert!(matches!(queues.send_state(late), Some(SendState::Failed(_))));
    assert_eq!(queues.state().failed, 2);
}

// ── upcalls ──

#[test]
fn one_upcall_takes_all_that_is_pending_and_almost_full_is_told_once() {
    let options = QueuesOptions { almost_full: 10, ..QueuesOptions::default() };
    let Pair { agent: _agent, queues, mut peer, to_queues, .. } = pair_with(options);
    let (told, calls) = mpsc::channel();
    let full = Arc::new(AtomicU64::new(0));
    let mut upcalls = Upcalls::new(queues);
    upcalls.on_non_empty(move |queues| {
        told.send(std::iter::from_fn(|| queues.pop()).count()).unwrap();
    });
    let count = Arc::clone(&full);
    upcalls.on_almost_full(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(upcalls.poll(), Ok(false));
    for _ in 0..9 {
        peer.send(to_queues, 0, b"x").unwrap();
    }
    assert_eq!(upcalls.poll(), Ok(true));
    assert_eq!(calls.try_iter().collect::<Vec<_>>(), [9]);
    assert_eq!(full.load(Ordering::Relaxed), 0);
    let disabled = upcalls.gate().disable();
    for _ in 0..11 {
        peer.send(to_queues, 0, b"x").unwrap();
        assert_eq!(upcalls.poll(), Ok(false), "disabled");
    }
    let nested = upcalls.gate().disable();
    drop(disabled);
    assert_eq!(upcalls.poll(), Ok(false), "disabled by another");
    drop(nested);
    assert_eq!(upcalls.poll(), Ok(true));
    assert_eq!(calls.try_iter().collect::<Vec<_>>(), [11], "what came in between is delivered at enable");
    assert_eq!(full.load(Ordering::Relaxed), 1);
    upcalls.poll().unwrap();
    for _ in 0..12 {
        peer.send(to_queues, 0, b"x").unwrap();
    }
    upcalls.critical(|upcalls| assert_eq!(upcalls.poll(), Ok(false))).unwrap();
    assert_eq!(calls.try_iter().collect::<Vec<_>>(), [12]);
    assert_eq!(full.load(Ordering::Relaxed), 2, "again, because it was not in between");
}

#[test]
fn almost_full_is_told_once_for_as_long_as_it_lasts() {
    let options = QueuesOptions { almost_full: 3, ..QueuesOptions::default() };
    let Pair { agent: _agent, queues, mut peer, to_queues, .. } = pair_with(options);
    let (told, calls) = mpsc::channel();
    let mut upcalls = Upcalls::new(queues);
    upcalls.on_almost_full(move |queues| told.send(queues.state().received).unwrap());
    for _ in 0..5 {
        peer.send(to_queues, 0, b"x").unwrap();
        upcalls.poll().unwrap();
    }
    assert_eq!(calls.try_iter().collect::<Vec<_>>(), [3]);
}

#[test]
fn an_endpoint_has_upcalls_too() {
    let Pair { agent: _agent, mut queues, peer, to_peer, .. } = pair();
    let (told, calls) = mpsc::channel();
    let mut upcalls = Upcalls::new(peer);
    let full = told.clone();
    upcalls.on_almost_full(move |_| full.send(-1).unwrap());
    upcalls.on_non_empty(move |endpoint| {
        let mut messages = 0;
        while endpoint.receive(&mut [0; 8]).unwrap().is_some() {
            messages += 1;
        }
        told.send(messages).unwrap();
    });
    for count in [47, 48] {
        for _ in 0..count {
            queues.push(message(to_peer, &[part(0, 4)])).unwrap();
        }
        queues.service().unwrap();
        upcalls.poll().unwrap();
    }
    assert_eq!(calls.try_iter().collect::<Vec<_>>(), [47, -1, 48]);
}

/// A critical section on one thread, upcalls on another: neither sees the other half done.
#[test]
fn a_critical_section_is_atomic_to_a_thread_of_upcalls() {
    const MESSAGES: u64 = 5000;
    let Pair { agent: _agent, mut queues, peer, to_peer, .. } = pair();
    let halves = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let both = Arc::clone(&halves);
    let mut upcalls = Upcalls::new(peer);
    upcalls.on_non_empty(move |endpoint| {
        while endpoint.receive(&mut [0; 8]).unwrap().is_some() {
            both[0].fetch_add(1, Ordering::Relaxed);
            std::thread::yield_now();
            both[1].fetch_add(1, Ordering::Relaxed);
        }
    });
    let thread = upcalls.spawn().unwrap();
    let gate = thread.gate();
    let mut sent = 0;
    let mut torn = 0;
    while halves[1].load(Ordering::Relaxed) < MESSAGES {
        if sent < MESSAGES && queues.push(message(to_peer, &[part(0, 4)])).is_ok() {
            sent += 1;
        }
        queues.service().unwrap();
        let _critical = gate.disable();
        let first = halves[0].load(Ordering::Relaxed);
        std::thread::yield_now();
        torn += u64::from(first != halves[1].load(Ordering::Relaxed));
    }
    assert_eq!(torn, 0);
    let mut upcalls = thread.stop();
    assert_eq!(upcalls.queue().receive(&mut [0; 8]), Ok(None));
}
