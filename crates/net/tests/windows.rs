//! Windows between endpoints of one process, through a real agent: put, get, withdraw, and who is refused what.

use std::time::Duration;

use comb_net::agent::{Limits, SameUser};
use comb_net::{
    Access, AccessError, ChannelKey, Endpoint, InProcess, NotifyError, PostError, PutNotice, RequestError,
    WindowError, kinds,
};

const SOON: Duration = Duration::from_secs(10);
const AT_ONCE: Duration = Duration::from_millis(1);

struct Pair {
    agent: InProcess,
    alice: Endpoint,
    bob: Endpoint,
    to_bob: ChannelKey,
    to_alice: ChannelKey,
}

fn pair_with(agent: InProcess) -> Pair {
    let mut alice = agent.connect("alice").unwrap().endpoint("desk").unwrap();
    let mut bob = agent.connect("bob").unwrap().endpoint("desk").unwrap();
    let to_bob = alice.open("bob/desk").unwrap();
    let to_alice = bob.accept(SOON).expect("alice opened a channel");
    Pair { agent, alice, bob, to_bob, to_alice }
}

fn pair() -> Pair {
    pair_with(InProcess::start())
}

#[test]
fn a_put_is_there_when_its_notice_is() {
    let Pair { agent: _agent, mut alice, mut bob, to_bob, to_alice } = pair();
    let own = bob.make_window(to_alice, 10_000, Access::Put).unwrap();
    let remote = alice.window_numbered(to_bob, own.number(), SOON).unwrap();
    assert_eq!((remote.len(), remote.access(), remote.epoch()), (10_000, Access::Put, own.epoch()));
    let data: Vec<u8> = (0..9000_u32).map(|i| u8::try_from(i % 241).unwrap()).collect();
    alice.put_notify(&remote, 777, &data).unwrap();
    let mut buffer = [0; 64];
    let got = bob.receive_within(&mut buffer, SOON).unwrap().expect("a notice");
    let notice = PutNotice::decode(got.kind, &buffer[..got.bytes]).expect("a notice");
    assert_eq!((notice.window, notice.offset, notice.bytes), (own.number(), 777, 9000));
    own.check(got.channel, &notice).unwrap();
    let mut back = vec![0; 9000];
    own.read(777, &mut back).unwrap();
    assert_eq!(back, data);
    let mut got = [0; 3];
    alice.get(&remote, 776, &mut got).unwrap();
    assert_eq!(got, [0, data[0], data[1]], "what may be put may be got");
}

#[test]
fn a_word_that_was_put_later_is_not_seen_earlier() {
    let Pair { agent: _agent, mut alice, mut bob, to_bob, to_alice } = pair();
    let own = bob.make_window(to_alice, 4096, Access::Put).unwrap();
    let remote = alice.window(to_bob, SOON).unwrap();
    let writer = std::thread::spawn(move || {
        for round in 1..=2000_u64 {
            alice.put(&remote, 128, &[u8::try_from(round % 256).unwrap(); 700]).unwrap();
            alice.put(&remote, 0, &round.to_le_bytes()).unwrap();
            let mut back = [0; 8];
            while u64::from_le_bytes(back) != round {
                alice.get(&remote, 8, &mut back).unwrap();
                std::thread::yield_now();
            }
        }
    });
    for round in 1..=2000_u64 {
        while own.word(0).unwrap() != round {
            std::thread::yield_now();
        }
        let mut content = [0; 700];
        own.read(128, &mut content).unwrap();
        assert_eq!(content, [u8::try_from(round % 256).unwrap(); 700]);
        own.write(8, &round.to_le_bytes()).unwrap();
    }
    writer.join().unwrap();
}

