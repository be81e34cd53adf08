//! What attached processes say. All of it is an allegation: what is refused ends the channel of the one who said it, and has changed nothing.

use std::time::{Duration, Instant};

use comb_coherence::stache::Stache;
use comb_coherence::{Access, Block, Message, PeerError};

use super::shared::{Late, Shared};
use super::{Books, MESSAGES_A_TURN};
use crate::wire::{self, Head, Kind};

/// What a process said that cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Mistake {
    #[error("a message that means nothing")]
    Nonsense,
    #[error("a region at {0:#x} that it is not attached to")]
    NotAttached(u64),
    #[error("block {0}, which the region does not have")]
    NoBlock(u64),
    #[error("{error} ({what}, region at {offset:#x})")]
    Protocol { error: PeerError, what: String, offset: u64 },
}

/// A block that an importer was just given stays given until it can have used it; messages about it wait.
pub(super) struct Held {
    offset: u64,
    block: u64,
    until: Instant,
    messages: Vec<(u32, Head, Vec<u8>)>,
    /// How often the same block had to be given again at once.
    times: u32,
}

/// From a grant to the access: an answer, its way, the return from a signal handler.
const SHORTEST_HOLD: Duration = Duration::from_micros(8);
/// Who comes back so soon was not quick enough, perhaps because it had no core.
const AT_ONCE: Duration = Duration::from_micros(100);
const LONGEST_HOLD: Duration = Duration::from_millis(2);
/// What one process may have waiting while a region stands still: as many as it has threads that can be stopped.
const MOST_LATE: usize = 65_536;

impl Books {
    /// Takes in what has come. Whether anything had.
    pub(super) fn turn(&mut self) -> bool {
        let mut came = self.release_held();
        let mut buffer = std::mem::take(&mut self.buffer);
        for _ in 0..MESSAGES_A_TURN {
            let Some(arrival) = self.peers.receive(&mut buffer) else { break };
            came = true;
            self.hear(arrival.from, arrival.kind, &buffer);
        }
        self.buffer = buffer;
        self.peers.flush();
        while let Some(gone) = self.peers.take_gone() {
            came = true;
            self.gone(gone.rank);
        }
        came
    }

    pub(super) fn is_owing(&self) -> bool {
        self.held.as_ref().is_some_and(|held| !held.messages.is_empty()) || self.peers.has_unsent()
    }

    fn gone(&mut self, rank: u32) {
        let Self { regions, peers, .. } = self;
        for region in regions.values_mut() {
            if let Some(number) = region.number_of(rank) {
                region.detach(peers, number);
            }
            region.late.retain(|late| late.from != rank);
        }
        peers.forget(rank);
        self.dismissed.retain(|&(dismissed, _)| dismissed != rank);
    }

    fn hear(&mut self, from: u32, kind: u8, message: &[u8]) {
        if let Err(mistake) = self.take(from, kind, message) {
            let what = Kind::of(kind).map_or_else(|| kind.to_string(), |kind| format!("{kind:?}"));
            eprintln!(
                "comb: an attached process (peer {from}) was cut off, for it spoke of {mistake} ({what})"
            );
            self.peers.cut(from);
            self.gone(from);
        }
    }

    pub(super) fn take(&mut self, from: u32, kind: u8, message: &[u8]) -> Result<(), Mistake> {
        let (Some(kind), Some((head, content))) = (Kind::of(kind), wire::split(message)) else {
            return Err(Mistake::Nonsense);
        };
        if matches!(kind, Kind::Want | Kind::Protocol | Kind::Leave)
            && self.dismissed.contains(&(from, head[1]))
        {
            return Ok(());
        }
        match kind {
            Kind::Enter => self.take_enter(from, &head),
            Kind::Want => self.take_want(from, &head),
            Kind::Protocol => self.take_protocol(from, &head, content),
            Kind::Leave => {
                let (region, number) = attached(&mut self.regions, from, head[1])?;
                region.leave(&mut self.peers, number, head[0]);
                Ok(())
            }
            _ => Err(Mistake::Nonsense),
        }
    }

