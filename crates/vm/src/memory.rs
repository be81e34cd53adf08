//! What a machine has of memory, between its engine and whoever says how much it is to have.
//!
//! What it began with is taken from it by a balloon, in which the guest puts pages that it does not need; what it has beyond is plugged, and unplugged again. Both are the guest's to do: it
//! may be slow, or never do it, and what it has is always what the engine says.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::engine::ANSWER_LIMIT;
use crate::hardware::{Hardware, ROOM};
use crate::qmp::{Event, Qmp, QmpError};

/// An engine that runs answers sooner. One that does not is looked after by its monitor, who cannot wait for it.
const LOOK_LIMIT: Duration = Duration::from_secs(1);

/// The same of an order.
const ORDER_LIMIT: Duration = Duration::from_secs(3);

/// How often an engine is asked for what it has, while that changes: it says so by itself only once a second.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// Memory is plugged by so much at least.
const BLOCK_BYTES: u64 = 2 << 20;

/// What a machine has of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Has {
    /// Now.
    pub bytes: u64,
    /// So much it is to have.
    pub wanted_bytes: u64,
    /// All that has come to it since it began.
    pub came_bytes: u64,
    /// All that has gone from it.
    pub went_bytes: u64,
}

/// Why a machine was not told to have so much.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// It may not.
    #[error("it may have {} to {} MiB", .0 >> 20, .1 >> 20)]
    Beyond(u64, u64),
    /// The engine.
    #[error(transparent)]
    Qmp(#[from] QmpError),
}

/// A machine's memory, as its monitor has it.
#[derive(Debug)]
pub(crate) struct Memory {
    hardware: Hardware,
    ballooned_bytes: u64,
    plugged_bytes: u64,
    has: Has,
    looked: Instant,
}

impl Memory {
    /// Of a machine that begins, or goes on with what it had.
    pub(crate) fn of(hardware: &Hardware, qmp: &mut Qmp) -> Result<Self, QmpError> {
        let (hardware, looked) = (hardware.clone(), Instant::now());
        let mut memory = Self { hardware, ballooned_bytes: 0, plugged_bytes: 0, has: Has::default(), looked };
        // An engine without a protocol takes and gives none.
        if qmp.is_spoken() {
            memory.look_now(qmp, ANSWER_LIMIT)?;
        }
        memory.has = Has { bytes: memory.bytes(), wanted_bytes: memory.bytes(), ..Has::default() };
        Ok(memory)
    }

    fn bytes(&self) -> u64 {
        self.hardware.memory_bytes.saturating_sub(self.ballooned_bytes) + self.plugged_bytes
    }

    /// What it has, of which the engine is asked if that changes.
    pub(crate) fn has(&mut self, qmp: &mut Qmp) -> Has {
        if self.has.bytes != self.has.wanted_bytes && self.looked.elapsed() >= BETWEEN_LOOKS {
            // One that does not answer has changed nothing.
            let _ = self.look_now(qmp, LOOK_LIMIT);
        }
        self.has
    }

    fn look_now(&mut self, qmp: &mut Qmp, limit: Duration) -> Result<(), QmpError> {
        self.looked = Instant::now();
        let balloon = qmp.call("query-balloon", &json!({}), limit)?;
        if let Some(actual) = balloon["actual"].as_u64() {
            self.ballooned_bytes = self.hardware.memory_bytes.saturating_sub(actual);
        }
        if self.hardware.has_room() {
            let devices = qmp.call("query-memory-devices", &json!({}), limit)?;
            let mut all = devices.as_array().into_iter().flatten().map(|device| &device["data"]);
            let room = all.find(|data| data["id"] == ROOM);
            self.plugged_bytes = room.and_then(|data| data["size"].as_u64()).unwrap_or(0);
        }
        self.count();
        Ok(())
    }

    /// The engine says that it is another amount.
    pub(crate) fn hear(&mut self, event: &Event) {
        let amount = |key: &str| event.data.get(key).and_then(Value::as_u64);
        match event.name.as_str() {
            "BALLOON_CHANGE" => {
                let actual = amount("actual").unwrap_or(self.hardware.memory_bytes);
                self.ballooned_bytes = self.hardware.memory_bytes.saturating_sub(actual);
            }
            "MEMORY_DEVICE_SIZE_CHANGE" => {
                self.plugged_bytes = amount("size").unwrap_or(self.plugged_bytes);
            }
            _ => return,
        }
        self.count();
    }

    fn count(&mut self) {
        let (before, now) = (self.has.bytes, self.bytes());
        self.has.bytes = now;
        self.has.came_bytes += now.saturating_sub(before);
        self.has.went_bytes += before.saturating_sub(now);
    }

    /// Has the machine have so much from now on, as soon as its guest does it.
    pub(crate) fn set(&mut self, bytes: u64, qmp: &mut Qmp) -> Result<(), MemoryError> {
        let may = self.hardware.may_have();
        if !may.contains(&bytes) {
            return Err(MemoryError::Beyond(*may.start(), *may.end()));
        }
        let first = bytes.min(self.hardware.memory_bytes);
        let plugged = (bytes - first) / BLOCK_BYTES * BLOCK_BYTES;
        if self.hardware.has_room() {
            let room = json!({ "path": format!("/machine/peripheral/{ROOM}"), "property": "requested-size", "value": plugged });
            qmp.call("qom-set", &room, ORDER_LIMIT)?;
        }
        // A guest's pages are so large.
        let first = first / 4096 * 4096;
        qmp.call("balloon", &json!({ "value": first }), ORDER_LIMIT)?;
        self.has.wanted_bytes = first + plugged;
        self.looked = Instant::now();
        Ok(())
    }
}
