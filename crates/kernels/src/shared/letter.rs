//! What cells say to each other about a segment, as bytes.

use comb_coherence::Block;
use thiserror::Error;

use crate::communication::marshal::{self, Marshal};

/// A message of the protocol, on its way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Letter {
    /// What it is, as the protocol numbers it.
    pub kind: u8,
    /// Which block it is about.
    pub block: Block,
    /// Whatever the kind makes of it.
    pub word: u64,
    /// What the block contains, if the kind carries that.
    pub content: Vec<u8>,
}

/// What came is no letter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("what came is no letter about a block")]
pub struct LetterError;

/// The longest, in bytes: with a page of content.
pub(super) const MOST_BYTES: usize = 1 + 8 + 8 + 4 + 4096;

impl Letter {
    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        (self.kind, (self.block.0, self.word)).put(&mut bytes);
        self.content.put(&mut bytes);
        bytes
    }

    /// From bytes that another cell has sent.
    pub fn from_bytes(mut bytes: &[u8]) -> Result<Self, LetterError> {
        let (kind, (block, word)) = Marshal::take(&mut bytes).ok_or(LetterError)?;
        let content = Vec::take(&mut bytes).ok_or(LetterError)?;
        if !bytes.is_empty() || content.len() > 4096 {
            return Err(LetterError);
        }
        Ok(Self { kind, block: Block(block), word, content })
    }
}

/// What a kernel that lets threads wait for words says to those of other cells: who waits for this one there is to look at it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wake {
    /// The page the word is in.
    pub page: u32,
    /// Where in it.
    pub offset: u32,
    /// At most so many of those who wait.
    pub most: u32,
    /// Only those who wait for any of these bits.
    pub bits: u32,
}

impl Wake {
    /// Of which kind its letters are: none of the protocol's.
    pub const KIND: u8 = u8::MAX;

    /// As a letter.
    pub fn to_letter(self) -> Letter {
        let content = marshal::written(&((self.page, self.offset), (self.most, self.bits)));
        Letter { kind: Self::KIND, block: Block(0), word: 0, content }
    }

    /// From a letter of this kind that another cell has sent.
    pub fn from_letter(letter: &Letter) -> Result<Self, LetterError> {
        let ((page, offset), (most, bits)) = marshal::understood(&letter.content).ok_or(LetterError)?;
        if letter.kind != Self::KIND || offset >= 4096 {
            return Err(LetterError);
        }
        Ok(Self { page, offset, most, bits })
    }
}
