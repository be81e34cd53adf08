//! Homes that move, message by message.

use std::vec;

use super::*;
use crate::machine::Do;
use crate::scene::bury;

#[test]
fn a_block_moves_when_nobody_else_has_it_and_who_waits_is_sent_on() {
    let mut home = Scene::moving();
    home.take(1, Kind::Read, 0, 0, &[]);
    home.take(2, Kind::Read, 0, 0, &[]);
    assert!(home.protocol.on_move(&mut home.machine, Block(0), CellId(1)));
    // Who is to have it keeps its copy until then, and asks for more meanwhile.
    assert_eq!(home.said(), [(2, Kind::Invalidate)]);
    assert!(!home.protocol.on_move(&mut home.machine, Block(0), CellId(3)), "it is on its way");
    assert_eq!(home.take(3, Kind::Read, 0, 0, &[]), []);
    home.protocol.on_write_fault(&mut home.machine, Block(0));
    assert_eq!(home.take(2, Kind::Dropped, 0, 0, &[]), [(1, Kind::Given)]);
    assert_eq!(home.machine.access[0], Access::Invalid);
    assert_eq!(home.take(1, Kind::Write, 0, client::HAS_COPY, &[]), []);
    assert_eq!(home.home(0), (0, 0), "nobody is sent to who may not have it");
    let said = home.take(1, Kind::Taken, 0, 1, &[]);
    assert_eq!(said, [(3, Kind::Moved), (1, Kind::Write), (1, Kind::Moved)]);
    assert_eq!(home.home(0), (1, 1));
    assert_eq!(home.protocol.directory, Directory::default(), "its new home knows who has it");
    assert_eq!(home.take(4, Kind::Write, 0, 0, &[]), [(4, Kind::Moved)]);
    assert!(!home.protocol.on_move(&mut home.machine, Block(0), CellId(3)), "it lives elsewhere");
}

#[test]
fn who_counts_misses_is_told_of_each_request_once() {
    let mut home = Scene::moving();
    home.machine.misses = Some(vec![]);
    home.take(1, Kind::Write, 0, 0, &[]);
    for _ in 0..2 {
        home.protocol.on_read_fault(&mut home.machine, Block(0));
    }
    home.take(2, Kind::Read, 0, 0, &[]);
    home.protocol.on_move(&mut home.machine, Block(0), CellId(3));
    home.protocol.on_read_fault(&mut home.machine, Block(1));
    let missed = [(1, true), (0, false), (2, false)].map(|(by, is_store)| (Block(0), CellId(by), is_store));
    assert_eq!(home.machine.misses.as_deref(), Some(&missed[..]));
}

#[test]
fn what_nobody_can_move_stays() {
    let mut home = Scene::moving();
    let mut moves = |block, to| home.protocol.on_move(&mut home.machine, Block(block), CellId(to));
    assert!(!moves(0, 0) && !moves(1, 2), "to here; from elsewhere");
    home.take(1, Kind::Write, 0, 0, &[]);
    home.protocol.on_peer_death(&mut home.machine, CellId(1));
    assert!(!home.protocol.on_move(&mut home.machine, Block(0), CellId(2)), "it is lost");
    let mut home = Scene::moving();
    home.protocol.on_peer_death(&mut home.machine, CellId(1));
    assert!(!home.protocol.on_move(&mut home.machine, Block(0), CellId(1)), "who is to have it is dead");
    home.machine.set_home(Block(0), Home { cell: CellId(0), moves: u32::MAX });
    assert!(!home.protocol.on_move(&mut home.machine, Block(0), CellId(2)), "nobody can count on");
    let mut home = Scene::new();
    assert!(!home.protocol.on_move(&mut home.machine, Block(0), CellId(1)), "homes do not move");
    assert_eq!(home.said(), []);
}

