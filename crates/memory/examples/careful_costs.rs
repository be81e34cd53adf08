//! What a careful reference costs, of a cell that lives and of one that is dead: nanoseconds a read, the best of some rounds.
//!
//! ```console
//! $ cargo run --release -p comb-memory --example careful_costs
//! ```

use std::hint::black_box;
use std::time::Instant;

use comb_memory::{Far, Peer, Published, Structure, careful, careful_within};
use comb_types::{CellId, Incarnation};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const ROUNDS: usize = 51;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
struct Words<const N: usize>([u64; N]);

impl<const N: usize> Structure for Words<N> {
    const TAG: u32 = 1;
}

/// The best of many rounds, in nanoseconds for one of `times`.
fn best(times: u32, mut round: impl FnMut()) -> f64 {
    let measured = (0..ROUNDS).map(|_| {
        let begun = Instant::now();
        round();
        begun.elapsed().as_secs_f64() * 1e9 / f64::from(times)
    });
    measured.fold(f64::INFINITY, f64::min)
}

fn reads<const N: usize>(published: &Published, peer: &Peer) {
    const TIMES: u32 = 10_000;
    let far: Far<Words<N>> = published.allocate(Words([5; N])).unwrap();
    let many = best(TIMES, || {
        let mut sum = 0_u64;
        careful(peer, |c| {
            for _ in 0..TIMES {
                sum += c.read(black_box(far)).map_or(0, |words| words.0[0] + words.0[N - 1]);
            }
        });
        black_box(sum);
    });
    let each = best(TIMES, || {
        let mut sum = 0_u64;
        for _ in 0..TIMES {
            let words = careful(peer, |c| c.read(black_box(far)));
            sum += words.map_or(0, |words| words.0[0] + words.0[N - 1]);
        }
        black_box(sum);
    });
    println!("{:>5} bytes: {many:.1} in one section, {each:.1} with a section for each", 8 * N);
    let update = best(TIMES, || {
        for _ in 0..TIMES {
            published.update(far, |words| words.0[0] += 1);
        }
    });
    println!("             {update:.1} to update");
}

fn main() {
    let (cell, incarnation) = (CellId(1), Incarnation(1));
    let published = Published::create(cell, incarnation, 1 << 24).unwrap();
    let peer = Peer::map(published.reading_descriptor().unwrap(), cell, incarnation).unwrap();
    reads::<1>(&published, &peer);
    reads::<2>(&published, &peer);
    reads::<3>(&published, &peer);
    reads::<4>(&published, &peer);
    reads::<8>(&published, &peer);
    reads::<9>(&published, &peer);
    reads::<32>(&published, &peer);
    reads::<512>(&published, &peer);
    let tick = best(10_000, || {
        for _ in 0..10_000 {
            black_box(careful(&peer, |c| c.tick()).unwrap());
        }
    });
    println!("the tick: {tick:.1}");
    let far = published.allocate(Words([5; 1])).unwrap();
    rustix::fs::ftruncate(published.descriptor(), 0).unwrap();
    let dead = best(1000, || {
        for _ in 0..1000 {
            black_box(careful_within(&peer, 1, |c| c.read(black_box(far))).unwrap_err());
        }
    });
    println!("dead: {dead:.0}");
}
