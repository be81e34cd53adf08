use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::directory::Holding;
use crate::homes::Home;
use crate::tempest::Loss;

#[path = "model.rs"]
mod model;
mod moving;
use model::Bounds;

fn bounds() -> Bounds {
    Bounds {
        protocol: Stache::new(),
        cells: 3,
        homes: 1,
        blocks: 1,
        accesses: 4,
        evictions: 0,
        moves: 0,
        pushes: 0,
        mortal: None,
    }
}

#[test]
fn model_three_cells_and_a_block() {
    bounds().look_at_all();
}

#[test]
fn model_evictions() {
    Bounds { accesses: 3, evictions: 2, ..bounds() }.look_at_all();
}

#[test]
fn model_two_blocks() {
    Bounds { cells: 2, homes: 2, blocks: 2, evictions: 1, ..bounds() }.look_at_all();
}

#[test]
fn model_a_cell_dies_that_is_home_to_one_of_two_blocks() {
    Bounds { homes: 2, blocks: 2, accesses: 3, mortal: Some(1), ..bounds() }.look_at_all();
}

#[test]
fn model_a_cell_dies_that_gives_back() {
    Bounds { homes: 1, blocks: 1, accesses: 3, evictions: 1, mortal: Some(1), ..bounds() }.look_at_all();
}

#[test]
fn model_a_home_moves() {
    Bounds { accesses: 2, moves: 3, ..bounds() }.look_at_all();
    Bounds { accesses: 3, moves: 1, ..bounds() }.look_at_all();
}

#[test]
fn model_a_home_moves_and_copies_are_given_back() {
    Bounds { accesses: 3, evictions: 1, moves: 1, ..bounds() }.look_at_all();
}

#[test]
fn model_two_homes_move() {
    Bounds { cells: 2, homes: 2, blocks: 2, accesses: 3, moves: 2, ..bounds() }.look_at_all();
}

#[test]
fn model_a_home_moves_and_dies() {
    Bounds { accesses: 2, moves: 2, mortal: Some(0), ..bounds() }.look_at_all();
}

#[test]
fn model_a_home_moves_and_another_dies() {
    Bounds { accesses: 2, moves: 2, mortal: Some(1), ..bounds() }.look_at_all();
}

#[test]
fn model_one_of_two_homes_moves_and_dies() {
    Bounds { homes: 2, blocks: 2, accesses: 2, moves: 1, mortal: Some(1), ..bounds() }.look_at_all();
}

#[test]
fn model_pushes_and_moves() {
    Bounds { accesses: 2, pushes: 1, moves: 1, evictions: 1, ..bounds() }.look_at_all();
}

#[test]
fn model_pushes() {
    Bounds { accesses: 3, pushes: 1, evictions: 1, ..bounds() }.look_at_all();
}

#[test]
fn model_migratory_moves_and_pushes() {
    Bounds { protocol: Stache::migratory(), accesses: 2, moves: 1, pushes: 1, ..bounds() }.look_at_all();
}

#[test]
fn model_migratory() {
    Bounds { protocol: Stache::migratory(), evictions: 1, ..bounds() }.look_at_all();
}

/// Longer ways than can be looked at whole.
#[test]
fn homes_move_again_and_again_and_a_cell_dies() {
    let (mut moved_again, mut outlived) = (0, 0);
    for seed in 0..2000_u32 {
        let protocol = if seed.is_multiple_of(2) { Stache::new() } else { Stache::migratory() };
        let mortal = (seed % 5 < 4).then_some(seed % 4);
        let many = Bounds { protocol, cells: 4, homes: 2, blocks: 3, accesses: 150, mortal, ..bounds() };
        let end = Bounds { evictions: 20, moves: 60, pushes: 30, ..many }.walk(u64::from(seed), 1500);
        moved_again += u32::from(end.has.moved_again);
        outlived += u32::from(end.has.outlived);
    }
    assert!(moved_again > 1500 && outlived > 300, "{moved_again} {outlived}");
}

/// What moves while cells tell each other where it is. Few accesses, so that most know only where the block was born.
#[test]
fn homes_move_while_a_cell_dies() {
    let mut outlived = 0;
    for seed in 0..40_000 {
        let few = Bounds { cells: 4, accesses: 2, moves: 3, mortal: Some(0), ..bounds() };
        outlived += u32::from(few.walk(seed, 200).has.outlived);
    }
    assert!(outlived > 4000, "{outlived}");
}

/// More cells than a table of the directory can tell apart.
#[test]
fn many_cells_have_one_home_and_one_dies() {
    for seed in 0..4 {
        let many =
            Bounds { cells: 140, blocks: 170, accesses: 5000, evictions: 40, mortal: Some(3), ..bounds() };
        let end = many.walk(seed, 6000);
        assert!(end.has.passed_on, "seed {seed}");
    }
}

