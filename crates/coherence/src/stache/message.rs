//! What clients and homes say to each other.

use crate::tempest::PeerError;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Want {
    Read,
    Write,
    /// To become the home: what a home wants for another. Nobody says that.
    Home,
}

/// What a message is. Those to a home come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    /// To a home: I want to read.
    Read = 0,
    /// I want to write. Word 1: I have a copy to read.
    Write,
    /// What you asked me to give up, I have given up; with what I stored.
    Returned,
    /// What you asked me to give up, I have given up; I had stored nothing.
    Dropped,
    /// I give up the right to write that I have; with what I stored.
    GivenBack,
    /// I am the home now, as you gave it to me.
    Taken,
    /// I am not: you are not the home, as far as I know.
    Declined,
    /// To a client: here it is, to read.
    Readable,
    /// Here it is, to write.
    Writable,
    /// Write to what you have.
    Upgraded,
    /// Give up your right to write, and send what you stored.
    Recall,
    /// Give up your copy.
    Invalidate,
    /// Nobody has it any more.
    Lost,
    /// You are its home; here it is. Word: how often it has moved, with this.
    Given,
    /// Ask its home. Word: that, as far as I know.
    Moved,
    /// To anybody: you will want to read it.
    Offered,
}

const KINDS: [Kind; 16] = [
    Kind::Read,
    Kind::Write,
    Kind::Returned,
    Kind::Dropped,
    Kind::GivenBack,
    Kind::Taken,
    Kind::Declined,
    Kind::Readable,
    Kind::Writable,
    Kind::Upgraded,
    Kind::Recall,
    Kind::Invalidate,
    Kind::Lost,
    Kind::Given,
    Kind::Moved,
    Kind::Offered,
];

impl Kind {
    pub(super) fn of(number: u8) -> Result<Self, PeerError> {
        KINDS.get(usize::from(number)).copied().ok_or(PeerError::Kind(number))
    }

    pub(super) fn is_to_home(self) -> bool {
        (self as u8) < Self::Readable as u8
    }

    fn carries_block(self) -> bool {
        matches!(self, Self::Returned | Self::GivenBack | Self::Readable | Self::Writable | Self::Given)
    }

    pub(super) fn check_content(self, bytes: usize, block_bytes: usize) -> Result<(), PeerError> {
        let expected = if self.carries_block() { block_bytes } else { 0 };
        if bytes == expected { Ok(()) } else { Err(PeerError::Content { bytes, expected }) }
    }
}
