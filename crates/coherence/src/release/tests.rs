use proptest::prelude::*;

use super::*;

#[path = "model.rs"]
mod model;
use model::Bounds;

fn bounds(protocol: Release) -> Bounds {
    Bounds {
        protocol,
        cells: 3,
        homes: 1,
        blocks: 1,
        bytes: 2,
        sections: 3,
        stores: 1,
        evictions: 0,
        mortal: None,
    }
}

fn both(check: impl Fn(Bounds)) {
    [Release::invalidating(), Release::updating()].map(bounds).into_iter().for_each(check);
}

#[test]
fn model_three_cells_write_a_block_at_once() {
    both(Bounds::look_at_all);
}

#[test]
fn model_evictions() {
    both(|bounds| Bounds { evictions: 1, ..bounds }.look_at_all());
}

#[test]
fn model_a_cell_synchronises_several_blocks() {
    both(|bounds| {
        let wide = Bounds { cells: 2, homes: 2, blocks: 2, bytes: 1, sections: 4, ..bounds };
        Bounds { stores: 2, evictions: 1, ..wide }.look_at_all();
    });
}

#[test]
fn model_a_cell_dies() {
    both(|bounds| Bounds { mortal: Some(2), ..bounds }.look_at_all());
}

#[test]
fn model_a_home_dies() {
    both(|bounds| {
        Bounds { cells: 2, homes: 2, blocks: 2, bytes: 1, mortal: Some(0), ..bounds }.look_at_all();
    });
}

#[test]
fn many_sections() {
    both(|bounds| {
        for seed in 0..2000 {
            let bounds = bounds.clone();
            Bounds {
                cells: 5,
                homes: 2,
                blocks: 2,
                bytes: 3,
                sections: 25,
                stores: 3,
                evictions: 6,
                mortal: Some(3),
                ..bounds
            }
            .walk(seed, 1000);
        }
    });
}

/// Four bytes, of which the second becomes 9.
const CHANGE: [u8; 9] = [1, 0, 0, 0, 1, 0, 0, 0, 9];
const BYTES: [u8; 4] = [1, 2, 3, 4];

/// Cell 0, home of block 0; block 1 is homed in cell 1.
type Scene = crate::scene::Scene<Release>;

impl Scene {
    fn hear(&mut self, from: u32, kind: Kind, block: u64, content: &[u8]) -> Result<(), PeerError> {
        self.message(from, kind as u8, block, 0, content)
    }

    /// As [`Scene::hear`], of what is in order.
    fn take(&mut self, from: u32, kind: Kind, block: u64, content: &[u8]) -> Vec<(u32, Kind)> {
        self.hear(from, kind, block, content).expect("in order");
        self.said()
    }

    fn said(&mut self) -> Vec<(u32, Kind)> {
        let said = self.machine.take_sent();
        said.into_iter().map(|(to, kind)| (to.0, Kind::of(kind).expect("ours"))).collect()
    }

    fn sync(&mut self) -> Vec<(u32, Kind)> {
        self.protocol.on_sync(&mut self.machine);
        self.said()
    }

    fn store(&mut self, block: u64, at: usize, byte: u8) -> Vec<(u32, Kind)> {
        self.protocol.on_write_fault(&mut self.machine, Block(block));
        if self.machine.access[usize::try_from(block).unwrap()].may_store() {
            self.machine.content[usize::try_from(block).unwrap()][at] = byte;
        }
        self.said()
    }
}

#[test]
fn a_store_into_what_is_not_here_faults_once() {
    for first in [Scene::store as fn(&mut Scene, u64, usize, u8) -> _, |scene, block, _, _| {
        scene.protocol.on_read_fault(&mut scene.machine, Block(block));
        scene.said()
    }] {
        let mut client = Scene::of(Release::invalidating());
        assert_eq!(first(&mut client, 1, 0, 9), [(1, Kind::Read)]);
        assert_eq!(client.store(1, 0, 9), [], "asked already");
        assert_eq!(client.take(1, Kind::Copy, 1, &BYTES), []);
        assert!(client.machine.access[1].may_store());
    }
}

