//! Per-flow quench with a lease (GigaNet, thesis §4.3), over channels as programs have them.

mod lossy;

use std::time::{Duration, Instant};

use comb_net::queues::{Queues, QueuesOptions};
use comb_net::{ChannelKey, Endpoint, InProcess, Marks};

const SOON: Duration = Duration::from_secs(10);

/// Stop at 8, go on at 4.
fn marks() -> Marks {
    Marks::new(4, 4, 8, 100).unwrap()
}

struct Scene {
    agent: InProcess,
    receiver: Endpoint,
    sources: Vec<(Endpoint, ChannelKey)>,
}

fn scene(sources: usize) -> Scene {
    let agent = InProcess::start();
    let mut receiver = agent.connect("receiver").unwrap().endpoint("desk").unwrap();
    receiver.watch_backlog(marks());
    let sources = (0..sources)
        .map(|number| {
            let mut source = agent.connect(&format!("source{number}")).unwrap().endpoint("desk").unwrap();
            let channel = source.open("receiver/desk").unwrap();
            receiver.accept(SOON).unwrap();
            (source, channel)
        })
        .collect();
    Scene { agent, receiver, sources }
}

/// Takes in everything that is there; from whom each came. Says so after each poll: a source that goes on sending is
/// stopped by what was said, not by what lies there.
fn take_in(receiver: &mut Endpoint) -> Vec<ChannelKey> {
    let mut came = Vec::new();
    loop {
        let before = came.len();
        receiver.poll(|delivery| came.push(delivery.channel)).unwrap();
        receiver.tend_backlog();
        came[before..].iter().for_each(|&channel| receiver.took_in(channel, 1).unwrap());
        if came.len() == before {
            return came;
        }
    }
}

/// Sends until refused, at most as many as its ring has slots.
fn send_all(source: &mut Endpoint, channel: ChannelKey) -> usize {
    (0..64).take_while(|_| source.send(channel, 0, b"x").is_ok()).count()
}

fn quenches(source: &Endpoint, channel: ChannelKey) -> u64 {
    source.counters(channel).unwrap().quenches
}

#[test]
fn one_flow_is_stopped_at_its_high_mark_and_goes_on_at_its_low_one() {
    let Scene { agent: _agent, mut receiver, mut sources } = scene(2);
    let [(greedy, greedy_channel), (modest, modest_channel)] = &mut sources[..] else { unreachable!() };
    let mut backlog = Vec::new();
    for _ in 0..8 {
        greedy.send(*greedy_channel, 0, b"x").unwrap();
        backlog.extend(take_in(&mut receiver));
    }
    assert_eq!(backlog.len(), 8);
    let started = Instant::now();
    let more = send_all(greedy, *greedy_channel);
    // Only if this thread was not scheduled for a whole lease may the source think that the receiver died.
    if started.elapsed() < Duration::from_millis(40) {
        assert!(more <= 1, "the one that tells it, where its ring has room for 64: {more}");
    }
    assert_eq!(quenches(greedy, *greedy_channel), 1);
    assert_eq!(send_all(modest, *modest_channel), 64, "a flow that did nothing is not touched");
    assert_eq!(quenches(modest, *modest_channel), 0);
    // Down to the low mark.
    let of_greedy = backlog[0];
    backlog.iter().take(4).for_each(|_| receiver.dealt_with(of_greedy, 1));
    assert!(send_all(greedy, *greedy_channel) >= 62, "let go on, long before its lease ended");
}

/// That a waiting source is woken at once, and not only when its lease or its sleep ends, is shown in `credit.rs`: a signal
/// is announced as room is.
#[test]
fn a_source_that_waits_goes_on_when_it_may() {
    let Scene { agent: _agent, mut receiver, mut sources } = scene(1);
    let (mut source, channel) = sources.remove(0);
    for _ in 0..8 {
        source.send(channel, 0, b"x").unwrap();
    }
    let first = take_in(&mut receiver);
    let (told, is_stopped) = std::sync::mpsc::channel();
    let waiting = std::thread::spawn(move || {
        let mut sent = 0;
        while quenches(&source, channel) == 0 {
            sent += u32::from(source.send(channel, 0, b"x").is_ok());
        }
        told.send(()).unwrap();
        while sent < 100 {
            source.send_within(channel, 0, &[b"x"], SOON).unwrap();
            sent += 1;
        }
        source
    });
    let mut dealt_with = 0;
    let mut backlog = first;
    let mut stopped = false;
    let started = Instant::now();
    while dealt_with < 108 {
        backlog.extend(take_in(&mut receiver));
        stopped |= is_stopped.try_recv().is_ok();
        if stopped && let Some(channel) = backlog.pop() {
            receiver.dealt_with(channel, 1);
            dealt_with += 1;
        }
        assert!(started.elapsed() < SOON, "{dealt_with} messages");
    }
    waiting.join().unwrap();
}

#[test]
fn a_receiver_that_no_longer_tends_its_backlog_holds_nobody_for_longer_than_a_lease() {
    let Scene { agent: _agent, mut receiver, mut sources } = scene(1);
    let (source, channel) = &mut sources[0];
    for _ in 0..8 {
        source.send(*channel, 0, b"x").unwrap();
    }
    take_in(&mut receiver);
    let mut sent = send_all(source, *channel);
    let started = Instant::now();
    while sent < 64 {
        sent += usize::from(source.send_within(*channel, 0, &[b"x"], SOON).is_ok());
        assert!(started.elapsed() < SOON, "{sent} messages");
    }
    assert!(source.send(*channel, 0, b"x").is_err(), "then its ring is full");
}

