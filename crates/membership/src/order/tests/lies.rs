//! What a member may make up for others to refuse, or to take for nothing.

use comb_types::Dice;

use super::message::{Known, Ordered, Submitted, append};
use super::*;

/// A number that is near to another, or to where numbers end.
fn number(dice: &mut Dice, near: u64) -> u64 {
    match dice.below(6) {
        0 => 0,
        1 => u64::MAX,
        2 => u64::MAX - 1,
        3 => near + u64::from(dice.below(100_000)),
        _ => near.saturating_add(u64::from(dice.below(4))).saturating_sub(2),
    }
}

/// A message of a member that numbers nothing and holds nothing for others: those are believed. `held` is what it truly holds.
pub(crate) fn lie(dice: &mut Dice, epoch: ViewEpoch, held: u64) -> Vec<u8> {
    let epoch = if dice.below(4) == 0 { ViewEpoch(number(dice, epoch.0)) } else { epoch };
    let first = number(dice, held);
    let known = Known { held: number(dice, held), committed: number(dice, held), stable: number(dice, held) };
    let body = vec![7; dice.index(3000)];
    match dice.below(6) {
        0 => Head::Ack { epoch, known }.write(),
        1 => Head::Fetch { epoch, first, last: number(dice, held) }.write(),
        2 => Head::Trimmed { epoch, first }.write(),
        3 => {
            let last = number(dice, held);
            let progress = Progress { committed: number(dice, held), stable: held, trim: held, last };
            let entries = append(Vec::new(), &Ordered { place: dice.below(6), number: first, body: &body });
            Head::Batch { epoch, first, progress, answer: true }.write_with(&entries).0.to_vec()
        }
        4 => {
            // Its own numbers are for it to spoil: one that would be taken would be an update.
            let first_number = [0, u64::MAX, 1 << 40][dice.index(3)];
            let entries = append(Vec::new(), &Submitted { level: Level::All, body: &body });
            Head::Submit { epoch, known, first_number }.write_with(&entries).0.to_vec()
        }
        _ => {
            let sender = Member { node: NodeId(dice.below(6)), incarnation: comb_types::Incarnation(1) };
            let entries = append(Vec::new(), &message::Copied { epoch, sender, number: first, body: &body });
            Head::Copies { epoch, first }.write_with(&entries).0.to_vec()
        }
    }
}