const BYTES: [u8; 4] = [1, 2, 3, 4];

/// Cell 0, home of block 0; block 1 is homed in cell 1.
type Scene = crate::scene::Scene<Stache>;

impl Scene {
    fn new() -> Self {
        Self::of(Stache::new())
    }

    /// In which blocks may move.
    fn moving() -> Self {
        let mut scene = Self::new();
        scene.machine.homes_move = true;
        scene
    }

    /// Gives block 0 to another cell; what that is to answer with.
    fn give(&mut self, to: u32) -> u64 {
        assert!(self.protocol.on_move(&mut self.machine, Block(0), CellId(to)));
        let word = self.machine.last_word().expect("it was given");
        assert_eq!(self.said(), [(to, Kind::Given)]);
        word
    }

    fn home(&self, block: u64) -> (u32, u32) {
        let home = self.machine.home(Block(block));
        (home.cell.0, home.moves)
    }

    fn hear(
        &mut self,
        from: u32,
        kind: Kind,
        block: u64,
        word: u64,
        content: &[u8],
    ) -> Result<(), PeerError> {
        self.message(from, kind as u8, block, word, content)
    }

    /// As [`Scene::hear`], of what is in order.
    fn take(&mut self, from: u32, kind: Kind, block: u64, word: u64, content: &[u8]) -> Vec<(u32, Kind)> {
        self.hear(from, kind, block, word, content).expect("in order");
        self.said()
    }

    fn said(&mut self) -> Vec<(u32, Kind)> {
        let said = self.machine.take_sent();
        said.into_iter().map(|(to, kind)| (to.0, Kind::of(kind).expect("ours"))).collect()
    }
}

#[test]
fn who_has_a_copy_gets_the_right_to_write_without_content_and_is_not_asked_to_drop_it() {
    let mut home = Scene::new();
    assert_eq!(home.take(1, Kind::Read, 0, 0, &[]), [(1, Kind::Readable)]);
    assert_eq!(home.take(1, Kind::Write, 0, client::HAS_COPY, &[]), [(1, Kind::Upgraded)]);
    let mut client = Scene::new();
    client.protocol.on_read_fault(&mut client.machine, Block(1));
    assert_eq!(client.said(), [(1, Kind::Read)]);
    assert_eq!(client.take(1, Kind::Readable, 1, 0, &BYTES), []);
    client.protocol.on_write_fault(&mut client.machine, Block(1));
    assert_eq!(client.machine.last_word(), Some(client::HAS_COPY));
    assert_eq!(client.said(), [(1, Kind::Write)]);
}

#[test]
fn many_threads_ask_once() {
    let mut scene = Scene::new();
    for _ in 0..3 {
        scene.protocol.on_read_fault(&mut scene.machine, Block(1));
        scene.protocol.on_write_fault(&mut scene.machine, Block(1));
    }
    assert_eq!(scene.said(), [(1, Kind::Read)]);
    // The home's own, while another has the block.
    assert_eq!(scene.take(1, Kind::Write, 0, 0, &[]), [(1, Kind::Writable)]);
    for _ in 0..3 {
        scene.protocol.on_read_fault(&mut scene.machine, Block(0));
    }
    assert_eq!(scene.said(), [(1, Kind::Recall)]);
    assert_eq!(scene.take(2, Kind::Write, 0, 0, &[]), []);
    for _ in 0..3 {
        scene.protocol.on_read_fault(&mut scene.machine, Block(0));
    }
    assert_eq!(scene.take(1, Kind::Returned, 0, 0, &BYTES), [(1, Kind::Invalidate)]);
    assert_eq!(scene.take(1, Kind::Dropped, 0, 0, &[]), [(2, Kind::Writable)]);
    assert!(scene.protocol.transactions.is_empty());
}

#[test]
fn requests_are_served_in_their_order() {
    let mut home = Scene::new();
    assert_eq!(home.take(1, Kind::Write, 0, 0, &[]), [(1, Kind::Writable)]);
    assert_eq!(home.take(2, Kind::Write, 0, 0, &[]), [(1, Kind::Recall)]);
    assert_eq!(home.take(3, Kind::Write, 0, 0, &[]), []);
    assert_eq!(home.take(4, Kind::Write, 0, 0, &[]), []);
    for (holder, next) in [(1, 2), (2, 3)] {
        let said = home.take(holder, Kind::Returned, 0, 0, &BYTES);
        assert_eq!(said, [(next, Kind::Writable), (next, Kind::Recall)]);
    }
}