#[test]
fn a_flow_that_ended_leaves_no_backlog_to_the_next_in_its_place() {
    let Scene { agent, mut receiver, mut sources } = scene(1);
    let (mut source, channel) = sources.remove(0);
    for _ in 0..8 {
        source.send(channel, 0, b"x").unwrap();
    }
    let old = take_in(&mut receiver)[0];
    drop(source);
    let started = Instant::now();
    while receiver.poll(|_| ()).is_ok() {
        assert!(started.elapsed() < SOON);
    }
    let mut next = agent.connect("next").unwrap().endpoint("desk").unwrap();
    let channel = next.open("receiver/desk").unwrap();
    receiver.accept(SOON).unwrap();
    for _ in 0..7 {
        next.send(channel, 0, b"x").unwrap();
        take_in(&mut receiver);
    }
    receiver.dealt_with(old, 8);
    assert_eq!(send_all(&mut next, channel), 64, "seven are below the mark");
}

/// To another host a signal is a message of the channel, and can be lost like any other.
#[test]
fn a_flow_to_another_host_is_stopped_by_messages_that_may_be_lost() {
    let agent = InProcess::start();
    let mut receiver = agent.connect("receiver").unwrap().endpoint("desk").unwrap();
    let mut source = agent.connect("source").unwrap().endpoint("desk").unwrap();
    let mut heard = 0;
    for seed in 0..20 {
        let (here, there) = lossy::pair(seed);
        receiver.watch_backlog(marks());
        receiver.attach("source/desk", Box::new(here)).unwrap();
        let channel = source.attach("receiver/desk", Box::new(there)).unwrap();
        let mut taken = Vec::new();
        // Without acknowledgements nothing but the signal stops it.
        let mut stopped = false;
        for _ in 0..1000 {
            stopped |= source.send(channel, 0, b"x").is_err();
            taken.extend(take_in_up_to(&mut receiver, 100 - taken.len()));
            source.poll(|_| panic!("a signal is nothing for the program")).unwrap();
        }
        assert!(stopped, "seed {seed}: renewals make up for what is lost");
        heard += quenches(&source, channel);
        let key = taken[0];
        taken.iter().for_each(|_| receiver.dealt_with(key, 1));
        let started = Instant::now();
        while source.send(channel, 0, b"x").is_err() {
            source.poll(|_| panic!("a signal is nothing for the program")).unwrap();
            assert!(started.elapsed() < SOON, "seed {seed}: goes on when the lease ends at the latest");
        }
        source.close(channel);
        receiver.close(key);
    }
    assert!(heard >= 20);
}

/// As [`take_in`], but what is beyond the capacity is thrown away.
fn take_in_up_to(receiver: &mut Endpoint, most: usize) -> Vec<ChannelKey> {
    let mut came = Vec::new();
    receiver.poll(|delivery| came.push(delivery.channel)).unwrap();
    receiver.tend_backlog();
    came.truncate(most);
    came.retain(|&channel| receiver.took_in(channel, 1).is_ok());
    came
}

/// What already waits in the rings when the queue has room is beyond any quench: here the turns alone make it even.
#[test]
fn one_service_takes_as_much_from_each_channel() {
    let agent = InProcess::start();
    let endpoint = agent.connect("receiver").unwrap().endpoint("desk").unwrap();
    let mut queues = Queues::new(endpoint, QueuesOptions::default());
    let sources: Vec<_> = (0..8)
        .map(|number| {
            let mut source = agent.connect(&format!("source{number}")).unwrap().endpoint("desk").unwrap();
            let channel = source.open("receiver/desk").unwrap();
            queues.accept(SOON).unwrap();
            assert_eq!(send_all(&mut source, channel), 64);
            source
        })
        .collect();
    assert_eq!(queues.service(), Ok(64), "as many as the queue takes");
    let mut shares = std::collections::HashMap::new();
    while let Some(received) = queues.pop() {
        *shares.entry(received.channel).or_insert(0) += 1;
    }
    assert!(shares.len() == sources.len() && shares.values().all(|share| *share == 8), "{shares:?}");
}

/// All of a small receive queue went to the channel in the first place, for as long as that had something to say.
#[test]
fn greedy_channels_share_a_receive_queue_evenly() {
    let agent = InProcess::start();
    let options = QueuesOptions { receive: 8, ..QueuesOptions::default() };
    let endpoint = agent.connect("receiver").unwrap().endpoint("desk").unwrap();
    let mut queues = Queues::new(endpoint, options);
    let mut sources: Vec<_> = (0..8)
        .map(|number| {
            let mut source = agent.connect(&format!("source{number}")).unwrap().endpoint("desk").unwrap();
            let channel = source.open("receiver/desk").unwrap();
            queues.accept(SOON).unwrap();
            (source, channel)
        })
        .collect();
    let mut shares = std::collections::HashMap::new();
    for _ in 0..4000 {
        for (source, channel) in &mut sources {
            while source.send(*channel, 0, b"x").is_ok() {}
        }
        queues.service().unwrap();
        // One place at a time becomes free.
        let received = queues.pop().expect("eight wait");
        *shares.entry(received.channel).or_insert(0) += 1;
    }
    let (least, most) = (shares.values().min().unwrap(), shares.values().max().unwrap());
    assert_eq!(shares.len(), 8, "{shares:?}");
    assert!(least * 10 >= most * 8, "{shares:?}");
}
