//! What changes while it is read is read as it was at one moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use comb_memory::{Careful, CarefulError, Far, Published, careful_within};

use crate::structures::{CELL, Page, Words, peer, published};

/// Readers go on for so long, and until they have seen so many values: a machine that has no processor for them all shows them few.
const LONG_ENOUGH: Duration = Duration::from_millis(200);
const ENOUGH: u64 = 20;

/// Far longer than that takes.
const TOO_LONG: Duration = Duration::from_secs(60);

/// Readers read what `change` changes all the time. What they read never gets older.
fn while_it_changes(
    published: &Published,
    change: impl Fn(u64) + Sync,
    read: impl Fn(&Careful<'_>) -> Result<u64, CarefulError> + Sync,
) {
    let peer = peer(published);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1.. {
                change(round);
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let (mut last, mut news, mut unstable) = (0, 0, 0_u64);
                    let begun = Instant::now();
                    while news < ENOUGH || begun.elapsed() < LONG_ENOUGH {
                        assert!(begun.elapsed() < TOO_LONG, "{news} values, and {unstable} times none");
                        match careful_within(&peer, u32::MAX, &read) {
                            Ok(value) => {
                                assert!(value >= last, "what was read came after what is read now");
                                news += u64::from(value != last);
                                last = value;
                            }
                            Err(CarefulError::Unstable { cell: CELL, .. }) => unstable += 1,
                            Err(other) => panic!("{other}"),
                        }
                    }
                })
            })
            .collect();
        let seen: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        seen.into_iter().for_each(|reader| reader.unwrap());
    });
}

/// The one number that all are.
fn whole<const N: usize>(words: Words<N>) -> u64 {
    assert!(words.0.iter().all(|&word| word == words.0[0]), "torn: {words:?}");
    words.0[0]
}

fn is_whole<const N: usize>() {
    let published = published();
    let far = published.allocate(Words([0; N])).unwrap();
    let change = |round| published.update(far, |words| *words = Words([round; N]));
    while_it_changes(&published, change, |c| c.read(far).map(whole));
}

#[test]
fn no_structure_of_a_few_words_is_torn() {
    is_whole::<2>();
    is_whole::<3>();
    is_whole::<4>();
    is_whole::<5>();
    is_whole::<6>();
    is_whole::<7>();
    is_whole::<8>();
}

#[test]
fn no_large_structure_is_torn() {
    is_whole::<9>();
    is_whole::<64>();
}

#[test]
fn no_element_is_torn() {
    let published = published();
    let far = published.allocate_array(&[Words([0; 9]); 50]).unwrap();
    let change = |round| published.update_element(far, 33, |words| *words = Words([round; 9]));
    while_it_changes(&published, change, |c| c.element(far, 33).map(whole));
}

#[test]
fn no_array_is_torn() {
    let published = published();
    let far = published.allocate_array(&[Words([0; 2]); 8]).unwrap();
    // One after the other, and each to a number of its own.
    let change = |round: u64| {
        let element = usize::try_from(round % 8).unwrap();
        published.update_element(far, element, |words| *words = Words([round; 2]));
    };
    while_it_changes(&published, change, |c| {
        let array = c.array(far, 8)?;
        let newest = array.iter().map(|&words| whole(words)).max().unwrap_or(0);
        for words in array {
            assert!(words.0[0] + 8 > newest || words.0[0] == 0, "elements of two moments");
        }
        Ok(newest)
    });
}

/// A place that is freed and used again: for what has the same type and size, and for what has not.
#[test]
fn nothing_is_read_of_what_takes_the_place_of_another() {
    let published = Published::create(CELL, crate::structures::INCARNATION, 8192).unwrap();
    // All places but one are taken, so that one is used all the time.
    let mut held: Vec<_> = std::iter::from_fn(|| published.allocate(Words([0; 4])).ok()).collect();
    let far = held.pop().unwrap();
    let change = |round: u64| match round % 3 {
        0 => published.free(far),
        1 => drop(published.allocate_array(&[Page([0xff; 3]); 10]).map(|pages| published.free(pages))),
        _ => assert_eq!(published.allocate(Words([round; 4])), Ok(far)),
    };
    let last = AtomicBool::new(false);
    // It begins with its being freed.
    let change = |round: u64| change(round + 2);
    while_it_changes(&published, change, |c| {
        loop {
            match c.read(far) {
                Ok(words) => return Ok(whole(words)),
                Err(CarefulError::WrongTag { .. }) => last.store(true, Ordering::Relaxed),
                Err(other) => return Err(other),
            }
        }
    });
    assert!(last.into_inner(), "it was never seen to be away");
    let _: Far<Words<4>> = far;
}

#[test]
fn the_tick_never_goes_back() {
    let published = published();
    while_it_changes(&published, |_| published.tick(), |c| c.tick());
}
