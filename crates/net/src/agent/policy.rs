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

/// What an agent lets its processes hold. A process counts as often as it connects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Endpoints of one process.
    pub endpoints: u32,
    /// Channels of one process, opened and accepted.
    pub channels: u32,
    /// Shared memory that one process hands to peers, in bytes: rings, bells and windows.
    pub memory_bytes: u64,
    /// Connections of all processes. Each costs the agent two descriptors, and one more for every endpoint.
    pub connections: u32,
    /// Connections of one user's processes: no user takes all places.
    pub connections_per_user: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            endpoints: 64,
            channels: 8192,
            memory_bytes: 1 << 30,
            connections: 4096,
            connections_per_user: 1024,
        }
    }
}

/// That a limit is reached, for people: which one, and how it is raised.
pub(crate) fn reached(limit: &str, key: &str) -> String {
    format!(
        "{limit} is reached (`comb up --limits {key}=…` raises it, or Limits::{key} in the program that is the agent)"
    )
}

/// Why that is no set of limits.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LimitsError {
    /// Not one of ours.
    #[error(
        "there is no limit {0:?}: say endpoints, channels, memory_bytes, connections or connections_per_user"
    )]
    Unknown(String),
    /// Not a number, or not one that makes sense.
    #[error("{0:?} is no value for a limit: say key=NUMBER, at least 1; bytes may end in K, M or G")]
    Value(String),
}

/// The defaults, but for what is said: `channels=16384,memory_bytes=4G`.
impl std::str::FromStr for Limits {
    type Err = LimitsError;

    fn from_str(text: &str) -> Result<Self, LimitsError> {
        let mut limits = Self::default();
        for part in text.split(',') {
            let wrong = || LimitsError::Value(part.to_owned());
            let (key, value) = part.split_once('=').ok_or_else(wrong)?;
            let count = || value.parse().ok().filter(|&count: &u32| count > 0).ok_or_else(wrong);
            match key {
                "endpoints" => limits.endpoints = count()?,
                "channels" => limits.channels = count()?,
                "connections" => limits.connections = count()?,
                "connections_per_user" => limits.connections_per_user = count()?,
                "memory_bytes" => limits.memory_bytes = bytes(value).ok_or_else(wrong)?,
                unknown => return Err(LimitsError::Unknown(unknown.to_owned())),
            }
        }
        Ok(limits)
    }
}

fn bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(digits) if text.ends_with('K') => (digits, 10),
        Some(digits) if text.ends_with('M') => (digits, 20),
        Some(digits) => (digits, 30),
        None => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_people_write_them() {
        let limits: Limits = "channels=16384,memory_bytes=4G".parse().unwrap();
        assert_eq!(limits, Limits { channels: 16384, memory_bytes: 4 << 30, ..Limits::default() });
        for (text, words) in [
            ("", "no value"),
            ("channels", "no value"),
            ("channels=0", "no value"),
            ("channels=-1", "no value"),
            ("channels=4G", "no value"),
            ("memory_bytes=99999999999G", "no value"),
            ("memory_bytes=G", "no value"),
            ("windows=3", "there is no limit \"windows\""),
        ] {
            let error = text.parse::<Limits>().unwrap_err().to_string();
            assert!(error.contains(words), "{text:?}: {error}");
        }
    }
}
