//! What a host and its guest say to each other.

use serde::{Deserialize, Serialize};

/// By which the port is called in the guest: `/dev/virtio-ports/…`.
pub const PORT: &str = "comb.guest";

/// Of what the two say; who hears another than its own says so, and nothing more.
pub const VERSION: u32 = 4;

/// With this on its command line a kernel begins with one processor, and the guest brings the others in.
pub const BEGINS_WITH_ONE: &str = "maxcpus=1";

/// A program's output, or its input, that has come and not been taken is at most so much.
pub const WINDOW_BYTES: usize = 1 << 16;

/// Over a serial line, what the host has said and the guest not read is at most so much: what user-mode Linux has stopped for more than 3,968 bytes it never starts again.
pub const SERIAL_BYTES: usize = 3 << 10;
/// So much of a file is said at once.
pub const MOST_FILE_BYTES: usize = 1 << 16;

/// From the host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToGuest {
    /// Who it is now: it has begun, or become another one.
    Become(Become),
    /// Is it well?
    Ping {
        /// Which question.
        number: u64,
    },
    /// Run a program.
    Exec {
        /// By which number it is spoken of.
        exec: u32,
        /// Which, and how.
        command: Command,
    },
    /// For its standard input.
    Input {
        /// Of which.
        exec: u32,
        /// What; nothing: it has ended.
        bytes: Vec<u8>,
    },
    /// So much of its output has been taken.
    Taken {
        /// Of which.
        exec: u32,
        /// So many bytes.
        bytes: u32,
    },
    /// Send it a signal.
    Signal {
        /// Which.
        exec: u32,
        /// By its number.
        signal: i32,
    },
    /// Have a place on a network, which it had lost.
    Network(Network),
    /// Who else is on its network, by name.
    Names(Vec<(String, [u8; 4])>),
    /// End in good order.
    PowerOff,
    /// It was given memory that it has in common with others: which.
    Segments {
        /// By name.
        names: Vec<String>,
    },
    /// What is in a file that it has asked for.
    File {
        /// Which question.
        number: u32,
        /// At most `MOST_FILE_BYTES`, and nothing at its end; or the number of an error.
        found: Result<Vec<u8>, i32>,
    },
}

/// Who a guest is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Become {
    /// Its host name.
    pub name: String,
    /// What makes its random numbers others than those of whoever it was made from.
    pub seed: [u8; 32],
    /// What time it is, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Its place on a network, if it has one.
    pub network: Option<Network>,
}

/// A guest's place on a network.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Network {
    /// The device's link-level address, by which it is found.
    pub mac: [u8; 6],
    /// Its own, in a network of 256.
    pub address: [u8; 4],
    /// By which all others are reached, and who knows their names; none: they are not.
    pub outside: Option<[[u8; 4]; 2]>,
}

/// What to run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Command {
    /// Its name or path, and what it is given.
    pub arguments: Vec<Vec<u8>>,
    /// More of its environment, as `NAME=VALUE`.
    pub environment: Vec<Vec<u8>>,
    /// Where it begins; nothing: at `/`.
    pub directory: Vec<u8>,
}

/// From the guest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FromGuest {
    /// It has become who it is to be.
    Became {
        /// What it understands.
        version: u32,
        /// Its kernel has taken the seed: its random numbers are its own.
        is_seeded: bool,
    },
    /// It is well.
    Pong {
        /// Which question.
        number: u64,
        /// What it has.
        memory: MemoryShown,
    },
    /// A program has written.
    Output {
        /// Which.
        exec: u32,
        /// To its standard error.
        is_error: bool,
        /// What.
        bytes: Vec<u8>,
    },
    /// So much of its input has been taken.
    Taken {
        /// Of which.
        exec: u32,
        /// So many bytes.
        bytes: u32,
    },
    /// It is over, and all that it wrote has been said.
    Ended {
        /// Which.
        exec: u32,
        /// How.
        how: Ended,
    },
    /// So much more may be said: over a serial line alone, where at first nothing may.
    Hears {
        /// So many bytes.
        bytes: u32,
    },
    /// Its programs can map what it was given.
    Segments {
        /// But for these.
        missing: Vec<String>,
    },
    /// What is in a file of those that the host lets it read?
    File {
        /// Which question.
        number: u32,
        /// Below the directory of these.
        path: Vec<u8>,
        /// From where.
        at: u64,
    },
}

/// How a program has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ended {
    /// By itself.
    Exited(i32),
    /// By a signal.
    Killed(i32),
    /// It never ran.
    NotRun(String),
}

/// A guest's memory, as it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MemoryShown {
    /// All that it has now.
    pub total_bytes: u64,
    /// What new programs could have.
    pub available_bytes: u64,
    /// What nobody uses at all.
    pub free_bytes: u64,
    /// Time in which its processors had nothing to do, in milliseconds, since it began.
    pub idle_ms: u64,
    /// Time in which some program waited for memory, in microseconds, since it began.
    pub stalled_us: u64,
}
