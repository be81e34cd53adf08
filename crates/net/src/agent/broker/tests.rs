//! Every refusal, and that the book is as before after it.

use super::*;
use crate::agent::policy::SameUser;
use crate::agent::protocol;
use crate::shm::Geometry;

pub(super) const ALICE: ClientId = ClientId(1);
pub(super) const BOB: ClientId = ClientId(2);
const CAROL: ClientId = ClientId(3);
const LIMITS: Limits =
    Limits { endpoints: 2, channels: 4, memory_bytes: 128 << 10, connections: 8, connections_per_user: 8 };

fn memory(bytes: usize, writers: Writers) -> OwnedFd {
    Segment::create("comb-test", bytes, writers).unwrap().1
}

fn board() -> Vec<OwnedFd> {
    vec![memory(Bell::board_bytes(4), Writers::Both)]
}

fn ring() -> Vec<OwnedFd> {
    vec![memory(Geometry::default().segment_bytes(), Writers::Both)]
}

fn side() -> Side {
    Side { geometry: Geometry::default(), bell_index: 0, event: false, asymmetric_fences: false }
}

fn terms(channel: ChannelId, endpoint: EndpointId, number: u32, bytes: u64, writable: bool) -> WindowTerms {
    WindowTerms { channel, endpoint, number, epoch: 1, bytes, writable }
}

fn share(window: WindowTerms) -> Request {
    Request::ShareWindow { request: 3, window }
}

pub(super) struct Book {
    pub(super) broker: Broker,
    /// Of Alice and Bob; Carol has none.
    pub(super) endpoints: [EndpointId; 2],
}

fn connect(broker: &mut Broker, client: ClientId, name: &str) {
    // Any descriptor does for the process: the broker only hands it on.
    let process = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    broker.connect(client, u32::try_from(client.0).unwrap() + 100, 1000, process);
    let out = broker.handle(client, Request::Hello { name: name.into() }, Vec::new()).unwrap();
    assert!(matches!(out[0].reply, Reply::Welcome { .. }), "{out:?}");
}

pub(super) fn book() -> Book {
    let mut broker = Broker::new(Box::new(SameUser), LIMITS, 7);
    for (client, name) in [(ALICE, "alice"), (BOB, "bob"), (CAROL, "carol")] {
        connect(&mut broker, client, name);
    }
    let endpoints = [ALICE, BOB].map(|client| {
        let create = Request::CreateEndpoint { request: 1, name: "desk".into(), bell_channels: 4 };
        let out = broker.handle(client, create, board()).unwrap();
        let Reply::EndpointCreated { endpoint, .. } = out[0].reply else { panic!("{out:?}") };
        endpoint
    });
    Book { broker, endpoints }
}

impl Book {
    /// What is counted of everybody: it must be the same after a refusal.
    pub(super) fn charges(&self) -> Vec<(u32, u64)> {
        self.broker.clients.values().map(|client| (client.channels, client.memory_bytes)).collect()
    }

    pub(super) fn ask(
        &mut self,
        client: ClientId,
        request: Request,
        with: Vec<OwnedFd>,
    ) -> Vec<(ClientId, Reply)> {
        let out = self.broker.handle(client, request, with).unwrap();
        out.into_iter().map(|out| (out.to, out.reply)).collect()
    }

    #[track_caller]
    fn refuses(&mut self, client: ClientId, request: Request, with: Vec<OwnedFd>, words: &str) {
        let before = (self.charges(), self.broker.channels.len(), self.broker.endpoints.len());
        let out = self.ask(client, request, with);
        let [(to, Reply::Refused { reason, .. })] = out.as_slice() else { panic!("{out:?}, not: {words}") };
        assert_eq!(*to, client);
        assert!(reason.contains(words), "{reason:?} does not say: {words}");
        let after = (self.charges(), self.broker.channels.len(), self.broker.endpoints.len());
        assert_eq!(before, after, "refused and yet changed: {words}");
    }

    fn open(&self, to: &str) -> Request {
        Request::Open { request: 5, endpoint: self.endpoints[0], to: to.into(), side: side() }
    }

