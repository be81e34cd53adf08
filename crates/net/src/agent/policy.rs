//! Who may do what, and how much of it.

use serde::{Deserialize, Serialize};

/// A process as its agent knows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// The name it gave; unique on its agent while it lives.
    pub name: String,
    /// Process number, vouched for by the kernel.
    pub pid: u32,
    /// User, vouched for by the kernel.
    pub uid: u32,
}

/// Decides about requests. An agent asks it once for every channel, never for a message.
pub trait Policy: Send {
    /// Whether `from` may open a channel to an endpoint of `to`. The error is a sentence for people.
    fn may_open(&self, from: &Identity, to: &Identity, endpoint: &str) -> Result<(), String>;

    /// Whether `from`, of this host, may open a channel to `to` (`process/endpoint`) on another. Asked on the opener's
    /// host; the other asks [`Policy::may_enter`].
    fn may_leave(&self, _from: &Identity, _host: &str, _to: &str) -> Result<(), String> {
        Ok(())
    }

    /// Whether `from`, which the agent of `host` vouches for, may open a channel to an endpoint of `to`. Unless said
    /// otherwise the rule is that within a host: a room's machines share their users.
    fn may_enter(&self, _host: &str, from: &Identity, to: &Identity, endpoint: &str) -> Result<(), String> {
        self.may_open(from, to, endpoint)
    }
}

/// The default: processes of one user may talk to each other, and root to everybody.
#[derive(Clone, Copy, Debug, Default)]
pub struct SameUser;

impl Policy for SameUser {
    fn may_open(&self, from: &Identity, to: &Identity, _endpoint: &str) -> Result<(), String> {
        if from.uid == to.uid || from.uid == 0 {
            Ok(())
        } else {
            Err(format!("user {} may not open channels to processes of user {}", from.uid, to.uid))
        }
    }
}

/// What one process may hold at its agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Endpoints.
    pub endpoints: u32,
    /// Channels, opened and accepted.
    pub channels: u32,
    /// Shared memory that it hands to peers, in bytes: rings, bells and windows.
    pub memory_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { endpoints: 64, channels: 8192, memory_bytes: 1 << 30 }
    }
}
