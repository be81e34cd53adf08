//! Everything that the classic way does between processes, once, for a test: a process comes in, an update is done, one is killed.

use serde_json::{Value, json};

use crate::group_side::Counts;
use crate::membership::{Members, Outcome};

/// By so many processes, of which the last comes in to the others.
pub(crate) fn run(count: u32) -> Outcome<Value> {
    if count < 4 {
        return Err("of three, one comes in and one is killed: the other would have to wait".into());
    }
    let mut group = Members::start("classic", count - 1)?;
    let calls = |counts: Vec<Counts>| counts.iter().map(|counts| counts.calls).sum::<u64>();
    let before = calls(group.counts_of_each()?);
    group.let_in_idle()?;
    let join_calls = calls(group.counts_of_each()?) - before;
    let updates_per_second = group.load_for(1, 1, 0.3)?.per_second;
    let messages = |counts: Vec<Counts>| counts.iter().map(|counts| counts.messages).sum::<u64>();
    let mut before = group.counts_of_each()?;
    before.remove(before.len() / 2); // the one that is killed
    let death_ms = group.kill_one()?;
    let (before, after) = (messages(before), messages(group.counts_of_each()?));
    let left = group.members.len();
    group.end()?;
    Ok(json!({
        "join_calls": join_calls,
        "updates_per_second": updates_per_second,
        "death_ms": death_ms,
        "left": left,
        "messages_before": before,
        "messages_after": after,
    }))
}