    fn offered(&mut self) -> ChannelId {
        let open = self.open("bob/desk");
        let out = self.ask(ALICE, open, ring());
        let [(BOB, Reply::Offer { channel, .. })] = out.as_slice() else { panic!("{out:?}") };
        *channel
    }

    fn opened(&mut self) -> ChannelId {
        let channel = self.offered();
        let out = self.ask(BOB, Request::Accept { channel, side: side() }, ring());
        assert!(matches!(out.as_slice(), [(ALICE, Reply::Opened { request: 5, .. })]), "{out:?}");
        channel
    }
}

/// A refusal quotes what was asked for, and an unprintable character takes many to print. One who asked for a long one got
/// no answer but the end of its connection.
#[test]
fn who_asks_for_nonsense_of_any_length_is_answered() {
    let mut book = book();
    let nonsense = "\u{1}".repeat(protocol::LONGEST_MESSAGE - 100);
    for to in [nonsense.clone(), format!("{nonsense}/desk"), format!("bob/{nonsense}")] {
        let ask = book.open(&to);
        protocol::encode(&ask).expect("it can be asked");
        let out = book.ask(ALICE, ask, ring());
        let [(ALICE, reply @ Reply::Refused { request: Some(5), .. })] = out.as_slice() else {
            panic!("{out:?}")
        };
        protocol::encode(reply).expect("it can be answered");
    }
}

#[test]
fn every_open_that_is_refused() {
    let mut book = book();
    let geometry = |slots, payload_bytes| Side { geometry: Geometry { slots, payload_bytes }, ..side() };
    let open = |endpoint, to: &str, side| Request::Open { request: 5, endpoint, to: to.into(), side };
    let [own, bobs] = book.endpoints;
    let wrong_size = || vec![memory(4096, Writers::Both)];
    let pipe = || vec![OwnedFd::from(std::io::pipe().unwrap().0)];
    for (request, with, words) in [
        (open(bobs, "bob/desk", side()), ring(), "is not this process's"),
        (open(EndpointId(999), "bob/desk", side()), ring(), "is not this process's"),
        (open(own, "bob", side()), ring(), "is no address"),
        (open(own, "dave/desk", side()), ring(), "no process \"dave\""),
        (open(own, "bob/chair", side()), ring(), "no endpoint \"chair\""),
        (open(own, "bob/desk", geometry(7, 0)), ring(), "outside the limits"),
        (open(own, "bob/desk", geometry(8, 1)), ring(), "outside the limits"),
        (open(own, "bob/desk", side()), Vec::new(), "0 descriptors came where 1 belong"),
        (open(own, "bob/desk", Side { event: true, ..side() }), ring(), "1 descriptors came where 2 belong"),
        (open(own, "bob/desk", side()), wrong_size(), "announced"),
        (open(own, "bob/desk", side()), pipe(), "not sealed shared memory"),
    ] {
        book.refuses(ALICE, request, with, words);
    }
}

#[test]
fn every_endpoint_that_is_refused() {
    let mut book = book();
    let create =
        |name: &str, bell_channels| Request::CreateEndpoint { request: 1, name: name.into(), bell_channels };
    let large = || vec![memory(4096, Writers::Both), memory(4096, Writers::Both)];
    for (request, with, words) in [
        (create("", 4), board(), "is no name"),
        (create("a/b", 4), board(), "is no name"),
        (create("desk", 4), board(), "has an endpoint \"desk\" already"),
        (create("chair", 0), board(), "1 to 4 channels"),
        (create("chair", 5), board(), "1 to 4 channels"),
        (create("chair", 4), Vec::new(), "0 descriptors"),
        (create("chair", 4), large(), "2 descriptors"),
        (create("chair", 4), vec![memory(8192, Writers::Both)], "announced 4096"),
    ] {
        book.refuses(ALICE, request, with, words);
    }
    assert_eq!(book.ask(ALICE, create("chair", 4), board()).len(), 1);
    book.refuses(ALICE, create("sofa", 4), board(), "limit of 2 endpoints");
}