    fn take_enter(&mut self, from: u32, head: &Head) -> Result<(), Mistake> {
        let [number, offset, proof, _] = *head;
        let unknown = Mistake::NotAttached(offset);
        let region = self.regions.get_mut(&offset).ok_or(unknown.clone())?;
        let is_there = region.number_of(from).is_some();
        let attachment =
            u32::try_from(number).ok().and_then(|number| region.body.attachments.get_mut(&number));
        let attachment = attachment.filter(|one| one.rank.is_none() && one.proof == proof && !is_there);
        attachment.ok_or(unknown)?.rank = Some(from);
        // Its number may be another's before the time is over.
        self.expected.retain(|&(_, of, who)| (of, u64::from(who)) != (offset, number));
        self.dismissed.remove(&(from, offset));
        Ok(())
    }

    fn take_want(&mut self, from: u32, head: &Head) -> Result<(), Mistake> {
        let [_, offset, block, word] = *head;
        let (region, number) = attached(&mut self.regions, from, offset)?;
        if region.body.attachments[&number].importer.is_none() {
            return Err(Mistake::NotAttached(offset));
        }
        if block >= region.body.layout.blocks() {
            return Err(Mistake::NoBlock(block));
        }
        let is_store = word & 1 == 1;
        if self.recovering.is_some() || region.is_frozen && is_store {
            return put_off(region, Late { from, head: *head, kind: Kind::Want });
        }
        region.want(&mut self.peers, number, head);
        self.hold_given(offset);
        Ok(())
    }

    fn take_protocol(&mut self, from: u32, head: &Head, content: &[u8]) -> Result<(), Mistake> {
        let [word, offset, block, more] = *head;
        if let Some(held) = &mut self.held
            && (held.offset, held.block) == (offset, block)
            && Instant::now() < held.until
        {
            held.messages.push((from, *head, content.to_vec()));
            return Ok(());
        }
        let (region, number) = attached(&mut self.regions, from, offset)?;
        let is_copier = region.body.attachments[&number].importer.is_none();
        if !is_copier || word >> 32 != u64::from(region.body.allocation.generation) {
            return Err(Mistake::NotAttached(offset));
        }
        #[expect(clippy::cast_possible_truncation, reason = "the first byte")]
        let kind = word as u8;
        if (self.recovering.is_some() || region.is_frozen) && Stache::asks(kind).is_some() {
            return put_off(region, Late { from, head: *head, kind: Kind::Protocol });
        }
        let may_store = region.body.attachments[&number].to_store;
        if !may_store && Stache::asks(kind) == Some(Access::ReadWrite) {
            let what = region.describe(kind);
            return Err(Mistake::Protocol { error: PeerError::NotHeld(Block(block)), what, offset });
        }
        let message = Message { kind, block: Block(block), word: more, content };
        region.hear(&mut self.peers, number, message).map_err(|error| {
            let what = region.describe(kind);
            Mistake::Protocol { error, what, offset }
        })?;
        self.hold_given(offset);
        Ok(())
    }

    /// What had to wait while a region stood still.
    pub(super) fn hear_late(&mut self, late: Vec<Late>) {
        for Late { from, head, kind } in late {
            self.hear(from, kind as u8, &wire::pack(&head));
        }
    }

    /// An importer may have been given what another had: for a moment nobody takes it.
    fn hold_given(&mut self, offset: u64) {
        let Some(block) = self.regions.get_mut(&offset).and_then(|region| region.given.take()) else {
            return;
        };
        let now = Instant::now();
        let before = self.held.take();
        let times = match &before {
            Some(held) if (held.offset, held.block) == (offset, block) && now < held.until + AT_ONCE => {
                held.times + 1
            }
            _ => 0,
        };
        let until = now + LONGEST_HOLD.min(SHORTEST_HOLD * (1 << times.min(10)));
        self.held = Some(Held { offset, block, until, messages: Vec::new(), times });
        self.hear_kept(before);
    }