#[test]
fn what_was_declined_stays_and_is_served() {
    let mut home = Scene::moving();
    home.take(1, Kind::Read, 0, 0, &[]);
    let word = home.give(1);
    assert_eq!(home.take(1, Kind::Write, 0, client::HAS_COPY, &[]), []);
    assert_eq!(home.take(1, Kind::Declined, 0, word, &[]), [(1, Kind::Upgraded)]);
    for (reads, access) in [(false, Access::ReadWrite), (true, Access::ReadOnly)] {
        let mut home = Scene::moving();
        if reads {
            home.take(1, Kind::Read, 0, 0, &[]);
        }
        let word = home.give(1);
        assert_eq!(home.take(1, Kind::Declined, 0, word, &[]), []);
        assert_eq!((home.machine.access[0], home.home(0)), (access, (0, 0)));
        assert!(home.protocol.transactions.is_empty());
    }
    // It may be given to another then.
    let mut home = Scene::moving();
    let word = home.give(1);
    home.take(1, Kind::Declined, 0, word, &[]);
    assert_eq!(home.give(2), word, "it has not moved");
}

/// Three cells pass a block on faster than the first hears that the second has taken it.
#[test]
fn what_is_back_before_it_was_taken_is_declined() {
    let mut scene = Scene::moving();
    let word = scene.give(1);
    assert_eq!(scene.hear(2, Kind::Given, 0, word, &BYTES), Err(PeerError::HomedHere(Block(0))));
    assert_eq!(scene.take(2, Kind::Given, 0, word + 1, &BYTES), [(2, Kind::Declined)]);
    // So it is with a copy of which its home thinks that it may be here.
    assert_eq!(scene.take(2, Kind::Invalidate, 0, 0, &[]), [(2, Kind::Dropped)]);
    assert_eq!(scene.take(1, Kind::Taken, 0, word, &[]), []);
    assert_eq!(scene.take(1, Kind::Given, 0, word + 1, &BYTES), [(1, Kind::Taken)]);
    assert_eq!(scene.home(0), (0, 2));
    assert_eq!(scene.machine.content[0], BYTES);
}

#[test]
fn who_has_been_given_a_block_ignores_the_answer_to_what_it_asked_before() {
    let mut client = Scene::moving();
    client.machine.waits(Block(1), Do::Load);
    client.protocol.on_read_fault(&mut client.machine, Block(1));
    assert_eq!(client.said(), [(1, Kind::Read)]);
    assert_eq!(client.take(1, Kind::Given, 1, 1, &BYTES), [(1, Kind::Taken)]);
    assert!(client.machine.is_resumed, "it need not wait for that answer");
    assert_eq!((client.home(1), client.machine.access[1]), ((0, 1), Access::ReadWrite));
    // It gives it on, and wants it again: it asks when the old question is answered.
    assert!(client.protocol.on_move(&mut client.machine, Block(1), CellId(2)));
    assert_eq!(client.said(), [(2, Kind::Given)]);
    assert_eq!(client.take(2, Kind::Taken, 1, 2, &[]), []);
    client.protocol.on_write_fault(&mut client.machine, Block(1));
    assert_eq!(client.said(), []);
    let here = Home { cell: CellId(0), moves: 1 };
    assert_eq!(client.take(1, Kind::Moved, 1, here.to_word(), &[]), [(2, Kind::Read)]);
    assert_eq!(client.home(1), (2, 2));
}

/// A directory that cannot tell all sets apart names cells that never asked, and may not know whose home it is.
#[test]
fn who_has_nothing_drops_it_for_anybody() {
    let mut client = Scene::moving();
    for demand in [Kind::Invalidate, Kind::Recall] {
        assert_eq!(client.take(3, demand, 1, 0, &[]), [(3, Kind::Dropped)]);
    }
    client.protocol.on_read_fault(&mut client.machine, Block(1));
    client.said();
    client.take(1, Kind::Readable, 1, 0, &BYTES);
    for demand in [Kind::Invalidate, Kind::Recall] {
        assert_eq!(client.hear(3, demand, 1, 0, &[]), Err(PeerError::NotYours(Block(1))));
    }
    assert_eq!(client.hear(3, Kind::Invalidate, 0, 0, &[]), Err(PeerError::NotYours(Block(0))));
}