#[test]
fn a_read_only_window_is_read_without_its_owner_and_never_written() {
    let Pair { agent: _agent, mut alice, mut bob, to_bob, to_alice } = pair();
    let own = bob.make_window(to_alice, 5000, Access::Get).unwrap();
    own.write(4990, b"catalogue").unwrap();
    let remote = alice.window(to_bob, SOON).unwrap();
    let mut back = [0; 9];
    alice.get(&remote, 4990, &mut back).unwrap();
    assert_eq!(&back, b"catalogue");
    let refused = alice.put(&remote, 0, b"x").unwrap_err();
    assert_eq!(refused, AccessError::Direction { window: 0, peer: "bob/desk".into() });
    assert!(matches!(alice.put_notify(&remote, 0, b"x"), Err(NotifyError::Access(_))));
    assert_eq!(bob.receive(&mut [0; 64]), Ok(None), "what was not put is not told");
    own.withdraw();
    let gone = alice.get(&remote, 0, &mut back).unwrap_err();
    assert_eq!(gone, AccessError::Withdrawn { window: 0, peer: "bob/desk".into() });
}

#[test]
fn what_lies_outside_is_refused_on_both_sides() {
    let Pair { agent: _agent, mut alice, mut bob, to_bob, to_alice } = pair();
    let own = bob.make_window(to_alice, 100, Access::Put).unwrap();
    let remote = alice.window(to_bob, SOON).unwrap();
    for (offset, bytes) in [(93, 8), (96, 8), (100, 1), (0, 101), (usize::MAX, 2), (usize::MAX - 7, 8)] {
        let expected = AccessError::Range { window: 0, offset, bytes, window_bytes: 100 };
        let mut space = vec![0; bytes];
        assert_eq!(alice.put(&remote, offset, &space), Err(expected.clone()));
        assert_eq!(alice.get(&remote, offset, &mut space), Err(expected.clone()));
        assert_eq!(own.read(offset, &mut space), Err(expected.clone()));
        assert_eq!(own.write(offset, &space), Err(expected.clone()));
        let (offset, bytes) = (offset as u64, bytes as u64);
        let forged = PutNotice { window: 0, epoch: own.epoch(), offset, bytes };
        assert_eq!(own.check(to_alice, &forged), Err(expected));
    }
    alice.put(&remote, 92, &[1; 8]).unwrap();
    alice.put(&remote, 100, &[]).unwrap();
    for (window, epoch) in [(0, own.epoch() + 1), (1, own.epoch())] {
        let forged = PutNotice { window, epoch, offset: 0, bytes: 1 };
        assert_eq!(own.check(to_alice, &forged), Err(AccessError::Unknown(window)));
    }
}

#[test]
fn a_withdrawn_window_refuses_and_its_successor_is_another() {
    let Pair { agent: _agent, mut alice, mut bob, to_bob, to_alice } = pair();
    let own = bob.make_window(to_alice, 4096, Access::Put).unwrap();
    let old = alice.window(to_bob, SOON).unwrap();
    alice.put(&old, 0, b"before").unwrap();
    own.withdraw();
    let mut back = [0; 6];
    for outcome in [alice.put(&old, 0, b"after!"), alice.get(&old, 0, &mut back)] {
        assert_eq!(outcome, Err(AccessError::Withdrawn { window: 0, peer: "bob/desk".into() }));
    }
    let own = bob.make_window(to_alice, 4096, Access::Put).unwrap();
    let new = alice.window_numbered(to_bob, 0, SOON).unwrap();
    let stale = alice.put(&old, 0, b"after!").unwrap_err();
    assert!(
        matches!(stale, AccessError::Stale { window: 0, ours: 1, now: 2, .. }),
        "the number is the same, the window is not: {stale}"
    );
    own.read(0, &mut back).unwrap();
    assert_eq!(back, [0; 6]);
    alice.put(&new, 0, b"second").unwrap();
    own.read(0, &mut back).unwrap();
    assert_eq!(&back, b"second");
}

/// Kilobytes of memory behind each mapping of a window of so many kilobytes, in this process.
fn kilobytes_behind_windows_of(kilobytes: usize) -> Vec<usize> {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let number = |line: &str| line.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    let mut lines = maps.lines();
    let mut found = Vec::new();
    while lines.any(|line| line.contains("memfd:comb-window")) {
        let size: usize = lines.find(|line| line.starts_with("Size:")).and_then(number).unwrap();
        let behind = lines.find(|line| line.starts_with("Rss:")).and_then(number).unwrap();
        if size == kilobytes {
            found.push(behind);
        }
    }
    found
}