    fn release_held(&mut self) -> bool {
        let Some(held) = &mut self.held else { return false };
        if held.messages.is_empty() || Instant::now() < held.until {
            return false;
        }
        let messages = std::mem::take(&mut held.messages);
        let (offset, block, until, times) = (held.offset, held.block, held.until, held.times);
        self.hear_kept(Some(Held { offset, block, until, messages, times }));
        true
    }

    fn hear_kept(&mut self, held: Option<Held>) {
        for (from, head, content) in held.map(|held| held.messages).unwrap_or_default() {
            let message = [&wire::pack(&head)[..], &content].concat();
            self.hear(from, Kind::Protocol as u8, &message);
        }
    }
}

/// The region that a peer speaks of, and the peer's number there.
fn attached(
    regions: &mut std::collections::BTreeMap<u64, Shared>,
    from: u32,
    offset: u64,
) -> Result<(&mut Shared, u32), Mistake> {
    let region = regions.get_mut(&offset).ok_or(Mistake::NotAttached(offset))?;
    let number = region.number_of(from).ok_or(Mistake::NotAttached(offset))?;
    Ok((region, number))
}

fn put_off(region: &mut Shared, late: Late) -> Result<(), Mistake> {
    if region.late.len() >= MOST_LATE {
        return Err(Mistake::Nonsense);
    }
    region.late.push(late);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use comb_net::agent::server::InProcess;
    use comb_net::{Endpoint, EndpointOptions};
    use proptest::prelude::*;

    use super::*;
    use crate::named::home::body::Attachment;
    use crate::named::{ADDRESSES, Entry, Mode, Owner};
    use crate::peers::Peers;
    use crate::terms::{Allocation, Placement, Terms};

    const HERE: u64 = ADDRESSES.start;
    const GENERATION: u64 = 7 << 32;

    /// A home with a region, of which peer 1 has copies and which peer 2 imports; 3 has not said who it is.
    struct Scene {
        books: Books,
        _peers: Vec<Endpoint>,
        _agent: InProcess,
    }

    impl Scene {
        fn new() -> Self {
            let agent = InProcess::start();
            let cell = agent.connect("cell-1").unwrap();
            let endpoint = cell.endpoint_with("regions", EndpointOptions::default()).unwrap();
            let mut peers = Peers::who_come(endpoint);
            let others: Vec<Endpoint> = (1..4)
                .map(|number| {
                    let process = agent.connect(&format!("attached-{number}")).unwrap();
                    let mut endpoint = process.endpoint("memory").unwrap();
                    endpoint.open("cell-1/regions").unwrap();
                    endpoint
                })
                .collect();
            while peers.others().len() < 3 {
                peers.admit();
            }
            let (buffer, held, expected) = (Vec::new(), None, Vec::new());
            let tidied = Instant::now();
            let (regions, closed) = (BTreeMap::new(), Vec::new());
            let (recovering, dismissed, showing) = (None, BTreeSet::new(), None);
            let loans = super::super::loaning::Loans::new(1, 1 << 30);
            let books = Books {
                peers,
                regions,
                generation: 7,
                buffer,
                held,
                expected,
                tidied,
                closed,
                recovering,
                dismissed,
                showing,
                loans,
            };
            let mut scene = Self { books, _peers: others, _agent: agent };
            scene.begin();
            scene
        }

        fn begin(&mut self) {
            let terms = Terms { placement: Placement::At(0), ..Terms::default() };
            let allocation =
                Allocation { offset: HERE, bytes: 100_000, generation: 7, creator: 0, terms, image: 0 };
            let (owner, mode) = (Owner { user: 1, group: 1 }, Mode::default());
            let entry =
                Entry { name: "r".to_owned(), cell: 1, incarnation: 1, owner, mode, allocation, saved: None };
            let exports = comb_memory::Exports::create(102_400).unwrap();
            let mut region = Shared::new(entry, exports, None);
            for (rank, imports, to_store) in
                [(Some(1), false, true), (Some(2), true, true), (None, false, true)]
            {
                let attachment = Attachment {
                    rank,
                    proof: 5,
                    process: 0,
                    cell: None,
                    to_store,
                    importer: None,
                    leaves: None,
                };
                region.attach(attachment, imports);
            }
            self.books.regions = BTreeMap::from([(HERE, region)]);
            self.books.held = None;
        }

        fn take(&mut self, from: u32, kind: Kind, head: [u64; 4], content: &[u8]) -> Result<(), Mistake> {
            self.books.take(from, kind as u8, &[&wire::pack(&head)[..], content].concat())
        }

        #[track_caller]
        fn refuses(&mut self, from: u32, kind: Kind, head: [u64; 4], content: &[u8], words: &str) {
            let mistake = self.take(from, kind, head, content).expect_err("a lie").to_string();
            assert!(mistake.contains(words), "{mistake}");
        }
    }

    #[test]
    fn a_lie_is_refused_by_name() {
        let mut scene = Scene::new();
        let (read, write) = (GENERATION, GENERATION | 1);
        let elsewhere = HERE + (1 << 30);
        scene.refuses(1, Kind::Allocated, [0; 4], &[], "means nothing");
        scene.refuses(1, Kind::May, [0; 4], &[], "means nothing");
        scene.refuses(1, Kind::Protocol, [read, elsewhere, 0, 0], &[], "not attached to");
        scene.refuses(1, Kind::Protocol, [6 << 32, HERE, 0, 0], &[], "not attached to");
        scene.refuses(1, Kind::Protocol, [read, HERE, 25, 0], &[], "beyond the allocation");
        scene.refuses(1, Kind::Protocol, [read, HERE, 0, 0], &[1; 4096], "belong");
        scene.refuses(1, Kind::Want, [1, HERE, 0, 0], &[], "not attached to");
        scene.refuses(2, Kind::Protocol, [read, HERE, 0, 0], &[], "not attached to");
        scene.refuses(2, Kind::Want, [1, HERE, 25, 0], &[], "does not have");
        scene.refuses(3, Kind::Want, [1, HERE, 0, 0], &[], "not attached to");
        scene.refuses(3, Kind::Leave, [1, HERE, 0, 0], &[], "not attached to");
        // It gives back what it does not have.
        for kind in 2..8 {
            let sent = scene.take(1, Kind::Protocol, [GENERATION | kind, HERE, 0, 0], &[9; 4096]);
            assert!(sent.is_err(), "kind {kind}");
        }
        // With another's number, a wrong proof, or twice.
        scene.refuses(3, Kind::Enter, [1, HERE, 5, 0], &[], "not attached to");
        scene.refuses(3, Kind::Enter, [3, HERE, 6, 0], &[], "not attached to");
        scene.refuses(2, Kind::Enter, [3, HERE, 5, 0], &[], "not attached to");
        scene.take(3, Kind::Enter, [3, HERE, 5, 0], &[]).unwrap();
        scene.refuses(3, Kind::Enter, [3, HERE, 5, 0], &[], "not attached to");
        // Who only reads asks to store.
        let region = scene.books.regions.get_mut(&HERE).unwrap();
        region.body.attachments.get_mut(&1).unwrap().to_store = false;
        scene.refuses(1, Kind::Protocol, [write, HERE, 0, 0], &[], "holds nothing");
        scene.take(1, Kind::Protocol, [read, HERE, 0, 0], &[]).unwrap();
        scene.books.regions.get_mut(&HERE).unwrap().body.attachments.get_mut(&2).unwrap().to_store = false;
        scene.take(2, Kind::Want, [1, HERE, 0, 1], &[]).unwrap();
        // All that was refused has changed nothing.
        let region = &mut scene.books.regions.get_mut(&HERE).unwrap().body;
        assert!(region.content(0).iter().all(|&byte| byte == 0) && region.changed.is_empty());
        assert_eq!((region.attachments.len(), region.waiting.len()), (3, 0));
    }

    #[test]
    fn who_was_given_a_block_after_a_wait_has_it_for_a_moment() {
        let mut scene = Scene::new();
        let (write, returned) = (GENERATION | 1, GENERATION | 2);
        scene.take(1, Kind::Protocol, [write, HERE, 3, 0], &[]).unwrap();
        assert_eq!(scene.books.regions[&HERE].away().collect::<Vec<_>>(), [3]);
        scene.take(2, Kind::Want, [1, HERE, 3, 0], &[]).unwrap();
        scene.take(1, Kind::Protocol, [returned, HERE, 3, 0], &[7; 4096]).unwrap();
        assert_eq!(scene.books.regions[&HERE].status(1).waiting, 0);
        // The moment lasts as long as this test needs it, which may be kept from its core.
        scene.books.held.as_mut().expect("it was given").until += Duration::from_secs(3600);
        // It has a copy, and wants it alone again: not yet.
        scene.take(1, Kind::Protocol, [write, HERE, 3, 1], &[]).unwrap();
        let held = scene.books.held.as_mut().expect("it was given");
        assert_eq!((held.messages.len(), scene.books.regions[&HERE].away().count()), (1, 0));
        held.until = Instant::now();
        assert!(scene.books.is_owing());
        while scene.books.is_owing() {
            scene.books.turn();
        }
        assert_eq!(scene.books.regions[&HERE].away().collect::<Vec<_>>(), [3]);
        // Of another block, at once.
        scene.take(1, Kind::Protocol, [write, HERE, 4, 0], &[]).unwrap();
        assert_eq!(scene.books.regions[&HERE].away().count(), 2);
    }

    #[test]
    fn what_was_asked_for_before_a_checkpoint_and_is_given_during_it_comes_home() {
        let mut scene = Scene::new();
        let (write, returned, dropped) = (GENERATION | 1, GENERATION | 2, GENERATION | 3);
        scene.take(3, Kind::Enter, [3, HERE, 5, 0], &[]).unwrap();
        scene.take(1, Kind::Protocol, [write, HERE, 3, 0], &[]).unwrap();
        // The home asks for it, and behind that another does.
        scene.take(2, Kind::Want, [1, HERE, 3, 0], &[]).unwrap();
        scene.take(3, Kind::Protocol, [write, HERE, 3, 0], &[]).unwrap();
        let is_home = |scene: &mut Scene| {
            let Books { regions, peers, .. } = &mut scene.books;
            regions.get_mut(&HERE).unwrap().is_home(peers)
        };
        let Books { regions, peers, .. } = &mut scene.books;
        regions.get_mut(&HERE).unwrap().freeze(peers);
        assert!(!is_home(&mut scene));
        scene.take(1, Kind::Protocol, [returned, HERE, 3, 0], &[7; 4096]).unwrap();
        while scene.books.held.as_ref().is_some_and(|held| Instant::now() < held.until) {}
        scene.take(1, Kind::Protocol, [dropped, HERE, 3, 0], &[]).unwrap();
        assert_eq!(scene.books.regions[&HERE].away().collect::<Vec<_>>(), [3], "the other has it now");
        assert!(!is_home(&mut scene));
        scene.take(3, Kind::Protocol, [returned, HERE, 3, 0], &[8; 4096]).unwrap();
        assert!(is_home(&mut scene));
        assert_eq!(scene.books.regions.get_mut(&HERE).unwrap().body.content(3), [8; 4096]);
    }

    #[test]
    fn what_who_leaves_had_asked_for_is_not_lost_with_it() {
        let mut scene = Scene::new();
        let (write, returned) = (GENERATION | 1, GENERATION | 2);
        scene.take(3, Kind::Enter, [3, HERE, 5, 0], &[]).unwrap();
        scene.take(1, Kind::Protocol, [write, HERE, 3, 0], &[]).unwrap();
        scene.take(2, Kind::Want, [1, HERE, 3, 1], &[]).unwrap();
        // Ahead of its need, and then it leaves.
        scene.take(3, Kind::Protocol, [write, HERE, 3, 0], &[]).unwrap();
        scene.take(3, Kind::Leave, [9, HERE, 0, 0], &[]).unwrap();
        scene.take(1, Kind::Protocol, [returned, HERE, 3, 0], &[7; 4096]).unwrap();
        assert!(scene.books.regions[&HERE].number_of(3).is_some(), "it was given what it had wanted");
        scene.take(3, Kind::Protocol, [returned, HERE, 3, 0], &[8; 4096]).unwrap();
        let region = scene.books.regions.get_mut(&HERE).unwrap();
        assert!(region.number_of(3).is_none() && region.body.lost.is_empty());
        assert_eq!(region.body.content(3), [8; 4096]);
    }

    /// Who had come and gone left the time by which it was to come. Whoever had its number by then was forgotten, though it was on its way.
    #[test]
    fn who_has_come_is_not_expected_any_more() {
        let mut scene = Scene::new();
        scene.books.expected = vec![(Instant::now(), HERE, 3), (Instant::now(), HERE, 4)];
        scene.take(3, Kind::Enter, [3, HERE, 5, 0], &[]).unwrap();
        let numbers: Vec<u32> = scene.books.expected.iter().map(|&(.., number)| number).collect();
        assert_eq!(numbers, [4]);
    }

    #[test]
    fn who_was_let_in_and_does_not_come_is_forgotten() {
        let mut scene = Scene::new();
        let (past, future) = (Instant::now(), Instant::now() + Duration::from_secs(3600));
        scene.books.expected = vec![(past, HERE, 1), (future, HERE, 3)];
        scene.books.forget_late_comers();
        let numbers = |scene: &Scene| -> Vec<u32> {
            scene.books.regions[&HERE].body.attachments.keys().copied().collect()
        };
        assert_eq!(numbers(&scene), [1, 2, 3], "1 has come, 3 has time");
        scene.books.expected = vec![(past, HERE, 3)];
        scene.books.forget_late_comers();
        assert_eq!(numbers(&scene), [1, 2]);
        scene.refuses(3, Kind::Enter, [3, HERE, 5, 0], &[], "not attached to");
    }

    #[test]
    fn any_message_is_taken_or_refused() {
        let scene = std::cell::RefCell::new(Scene::new());
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
            cases: 2000,
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        let number = || {
            prop_oneof![0..30_u64, Just(HERE), (0..20_u64).prop_map(|kind| GENERATION | kind), any::<u64>()]
        };
        let offset = prop_oneof![9 => Just(HERE), 1 => any::<u64>()];
        let content =
            prop_oneof![Just(Vec::new()), Just(vec![1; 4096]), prop::collection::vec(any::<u8>(), 0..60),];
        let message = (1..4_u32, 0..20_u8, number(), offset, number(), number(), content);
        runner
            .run(&prop::collection::vec(message, 1..20), |messages| {
                let mut scene = scene.borrow_mut();
                scene.begin();
                for (from, kind, first, offset, third, fourth, content) in messages {
                    let head = wire::pack(&[first, offset, third, fourth]);
                    let _ = scene.books.take(from, kind, &[&head[..], &content].concat());
                    let _ = scene.books.take(from, kind, &head[..usize::from(kind)]);
                }
                // Nobody waits for one who is gone, and every block is somewhere.
                let ranks = [1, 2, 3];
                ranks.iter().for_each(|&rank| scene.books.gone(rank));
                scene.books.drop_attachment(HERE, 3);
                let region = &scene.books.regions[&HERE];
                prop_assert!(region.body.waiting.is_empty() && region.body.attachments.is_empty());
                prop_assert_eq!(region.away().count(), 0);
                Ok(())
            })
            .unwrap();
    }
}