#[test]
fn who_is_pushed_asks_whom_it_knows_once() {
    let mut client = Scene::moving();
    for _ in 0..2 {
        client.hear(3, Kind::Offered, 1, 0, &[]).expect("from whomever");
    }
    assert_eq!(client.said(), [(1, Kind::Read)]);
    assert_eq!(client.take(1, Kind::Readable, 1, 0, &BYTES), []);
    assert_eq!(client.take(3, Kind::Offered, 1, 0, &[]), [], "it is here");
    let pushes = |scene: &mut Scene, block, to| {
        scene.protocol.on_push(&mut scene.machine, Block(block), CellId(to));
        scene.said()
    };
    assert_eq!(pushes(&mut client, 1, 3), [(3, Kind::Offered)]);
    assert_eq!(pushes(&mut client, 0, 3), [(3, Kind::Offered)]);
    assert_eq!(pushes(&mut client, 0, 0), []);
    client.protocol.on_peer_death(&mut client.machine, CellId(2));
    assert_eq!(pushes(&mut client, 0, 2), []);
    // Of what lived with the dead, nobody would answer.
    client.protocol.on_peer_death(&mut client.machine, CellId(1));
    client.machine.set_access(Block(1), Access::Invalid);
    assert_eq!(client.take(3, Kind::Offered, 1, 0, &[]), []);
    assert!(client.protocol.wanted.is_empty());
}

#[test]
fn who_is_dead_and_may_have_taken_a_block_is_its_home_unless_another_is() {
    // Nobody knows of another.
    let mut home = Scene::moving();
    home.give(1);
    home.take(2, Kind::Read, 0, 0, &[]);
    home.machine.hears_of(CellId(1), Cells::NONE);
    bury(&mut home.protocol, &mut home.machine);
    assert_eq!((home.said(), home.home(0)), (vec![(2, Kind::Moved)], (1, 1)));
    assert_eq!(home.machine.lost[0], Some(Loss::Home(CellId(1))));
    // It had given it to cell 3, which says so.
    let mut home = Scene::moving();
    home.give(1);
    home.protocol.on_write_fault(&mut home.machine, Block(0));
    home.machine.hears_of(CellId(1), Cells::one(CellId(3)));
    bury(&mut home.protocol, &mut home.machine);
    assert_eq!(home.home(0), (0, 0), "not all have told");
    home.machine.sent.clear();
    let told = [0_u64, Home { cell: CellId(3), moves: 2 }.to_word()].map(u64::to_le_bytes).concat();
    home.machine.is_told(CellId(3), &told);
    bury(&mut home.protocol, &mut home.machine);
    assert_eq!((home.said(), home.home(0)), (vec![(3, Kind::Write)], (3, 2)));
    assert_eq!(home.machine.lost[0], None);
}

/// It would have lost that right before the block moved: so the block was there when its home died.
#[test]
fn of_what_the_dead_gave_a_right_no_other_is_believed_to_be_the_home() {
    for reads in [true, false] {
        let mut client = Scene::moving();
        if reads {
            client.protocol.on_read_fault(&mut client.machine, Block(1));
            client.take(1, Kind::Readable, 1, 0, &BYTES);
        }
        let told = [1, Home { cell: CellId(3), moves: 5 }.to_word()].map(u64::to_le_bytes).concat();
        client.machine.is_told(CellId(3), &told);
        client.machine.hears_of(CellId(1), Cells::one(CellId(3)));
        bury(&mut client.protocol, &mut client.machine);
        assert_eq!(client.machine.lost[1], reads.then_some(Loss::Home(CellId(1))));
        assert_eq!(client.machine.access[1], Access::Invalid);
    }
}

/// Who says what of which block, with which word and content, and what is said to that.
type Lie<'a> = (u32, Kind, u64, u64, &'a [u8], PeerError);