#[test]
fn every_answer_to_an_offer_that_is_refused() {
    let mut book = book();
    let channel = book.offered();
    let accept = || Request::Accept { channel, side: side() };
    let refuse = || Request::Refuse { channel, reason: "no".into() };
    for client in [ALICE, CAROL] {
        book.refuses(client, accept(), ring(), "offered to somebody else");
        book.refuses(client, refuse(), Vec::new(), "offered to somebody else");
    }
    book.ask(BOB, accept(), ring());
    book.refuses(BOB, accept(), ring(), "accepted already");
    book.refuses(BOB, refuse(), Vec::new(), "accepted already");
    book.refuses(
        BOB,
        Request::Refuse { channel: ChannelId(1), reason: "no".into() },
        Vec::new(),
        "no longer there",
    );
}

#[test]
fn an_offer_that_is_gone_or_badly_accepted_leaves_no_ghost_on_either_side() {
    let mut book = book();
    let before = book.charges();
    let gone = book.ask(BOB, Request::Accept { channel: ChannelId(1), side: side() }, ring());
    assert!(matches!(gone.as_slice(), [(BOB, Reply::PeerGone { channel: ChannelId(1), .. })]), "{gone:?}");
    let channel = book.offered();
    let out = book.ask(BOB, Request::Accept { channel, side: side() }, vec![memory(4096, Writers::Both)]);
    assert!(
        matches!(
            out.as_slice(),
            [(ALICE, Reply::Refused { request: Some(5), .. }), (BOB, Reply::PeerGone { .. })]
        ),
        "{out:?}"
    );
    assert_eq!(book.charges(), before);
}

#[test]
fn channels_and_memory_are_limited_and_given_back() {
    let mut book = book();
    let before = book.charges();
    // 128 KB: a board of 4, four rings of 28, and then 12 are left.
    let channels: Vec<_> = (0..4).map(|_| book.opened()).collect();
    let open = book.open("bob/desk");
    book.refuses(ALICE, open, ring(), "limit of 4 channels");
    let endpoint = book.endpoints[0];
    let share = share(terms(channels[0], endpoint, 0, 16 << 10, true));
    book.refuses(
        ALICE,
        share,
        vec![memory(16 << 10, Writers::Both)],
        "bytes of shared memory a process is reached",
    );
    for channel in channels {
        let out = book.ask(ALICE, Request::CloseChannel { channel }, Vec::new());
        assert!(matches!(out.as_slice(), [(BOB, Reply::PeerGone { .. })]), "{out:?}");
    }
    assert_eq!(book.charges(), before);
}

#[test]
fn every_window_that_is_refused() {
    let mut book = book();
    let channel = book.offered();
    let [alices, bobs] = book.endpoints;
    let share = |channel, window, bytes, writable| share(terms(channel, alices, window, bytes, writable));
    let both = || vec![memory(4096, Writers::Both)];
    book.refuses(ALICE, share(channel, 0, 4096, true), both(), "has not taken the channel yet");
    book.ask(BOB, Request::Accept { channel, side: side() }, ring());
    for (client, request, with, words) in [
        (CAROL, share(channel, 0, 4096, true), both(), "is not this process's"),
        (ALICE, share(ChannelId(1), 0, 4096, true), both(), "is not this process's"),
        (ALICE, share(channel, 256, 4096, true), both(), "at most 256 windows"),
        (ALICE, share(channel, 0, 4096, true), Vec::new(), "0 descriptors"),
        (ALICE, share(channel, 0, 8192, true), both(), "announced 8192"),
        (ALICE, share(channel, 0, 4096, false), both(), "lacks the seals"),
    ] {
        book.refuses(client, request, with, words);
    }
    let out = book.ask(ALICE, share(channel, 0, 4096, true), both());
    let [(BOB, Reply::WindowShared { window }), (ALICE, Reply::WindowTaken { request: 3 })] = out.as_slice()
    else {
        panic!("{out:?}")
    };
    assert_eq!(window.endpoint, bobs, "told to the peer's endpoint");
}