/// A peer that keeps its mapping keeps addresses, not memory.
#[test]
fn withdrawn_memory_is_given_back_though_the_peer_holds_on() {
    // A size that no other test has.
    const KILOBYTES: usize = 4 * 77;
    let Pair { agent: _agent, mut alice, mut bob, to_bob, to_alice } = pair();
    let own = bob.make_window(to_alice, KILOBYTES << 10, Access::Put).unwrap();
    let remote = alice.window(to_bob, SOON).unwrap();
    alice.put(&remote, 0, &vec![7; KILOBYTES << 10]).unwrap();
    assert!(kilobytes_behind_windows_of(KILOBYTES).contains(&KILOBYTES), "or this test shows nothing");
    own.withdraw();
    assert_eq!(
        kilobytes_behind_windows_of(KILOBYTES),
        [0],
        "the peer's mapping is left, with nothing behind it"
    );
    drop(remote);
}

#[test]
fn a_put_during_the_withdrawal_harms_nobody() {
    let Pair { agent: _agent, mut alice, mut bob, to_bob, to_alice } = pair();
    let own = bob.make_window(to_alice, 1 << 20, Access::Put).unwrap();
    let remote = alice.window(to_bob, SOON).unwrap();
    let writer = std::thread::spawn(move || {
        let data = vec![0xAB; 1 << 20];
        let until = std::time::Instant::now() + SOON;
        loop {
            match alice.put(&remote, 0, &data) {
                Err(error) => break error,
                Ok(()) => assert!(std::time::Instant::now() < until, "the withdrawal is never seen"),
            }
        }
    });
    while own.word(0).unwrap() == 0 {
        std::thread::yield_now();
    }
    own.withdraw();
    assert!(matches!(writer.join().unwrap(), AccessError::Withdrawn { .. }));
}

#[test]
fn the_agent_limits_the_memory_and_takes_withdrawn_memory_off_the_account() {
    let limits = Limits { memory_bytes: 1 << 20, ..Limits::default() };
    let Pair { agent: _agent, mut alice, mut bob, to_bob, to_alice } =
        pair_with(InProcess::with(Box::new(SameUser), limits));
    for _ in 0..5 {
        let own = bob.make_window(to_alice, 600 << 10, Access::Put).unwrap();
        let error = bob.make_window(to_alice, 600 << 10, Access::Put).unwrap_err();
        let WindowError::Request(RequestError::Refused(reason)) = &error else { panic!("{error}") };
        assert!(reason.contains("limit of 1048576 bytes"), "{reason}");
        own.withdraw();
    }
    // Each took the number of the one before; the refused ones never came. What comes before the last has come with it.
    let last = bob.make_window(to_alice, 600 << 10, Access::Put).unwrap();
    loop {
        let came = alice.window(to_bob, SOON).unwrap();
        assert_eq!(came.number(), 0);
        if came.epoch() == last.epoch() {
            break;
        }
    }
    assert!(alice.windows(to_bob).unwrap().is_empty());
}

#[test]
fn a_channel_has_256_windows_a_side() {
    let Pair { agent: _agent, mut alice, mut bob, to_bob, to_alice } = pair();
    let all: Vec<_> = (0..256).map(|_| bob.make_window(to_alice, 1, Access::Put).unwrap()).collect();
    assert!(matches!(bob.make_window(to_alice, 1, Access::Put), Err(WindowError::NoNumber(256))));
    let last = alice.window_numbered(to_bob, 255, SOON).unwrap();
    alice.put(&last, 0, b"z").unwrap();
    let mut back = [0];
    all[255].read(0, &mut back).unwrap();
    assert_eq!(&back, b"z");
    assert_eq!(alice.windows(to_bob).unwrap().len(), 255);
}

