//! What a channel holds while nothing is said on it: many channels of one pair of processes, every page touched, then
//! the memory of both processes divided by their count.
//!
//! Counted is what is resident in both, shared pages once (`Pss`): rings and payload areas, the endpoints' books, the
//! bell boards, and the agent's books, as the agent runs in the asking process. Not counted is what the kernel keeps for
//! them: page tables, descriptors, `struct file`.

use std::time::Duration;

use comb_net::{Agent, ChannelKey, Endpoint, Geometry};
use serde_json::{Value, json};

/// So many that what the processes take besides is lost among them.
const CHANNELS: usize = 200;
const SOON: Duration = Duration::from_secs(5);
const LIMIT_BYTES: u64 = 64 << 10;

/// Messages each way over every channel, so many at a time: fewer than a ring holds.
struct Stage {
    test: &'static str,
    bytes: usize,
    batches: u32,
    at_a_time: u32,
}

/// First 1,000 messages that fit in a slot. Then some that fill the whole payload area, which is used from its start
/// again whenever it is empty: shorter ones would leave its end alone.
fn stages() -> [Stage; 2] {
    let longest = Geometry::default().payload_bytes as usize;
    [
        Stage { test: "small", bytes: 8, batches: 40, at_a_time: 25 },
        Stage { test: "longest", bytes: longest, batches: 4, at_a_time: 1 },
    ]
}

/// The asker's side: a JSON line a stage.
pub(crate) fn ask(agent: &Agent) -> Result<Vec<Value>, Box<dyn std::error::Error>> {
    let before = held_bytes()?;
    let mut endpoint = agent.endpoint("idle")?;
    let mut channels = Vec::new();
    while channels.len() < CHANNELS {
        channels.push(endpoint.accept(SOON).ok_or("the answering process did not come")?);
    }
    let mut lines = Vec::new();
    for stage in stages() {
        for &channel in &channels {
            for _ in 0..stage.batches {
                send(&mut endpoint, channel, &stage)?;
                receive(&mut endpoint, &stage)?;
            }
        }
        // Asked for only when all has been received: channels are read in any order.
        endpoint.send(channels[0], 0, &[])?;
        let mut word = [0; 8];
        endpoint.receive_within(&mut word, SOON)?.ok_or("nothing was told")?;
        let held = held_bytes()?.saturating_sub(before) + u64::from_le_bytes(word);
        let each = held as f64 / CHANNELS as f64;
        lines.push(json!({"peer": "idle", "test": stage.test, "bytes": 0,
            "value": each, "beside": LIMIT_BYTES}));
        // Only now may the other side leave: it would close the channels one by one.
        endpoint.send(channels[0], 0, &[])?;
    }
    Ok(lines)
}

/// The answerer's side.
pub(crate) fn answer(agent: &Agent) -> Result<(), Box<dyn std::error::Error>> {
    let before = held_bytes()?;
    let mut endpoint = agent.endpoint("idle")?;
    let channels: Vec<ChannelKey> =
        (0..CHANNELS).map(|_| endpoint.open("asker/idle")).collect::<Result<_, _>>()?;
    for stage in stages() {
        // In the order in which they were opened, which is the asker's as well.
        for &channel in &channels {
            for _ in 0..stage.batches {
                receive(&mut endpoint, &stage)?;
                send(&mut endpoint, channel, &stage)?;
            }
        }
        endpoint.receive_within(&mut [], SOON)?.ok_or("the asker does not ask")?;
        let held = held_bytes()?.saturating_sub(before);
        endpoint.send(channels[0], 0, &held.to_le_bytes())?;
        // After the last stage the asker closes as well: whichever channel says so first.
        let _ = endpoint.receive_within(&mut [], SOON);
    }
    Ok(())
}

fn send(endpoint: &mut Endpoint, channel: ChannelKey, stage: &Stage) -> Result<(), comb_net::PostError> {
    let message = vec![7; stage.bytes];
    (0..stage.at_a_time).try_for_each(|_| endpoint.send_within(channel, 0, &[&message], SOON))
}

fn receive(endpoint: &mut Endpoint, stage: &Stage) -> Result<(), Box<dyn std::error::Error>> {
    let mut buffer = vec![0; stage.bytes];
    for _ in 0..stage.at_a_time {
        endpoint.receive_within(&mut buffer, SOON)?.ok_or("nothing came")?;
    }
    Ok(())
}

/// Resident in this process, shared pages by the share of it, files left out.
pub(crate) fn held_bytes() -> std::io::Result<u64> {
    Ok(proportional_bytes(&std::fs::read_to_string("/proc/self/smaps_rollup")?))
}

fn proportional_bytes(rollup: &str) -> u64 {
    let field = |line: &str| {
        let value = line.strip_prefix("Pss_Anon:").or_else(|| line.strip_prefix("Pss_Shmem:"))?;
        value.trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    rollup.lines().filter_map(field).sum::<u64>() * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_libraries_are_not_counted() {
        let rollup = "00400000-7ffd5000 ---p 00000000 00:00 0 [rollup]\nRss:  900 kB\nPss:  700 kB\n\
                      Pss_Anon:  300 kB\nPss_File:  380 kB\nPss_Shmem:  20 kB\n";
        assert_eq!(proportional_bytes(rollup), 320 * 1024);
    }
}
