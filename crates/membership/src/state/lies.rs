//! What a node may make up of others, for them to refuse, to take for nothing, or to deny.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use comb_types::{Dice, Incarnation, NodeId};

use super::message::{Change, Delta, Doubt, Kind, Message, News, Row, Summary, Want};
use super::standing::Standing;
use crate::view::Member;
use crate::wire::{Protocol, encode};

/// A message of a member of a group of so many, about any of them.
pub(crate) fn lie(dice: &mut Dice, me: Member, nodes: u32) -> Vec<u8> {
    let kind = [Kind::Digest, Kind::Answer, Kind::Return, Kind::Push][dice.index(4)];
    // Not of itself: one that tells some that it is dead, and others not, is one that some hear and others do not.
    let subject = Some(NodeId(dice.below(nodes))).filter(|node| *node != me.node).unwrap_or(NodeId(0));
    let incarnation = Incarnation([1, 1, 1, 2, u64::MAX][dice.index(5)]);
    let version = [u32::MAX, u32::MAX - 1, dice.below(40), dice.below(100_000)][dice.index(4)];
    let mut message = Message { kind, known: nodes, ..Message::default() };
    match dice.below(9) {
        0 | 1 => {
            let row = Row { step: subject.0, incarnation, version, hash: [7; 4] };
            message.rows = vec![row];
        }
        2 => {
            let row = Row { step: 1, incarnation, version, hash: [0; 4] };
            message.rows = vec![row; 70];
        }
        3 => {
            let by = (0..nodes).map(NodeId).filter(|node| *node != subject).collect();
            message.doubts = vec![Doubt { subject, incarnation, version, by }];
        }
        4 | 5 => {
            let alive = Standing::alive(incarnation);
            let standing = [alive.failed(), alive.fenced(), alive][dice.index(3)];
            message.news = vec![News { node: subject, standing }];
        }
        6 => {
            let unusual = vec![(subject.0.to_le_bytes()[0], Standing::alive(incarnation).failed())];
            message.summaries = vec![Summary { zone: dice.below(3), present: [0xFF; 8], unusual }];
        }
        7 => message.wants = vec![Want { owner: subject, incarnation, since: version, floor: 0 }],
        _ => {
            let key = String::from(["colour", "a key that nobody has"][dice.index(2)]);
            let value = Some(vec![9; [10, 2000][dice.index(2)]]);
            let changes = vec![Change { version, key, value }];
            let (owner, floor, since) = (subject, 0, 0);
            message.deltas =
                vec![Delta { owner, incarnation, floor, since, is_complete: true, hash: 7, changes }];
        }
    }
    encode(Protocol::State, &message)
}