#[test]
fn waiting_for_a_window_ends_in_time_and_with_the_channel() {
    let Pair { agent: _agent, mut alice, mut bob, to_bob, to_alice } = pair();
    assert!(matches!(alice.window(to_bob, AT_ONCE), Err(WindowError::NoneCame { .. })));
    let own = bob.make_window(to_alice, 64, Access::Put).unwrap();
    assert!(matches!(alice.window_numbered(to_bob, 9, AT_ONCE), Err(WindowError::NoneCame { .. })));
    let remote = alice.window(to_bob, SOON).unwrap();
    bob.close(to_alice);
    assert!(matches!(alice.window(to_bob, SOON), Err(WindowError::Ended(_))));
    alice.close(to_bob);
    assert_eq!(alice.put(&remote, 0, b"x"), Err(AccessError::Ended("bob/desk".into())));
    assert!(matches!(alice.window(to_bob, SOON), Err(WindowError::NoChannel)));
    own.read(0, &mut [0; 64]).unwrap();
    assert!(matches!(bob.make_window(to_alice, 64, Access::Put), Err(WindowError::NoChannel)));
}

#[test]
fn windows_between_endpoints_of_one_process_reach_the_other_end() {
    let agent = InProcess::start();
    let process = agent.connect("solo").unwrap();
    let (mut one, mut two) = (process.endpoint("one").unwrap(), process.endpoint("two").unwrap());
    let there = one.open("solo/two").unwrap();
    let back = two.accept(SOON).unwrap();
    let ones = one.make_window(there, 8, Access::Put).unwrap();
    let twos = two.make_window(back, 8, Access::Put).unwrap();
    let of_one = two.window(back, SOON).unwrap();
    let of_two = one.window(there, SOON).unwrap();
    two.put(&of_one, 0, b"from two").unwrap();
    one.put(&of_two, 0, b"from one").unwrap();
    assert_eq!(ones.word(0).unwrap(), u64::from_le_bytes(*b"from two"));
    assert_eq!(twos.word(0).unwrap(), u64::from_le_bytes(*b"from one"));
    let itself = one.open("solo/one").unwrap();
    let refused = one.make_window(itself, 8, Access::Put).unwrap_err().to_string();
    assert!(refused.contains("leads to itself"), "{refused}");
}

#[test]
fn one_window_can_be_opened_to_several_peers() {
    let Pair { agent, alice: _alice, mut bob, to_bob: _, to_alice } = pair();
    let mut carol = agent.connect("carol").unwrap().endpoint("desk").unwrap();
    let to_bob = carol.open("bob/desk").unwrap();
    let to_carol = bob.accept(SOON).unwrap();
    let mut own = bob.make_window(to_alice, 8, Access::Put).unwrap();
    bob.extend_window(&mut own, to_carol).unwrap();
    assert!(matches!(bob.extend_window(&mut own, to_carol), Err(WindowError::OpenAlready(_))));
    let remote = carol.window(to_bob, SOON).unwrap();
    assert_eq!(remote.epoch(), own.epoch());
    carol.put(&remote, 0, &7_u64.to_le_bytes()).unwrap();
    assert_eq!(own.word(0), Ok(7));
    own.withdraw();
    assert!(matches!(carol.put(&remote, 0, b"x"), Err(AccessError::Withdrawn { .. })));
}

#[test]
fn applications_cannot_send_kinds_of_layers() {
    let Pair { agent: _agent, mut alice, bob: _bob, to_bob, .. } = pair();
    alice.send(to_bob, *kinds::APPLICATION.end(), b"x").unwrap();
    for kind in [*kinds::ACTIVE.start(), kinds::PUT_NOTICE, 0xFF] {
        assert_eq!(alice.send(to_bob, kind, b"x"), Err(PostError::ReservedKind(kind)));
        assert_eq!(alice.send_gathered(to_bob, kind, &[b"x"]), Err(PostError::ReservedKind(kind)));
        assert_eq!(alice.send_within(to_bob, kind, &[b"x"], AT_ONCE), Err(PostError::ReservedKind(kind)));
    }
}

/// Set in the process that owns the window in the test below; its standard input is its connection to the agent.
const OWNER: &str = "COMB_TEST_WINDOW_OWNER";