/// After a restart of the agent a process could claim the half-restored channel of two others, and close it.
#[test]
fn only_the_two_ends_restore_a_channel() {
    let mut book = book();
    let live = book.opened();
    let lost = ChannelId(12345);
    let restore = |name: &str, channels: &[(ChannelId, &str)]| Request::RestoreEndpoint {
        request: 9,
        name: name.into(),
        bell_channels: 4,
        channels: channels.iter().map(|&(id, peer)| (id, peer.to_owned())).collect(),
        geometry: Geometry::default(),
    };
    book.refuses(CAROL, restore("lair", &[(live, "alice/desk")]), board(), "to restore");
    book.refuses(CAROL, restore("lair", &[(lost, "alice/r"), (lost, "alice/r")]), board(), "more often");
    let many: Vec<_> = (0..5).map(|number| (ChannelId(20_000 + number), "alice/r")).collect();
    book.refuses(CAROL, restore("lair", &many), board(), "limit of 4 channels");
    // Nothing of a refused restoration stays, not even its good part.
    book.refuses(CAROL, restore("lair", &[(lost, "bob/r"), (live, "bob/desk")]), board(), "to restore");
    let out = book.ask(ALICE, restore("r", &[(lost, "bob/r")]), board());
    assert!(matches!(out.as_slice(), [(ALICE, Reply::EndpointCreated { .. })]), "{out:?}");
    book.refuses(CAROL, restore("lair", &[(lost, "alice/r")]), board(), "to restore");
    book.refuses(BOB, restore("chair", &[(lost, "alice/r")]), board(), "to restore");
    book.refuses(BOB, restore("r", &[(lost, "alice/desk")]), board(), "to restore");
    book.refuses(CAROL, Request::CloseChannel { channel: lost }, Vec::new(), "is not this process's");
    book.ask(BOB, restore("r", &[(lost, "alice/r")]), board());
    book.refuses(BOB, restore("r", &[(lost, "alice/r")]), board(), "to restore");
    // More of the same endpoint's follow.
    let out = book.ask(BOB, restore("r", &[(ChannelId(777), "alice/r")]), board());
    assert!(matches!(out.as_slice(), [(BOB, Reply::EndpointCreated { .. })]), "{out:?}");
    let out = book.ask(ALICE, Request::CloseChannel { channel: lost }, Vec::new());
    assert!(matches!(out.as_slice(), [(BOB, Reply::PeerGone { .. })]), "{out:?}");
}

#[test]
fn who_leaves_is_missed_by_each_peer_once_and_leaves_nothing() {
    let mut book = book();
    let (opened, offered) = (book.opened(), book.offered());
    let out = book.broker.disconnect(BOB);
    let told: Vec<_> = out.into_iter().map(|out| (out.to, out.reply)).collect();
    assert_eq!(
        told,
        [
            (
                ALICE,
                Reply::PeerGone { channel: opened, reason: "bob (process 102) left".into(), last_word: None }
            ),
            (ALICE, Reply::Refused { request: Some(5), reason: "bob (process 102) left".into() }),
        ],
        "{offered} was not answered yet"
    );
    assert!(book.broker.channels.is_empty());
    assert_eq!(book.charges()[0], (0, Bell::board_bytes(4) as u64), "only Alice's board is charged");
    // An opener that leaves takes its offer along.
    connect(&mut book.broker, BOB, "bob");
    assert!(book.broker.disconnect(ALICE).is_empty());
    assert_eq!(book.charges(), [(0, 0), (0, 0)]);
}

/// An endpoint that closed while another of its own process opened a channel to it left the opener without an answer.
#[test]
fn an_offer_within_one_process_ends_with_its_endpoint() {
    let mut book = book();
    let create = Request::CreateEndpoint { request: 1, name: "chair".into(), bell_channels: 4 };
    let out = book.ask(ALICE, create, board());
    let [(_, Reply::EndpointCreated { endpoint, .. })] = out.as_slice() else { panic!("{out:?}") };
    let endpoint = *endpoint;
    let open = book.open("alice/chair");
    book.ask(ALICE, open, ring());
    let out = book.ask(ALICE, Request::CloseEndpoint { endpoint }, Vec::new());
    assert!(matches!(out.as_slice(), [(ALICE, Reply::Refused { request: Some(5), .. })]), "{out:?}");
}

