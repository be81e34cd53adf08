//! What a careful reference costs, of a cell that lives and of one that is dead (Hive, section 4.1).

use std::hint::black_box;
use std::time::Instant;

use comb_memory::{Far, Peer, Published, Structure, careful, careful_within};
use comb_types::{CellId, Incarnation};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::measured::Measured;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 101;
const TIMES: u32 = 10_000;
/// A read of dead memory goes by a signal.
const TIMES_DEAD: u32 = 200;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
struct Words<const N: usize>([u64; N]);

impl<const N: usize> Structure for Words<N> {
    const TAG: u32 = 1;
}

/// Nanoseconds for one of `times`, a sample a round.
fn rounds(times: u32, mut round: impl FnMut()) -> Vec<f64> {
    let one = |_| {
        let begun = Instant::now();
        round();
        begun.elapsed().as_secs_f64() * 1e9 / f64::from(times)
    };
    (0..ROUNDS).map(one).collect()
}

fn reads<const N: usize>(measured: &mut Measured, published: &Published, peer: &Peer) -> Outcome<()> {
    let far: Far<Words<N>> = published.allocate(Words([5; N]))?;
    let sum = |words: Words<N>| words.0[0] + words.0[N - 1];
    let many = rounds(TIMES, || {
        let mut all = 0_u64;
        careful(peer, |c| {
            for _ in 0..TIMES {
                all += c.read(black_box(far)).map_or(0, sum);
            }
        });
        black_box(all);
    });
    measured.extend(format!("read {} B", 8 * N), many);
    let each = rounds(TIMES, || {
        let mut all = 0_u64;
        for _ in 0..TIMES {
            all += careful(peer, |c| c.read(black_box(far))).map_or(0, sum);
        }
        black_box(all);
    });
    measured.extend(format!("section and read {} B", 8 * N), each);
    let updates = rounds(TIMES, || {
        for _ in 0..TIMES {
            published.update(far, |words| words.0[0] += 1);
        }
    });
    measured.extend(format!("update {} B", 8 * N), updates);
    Ok(())
}

/// By samples `read N B`, `section and read N B`, `update N B`, `tick`, and `dead`, in nanoseconds.
pub(super) fn measure(measured: &mut Measured) -> Outcome<()> {
    let (cell, incarnation) = (CellId(1), Incarnation(1));
    let published = Published::create(cell, incarnation, 1 << 24)?;
    let peer = Peer::map(published.reading_descriptor()?, cell, incarnation)?;
    reads::<1>(measured, &published, &peer)?;
    reads::<8>(measured, &published, &peer)?;
    reads::<32>(measured, &published, &peer)?;
    reads::<512>(measured, &published, &peer)?;
    let ticks = rounds(TIMES, || {
        for _ in 0..TIMES {
            let _ = black_box(careful(&peer, |c| c.tick()));
        }
    });
    measured.extend("tick", ticks);
    let far = published.allocate(Words([5; 1]))?;
    rustix::fs::ftruncate(published.descriptor(), 0)?;
    let mut survived = 0;
    let dead = rounds(TIMES_DEAD, || {
        for _ in 0..TIMES_DEAD {
            survived += usize::from(careful_within(&peer, 1, |c| c.read(black_box(far))).is_ok());
        }
    });
    if survived > 0 {
        return Err("memory that is gone was read".into());
    }
    measured.extend("dead", dead);
    // It is not to write its last words into what is gone.
    std::mem::forget(published);
    Ok(())
}