#[test]
fn who_has_stored_nothing_says_nothing() {
    let mut client = Scene::of(Release::invalidating());
    client.store(1, 0, 9);
    client.take(1, Kind::Copy, 1, &BYTES);
    assert_eq!(client.sync(), []);
    assert!(client.machine.is_synced);
    client.machine.is_synced = false;
    client.store(1, 0, 9);
    assert_eq!(client.sync(), [(1, Kind::Changed)]);
    assert!(!client.machine.is_synced);
    assert_eq!(client.take(1, Kind::Merged, 1, &[]), []);
    assert!(client.machine.is_synced);
}

/// What nobody else has a copy of is everywhere at once: the first of several blocks was taken for the last.
#[test]
fn who_synchronises_waits_for_all_that_it_has_stored() {
    for protocol in [Release::invalidating(), Release::updating()] {
        let mut cell = Scene::of(protocol);
        cell.take(1, Kind::Read, 0, &[]);
        cell.store(0, 0, 9);
        cell.take(1, Kind::Left, 0, &[]);
        cell.store(1, 0, 9);
        cell.take(1, Kind::Copy, 1, &BYTES);
        cell.store(1, 0, 9);
        assert_eq!(cell.sync(), [(1, Kind::Changed)]);
        assert!(!cell.machine.is_synced, "its change of block 1 is under way");
        cell.take(1, Kind::Merged, 1, &[]);
        assert!(cell.machine.is_synced);
    }
}

/// One that has been told of a change before, and has not heard: it goes on with what was there before the home's store, too.
#[test]
fn a_home_that_nobody_has_a_copy_of_waits_for_who_was_told_and_has_not_heard() {
    let mut home = Scene::of(Release::invalidating());
    home.take(1, Kind::Read, 0, &[]);
    home.take(2, Kind::Read, 0, &[]);
    assert_eq!(home.take(1, Kind::Changed, 0, &CHANGE), [(2, Kind::Stale)]);
    assert_eq!(home.take(1, Kind::Left, 0, &[]), []);
    home.store(0, 0, 9);
    assert_eq!(home.sync(), [], "nobody is to be told");
    assert!(!home.machine.is_synced);
    assert_eq!(home.take(2, Kind::Taken, 0, &[]), [(1, Kind::Merged)]);
    assert!(home.machine.is_synced && home.machine.access[0].may_store());
}

#[test]
fn who_has_no_copy_is_not_told() {
    for protocol in [Release::invalidating(), Release::updating()] {
        let told = if protocol.is_updating { Kind::Update } else { Kind::Stale };
        let mut home = Scene::of(protocol);
        for reader in 1..4 {
            assert_eq!(home.take(reader, Kind::Read, 0, &[]), [(reader, Kind::Copy)]);
        }
        assert_eq!(home.take(3, Kind::Left, 0, &[]), []);
        assert_eq!(home.take(1, Kind::Changed, 0, &CHANGE), [(2, told)]);
        assert_eq!(home.take(2, Kind::Taken, 0, &[]), [(1, Kind::Merged)]);
        assert_eq!(home.machine.content[0], [0, 9, 0, 0]);
        let again = home.take(1, Kind::Changed, 0, &CHANGE);
        if told == Kind::Update {
            assert_eq!(again, [(2, Kind::Update)]);
        } else {
            assert_eq!(again, [(1, Kind::Merged)]);
        }
    }
}

#[test]
fn who_does_not_wait_for_answers_is_stopped() {
    let mut home = Scene::of(Release::updating());
    for reader in 1..3 {
        home.take(reader, Kind::Read, 0, &[]);
    }
    for _ in 0..MOST_CHANGES {
        home.hear(1, Kind::Changed, 0, &CHANGE).expect("as many threads");
    }
    assert_eq!(home.hear(1, Kind::Changed, 0, &CHANGE), Err(PeerError::TooMany(Block(0))));
    // The others' are their own.
    assert_eq!(home.hear(2, Kind::Changed, 0, &CHANGE), Ok(()));
    home.take(2, Kind::Taken, 0, &[]);
    assert_eq!(home.hear(1, Kind::Changed, 0, &CHANGE), Ok(()));
}