#[test]
fn what_a_peer_may_not_say_is_refused_and_changes_nothing() {
    let mut scene = Scene::new();
    // Cell 1 reads block 0, cell 2 waits to write it; we read block 1.
    scene.take(1, Kind::Read, 0, 0, &[]);
    scene.take(2, Kind::Write, 0, 0, &[]);
    scene.protocol.on_read_fault(&mut scene.machine, Block(1));
    scene.take(1, Kind::Readable, 1, 0, &BYTES);
    scene.protocol.on_peer_death(&mut scene.machine, CellId(9));
    let (none, zero, one) = (&[][..], Block(0), Block(1));
    let wrong = [
        (9, Kind::Read, 0, 0, none, PeerError::Dead(CellId(9))),
        (3, Kind::Read, 2, 0, none, PeerError::NoBlock(Block(2))),
        (3, Kind::Read, u64::MAX, 0, none, PeerError::NoBlock(Block(u64::MAX))),
        (3, Kind::Read, 1, 0, none, PeerError::NotHome(one)),
        (3, Kind::Read, 0, 0, &BYTES, PeerError::Content { bytes: 4, expected: 0 }),
        (1, Kind::Returned, 0, 0, none, PeerError::Content { bytes: 0, expected: 4 }),
        (3, Kind::Write, 0, 2, none, PeerError::Word(2)),
        (3, Kind::Write, 0, client::HAS_COPY, none, PeerError::NotHeld(zero)),
        (2, Kind::Read, 0, 0, none, PeerError::AskedTwice(zero)),
        (3, Kind::Dropped, 0, 0, none, PeerError::NotAsked(zero)),
        (1, Kind::Returned, 0, 0, &BYTES, PeerError::NotHeld(zero)),
        (1, Kind::GivenBack, 0, 0, &BYTES, PeerError::NotHeld(zero)),
        (3, Kind::GivenBack, 0, 0, &BYTES, PeerError::NotHeld(zero)),
        (3, Kind::Invalidate, 1, 0, none, PeerError::NotYours(one)),
        (1, Kind::Recall, 1, 2, none, PeerError::Word(2)),
        (1, Kind::Readable, 1, 0, &BYTES, PeerError::NotAsked(one)),
        (1, Kind::Writable, 1, 0, &BYTES, PeerError::NotAsked(one)),
        (1, Kind::Upgraded, 1, 0, none, PeerError::NotAsked(one)),
        (1, Kind::Lost, 1, 0, none, PeerError::NotAsked(one)),
    ];
    let (protocol, machine) = (scene.protocol.clone(), scene.machine.clone());
    for (from, kind, block, word, content, error) in wrong {
        assert_eq!(scene.hear(from, kind, block, word, content), Err(error), "{kind:?}");
        assert_eq!((&scene.protocol, &scene.machine), (&protocol, &machine), "{kind:?}");
    }
    assert_eq!(scene.message(1, 16, 0, 0, &[]), Err(PeerError::Kind(16)));
    // What may be written here is nobody else's to change.
    scene.protocol.on_write_fault(&mut scene.machine, one);
    scene.take(1, Kind::Upgraded, 1, 0, &[]);
    assert_eq!(scene.hear(1, Kind::Invalidate, 1, 0, &[]), Err(PeerError::NotAsked(one)));
    // The other writes, and asks for what it has.
    scene.take(1, Kind::Dropped, 0, 0, &[]);
    assert_eq!(scene.hear(2, Kind::Write, 0, 0, &[]), Err(PeerError::HeldAlready(zero)));
}

#[test]
fn a_block_that_is_lost_is_lost_to_all() {
    let mut home = Scene::new();
    home.take(1, Kind::Write, 0, 0, &[]);
    home.take(2, Kind::Read, 0, 0, &[]);
    home.protocol.on_peer_death(&mut home.machine, CellId(1));
    assert_eq!(home.said(), [(2, Kind::Lost)]);
    assert_eq!(home.machine.lost[0], Some(Loss::Holder(CellId(1))));
    assert_eq!(home.take(3, Kind::Write, 0, 0, &[]), [(3, Kind::Lost)]);
    // What was asked of a home that died is not waited for: the block may get another home.
    home.protocol.on_read_fault(&mut home.machine, Block(1));
    home.protocol.on_peer_death(&mut home.machine, CellId(1));
    assert!(home.protocol.wanted.is_empty());
    // Nobody asks for it: it is told all the same.
    let mut home = Scene::new();
    home.take(1, Kind::Write, 0, 0, &[]);
    home.protocol.on_peer_death(&mut home.machine, CellId(1));
    assert_eq!(home.machine.lost[0], Some(Loss::Holder(CellId(1))));
    // A liar that says that it has nothing.
    let mut home = Scene::new();
    home.take(1, Kind::Write, 0, 0, &[]);
    home.take(2, Kind::Read, 0, 0, &[]);
    assert_eq!(home.take(1, Kind::Dropped, 0, 0, &[]), [(2, Kind::Lost)]);
    assert_eq!(home.machine.lost[0], Some(Loss::Nowhere));
}

