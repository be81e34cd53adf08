//! What one side reproaches the other with, and why a collector takes no frames.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What the other side did wrong. It ends the connection; the one who was wrong is told, if it can still be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error, Serialize, Deserialize)]
pub enum PeerFault {
    /// It speaks another protocol.
    #[error("it does not speak the protocol of comb's collectors")]
    Foreign,
    /// A message that does not exist, or not in this version.
    #[error("it sent a message of an unknown kind")]
    Kind,
    /// A message is longer than this kind of message may be.
    #[error("it sent a message that is too long")]
    Size,
    /// A message, or a frame in it, is not as it was written.
    #[error("it sent something damaged")]
    Damaged,
    /// A message that is none at this point.
    #[error("it sent a message out of turn")]
    Turn,
    /// Frames between this one and the last are missing.
    #[error("frames are missing in what it sent")]
    Gap,
    /// A frame that cannot stand where it stands in a trace.
    #[error("it sent a frame that cannot stand there in a trace")]
    Order,
    /// It spoke of frames that were never sent.
    #[error("it spoke of frames that were never sent")]
    Invented,
    /// Nothing came for too long.
    #[error("nothing was heard of it for too long")]
    Silent,
    /// It takes nothing of what is said to it.
    #[error("it does not read what it is told")]
    Deaf,
}

/// Why a collector takes no frames, or no more. Nothing that it acknowledged is lost by that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The two have no version in common.
    #[error("the collector speaks versions {lowest} to {highest} of the protocol, and this agent {ours}", ours = crate::collect::VERSION)]
    Version {
        /// The collector's lowest,
        lowest: u16,
        /// and its highest.
        highest: u16,
    },
    /// As many agents are there as may be.
    #[error("the collector has as many agents as it may have")]
    Busy,
    /// Its disk is full, or what it may use of it is used up. Later there may be room.
    #[error("the collector has no room")]
    Full,
    /// It is being ended.
    #[error("the collector is being ended")]
    Stopping,
    /// Its disk fails, which is no fault of the agent's.
    #[error("the collector cannot write")]
    Trouble,
    /// It has not the frames that were acknowledged: another collector, or somebody removed or damaged the file. The recording cannot go on.
    #[error("the collector no longer has the recording as far as it was acknowledged")]
    Lost,
    /// The same agent goes on with the recording through another connection.
    #[error("another connection goes on with the recording")]
    TakenOver,
    /// The agent is wrong.
    #[error("the collector says of this agent: {0}")]
    Fault(PeerFault),
}

impl Refusal {
    /// Whether the recording can never go on, whenever it is tried again.
    pub(crate) const fn is_final(self) -> bool {
        matches!(self, Self::Lost | Self::Fault(_))
    }
}