#[test]
fn the_owners_process_when_it_is_started_as_one() {
    use std::os::fd::AsFd;
    if std::env::var_os(OWNER).is_none() {
        return;
    }
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let mut bob = comb_net::Agent::over(socket, "bob").unwrap().endpoint("desk").unwrap();
    let to_alice = bob.accept(SOON).unwrap();
    let own = bob.make_window(to_alice, 1 << 20, Access::Put).unwrap();
    let until = std::time::Instant::now() + SOON;
    // Echoes words until it is killed.
    while std::time::Instant::now() < until {
        own.write(8, &own.word(0).unwrap().to_le_bytes()).unwrap();
        std::thread::yield_now();
    }
}

#[test]
fn puts_into_the_window_of_a_killed_process_hurt_nobody() {
    let agent = InProcess::start();
    let mut owner = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_owners_process_when_it_is_started_as_one"])
        .env(OWNER, "1")
        .stdin(agent.socket().unwrap())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut alice = agent.connect("alice").unwrap().endpoint("desk").unwrap();
    let until = std::time::Instant::now() + SOON;
    let to_bob = loop {
        match alice.open("bob/desk") {
            Ok(channel) => break channel,
            Err(error) => assert!(std::time::Instant::now() < until, "{error}"),
        }
        std::thread::sleep(AT_ONCE);
    };
    let remote = alice.window(to_bob, SOON).unwrap();
    alice.put(&remote, 0, &99_u64.to_le_bytes()).unwrap();
    let mut echo = [0; 8];
    while u64::from_le_bytes(echo) != 99 {
        alice.get(&remote, 8, &mut echo).unwrap();
        assert!(std::time::Instant::now() < until, "no echo");
        std::thread::yield_now();
    }
    owner.kill().unwrap();
    owner.wait().unwrap();
    // Until we look, a put finds nothing wrong, and pages that nobody touched before are still there to be written.
    alice.put(&remote, 4096, &vec![7; (1 << 20) - 4096]).unwrap();
    let ended = alice.receive_within(&mut echo, SOON).unwrap_err();
    // Of the child, though its connection was made by this process.
    assert_eq!(ended.cause, comb_net::Cause::Exited(owner.id()), "{ended}");
    assert_eq!(alice.put(&remote, 0, b"x"), Err(AccessError::Ended("bob/desk".into())));
}

/// What a process says that does not keep to the library: straight to the broker.
mod alleged {
    use std::os::fd::OwnedFd;

    use comb_net::Geometry;
    use comb_net::agent::broker::{Broker, ClientId, Outgoing};
    use comb_net::agent::protocol::{Reply, Request, Side, WindowTerms};
    use comb_net::agent::{Limits, SameUser};
    use rustix::fs::{MemfdFlags, SealFlags};

    const ALICE: ClientId = ClientId(1);
    const BOB: ClientId = ClientId(2);
    const MALLORY: ClientId = ClientId(3);