#[test]
fn misbehaviour_is_only_what_breaks_the_protocol() {
    let mut book = book();
    let again = book.broker.handle(ALICE, Request::Hello { name: "again".into() }, Vec::new());
    assert_eq!(again.unwrap_err().to_string(), "a connection starts with one Hello");
    let process = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    book.broker.connect(ClientId(9), 9, 9, process);
    assert!(book.broker.handle(ClientId(9), Request::List { request: 1 }, Vec::new()).is_err());
    for name in ["alice", "", "a b"] {
        let hello = Request::Hello { name: name.into() };
        let out = book.broker.handle(ClientId(9), hello, Vec::new()).unwrap();
        assert!(matches!(out[0].reply, Reply::Refused { .. }), "{out:?}");
    }
    let close = Request::CloseEndpoint { endpoint: book.endpoints[1] };
    book.refuses(ALICE, close, Vec::new(), "is not this process's");
}

struct Nobody;

impl Policy for Nobody {
    fn may_open(&self, _: &Identity, _: &Identity, _: &str) -> Result<(), String> {
        Err("nobody may".into())
    }
}

#[test]
fn the_policy_is_asked_and_users_are_kept_apart() {
    let mut book = book();
    book.broker.policy = Box::new(Nobody);
    let open = book.open("bob/desk");
    book.refuses(ALICE, open.clone(), ring(), "nobody may");
    book.broker.policy = Box::new(SameUser);
    book.broker.clients.get_mut(&BOB).unwrap().uid = 1001;
    book.refuses(ALICE, open.clone(), ring(), "user 1000 may not open channels to processes of user 1001");
    book.broker.clients.get_mut(&ALICE).unwrap().uid = 0;
    assert!(matches!(book.ask(ALICE, open, ring()).as_slice(), [(BOB, Reply::Offer { .. })]));
}

/// What is handed over where memory belongs, and is none, is refused on every way, and not charged.
#[test]
fn every_kind_of_descriptor_that_is_no_sealed_memory() {
    let mut book = book();
    let channel = book.opened();
    let endpoint = book.endpoints[0];
    let ring_bytes = Geometry::default().segment_bytes();
    let open = |path: &str| OwnedFd::from(std::fs::File::open(path).unwrap());
    let memfd = |bytes: usize| {
        let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("comb-test", flags).unwrap();
        rustix::fs::ftruncate(&memory, bytes as u64).unwrap();
        memory
    };
    let shrunk = |bytes: usize| {
        let memory = memfd(bytes);
        rustix::fs::ftruncate(&memory, 4096.min(bytes as u64 - 1)).unwrap();
        let seals = rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW | rustix::fs::SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&memory, seals).unwrap();
        memory
    };
    let (board_bytes, window_bytes) = (Bell::board_bytes(4), 8192);
    for (kind, make) in [
        ("a pipe", &(|_| OwnedFd::from(std::io::pipe().unwrap().0)) as &dyn Fn(usize) -> OwnedFd),
        ("a directory", &|_| open("/")),
        ("a directory of memory files' kind", &|_| open("/dev/shm")),
        ("a device", &|_| open("/dev/zero")),
        ("a file", &|_| open("/proc/self/exe")),
        ("a socket", &|_| OwnedFd::from(std::os::unix::net::UnixStream::pair().unwrap().0)),
        ("memory without seals", &memfd),
        ("memory that was shrunk", &shrunk),
        ("memory of no bytes", &|_| shrunk(1)),
    ] {
        for (way, request, bytes) in [
            ("open", book.open("bob/desk"), ring_bytes),
            (
                "create",
                Request::CreateEndpoint { request: 1, name: "chair".into(), bell_channels: 4 },
                board_bytes,
            ),
            ("share", share(terms(channel, endpoint, 0, window_bytes, true)), 8192),
            (
                "restore",
                Request::RestoreWindow {
                    request: 1,
                    window: terms(channel, endpoint, 0, window_bytes, true),
                },
                8192,
            ),
        ] {
            let before = book.charges();
            let out = book.ask(ALICE, request, vec![make(bytes)]);
            let [(ALICE, Reply::Refused { reason, .. })] = out.as_slice() else {
                panic!("{way} takes {kind}: {out:?}")
            };
            let words = ["not sealed shared memory", "lacks the seals", "handed over"];
            assert!(words.iter().any(|words| reason.contains(words)), "{way}, {kind}: {reason}");
            assert_eq!(book.charges(), before, "{way}, {kind}");
        }
        // Who accepts with it, and who opened, are both told.
        let before = book.charges();
        let offered = book.offered();
        let out = book.ask(BOB, Request::Accept { channel: offered, side: side() }, vec![make(ring_bytes)]);
        assert!(
            matches!(out.as_slice(), [(ALICE, Reply::Refused { .. }), (BOB, Reply::PeerGone { .. })]),
            "{kind}: {out:?}"
        );
        assert_eq!(book.charges(), before, "accept, {kind}");
    }
}

