//! What chapter 7 of the thesis says, each with what was measured for it.

use crate::items::{NO_NUMBER, item};
use crate::mscs_figures::{Measured, SEEDS};
use crate::reproduce::Item;

const PAPER: &str = "mscs";
/// The thesis's largest cluster.
const NODES: u32 = 32;

/// All rows, by section.
pub(crate) fn mscs(m: &Measured) -> Vec<Item> {
    let mut rows = joins(m);
    rows.extend(regroups(m));
    rows.extend(updates(m));
    rows
}

fn joins(m: &Measured) -> Vec<Item> {
    let row = |name: &str, value: Option<f64>, unit: &'static str| {
        item(PAPER, &format!("Figure 7.1, {name}"), value, unit)
    };
    let at = |what: &str| m.at(what, NODES);
    let came_in = format!("of {SEEDS}");
    let came_in = |note: &str| format!("{came_in} seeds within 10 minutes; {note}");
    vec![
        item(PAPER, "§7.6.1, heartbeats of all 32 nodes", 800.0, "1/s")
            .classic(at("heartbeats classic idle"))
            .note("ours gossips: `comb bench membership`"),
        row("calls one after the other until the 32nd is in", Some(227.0), "calls").shorter(
            at("calls ours idle"),
            at("calls classic idle"),
            "of ours the longest chain of messages, two to a call",
        ),
        row("calls in all", None, "calls").shorter(
            at("all calls ours idle"),
            at("calls classic idle"),
            "ours: all messages, the state's included, two to a call",
        ),
        row("times that the joiner speaks", None, "")
            .ours(at("rounds ours idle"))
            .note("hello, the state, petition, and the two of the cleanup, at any size"),
        row("the 32nd joins, idle", None, "s").shorter(
            at("join ours idle"),
            at("join classic idle"),
            "the paper: 2-4 s for phase three alone",
        ),
        row("the 32nd joins, processes", None, "s").shorter(
            at("join ours processes"),
            at("join classic processes"),
            "no waits but this machine's, and the classic way's heartbeats",
        ),
        row("the 32nd joins, loaded", None, "s").shorter(
            at("join ours loaded"),
            at("join classic loaded"),
            "the paper: frequently impossible",
        ),
        row("joins of the 32nd that succeed, loaded", None, "joins")
            .ours(at("joined ours loaded"))
            .classic(at("joined classic loaded"))
            .note(came_in("both as patient as the classic way")),
        row("… with our own timers", None, "joins")
            .ours(at("joined hastily ours loaded"))
            .note(came_in("who does not answer for half a second is left out")),
    ]
}

fn regroups(m: &Measured) -> Vec<Item> {
    let row = |name: &str, value: Option<f64>, unit: &'static str| {
        item(PAPER, &format!("Figure 7.2, {name}"), value, unit)
    };
    let at = |what: &str| m.at(what, NODES);
    let row_of = |name: &str, value, unit, what: &str, load: &str, note: &str| {
        let (ours, classic) = (at(&format!("{what} ours {load}")), at(&format!("{what} classic {load}")));
        row(name, value, unit).shorter(ours, classic, note)
    };
    let silence = "from the first suspicion; one survivor notices";
    vec![
        row_of(
            "messages after one failure",
            Some(10_000.0),
            "",
            "one dead, messages",
            "idle",
            "ours: all but the detectors'; the classic way's heartbeats are not in it either",
        ),
        row_of(
            "messages after two failures",
            Some(30_000.0),
            "",
            "two dead, messages",
            "idle",
            "the paper: 30,000-40,000",
        ),
        row_of("messages after one failure, loaded", None, "", "one dead, messages", "loaded", NO_NUMBER),
        row_of("regroup after one failure", Some(3.0), "s", "one dead, time", "idle", silence),
        row("… if all survivors notice", None, "s").shorter(
            at("one dead, time ours, all notice idle"),
            at("one dead, time classic idle"),
            "as when a process dies to which each has a channel",
        ),
        row("… processes, kill -9", None, "s").shorter(
            at("one dead, failover ours processes"),
            at("one dead, failover classic processes"),
            "until the last survivor goes on; of the classic way's, 7 s of silence",
        ),
        row("messages after kill -9, processes", None, "").shorter(
            at("one dead, messages ours processes"),
            at("one dead, messages classic processes"),
            "all but the detectors' and the heartbeats",
        ),
        row_of("regroup after one failure, loaded", None, "s", "one dead, time", "loaded", silence),
        row("regroups, loaded, that keep every healthy member", None, "regroups")
            .ours(at("one dead, ended ours loaded"))
            .note(format!("of {SEEDS} seeds; with MSCS's 2.4 s, which some answers take longer than")),
        row("regroup after two failures", None, "s").shorter(
            at("two dead, time ours idle"),
            at("two dead, time classic idle"),
            silence,
        ),
        row("a node's death until all go on without it", Some(10.0), "s").shorter(
            at("one dead, time ours, nobody notices idle"),
            at("one dead, failover classic idle"),
            "by silence alone; the paper: 7 s of it, then regroup",
        ),
        row("… loaded", None, "s").shorter(
            at("one dead, time ours, nobody notices loaded"),
            at("one dead, failover classic loaded"),
            "ours pings as often as the classic way beats",
        ),
    ]
}

fn updates(m: &Measured) -> Vec<Item> {
    let at = |what: &str| m.at(what, NODES);
    let row = |name: &str, value: Option<f64>, unit: &'static str| item(PAPER, name, value, unit);
    let pair =
        |what: &str, way: &str| (at(&format!("{what} ours {way}")), at(&format!("{what} classic {way}")));
    let shorter = |name: &str, value, unit, what: &str, way: &str, note: &str| {
        let (ours, classic) = pair(what, way);
        row(name, value, unit).shorter(ours, classic, note)
    };
    let more = |name: &str, value, what: &str, way: &str, note: &str| {
        let (ours, classic) = pair(what, way);
        row(name, value, "1/s").more(ours, classic, note)
    };
    let until = "ours: until a majority holds it; classic: until all do";
    vec![
        shorter("Figure 7.4, an update of 50 B, idle", None, "ms", "small, latency", "idle", until),
        shorter("Figure 7.4, of 2 KB, idle", None, "ms", "large, latency", "idle", until),
        shorter("Figure 7.4, of 50 B, loaded", None, "ms", "small, latency", "loaded", until),
        shorter("§7.8, the longest, loaded", Some(60.0), "s", "small, longest", "loaded", "up to one minute"),
        shorter("Figure 7.4, of 64 B, processes", None, "ms", "small, latency", "processes", until),
        more("Figure 7.5, updates of 50 B, one sender", Some(6.0), "small, alone", "idle", "one at a time"),
        more("Figure 7.5, of 2 KB, one sender", Some(4.0), "large, alone", "idle", "one at a time"),
        more("Figure 7.5, of 50 B, all send, idle", None, "rate", "idle", "10 updates each at once"),
        more("Figure 7.5, of 50 B, all send, loaded", None, "rate", "loaded", "2 updates each at once"),
        more(
            "Figure 7.5, of 64 B, all send, processes",
            None,
            "rate",
            "processes",
            "ours with 256 under way each",
        ),
    ]
}
