//! Typed calls: what comes back, and what a caller is told when nothing does.
#![expect(clippy::cast_possible_truncation, reason = "byte patterns are cut out of counters")]

use std::time::Duration;

use comb_net::rpc::{Rpc, RpcError};
use comb_net::transport::Transport;
use comb_net::{ChannelKey, Endpoint, Geometry, InProcess, kinds, pair_for_tests};

const SOON: Duration = Duration::from_secs(10);

#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
struct Account {
    name: String,
    balance: i64,
    history: Vec<i32>,
}

/// A client, and a server that serves on its own thread until the client is gone.
struct Pair {
    _agent: InProcess,
    client: Rpc,
    server: ChannelKey,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Pair {
    fn new(methods: impl FnOnce(&mut Rpc)) -> Self {
        let agent = InProcess::start();
        let mut served = Rpc::new(agent.connect("bank").unwrap().endpoint("calls").unwrap());
        methods(&mut served);
        let mut client = Rpc::new(agent.connect("client").unwrap().endpoint("calls").unwrap());
        let server = client.open("bank/calls").unwrap();
        let thread = std::thread::spawn(move || while served.poll_within(SOON).is_ok() {});
        Self { _agent: agent, client, server, thread: Some(thread) }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.client.close(self.server);
        let outcome = self.thread.take().unwrap().join();
        assert!(outcome.is_ok() || std::thread::panicking());
    }
}

#[test]
fn values_of_every_size_go_and_come() {
    let mut pair = Pair::new(|server| {
        server.register(0, |()| ());
        server.register(1, |(a, b): (u32, u32)| a + b);
        server.register(300, |mut account: Account| {
            account.history.push(account.name.len() as i32);
            account
        });
    });
    let Pair { client, server, .. } = &mut pair;
    for _ in 0..100 {
        client.call::<(), ()>(*server, 0, &(), SOON).unwrap();
    }
    assert_eq!(client.call::<_, u32>(*server, 1, &(2_u32, 3_u32), SOON), Ok(5));
    for length in (0..100).chain([1000, 10_000]) {
        let mut account = Account { name: "x".repeat(length), balance: -7, history: vec![1, 2] };
        let returned: Account = client.call(*server, 300, &account, SOON).unwrap();
        account.history.push(length as i32);
        assert_eq!(returned, account);
    }
}

#[test]
fn what_fails_at_the_server_is_told_to_the_caller_and_nothing_else_happens() {
    let mut pair = Pair::new(|server| {
        server.register_fallible(0, |amount: u32| {
            if amount > 10 { Err(format!("{amount} is too much")) } else { Ok(amount) }
        });
        server.register(1, |divisor: u32| 100 / divisor);
        server.register(2, |bytes: u32| vec![0_u8; bytes as usize]);
    });
    let Pair { client, server, .. } = &mut pair;
    let peer = || "bank/calls".to_owned();
    let outcome = client.call::<u32, u32>(*server, 0, &11, SOON);
    assert_eq!(outcome, Err(RpcError::Failed { peer: peer(), method: 0, reason: "11 is too much".into() }));
    let outcome = client.call::<u32, u32>(*server, 1, &0, SOON);
    let reason = "attempt to divide by zero".into();
    assert_eq!(outcome, Err(RpcError::Panicked { peer: peer(), method: 1, reason }));
    for method in [3, u16::MAX] {
        let outcome = client.call::<u32, u32>(*server, method, &0, SOON);
        assert_eq!(outcome, Err(RpcError::NoMethod { peer: peer(), method }));
    }
    let outcome = client.call::<(), u32>(*server, 0, &(), SOON);
    assert_eq!(outcome, Err(RpcError::Arguments { peer: peer(), method: 0 }));
    let outcome = client.call::<u32, Vec<u8>>(*server, 2, &100_000, SOON);
    assert_eq!(outcome, Err(RpcError::ResultTooLong { peer: peer(), method: 2 }));
    let outcome = client.call::<Vec<u8>, u32>(*server, 0, &vec![1; 30_000], SOON);
    assert!(matches!(outcome, Err(RpcError::TooLong { bytes: 30_019, limit: 20_480 })), "{outcome:?}");
    let outcome = client.call::<u32, String>(*server, 2, &3, SOON);
    let expected = std::any::type_name::<String>();
    assert_eq!(outcome, Ok("\0\0\0".to_owned()), "postcard has no types, only forms");
    let outcome = client.call::<u32, (String, String)>(*server, 2, &3, SOON);
    let error = outcome.unwrap_err();
    assert!(matches!(&error, RpcError::Result { peer, bytes: 4, .. } if peer == "bank/calls"), "{error}");
    assert!(error.to_string().contains(expected), "{error}");
    assert_eq!(client.call::<u32, u32>(*server, 0, &7, SOON), Ok(7), "after all that");
}

fn raw_server() -> (InProcess, Rpc, Endpoint, ChannelKey) {
    let agent = InProcess::start();
    let mut client = Rpc::new(agent.connect("client").unwrap().endpoint("calls").unwrap());
    let mut raw = agent.connect("bank").unwrap().endpoint("calls").unwrap();
    let server = client.open("bank/calls").unwrap();
    raw.accept(SOON).unwrap();
    (agent, client, raw, server)
}

/// A server without an endpoint, which would refuse kinds that are reserved: it answers what it likes.
fn server_by_hand() -> (InProcess, Rpc, Box<dyn Transport>, ChannelKey) {
    let agent = InProcess::start();
    let mut client = agent.connect("client").unwrap().endpoint("calls").unwrap();
    let (raw, theirs) = pair_for_tests(Geometry::default());
    let server = client.attach("bank/calls", theirs).unwrap();
    (agent, Rpc::new(client), raw, server)
}

#[test]
fn no_answer_is_waited_for_beyond_the_limit_and_a_late_one_is_dropped() {
    let (_agent, mut client, mut raw, server) = server_by_hand();
    let limit = Duration::from_millis(20);
    let late = client.call::<u32, u32>(server, 5, &1, limit);
    assert_eq!(late, Err(RpcError::Late { peer: "bank/calls".into(), method: 5, limit }));
    // The answer to call 1, while call 2 waits, then the one to call 2.
    let reply = *kinds::ACTIVE.start() + 1;
    let answer =
        |call: u64, value: u8| [&(1_u64 << 32).to_le_bytes()[..], &call.to_le_bytes(), &[value]].concat();
    raw.send(reply, &[&answer(1, 11)]).unwrap();
    raw.send(reply, &[&answer(2, 22)]).unwrap();
    assert_eq!(client.call::<u32, u32>(server, 5, &1, SOON), Ok(22));
}

/// A server that still owed an answer could send it under the number of a call to another server, and was believed.
#[test]
fn nobody_answers_for_another_server() {
    let (agent, mut client, mut mallory, slow) = server_by_hand();
    let mut honest = Rpc::new(agent.connect("honest").unwrap().endpoint("calls").unwrap());
    honest.register(5, |number: u32| number + 1);
    let server = client.open("honest/calls").unwrap();
    // Owed from now on.
    let outcome = client.call::<u32, u32>(slow, 5, &1, Duration::from_millis(1));
    assert!(matches!(outcome, Err(RpcError::Late { .. })), "{outcome:?}");
    let forged = [&(1_u64 << 32).to_le_bytes()[..], &2_u64.to_le_bytes(), &[66]].concat();
    mallory.send(*kinds::ACTIVE.start() + 1, &[&forged]).unwrap();
    let stop = std::thread::spawn(move || while honest.poll_within(SOON).is_ok() {});
    assert_eq!(client.call::<u32, u32>(server, 5, &1, SOON), Ok(2));
    client.close(server);
    stop.join().unwrap();
}

#[test]
fn bytes_that_are_no_result_are_the_named_peers() {
    let (_agent, mut client, mut raw, server) = server_by_hand();
    let reply = *kinds::ACTIVE.start() + 1;
    // A status that means nothing.
    let answer = [&(1_u64 << 32).to_le_bytes()[..], &(1_u64 | 99 << 32).to_le_bytes()].concat();
    raw.send(reply, &[&answer]).unwrap();
    // It must not come before its request.
    let _ = client.poll();
    let outcome = client.call::<u32, u32>(server, 5, &1, SOON);
    assert!(matches!(&outcome, Err(RpcError::Ended(_) | RpcError::NotSent(_))), "{outcome:?}");
}

#[test]
fn the_end_of_the_server_ends_the_call() {
    let (_agent, mut client, raw, server) = raw_server();
    let ended = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        drop(raw);
    });
    let outcome = client.call::<u32, u32>(server, 5, &1, SOON);
    assert!(matches!(&outcome, Err(RpcError::Ended(ended)) if ended.peer == "bank/calls"), "{outcome:?}");
    ended.join().unwrap();
}

#[test]
fn two_that_call_each_other_are_both_served() {
    let agent = InProcess::start();
    let mut one = Rpc::new(agent.connect("one").unwrap().endpoint("calls").unwrap());
    let mut two = Rpc::new(agent.connect("two").unwrap().endpoint("calls").unwrap());
    for rpc in [&mut one, &mut two] {
        rpc.register(0, |number: u64| number + 1);
    }
    let to_two = one.open("two/calls").unwrap();
    let to_one = two.accept(SOON).unwrap();
    let caller = |mut rpc: Rpc, channel| {
        for number in 0..2000 {
            assert_eq!(rpc.call::<u64, u64>(channel, 0, &number, SOON), Ok(number + 1));
        }
        rpc
    };
    let other = std::thread::spawn(move || {
        let mut two = caller(two, to_one);
        while two.poll_within(SOON).is_ok() {}
    });
    let mut one = caller(one, to_two);
    // What the other still asks is answered before the end.
    while !other.is_finished() {
        if one.poll_within(Duration::from_millis(50)).unwrap() == 0 {
            one.close(to_two);
            break;
        }
    }
    other.join().unwrap();
}