/// After a restart of the agent, windows and rings of before counted against nothing: a process could have them once
/// more for each life of its agent.
#[test]
fn what_is_restored_counts_as_before() {
    let mut first = book();
    let channel = first.opened();
    let window = |endpoint, number| terms(channel, endpoint, number, 32 << 10, true);
    let memory = || vec![memory(32 << 10, Writers::Both)];
    let alices = first.endpoints[0];
    first.ask(ALICE, share(window(alices, 3)), memory());
    let before = first.charges();

    let mut second = book();
    for (client, endpoint) in [(ALICE, second.endpoints[0]), (BOB, second.endpoints[1])] {
        second.ask(client, Request::CloseEndpoint { endpoint }, Vec::new());
    }
    assert!(second.charges().iter().all(|charged| *charged == (0, 0)));
    let restore = |peer: &str, geometry| Request::RestoreEndpoint {
        request: 9,
        name: "desk".into(),
        bell_channels: 4,
        channels: vec![(channel, peer.to_owned())],
        geometry,
    };
    let large = Geometry { slots: 64, payload_bytes: 256 << 10 };
    second.refuses(ALICE, restore("bob/desk", large), board(), "bytes of shared memory a process is reached");
    second.refuses(ALICE, restore("bob/desk", Geometry { slots: 7, payload_bytes: 0 }), board(), "outside");
    // The board is refused after the rings were counted: nothing of it stays.
    second.refuses(ALICE, restore("bob/desk", Geometry::default()), Vec::new(), "0 descriptors");
    let mut endpoints = Vec::new();
    for (client, peer) in [(ALICE, "bob/desk"), (BOB, "alice/desk")] {
        let out = second.ask(client, restore(peer, Geometry::default()), board());
        let [(_, Reply::EndpointCreated { endpoint, .. })] = out.as_slice() else { panic!("{out:?}") };
        endpoints.push(*endpoint);
    }
    let restored = window(endpoints[0], 3);
    let request = |window| Request::RestoreWindow { request: 3, window };
    second.refuses(BOB, request(restored), memory(), "is not this process's");
    second.refuses(ALICE, request(window(endpoints[0], 256)), memory(), "at most 256 windows");
    let out = second.ask(ALICE, request(restored), memory());
    assert!(matches!(out.as_slice(), [(ALICE, Reply::WindowTaken { request: 3 })]), "only counted: {out:?}");
    assert_eq!(second.charges(), before);
    second.refuses(ALICE, request(restored), memory(), "is open already");
    second.refuses(ALICE, share(window(endpoints[0], 3)), memory(), "is open already");
    let more = (4..7).map(|number| second.ask(ALICE, share(window(endpoints[0], number)), memory()));
    let refused = more.last().unwrap();
    assert!(
        matches!(&refused[0].1, Reply::Refused { reason, .. } if reason.contains("--limits memory_bytes")),
        "{refused:?}"
    );
    // It is given back as what was shared here is: withdrawn, and with its channel.
    second.ask(ALICE, Request::WithdrawWindow { window: restored }, Vec::new());
    second.ask(ALICE, Request::CloseChannel { channel }, Vec::new());
    let board_bytes = Bell::board_bytes(4) as u64;
    assert_eq!(second.charges(), [(0, board_bytes), (0, board_bytes), (0, 0)]);
}
