//! What a channel promises, over a network that promises nothing: everything comes, once and in its order, while both ends live.
//!
//! For actors whose protocols are made for channels. It is not at stake in their scenarios, and trusts the frames that it takes.

use std::collections::{BTreeMap, VecDeque};

/// One end of a channel.
#[derive(Debug, Default)]
pub struct Channel {
    sent: u64,
    /// Not acknowledged.
    underway: VecDeque<Vec<u8>>,
    taken: u64,
    /// What came too early.
    early: BTreeMap<u64, Vec<u8>>,
    owes: bool,
}

/// The bytes of a frame before its message: its number, and what of the other end's frames has come.
pub const HEAD: usize = 16;
/// So many are sent again at a time.
const MOST_AGAIN: usize = 16;

impl Channel {
    /// A message, as it goes on the network.
    pub fn send(&mut self, message: Vec<u8>) -> Vec<u8> {
        self.sent += 1;
        let frame = self.frame(self.sent, &message);
        self.underway.push_back(message);
        frame
    }

    /// Number, acknowledgement, message. Number 0 acknowledges only.
    fn frame(&self, number: u64, message: &[u8]) -> Vec<u8> {
        [&number.to_le_bytes()[..], &self.taken.to_le_bytes(), message].concat()
    }

    /// What the other end is to know of what came from it, if it does not know it yet.
    pub fn acknowledgement(&mut self) -> Option<Vec<u8>> {
        let owes = std::mem::take(&mut self.owes);
        owes.then(|| self.frame(0, &[]))
    }

    /// What may have been lost.
    pub fn again(&self) -> Vec<Vec<u8>> {
        let first = self.sent + 1 - self.underway.len() as u64;
        (first..)
            .zip(&self.underway)
            .take(MOST_AGAIN)
            .map(|(number, message)| self.frame(number, message))
            .collect()
    }

    /// Takes a frame in. The messages whose turn it is.
    pub fn take(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let number = u64::from_le_bytes(frame[..8].try_into().expect("eight"));
        let acknowledged = u64::from_le_bytes(frame[8..HEAD].try_into().expect("eight"));
        while self.sent - (self.underway.len() as u64) < acknowledged {
            self.underway.pop_front();
        }
        if number == 0 {
            return Vec::new();
        }
        self.owes = true;
        if number > self.taken {
            self.early.insert(number, frame[HEAD..].to_vec());
        }
        let mut turn = Vec::new();
        while let Some(message) = self.early.remove(&(self.taken + 1)) {
            self.taken += 1;
            turn.push(message);
        }
        turn
    }

    /// Whether all that was sent has come.
    pub fn is_quiet(&self) -> bool {
        self.underway.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use comb_types::Dice;

    use super::*;

    #[test]
    fn everything_comes_once_and_in_its_order_over_a_network_that_loses_doubles_and_mixes() {
        let mut dice = Dice::new(1);
        let (mut one, mut other) = (Channel::default(), Channel::default());
        let (mut network, mut came) = (Vec::new(), Vec::new());
        for number in 0..200_u8 {
            network.push(one.send(vec![number]));
        }
        while !one.is_quiet() {
            network.extend(one.again());
            for _ in 0..network.len() {
                let frame = network.swap_remove(dice.index(network.len()));
                match dice.below(4) {
                    0 => {}
                    1 => {
                        came.extend(other.take(&frame));
                        came.extend(other.take(&frame));
                    }
                    _ => came.extend(other.take(&frame)),
                }
            }
            other.acknowledgement().into_iter().for_each(|frame| drop(one.take(&frame)));
        }
        assert_eq!(came, (0..200).map(|number| vec![number]).collect::<Vec<_>>());
        assert_eq!((other.acknowledgement(), one.acknowledgement()), (None, None), "nobody owes anything");
    }
}
