//! Pointers and memory that are not as any cell leaves them.

use comb_memory::{Careful, CarefulError, Far, careful, careful_within};
use comb_types::{CellId, Dice};

use crate::structures::{BYTES, CELL, Node, Page, Words, image, map_forged, peer, published, put};

const NODES: u64 = 100;

/// Follows a list to its end.
fn numbers(c: &Careful<'_>, first: Far<Node>) -> Result<Vec<u64>, CarefulError> {
    let mut numbers = Vec::new();
    let mut next = first;
    while !next.is_none() {
        let node = c.read(next)?;
        assert!(numbers.len() < 30_000, "a section ends");
        numbers.push(node.number);
        next = node.next;
    }
    Ok(numbers)
}

/// What a corrupted pointer becomes, of the one that it was, in a node that is there.
type Corruption = fn(&mut Dice, Far<Node>, Far<Node>) -> Far<Node>;

/// In the ways of Hive's fault injection (§7.4): somewhere in the same cell, in another cell, one word off, back to itself.
const CORRUPTIONS: [Corruption; 4] = [
    |dice, _, _| Far::alleged(CELL, dice.roll() % BYTES),
    |_, was, _| Far::alleged(CellId(CELL.0 + 1), was.offset()),
    |dice, was, _| {
        Far::alleged(CELL, if dice.happens(500_000) { was.offset() + 8 } else { was.offset() - 8 })
    },
    |_, _, itself| itself,
];

#[test]
fn a_corrupted_pointer_is_an_error_or_leads_to_a_structure() {
    let published = published();
    let peer = peer(&published);
    let mut list: Vec<Far<Node>> = Vec::new();
    for number in 0..NODES {
        let next = list.last().copied().unwrap_or(Far::NONE);
        list.push(published.allocate(Node { next, number }).unwrap());
    }
    let first = *list.last().unwrap();
    let right: Vec<_> = (0..NODES).rev().collect();
    assert_eq!(careful(&peer, |c| numbers(c, first)), Ok(right.clone()));
    for (way, corrupt) in CORRUPTIONS.into_iter().enumerate() {
        let mut dice = Dice::new(way as u64);
        for _ in 0..2000 {
            let at = 1 + dice.index(list.len() - 1);
            let was = published.get(list[at]).next;
            let pointer = corrupt(&mut dice, was, list[at]);
            published.update(list[at], |node| node.next = pointer);
            let read = careful(&peer, |c| numbers(c, first));
            published.update(list[at], |node| node.next = was);
            let is_as_expected = match read {
                // The node that happens to be there.
                Ok(_) | Err(CarefulError::TooMany { .. }) if way == 0 => list.contains(&pointer),
                Err(CarefulError::Misaligned { cell: CELL, offset })
                | Err(CarefulError::OutOfRange { cell: CELL, offset, .. })
                | Err(CarefulError::WrongTag { cell: CELL, offset, .. })
                    if way == 0 =>
                {
                    offset == pointer.offset()
                }
                Err(CarefulError::OtherCell { cell: CELL, .. }) => way == 1,
                Err(CarefulError::Misaligned { cell: CELL, .. }) => way == 2,
                Err(CarefulError::TooMany { cell: CELL, .. }) => way == 3,
                _ => false,
            };
            assert!(is_as_expected, "{was:?} became {pointer:?}: {read:?}");
        }
    }
    assert_eq!(careful(&peer, |c| numbers(c, first)), Ok(right));
}

/// Reads whatever a reader can ask for, at places that are in order but for what stands there.
fn read_all(c: &Careful<'_>, dice: &mut Dice, places: &[u64]) {
    for _ in 0..200 {
        let place =
            if dice.happens(500_000) { places[dice.index(places.len())] } else { dice.roll() % (BYTES + 64) };
        let place = if dice.happens(900_000) { place / 16 * 16 } else { place };
        let (cell, offset) = (CELL, place);
        let _ = c.read(Far::<Node>::alleged(cell, offset));
        let _ = c.read(Far::<Words<30>>::alleged(cell, offset));
        let _ = c.element(Far::<Words<3>>::alleged(cell, offset), dice.index(1000));
        if let Ok(array) = c.array(Far::<Page>::alleged(cell, offset), 100) {
            assert!(array.len() <= 100);
        }
        let _ = numbers(c, Far::alleged(cell, offset));
        let _ = c.root::<Node>().and_then(|root| numbers(c, root));
    }
}

#[test]
fn random_bytes_neither_harm_nor_hold_a_reader() {
    let published = published();
    let nodes: Vec<_> =
        (0..200).map(|number| published.allocate(Node { next: Far::NONE, number }).unwrap()).collect();
    let right = image(&published);
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let mut content = right.clone();
        // All behind the first page; or some words anywhere; or what pointers and tags are made of.
        match seed % 3 {
            0 => content[4096..]
                .chunks_exact_mut(8)
                .for_each(|word| word.copy_from_slice(&dice.roll().to_le_bytes())),
            1 => {
                for _ in 0..10_000 {
                    let at = u64::from(dice.below(1 << 17)) * 8;
                    put(&mut content, at, dice.roll());
                }
            }
            _ => {
                let tags = [0x4e6f_6465_u64, 0x5061_6765, 0x576f_7264];
                for at in (4096..BYTES / 4).step_by(8) {
                    let some = [
                        u64::from(CELL.0),
                        u64::from(dice.below(1 << 16)) * 16,
                        tags[dice.index(3)] << 32 | u64::from(dice.below(400)),
                        tags[0] << 32 | 24,
                        u64::from(dice.below(4)),
                    ];
                    put(&mut content, at, some[dice.index(some.len())]);
                }
            }
        }
        let places: Vec<_> = nodes.iter().map(|node| node.offset()).collect();
        match map_forged(&content) {
            Ok(peer) => careful_within(&peer, 20_000, |c| read_all(c, &mut dice, &places)),
            Err(refused) => assert_eq!((refused.cell(), seed % 3), (CELL, 1), "{refused}"),
        }
    }
}
