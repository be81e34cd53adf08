//! One more process comes in to a running group, idle and while all others send as fast as they can.

use std::time::Duration;

use serde_json::Value;

use crate::group_side::{SPAN_NS, Task};
use crate::membership::{Members, OUTSTANDING, Outcome, start_member};
use crate::net::median;

/// How often one comes in to the idle group.
const TIMES: usize = 3;
/// The group is under load for so long before one comes in, and for so long after.
const BEFORE: Duration = Duration::from_millis(1500);
const AFTER: Duration = Duration::from_millis(2500);
/// Who is not in by then, idle again or not, will never be.
const NEVER: Duration = Duration::from_secs(30);
/// Of the load before, what the load meanwhile is compared with.
const COMPARED_NS: u64 = 1_000_000_000;

/// What coming in took, from the call of the process until it knew that everybody has the view with it.
pub(crate) struct ComingIn {
    /// The median, in milliseconds.
    pub(crate) idle_ms: Option<f64>,
    /// Of each try under load; none if it was not in while there was load.
    pub(crate) loaded_ms: Vec<Option<f64>>,
    /// Updates that a member got in a second meanwhile, over those before: the median of the members, and of the tries.
    pub(crate) share_under_load: Option<f64>,
}

/// Starts a group of so many processes, and lets one more in to it again and again: so often while all send.
pub(crate) fn measure(members: u32, loaded_tries: usize) -> Outcome<ComingIn> {
    let mut group = Members::start("ours", members)?;
    let mut idle = Vec::new();
    for _ in 0..TIMES {
        let (start, end) = group.let_in_idle()?;
        idle.push(milliseconds(start, end));
        group.lose_last()?;
    }
    let (mut loaded_ms, mut shares) = (Vec::new(), Vec::new());
    while loaded_ms.len() < loaded_tries {
        let loaded = group.let_in_loaded()?;
        let never_came = group.members.len() == members as usize;
        shares.extend(loaded.and_then(|(_, share)| share));
        loaded_ms.push(loaded.map(|(took_ms, _)| took_ms));
        if never_came {
            // It may still be half in: nothing that is measured after it would be of the group that it was.
            loaded_ms.resize(loaded_tries, None);
        } else if loaded_ms.len() < loaded_tries {
            group.lose_last()?;
        }
    }
    group.end()?;
    Ok(ComingIn { idle_ms: median(&idle), loaded_ms, share_under_load: median(&shares) })
}

impl Members {
    /// Says when the process came, and when everybody had the view with it.
    pub(crate) fn let_in_idle(&mut self) -> Outcome<(u64, u64)> {
        self.tell(&Task::AwaitView { least: self.members.len() + 1, most: usize::MAX })?;
        self.hear()?;
        let came = self.start_another()?.ok_or("the last one never came in")?;
        let views = self.hear()?;
        self.members.push(came.member);
        Ok((came.start_ns, last_view(&views).ok_or("no view came")?.max(came.view_ns)))
    }

    fn lose_last(&mut self) -> Outcome<()> {
        self.tell(&Task::AwaitView { least: 0, most: self.members.len() - 1 })?;
        self.hear()?;
        drop(self.members.pop());
        self.hear().map(|_| ())
    }

    /// What it took, and the share of the updates that there were meanwhile; none if it was not in while there was load.
    fn let_in_loaded(&mut self) -> Outcome<Option<(f64, Option<f64>)>> {
        self.tell_load(0, OUTSTANDING, (BEFORE + AFTER).as_secs_f64())?;
        std::thread::sleep(BEFORE);
        let came = self.start_another()?;
        let heard = self.hear()?;
        let Some(came) = came else { return Ok(None) };
        self.members.push(came.member);
        let is_in_time = heard.iter().all(|line| line["view_ns"].is_u64());
        let Some(last) = last_view(&heard).filter(|_| is_in_time) else { return Ok(None) };
        let end = last.max(came.view_ns);
        let compared = came.start_ns.saturating_sub(COMPARED_NS);
        let share = |line: &Value| {
            Some(delivered(line, came.start_ns, end)? / delivered(line, compared, came.start_ns)?)
        };
        let shares: Vec<f64> = heard.iter().filter_map(share).collect();
        Ok(Some((milliseconds(came.start_ns, end), median(&shares))))
    }

    /// Starts one after the configured ones, and waits until it is in; none if it never is.
    fn start_another(&mut self) -> Outcome<Option<Came>> {
        let count = self.members.len();
        let mut member = start_member(self.room.path(), &format!("{} {count} of {count} on 1", self.way))?;
        let Some(line) = member.hear_within(NEVER)? else { return Ok(None) };
        let said = |field: &str| line[field].as_u64().ok_or("it did not say when");
        Ok(Some(Came { start_ns: said("start_ns")?, view_ns: said("view_ns")?, member }))
    }
}

struct Came {
    member: crate::membership::Member,
    start_ns: u64,
    view_ns: u64,
}

fn last_view(lines: &[Value]) -> Option<u64> {
    lines.iter().filter_map(|line| line["view_ns"].as_u64()).max()
}

fn milliseconds(from_ns: u64, until_ns: u64) -> f64 {
    until_ns.saturating_sub(from_ns) as f64 / 1e6
}

/// What a member under load got in a second of a time, by whole spans.
fn delivered(line: &Value, from_ns: u64, until_ns: u64) -> Option<f64> {
    let (start, spans) = (line["start_ns"].as_u64()?, line["delivered_by_span"].as_array()?);
    let first = from_ns.checked_sub(start)? / SPAN_NS;
    let last = until_ns.checked_sub(start)?.div_ceil(SPAN_NS).max(first + 1);
    let by = |passed: u64| match passed.checked_sub(1) {
        None => Some(0),
        Some(index) => spans.get(usize::try_from(index).ok()?)?.as_u64(),
    };
    Some((by(last)? - by(first)?) as f64 / ((last - first) * SPAN_NS) as f64 * 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_delivered_is_counted_by_whole_spans() {
        // 10 ms each: 5 updates, none, 20, 5.
        let line = serde_json::json!({ "start_ns": 1_000, "delivered_by_span": [5, 5, 25, 30] });
        let at = |ms: u64| 1_000 + ms * 1_000_000;
        assert_eq!(delivered(&line, at(0), at(10)), Some(500.0));
        assert_eq!(delivered(&line, at(13), at(28)), Some(1000.0), "two spans, 20 updates");
        assert_eq!(delivered(&line, at(20), at(20)), Some(2000.0), "one span at least");
        assert_eq!(delivered(&line, at(20), at(50)), None, "the load was over");
        assert_eq!(delivered(&line, 0, at(10)), None, "before the load");
    }
}
