//! The pieces that programs are made of: one kind of memory and of its use each.

mod arrays;
mod atomics;
mod bytes;
mod calls;
mod frames;
mod locked;
mod nodes;
mod private;
mod sorting;
mod sums;
mod text;
mod tickets;

use crate::piece::Piece;
use crate::world::World;

/// Kinds besides arrays, of which every program has some. The last three are of the library.
const KINDS: [fn(&mut World) -> Piece; 11] = [
    atomics::piece,
    bytes::piece,
    calls::piece,
    frames::piece,
    nodes::piece,
    private::piece,
    sums::piece,
    tickets::piece,
    locked::piece,
    sorting::piece,
    text::piece,
];
const BARE_KINDS: usize = 8;

/// The pieces of one program, in no order.
pub(crate) fn choose(world: &mut World) -> Vec<Piece> {
    let mut makers: Vec<fn(&mut World) -> Piece> = vec![arrays::piece; world.between(1, 2) as usize];
    let kinds = if world.is_bare() { &KINDS[..BARE_KINDS] } else { &KINDS[..] };
    for _ in 0..2 {
        makers.push(world.one_of(kinds));
    }
    for last in (1..makers.len()).rev() {
        makers.swap(last, world.dice.index(last + 1));
    }
    makers.into_iter().map(|make| make(world)).collect()
}
