//! Messages put together again from their pieces, which come in order.

use super::{Config, PeerError};

/// The message that is arriving. It never holds more than one message of the agreed length.
#[derive(Debug)]
pub(super) struct Assembly {
    longest_message: usize,
    longest_piece: usize,
    bytes: Vec<u8>,
    /// `bytes` was handed over: the next piece starts anew.
    complete: bool,
}

impl Assembly {
    pub(super) fn new(config: &Config) -> Assembly {
        Assembly {
            longest_message: config.longest_message_bytes,
            longest_piece: config.piece_bytes(),
            bytes: Vec::new(),
            complete: false,
        }
    }

    /// Whether a piece of this length can be one, wherever its place is. All but a message's last are as long as
    /// agreed: so a message has no more of them than it must, and none that is empty.
    pub(super) fn check_piece(&self, bytes: usize, more: bool) -> Result<(), PeerError> {
        let expected = self.longest_piece;
        if bytes > expected || (more && bytes < expected) {
            return Err(PeerError::Piece { bytes, expected });
        }
        Ok(())
    }

    /// Whether the message stays within the limit with this piece, if it is the next.
    pub(super) fn check_next(&self, bytes: usize) -> Result<(), PeerError> {
        let (bytes, limit) = (self.arrived() + bytes, self.longest_message);
        if bytes > limit { Err(PeerError::TooLong { bytes, limit }) } else { Ok(()) }
    }

    /// Adds a piece that was checked. Returns the message if it is whole.
    pub(super) fn add<'a>(&'a mut self, piece: &'a [u8], more: bool) -> Option<&'a [u8]> {
        if std::mem::take(&mut self.complete) {
            self.bytes.clear();
        }
        if self.bytes.is_empty() && !more {
            return Some(piece);
        }
        self.bytes.extend_from_slice(piece);
        self.complete = !more;
        self.complete.then_some(&self.bytes)
    }

    fn arrived(&self) -> usize {
        if self.complete { 0 } else { self.bytes.len() }
    }

    /// What is held of the peer's.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.bytes.len()
    }
}
