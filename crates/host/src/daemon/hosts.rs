//! The other hosts: they come in, say how they are, ask for something, and go.

mod admission;
mod cells;
mod commands;
mod questions;

use std::net::{IpAddr, SocketAddr};

use comb_cell::supervision::CellElsewhere;
use comb_net::hosts::KnownHosts;

use super::*;
use crate::control::{Killed, WentOn};
use crate::federation::members::{Key, Member};
use crate::federation::shell::{Program, Seat};
use crate::federation::words::{
    Answered, Asked, CellState, CellWord, Join, KilledWord, Lie, Reception, Word, plain,
};
use crate::federation::{CombPolicy, Event, Federation, How, Knock, usual_name};
use crate::state_directory::StateDirectory;

const BETWEEN_TURNED_AWAY: Duration = Duration::from_millis(200);

/// What the agent has of other hosts, and with them.
#[derive(Debug)]
pub(super) struct Abroad {
    pub(super) federation: Federation,
    /// Questions of ours, by number: to whom, and what their answers are for.
    questions: BTreeMap<u64, (String, Purpose)>,
    /// Questions of others that are not answered yet, by the connections that stand for them.
    answering: BTreeMap<u64, (String, u64)>,
    is_leaving: bool,
    rotation: Option<Rotation>,
    /// What cells were told last of those of other hosts.
    told: Vec<CellElsewhere>,
    /// When somebody was turned away last, as it was written down.
    turned_away: Option<Instant>,
}

/// What an answer is for.
#[derive(Debug)]
enum Purpose {
    /// A command that waits.
    Command { connection: u64, cell: u32 },
    /// One who wants in.
    Admission(Box<Knock>),
    /// Our new key is known there.
    NextKey,
    /// To be written down, if it is a no.
    Nobody,
}

/// The key is being changed.
#[derive(Debug)]
struct Rotation {
    connection: u64,
    waits_for: BTreeSet<u64>,
    told: u32,
    missed: Vec<String>,
}

impl Abroad {
    /// This host, alone for now.
    pub(super) fn new(federation: Federation) -> Self {
        Self {
            federation,
            questions: BTreeMap::new(),
            answering: BTreeMap::new(),
            is_leaving: false,
            rotation: None,
            told: Vec::new(),
            turned_away: None,
        }
    }
}

/// The federation, and the policy of the broker that goes with it.
pub(super) fn prepare(options: &Options) -> std::io::Result<(Federation, CombPolicy)> {
    let policy = CombPolicy { blocks: crate::federation::Blocks::default() };
    let access = crate::federation::access::Access::parse(&options.allow).map_err(std::io::Error::other)?;
    let federation = Federation::new(StateDirectory::from_environment(), access, policy.blocks.clone())?;
    Ok((federation, policy))
}

impl Daemon {
    /// A host that belonged to a comb belongs to it again: its cells begin when those of the others are reached.
    pub(super) fn resume_membership(&mut self, has_cells: bool) -> Result<bool, String> {
        let Some(saved) = self.abroad.federation.saved()? else { return Ok(false) };
        self.abroad.federation.resume(&mut self.server, &saved)?;
        let roster = &self.abroad.federation.comb.as_ref().expect("resumed").roster;
        let (own, others) = (roster.own().clone(), roster.others().count());
        say(format_args!("is host {} of a comb with {others} others again", own.name));
        if !has_cells {
            self.take_cells(&own);
        }
        self.begin_what_is_due_abroad();
        Ok(true)
    }

    /// These numbers are this host's. Its cells wait for the others.
    fn take_cells(&mut self, own: &Member) {
        self.cells = own.cells().map(Cell::new).collect();
        for cell in &mut self.cells {
            cell.incarnation = self.abroad.federation.last_life(cell.number);
            cell.again = Again::WhenReached;
        }
        self.write_state();
    }

    // ── what threads say ──