/// The home of a copy-on-write child has not got what its parent had, and that is dead.
#[test]
fn what_a_home_cannot_have_is_lost_to_who_asks_and_what_somebody_has_is_not() {
    let (mut home, loss) = (Scene::new(), Loss::Home(CellId(9)));
    home.take(1, Kind::Write, 0, 0, &[]);
    home.protocol.lose(&mut home.machine, Block(0), loss);
    assert_eq!(home.machine.lost[0], None, "it is with another cell");
    let mut home = Scene::new();
    home.protocol.lose(&mut home.machine, Block(0), loss);
    assert_eq!(home.machine.lost[0], Some(loss));
    assert_eq!(home.take(2, Kind::Read, 0, 0, &[]), [(2, Kind::Lost)]);
}

/// The directory names more cells than have a block when there are too many sets to tell apart.
#[test]
fn of_several_that_may_have_a_block_one_has_it_whoever_dies() {
    let several: Cells = [1, 2].map(CellId).into_iter().collect();
    let scene = || {
        let mut home = Scene::new();
        home.take(1, Kind::Write, 0, 0, &[]);
        home.protocol.directory.set(Block(0), Holding::Exclusive(&several));
        assert_eq!(home.take(3, Kind::Read, 0, 0, &[]), [(1, Kind::Recall), (2, Kind::Recall)]);
        home
    };
    // What came is not lost with who sent it, nor with those that are still asked.
    let mut home = scene();
    assert_eq!(home.take(1, Kind::Returned, 0, 0, &BYTES), []);
    home.protocol.on_peer_death(&mut home.machine, CellId(1));
    home.protocol.on_peer_death(&mut home.machine, CellId(2));
    assert_eq!(home.said(), [(3, Kind::Readable)]);
    assert_eq!(home.protocol.directory.holding(Block(0)), Holding::Shared(&Cells::one(CellId(3))));
    assert_eq!(home.machine.lost[0], None);
    // Of the one that died first nobody knows whether it had it, until the other has answered.
    let mut home = scene();
    home.protocol.on_peer_death(&mut home.machine, CellId(1));
    assert_eq!((home.said(), home.machine.lost[0]), (Vec::new(), None));
    assert_eq!(home.take(2, Kind::Dropped, 0, 0, &[]), [(3, Kind::Lost)]);
    assert_eq!(home.machine.lost[0], Some(Loss::Holder(CellId(1))));
}

proptest! {
    /// Whatever others say, it ends no cell, and what nobody else was given stays as it is.
    #[test]
    fn any_message_is_taken_or_refused(
        messages in prop::collection::vec((1..4_u32, 0..18_u8, 0..3_u64, 0..6_u64, any::<bool>(), 0..12_u8), 0..200),
        homes_move: bool,
    ) {
        let mut scene = if homes_move { Scene::moving() } else { Scene::new() };
        for (from, kind, block, word, has_content, fault) in messages {
            let is_moved = kind == Kind::Moved as u8;
            let moves = u32::try_from(word).unwrap();
            let word = if is_moved { Home { cell: CellId(fault.into()), moves }.to_word() } else { word };
            let content = if has_content { &BYTES[..] } else { &[] };
            let before = (scene.protocol.clone(), scene.machine.clone());
            if scene.message(from, kind, block, word, content).is_err() {
                prop_assert_eq!((&scene.protocol, &scene.machine), (&before.0, &before.1));
            }
            let own = Block(u64::from(fault % 2));
            match fault {
                0 | 1 => scene.protocol.on_read_fault(&mut scene.machine, own),
                2 | 3 => scene.protocol.on_write_fault(&mut scene.machine, own),
                4 | 5 => scene.protocol.on_evict(&mut scene.machine, own),
                6..9 => {
                    scene.protocol.on_move(&mut scene.machine, own, CellId(fault.into()));
                }
                9 => scene.protocol.on_push(&mut scene.machine, own, CellId(1)),
                _ => {}
            }
            let is_here = scene.home(0).0 == 0 && scene.protocol.transactions.is_empty();
            if is_here && scene.protocol.directory.holding(Block(0)) == Holding::Home {
                prop_assert!(scene.machine.access(Block(0)) == Access::ReadWrite || scene.machine.lost[0].is_some());
            }
        }
    }
}