#[test]
fn a_home_without_readers_stores_without_a_fault() {
    for protocol in [Release::invalidating(), Release::updating()] {
        let mut home = Scene::of(protocol);
        home.take(1, Kind::Read, 0, &[]);
        assert!(!home.machine.access[0].may_store(), "it is to be told of");
        home.store(0, 0, 9);
        home.take(1, Kind::Left, 0, &[]);
        assert!(home.machine.access[0].may_store());
        assert_eq!(home.sync(), []);
        assert!(home.machine.is_synced);
    }
}

#[test]
fn what_a_peer_may_not_say_is_refused_and_changes_nothing() {
    let mut scene = Scene::of(Release::updating());
    scene.take(1, Kind::Read, 0, &[]);
    scene.store(1, 0, 9);
    scene.take(1, Kind::Copy, 1, &BYTES);
    scene.protocol.on_peer_death(&mut scene.machine, CellId(9));
    let (none, zero, one) = (&[][..], Block(0), Block(1));
    let beyond = [4, 0, 0, 0, 1, 0, 0, 0, 9];
    let wrong = [
        (9, Kind::Read, 0, none, PeerError::Dead(CellId(9))),
        (3, Kind::Read, 2, none, PeerError::NoBlock(Block(2))),
        (3, Kind::Read, 1, none, PeerError::NotHome(one)),
        (3, Kind::Read, 0, &BYTES, PeerError::Content { bytes: 4, expected: 0 }),
        (3, Kind::Changed, 0, &CHANGE, PeerError::NotHeld(zero)),
        (1, Kind::Changed, 0, &beyond, PeerError::Changes),
        (1, Kind::Changed, 0, &BYTES, PeerError::Changes),
        (1, Kind::Taken, 0, none, PeerError::NotAsked(zero)),
        (3, Kind::Stale, 1, none, PeerError::NotYours(one)),
        (1, Kind::Copy, 1, none, PeerError::Content { bytes: 0, expected: 4 }),
        (1, Kind::Copy, 1, &BYTES, PeerError::NotAsked(one)),
        (1, Kind::Update, 1, &beyond, PeerError::Changes),
        (1, Kind::Merged, 1, none, PeerError::NotAsked(one)),
    ];
    let before = (scene.protocol.clone(), scene.machine.clone());
    for (from, kind, block, content, error) in wrong {
        assert_eq!(scene.hear(from, kind, block, content), Err(error), "{kind:?}");
        assert_eq!((&scene.protocol, &scene.machine), (&before.0, &before.1), "{kind:?}");
    }
    assert_eq!(scene.message(1, 8, 0, 0, &[]), Err(PeerError::Kind(8)));
    // A change of what is not here any more.
    scene.protocol.on_evict(&mut scene.machine, one);
    let content = scene.machine.content[1];
    scene.take(1, Kind::Update, 1, &CHANGE);
    assert_eq!(scene.machine.content[1], content);
    // What was asked of a home that died is not waited for: the block may get another home.
    scene.protocol.on_read_fault(&mut scene.machine, one);
    scene.protocol.on_peer_death(&mut scene.machine, CellId(1));
    assert!(scene.protocol.wanted.is_empty() && scene.protocol.dirty.is_empty());
}

proptest! {
    /// Whatever others say, it ends no cell.
    #[test]
    fn any_message_is_taken_or_refused(
        messages in prop::collection::vec((1..4_u32, 0..9_u8, 0..3_u64, 0..4_usize, 0..8_u8), 0..200),
        is_updating: bool,
    ) {
        let mut scene = Scene::of(if is_updating { Release::updating() } else { Release::invalidating() });
        for (from, kind, block, content, fault) in messages {
            let content = [&[][..], &BYTES, &CHANGE, &CHANGE[1..]][content];
            let before = (scene.protocol.clone(), scene.machine.clone());
            if scene.message(from, kind, block, 0, content).is_err() {
                prop_assert_eq!((&scene.protocol, &scene.machine), (&before.0, &before.1));
            }
            let own = u64::from(fault % 2);
            match fault {
                0 | 1 => drop(scene.store(own, 0, fault)),
                2 | 3 => drop(scene.sync()),
                4 | 5 => scene.protocol.on_evict(&mut scene.machine, Block(own)),
                _ => {}
            }
        }
    }
}