    pub(super) fn hear_hosts(&mut self) {
        for event in self.abroad.federation.take_events() {
            match event {
                Event::Opened { host, key, line } => {
                    let number = line.number;
                    let comb = self.abroad.federation.comb.as_mut();
                    if comb.is_some_and(|comb| comb.opened(&host, key, line)) {
                        say(format_args!("host {host} is there (line {number})"));
                    }
                }
                Event::Heard { host, line, word } => {
                    let is_current =
                        self.abroad.federation.comb.as_ref().is_some_and(|comb| comb.is_current(&host, line));
                    if is_current && let Err(lie) = self.hear_word(&host, word) {
                        self.line_closed(&host, line, &How::Lied(lie));
                    }
                }
                Event::Closed { host, line, how } => self.line_closed(&host, line, &how),
                Event::Unreached { host, why } => {
                    let comb = self.abroad.federation.comb.as_mut();
                    if comb.is_some_and(|comb| comb.unreached(&host, &why)) {
                        say(format_args!("host {host} is not reached: {}", plain(&why)));
                    }
                }
                Event::Unheard { why } => say(plain(&why)),
                Event::Shell { host, program, wanted, answer } => {
                    let _ = answer.send(self.seat_for(&host, program, wanted.uid));
                }
                Event::Knocks(knock) => self.let_in(knock),
                Event::Joined { connection, outcome } => self.joined(connection, outcome),
            }
        }
    }

    fn line_closed(&mut self, host: &str, line: u64, how: &How) {
        let Some(comb) = self.abroad.federation.comb.as_mut() else { return };
        let Some(condition) = comb.closed(host, line, how) else { return };
        match how {
            How::Lied(lie) => say(format_args!("cut off host {host}: {}", plain(lie))),
            How::Silent => say(format_args!("host {host} is lost: nothing is heard of it")),
            How::Cut(why) => say(format_args!("host {host} is {condition}: {}", plain(why))),
            How::Farewell => say(format_args!("host {host} is {condition}: its agent has ended")),
            How::Dropped => {}
        }
        self.abandon(host, &format!("host {host} is {condition}"));
    }

    /// What was asked there is answered by nobody, and who asked from there hears no answer.
    fn abandon(&mut self, host: &str, why: &str) {
        let asked: Vec<u64> = self
            .abroad
            .questions
            .iter()
            .filter(|(_, (to, _))| to == host)
            .map(|(&number, _)| number)
            .collect();
        for number in asked {
            self.answered(host, number, Err(why.to_owned()));
        }
        let asking: Vec<u64> =
            self.abroad.answering.iter().filter(|(_, (by, _))| by == host).map(|(&it, _)| it).collect();
        for connection in asking {
            self.abroad.answering.remove(&connection);
            self.forget_command(connection);
        }
    }

    /// `Err`: what it may not say.
    fn hear_word(&mut self, host: &str, word: Word) -> Result<(), Lie> {
        let Some(comb) = self.abroad.federation.comb.as_mut() else { return Ok(()) };
        match word {
            Word::Beat => {}
            Word::Members { members, out } => {
                let (added, gone) = comb.members_are(host, members, &out)?;
                for member in &added {
                    say(format_args!("host {} is on {}, says host {host}", member.name, member.address));
                }
                for name in &gone {
                    self.remove_host(name, true, &format!("as most say, {host} the last"));
                }
                if !added.is_empty() {
                    self.abroad.federation.hosts_changed(&self.server);
                }
            }
            Word::Cells { counter, cells } => comb.cells_are(host, counter, cells)?,
            Word::Ask { number, uid, ask } => self.asked(host, number, uid, &ask),
            Word::Answer { number, answer } => {
                if self.abroad.questions.get(&number).is_none_or(|(to, _)| to != host) {
                    return Err("it answers what it was not asked".to_owned());
                }
                self.answered(host, number, answer);
            }
            Word::Switched => {
                let member = comb.roster.get_mut(host).ok_or("it is none of the comb's")?;
                member.key = member.next_key.take().ok_or("it changes to a key that it has not told of")?;
                say(format_args!("host {host} has the key {} from now on", member.key.0));
                self.abroad.federation.hosts_changed(&self.server);
            }
            Word::Leave => self.remove_host(host, false, "it has left the comb"),
        }
        Ok(())
    }

    /// A host is none of the comb's any more.
    fn remove_host(&mut self, name: &str, is_put_out: bool, why: &str) {
        let Some(comb) = self.abroad.federation.comb.as_mut() else { return };
        if comb.roster.remove(name, is_put_out).is_some() {
            say(format_args!("host {name} is none of the comb's any more: {why}"));
            self.abroad.federation.hosts_changed(&self.server);
            self.abandon(name, &format!("host {name} is none of the comb's any more"));
        }
    }
}