fn check(scene: &mut Scene, lies: &[Lie<'_>]) {
    let before = (scene.protocol.clone(), scene.machine.clone());
    for &(from, kind, block, word, content, error) in lies {
        assert_eq!(scene.hear(from, kind, block, word, content), Err(error), "{kind:?} {word:x}");
        assert_eq!((&scene.protocol, &scene.machine), (&before.0, &before.1), "{kind:?} {word:x}");
    }
}

#[test]
fn lies_about_homes_are_refused_and_change_nothing() {
    let mut scene = Scene::moving();
    scene.take(1, Kind::Read, 0, 0, &[]);
    scene.protocol.on_read_fault(&mut scene.machine, Block(1));
    scene.said();
    let (none, zero, one) = (&[][..], Block(0), Block(1));
    let home = |cell, moves| Home { cell: CellId(cell), moves }.to_word();
    check(
        &mut scene,
        &[
            // Ours is ours.
            (1, Kind::Given, 0, 1, &BYTES, PeerError::HomedHere(zero)),
            (1, Kind::Given, 0, u64::from(u32::MAX), &BYTES, PeerError::HomedHere(zero)),
            (1, Kind::Given, 1, 0, &BYTES, PeerError::NotYours(one)),
            (1, Kind::Given, 1, 1 << 32, &BYTES, PeerError::Word(1 << 32)),
            (1, Kind::Given, 1, 1, none, PeerError::Content { bytes: 0, expected: 4 }),
            (1, Kind::Given, 2, 1, &BYTES, PeerError::NoBlock(Block(2))),
            // Nothing was given away.
            (1, Kind::Taken, 0, 1, none, PeerError::NotAsked(zero)),
            (1, Kind::Declined, 0, 1, none, PeerError::NotAsked(zero)),
            (1, Kind::Taken, 1, 1, none, PeerError::NotHome(one)),
            // To where it was, to here, from who was not asked, and of what was not asked.
            (1, Kind::Moved, 1, home(2, 0), none, PeerError::NotThere(one)),
            (1, Kind::Moved, 1, home(0, 1), none, PeerError::NotThere(one)),
            (2, Kind::Moved, 1, home(3, 1), none, PeerError::NotAsked(one)),
            (1, Kind::Moved, 0, home(3, 1), none, PeerError::NotAsked(zero)),
            // Who has not been its home is not asked for what was never here.
            (3, Kind::Read, 1, 0, none, PeerError::NotHome(one)),
            (3, Kind::Offered, 2, 0, none, PeerError::NoBlock(Block(2))),
            (3, Kind::Offered, 1, 0, &BYTES, PeerError::Content { bytes: 4, expected: 0 }),
        ],
    );
    // A copy from the home, and somebody else who says that it is that.
    scene.take(1, Kind::Readable, 1, 0, &BYTES);
    check(&mut scene, &[(2, Kind::Given, 1, 5, &BYTES, PeerError::NotYours(one))]);
    scene.protocol.on_write_fault(&mut scene.machine, one);
    scene.take(1, Kind::Upgraded, 1, 0, &[]);
    check(&mut scene, &[(1, Kind::Given, 1, 5, &BYTES, PeerError::NotYours(one))]);
    // Who is given a block may say that it has taken it, once, and nothing else.
    scene.said();
    let word = scene.give(1);
    check(
        &mut scene,
        &[
            (2, Kind::Taken, 0, word, none, PeerError::NotAsked(zero)),
            (1, Kind::Taken, 0, word + 1, none, PeerError::Word(word + 1)),
            (1, Kind::Dropped, 0, 0, none, PeerError::NotAsked(zero)),
            (1, Kind::Returned, 0, 0, &BYTES, PeerError::NotAsked(zero)),
            (1, Kind::GivenBack, 0, 0, &BYTES, PeerError::NotHeld(zero)),
        ],
    );
    scene.take(1, Kind::Taken, 0, word, &[]);
    check(&mut scene, &[(1, Kind::Taken, 0, word, none, PeerError::NotHome(zero))]);
    // The giver cannot take back what it has given, nor fill what lives here.
    let mut scene = Scene::moving();
    scene.protocol.on_read_fault(&mut scene.machine, one);
    scene.said();
    scene.take(1, Kind::Given, 1, 1, &BYTES);
    check(
        &mut scene,
        &[
            (1, Kind::Moved, 1, home(2, 2), none, PeerError::NotThere(one)),
            (1, Kind::Readable, 1, 0, &BYTES, PeerError::NotYours(one)),
            (1, Kind::Lost, 1, 0, none, PeerError::NotYours(one)),
        ],
    );
    // Where homes do not move, nobody gives any away.
    let mut fixed = Scene::new();
    fixed.protocol.on_read_fault(&mut fixed.machine, one);
    fixed.said();
    check(
        &mut fixed,
        &[
            (1, Kind::Given, 1, 1, &BYTES, PeerError::NeverMoves(one)),
            (1, Kind::Moved, 1, home(2, 1), none, PeerError::NeverMoves(one)),
            (3, Kind::Invalidate, 1, 0, none, PeerError::NotYours(one)),
        ],
    );
}
