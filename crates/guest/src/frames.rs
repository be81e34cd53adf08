//! Values on a stream of bytes, each behind its length.

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// The longest, in bytes.
pub const MOST_BYTES: usize = 1 << 17;

/// What came is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FrameError {
    /// Its length.
    #[error("a frame of {0} bytes, of at most {MOST_BYTES}")]
    TooLong(usize),
    /// Its content.
    #[error("a frame that says nothing")]
    Nonsense,
}

/// What has come of a stream.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    /// Of these have been taken.
    taken: usize,
}

impl Frames {
    /// More has come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.taken));
        self.bytes.extend_from_slice(bytes);
    }

    /// What has come and not been taken.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// The next value, if all of it has come. After an error nothing can be made of the stream any more.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let Some((head, rest)) = self.bytes[self.taken..].split_first_chunk() else { return Ok(None) };
        let length = u32::from_le_bytes(*head) as usize;
        if length > MOST_BYTES {
            return Err(FrameError::TooLong(length));
        }
        let Some(content) = rest.get(..length) else { return Ok(None) };
        let (value, left) = postcard::take_from_bytes(content).map_err(|_| FrameError::Nonsense)?;
        if !left.is_empty() {
            return Err(FrameError::Nonsense);
        }
        self.taken += 4 + length;
        Ok(Some(value))
    }
}

/// A value as it goes.
pub fn framed(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = postcard::to_extend(value, vec![0; 4]).expect("what is said has a length");
    assert!(bytes.len() - 4 <= MOST_BYTES, "what is said is short");
    let length = u32::try_from(bytes.len() - 4).expect("it is");
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Command, FromGuest, ToGuest};
    use comb_types::Dice;

    #[test]
    fn values_come_as_they_went_in_whatever_pieces() {
        let said = [
            ToGuest::Ping { number: 7 },
            ToGuest::Exec {
                exec: 1,
                command: Command { arguments: vec![b"ls".to_vec()], ..Command::default() },
            },
            ToGuest::Input { exec: 1, bytes: vec![3; 70_000] },
        ];
        let bytes = said.iter().flat_map(framed).collect::<Vec<_>>();
        let mut dice = Dice::new(1);
        for _ in 0..100 {
            let (mut frames, mut heard, mut rest) = (Frames::default(), Vec::new(), &bytes[..]);
            while !rest.is_empty() {
                let (some, others) = rest.split_at(rest.len().min(1 + dice.below(9_000) as usize));
                frames.push(some);
                rest = others;
                while let Some(value) = frames.take::<ToGuest>().unwrap() {
                    heard.push(value);
                }
            }
            assert_eq!(heard, said);
        }
    }

    #[test]
    fn what_is_no_frame_is_an_error_and_nothing_else() {
        let mut frames = Frames::default();
        frames.push(&u32::MAX.to_le_bytes());
        assert_eq!(frames.take::<FromGuest>(), Err(FrameError::TooLong(u32::MAX as usize)));
        let mut dice = Dice::new(2);
        let (mut errors, mut values) = (0, 0);
        for _ in 0..20_000 {
            let mut frames = Frames::default();
            let length = dice.below(24);
            let byte = |dice: &mut Dice| u8::try_from(dice.below(256) >> dice.below(8)).unwrap();
            let content: Vec<u8> = (0..length).map(|_| byte(&mut dice)).collect();
            frames.push(&length.to_le_bytes());
            frames.push(&content);
            match frames.take::<FromGuest>() {
                Ok(value) => values += u32::from(value.is_some()),
                Err(error) => {
                    assert_eq!(error, FrameError::Nonsense);
                    errors += 1;
                }
            }
        }
        assert!(errors > 100 && values > 100, "{errors} {values}");
    }
}
