//! What cells say to each other about a segment, as bytes.

use comb_coherence::Block;
use thiserror::Error;

use crate::communication::marshal::Marshal;

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