    fn memory(bytes: u64, seals: SealFlags) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("comb-test", flags).unwrap();
        rustix::fs::ftruncate(&memory, bytes).unwrap();
        rustix::fs::fcntl_add_seals(&memory, seals).unwrap();
        memory
    }

    fn sealed(bytes: u64) -> OwnedFd {
        memory(bytes, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
    }

    fn refusal(out: &[Outgoing]) -> &str {
        match out {
            [Outgoing { reply: Reply::Refused { request: Some(9), reason }, .. }] => reason,
            other => panic!("{other:?} is no refusal of request 9"),
        }
    }

    /// A broker that knows three processes, and a channel from alice's endpoint to bob's.
    fn broker() -> (Broker, WindowTerms) {
        let mut broker = Broker::new(Box::new(SameUser), Limits::default(), 1);
        let side =
            Side { geometry: Geometry::default(), bell_index: 0, event: false, asymmetric_fences: true };
        let ring = || vec![sealed(Geometry::default().segment_bytes() as u64)];
        let mut endpoints = Vec::new();
        for (client, name) in [(ALICE, "alice"), (BOB, "bob"), (MALLORY, "mallory")] {
            broker.connect(client, 1, 1, sealed(1));
            broker.handle(client, Request::Hello { name: name.into() }, vec![]).unwrap();
            let create = Request::CreateEndpoint { request: 1, name: "desk".into(), bell_channels: 16 };
            let out = broker.handle(client, create, vec![sealed(4096)]).unwrap();
            let Reply::EndpointCreated { endpoint, .. } = out[0].reply else { panic!("{out:?}") };
            endpoints.push(endpoint);
        }
        let open =
            Request::Open { request: 2, endpoint: endpoints[0], to: "bob/desk".into(), side: side.clone() };
        let out = broker.handle(ALICE, open, ring()).unwrap();
        let Reply::Offer { channel, .. } = out[0].reply else { panic!("{out:?}") };
        broker.handle(BOB, Request::Accept { channel, side }, ring()).unwrap();
        let endpoint = endpoints[0];
        (broker, WindowTerms { channel, endpoint, number: 0, epoch: 1, bytes: 4096, writable: true })
    }

    #[test]
    fn the_agent_checks_a_window_before_a_peer_sees_it() {
        let (mut broker, good) = broker();
        let mut share = |client, window, with| {
            broker.handle(client, Request::ShareWindow { request: 9, window }, with).unwrap()
        };
        let one = || vec![sealed(4096)];
        for (client, window, with, words) in [
            (MALLORY, good, one(), "not this process's"),
            (BOB, good, one(), "not this process's"),
            (ALICE, WindowTerms { number: 256, ..good }, one(), "at most 256 windows"),
            (ALICE, WindowTerms { bytes: 8192, ..good }, one(), "announced 8192 bytes"),
            (ALICE, WindowTerms { writable: false, ..good }, one(), "lacks the seals"),
            (ALICE, good, vec![memory(4096, SealFlags::GROW)], "lacks the seals"),
            (ALICE, good, vec![], "0 descriptors came where 1 belong"),
        ] {
            let out = share(client, window, with);
            assert!(refusal(&out).contains(words), "{out:?}");
        }
        let out = share(ALICE, good, one());
        assert!(
            matches!(&out[..], [
                Outgoing { to: BOB, reply: Reply::WindowShared { window }, .. },
                Outgoing { to: ALICE, reply: Reply::WindowTaken { request: 9 }, .. },
            ] if window.endpoint != good.endpoint && WindowTerms { endpoint: good.endpoint, ..*window } == good),
            "{out:?}"
        );
        let out = share(ALICE, good, one());
        assert!(refusal(&out).contains("open already"), "{out:?}");
    }

    #[test]
    fn nobody_withdraws_what_is_not_theirs_and_nothing_twice() {
        let (mut broker, good) = broker();
        let charged = |broker: &mut Broker| {
            let out = broker.handle(ALICE, Request::List { request: 3 }, vec![]).unwrap();
            let Reply::Listing { processes, .. } = &out[0].reply else { panic!("{out:?}") };
            processes[0].memory_bytes
        };
        let before = charged(&mut broker);
        let share = Request::ShareWindow { request: 9, window: good };
        broker.handle(ALICE, share, vec![sealed(4096)]).unwrap();
        for (client, window) in [
            (BOB, good),
            (ALICE, WindowTerms { bytes: 4095, ..good }),
            (ALICE, WindowTerms { epoch: 2, ..good }),
        ] {
            broker.handle(client, Request::WithdrawWindow { window }, vec![]).unwrap();
            assert_eq!(charged(&mut broker), before + 4096);
        }
        for _ in 0..2 {
            broker.handle(ALICE, Request::WithdrawWindow { window: good }, vec![]).unwrap();
            assert_eq!(charged(&mut broker), before);
        }
        let share = Request::ShareWindow { request: 9, window: good };
        broker.handle(ALICE, share, vec![sealed(4096)]).unwrap();
        broker.handle(ALICE, Request::CloseChannel { channel: good.channel }, vec![]).unwrap();
        broker.handle(ALICE, Request::WithdrawWindow { window: good }, vec![]).unwrap();
        assert!(charged(&mut broker) < before, "the channel's end settled its windows");
    }
}
