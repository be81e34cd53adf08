//! The comb as this host knows it: who belongs to it, how each host is, and what it says of its cells.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use comb_net::hosts::{HostKey, PublicKey};

use super::door::Knock;
use super::line::{How, Line};
use super::members::{Key, Member, Roster};
use super::shown::HostCondition;
use super::token::Tokens;
use super::words::{CellState, CellWord, Lie, Reception, Word};
use super::{Glance, now_s};

/// From one try to reach a host to the next.
const BETWEEN_DIALS: Duration = Duration::from_millis(300);
/// Before the first.
const AT_FIRST: Duration = Duration::from_millis(20);
/// Of two hosts the one with the lesser name connects at once, the other one after this.
const COURTESY: Duration = Duration::from_millis(1500);
/// A host that has lied is not spoken with for so long.
const AFTER_LIES: Duration = Duration::from_secs(10);
/// How cells are is told so often, whatever has changed.
const BETWEEN_CELLS: Duration = Duration::from_secs(1);
/// Reasons why a host is not reached, that are written down until it is.
const MOST_TROUBLES_TOLD: usize = 4;

/// Another host, as this one sees it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) line: Option<Line>,
    pub(crate) condition: HostCondition,
    pub(super) since: Instant,
    /// When it is tried to reach it next, and whether that is under way.
    pub(super) dial_at: Instant,
    pub(super) is_dialling: bool,
    /// Why that does not come to anything, and which reasons were written down.
    pub(crate) trouble: Option<String>,
    pub(super) troubles_told: Vec<String>,
    /// It has lied, and is not let in until then.
    pub(super) barred_until: Option<Instant>,
    /// Its cells, as it said last; and whether it has on this line.
    pub(crate) cells: Vec<CellWord>,
    pub(crate) has_told: bool,
    pub(super) counter: u64,
    /// Hosts that it says were put out.
    pub(super) says_out: Vec<Key>,
}

impl Peer {
    pub(super) fn new(dial_at: Instant) -> Self {
        Self {
            line: None,
            condition: HostCondition::Away,
            since: Instant::now(),
            dial_at,
            is_dialling: false,
            trouble: None,
            troubles_told: Vec::new(),
            barred_until: None,
            cells: Vec::new(),
            has_told: false,
            counter: 0,
            says_out: Vec::new(),
        }
    }

    pub(super) fn be(&mut self, condition: HostCondition) {
        if self.condition != condition {
            (self.condition, self.since) = (condition, Instant::now());
        }
    }
}

/// A comb that others can belong to: its door is open.
#[derive(Debug)]
pub(crate) struct Comb {
    pub(super) key: HostKey,
    pub(super) next_key: Option<HostKey>,
    pub(crate) roster: Roster,
    pub(super) listen: SocketAddr,
    pub(crate) tokens: Tokens,
    pub(super) lets_strangers_in: Arc<AtomicBool>,
    pub(crate) peers: BTreeMap<String, Peer>,
    pub(super) promised: Vec<(Instant, (u32, u32))>,
    pub(super) next_question: u64,
    pub(super) cells_told: Option<(Instant, Vec<Glance>)>,
    pub(super) counter: u64,
    pub(super) lives: BTreeMap<u32, u64>,
}

impl Comb {
    pub(super) fn next_due(&self) -> Option<Instant> {
        let idle = self.peers.values().filter(|peer| peer.line.is_none() && !peer.is_dialling);
        let told = self.cells_told.as_ref().map(|(at, _)| *at + BETWEEN_CELLS);
        idle.map(|peer| peer.dial_at).chain(told.filter(|_| self.is_any_up())).min()
    }

    pub(super) fn is_any_up(&self) -> bool {
        self.peers.values().any(|peer| peer.line.is_some())
    }

    /// A peer for each of the others.
    pub(super) fn know_peers(&mut self) {
        let (roster, peers) = (&self.roster, &mut self.peers);
        peers.retain(|name, _| roster.get(name).is_some());
        let own = &roster.own().name;
        for member in roster.others() {
            let courtesy = if *own < member.name { Duration::ZERO } else { COURTESY };
            // It may have to hear first that it is one.
            let dial_at = Instant::now() + AT_FIRST + courtesy;
            peers.entry(member.name.clone()).or_insert_with(|| Peer::new(dial_at));
        }
    }

    /// Who belongs to the comb, to one or to all.
    pub(crate) fn tell_members(&self, to: Option<&str>) {
        let word = Word::Members {
            members: self.roster.members().cloned().collect(),
            out: self.roster.out().to_vec(),
        };
        match to {
            Some(host) => drop(self.say(host, &word)),
            None => self.say_all(&word),
        }
    }

    /// Says a word to a host. `false`: there is no line.
    pub(crate) fn say(&self, host: &str, word: &Word) -> bool {
        self.peers.get(host).and_then(|peer| peer.line.as_ref()).is_some_and(|line| line.say(word))
    }

    /// Says a word to all that there is a line to.
    pub(crate) fn say_all(&self, word: &Word) {
        for line in self.peers.values().filter_map(|peer| peer.line.as_ref()) {
            line.say(word);
        }
    }

    /// Whether the others are to hear how this host's cells are: it is time to, or there is something new.
    pub(crate) fn is_to_tell(&self, glances: &[Glance]) -> bool {
        let is_old = |(at, told): &(Instant, Vec<Glance>)| at.elapsed() >= BETWEEN_CELLS || told != glances;
        self.is_any_up() && self.cells_told.as_ref().is_none_or(is_old)
    }

    /// Tells how this host's cells are.
    pub(crate) fn tell_cells(&mut self, glances: Vec<Glance>, cells: Vec<CellWord>) {
        self.counter += 1;
        self.say_all(&Word::Cells { counter: self.counter, cells });
        self.cells_told = Some((Instant::now(), glances));
    }

    /// A question's number.
    pub(crate) fn question(&mut self) -> u64 {
        self.next_question += 1;
        self.next_question
    }

    /// A line has come to be. `false`: it is not to be.
    pub(crate) fn opened(&mut self, host: &str, key: PublicKey, line: Line) -> bool {
        // It may have been put out meanwhile.
        if self.roster.with_key(Key(key)).is_none_or(|member| member.name != host) {
            return false;
        }
        let own = self.roster.own().name.clone();
        let Some(peer) = self.peers.get_mut(host) else { return false };
        peer.is_dialling &= !line.was_dialled;
        if peer.barred_until.take_if(|until| *until <= Instant::now()).is_none()
            && peer.barred_until.is_some()
        {
            return false;
        }
        // Both may connect at once: the one that who has the lesser name has made stays.
        let is_proper = |line: &Line| line.was_dialled == (*own < *host);
        if peer.line.as_ref().is_some_and(|known| is_proper(known) && !is_proper(&line)) {
            return false;
        }
        peer.line = Some(line);
        (peer.counter, peer.has_told, peer.trouble) = (0, false, None);
        peer.troubles_told.clear();
        peer.be(HostCondition::Up);
        self.cells_told = None;
        self.tell_members(Some(host));
        true
    }

    /// A line is no more. `None`: it was not the one that counts.
    pub(crate) fn closed(&mut self, host: &str, line: u64, how: &How) -> Option<HostCondition> {
        let own = &self.roster.own().name;
        let peer = self.peers.get_mut(host)?;
        if peer.line.as_ref().is_none_or(|known| known.number != line) {
            return None;
        }
        peer.line = None;
        peer.has_told = false;
        peer.says_out.clear();
        let courtesy = if **own < *host { Duration::ZERO } else { COURTESY };
        peer.dial_at = Instant::now() + BETWEEN_DIALS + courtesy;
        let condition = match how {
            How::Silent => HostCondition::Lost,
            How::Lied(_) => {
                peer.barred_until = Some(Instant::now() + AFTER_LIES);
                peer.dial_at = Instant::now() + AFTER_LIES;
                HostCondition::CutOff
            }
            How::Farewell | How::Cut(_) | How::Dropped => HostCondition::Away,
        };
        peer.be(condition);
        // Whether they live is not known any more; that they did is.
        Some(condition)
    }

    /// It was tried, in vain. Whether that is worth a line in the log.
    pub(crate) fn unreached(&mut self, host: &str, why: &str) -> bool {
        let Some(peer) = self.peers.get_mut(host) else { return false };
        peer.is_dialling = false;
        let since = peer.since.elapsed();
        // Who has been gone for long is asked for less often.
        peer.dial_at =
            Instant::now() + if since < Duration::from_secs(60) { BETWEEN_DIALS } else { 10 * BETWEEN_DIALS };
        peer.trouble = Some(why.to_owned());
        let is_new = peer.troubles_told.len() < MOST_TROUBLES_TOLD
            && !peer.troubles_told.iter().any(|told| told == why);
        if is_new {
            peer.troubles_told.push(why.to_owned());
        }
        is_new
    }

    /// A line that is not served by who says so any more.
    pub(crate) fn is_current(&self, host: &str, line: u64) -> bool {
        self.peers.get(host).and_then(|peer| peer.line.as_ref()).is_some_and(|known| known.number == line)
    }

    /// A host says how its cells are.
    pub(crate) fn cells_are(&mut self, host: &str, counter: u64, cells: Vec<CellWord>) -> Result<(), Lie> {
        let member = self.roster.get(host).ok_or("it is none of the comb's")?;
        if let Some(strange) = cells.iter().find(|word| !member.has(word.cell)) {
            let whose = self.roster.host_of(strange.cell).map_or("nobody", |owner| &owner.name);
            return Err(format!("it speaks of cell {}, which is {whose}'s", strange.cell));
        }
        if cells.iter().enumerate().any(|(at, word)| cells[..at].iter().any(|other| other.cell == word.cell))
        {
            return Err("it says two things of one cell".to_owned());
        }
        let peer = self.peers.get_mut(host).ok_or("it is none of the comb's")?;
        if counter <= peer.counter {
            return Err("it says what it has said before".to_owned());
        }
        (peer.counter, peer.cells, peer.has_told) = (counter, cells, true);
        Ok(())
    }

    /// A host says who belongs to the comb: those who were added, and those who are gone by the word of most.
    pub(crate) fn members_are(
        &mut self,
        by: &str,
        members: Vec<Member>,
        out: &[(String, Key)],
    ) -> Result<(Vec<Member>, Vec<String>), Lie> {
        let speaker = self.roster.get(by).ok_or("it is none of the comb's")?.clone();
        let (mut added, own) = (Vec::new(), self.roster.own().name.clone());
        for member in members {
            if member.name == by {
                // Of itself it may say where it is, and nothing else that is not known.
                if member.key != speaker.key && speaker.next_key != Some(member.key)
                    || member.cells() != speaker.cells()
                {
                    return Err("it says of itself what is not so".to_owned());
                }
                if let Some(known) = self.roster.get_mut(by).filter(|known| known.address != member.address) {
                    known.address = member.address;
                    added.push(known.clone());
                }
                continue;
            }
            // What differs from what is known here may be older or wrong: nobody changes it by saying so of another.
            if member.name != own && self.roster.get(&member.name).is_none() {
                let member = Member { next_key: None, ..member };
                if let Ok(true) = self.roster.add(member.clone()) {
                    added.push(member);
                }
            }
        }
        if let Some(peer) = self.peers.get_mut(by) {
            peer.says_out = out.iter().map(|(_, key)| *key).collect();
        }
        Ok((added, self.voted_out()))
    }

    /// Hosts that this one cannot reach, and that most of those it can say were put out.
    pub(super) fn voted_out(&self) -> Vec<String> {
        let up = self.peers.values().filter(|peer| peer.line.is_some());
        let is_out = |member: &&Member| {
            let votes = up.clone().filter(|peer| peer.says_out.contains(&member.key)).count();
            let is_reached = self.peers.get(&member.name).is_some_and(|peer| peer.line.is_some());
            !is_reached && 2 * votes > up.clone().count()
        };
        self.roster.others().filter(is_out).map(|member| member.name.clone()).collect()
    }

    /// Numbers for one who comes in, if it is this host that gives them.
    pub(crate) fn promise(&mut self, count: u32) -> Result<u32, String> {
        let giver = self.roster.giver();
        if giver.name != self.roster.own().name {
            return Err(format!("numbers for cells are given by host {}", giver.name));
        }
        let promised: Vec<(u32, u32)> = self.promised.iter().map(|(_, block)| *block).collect();
        let first = self.roster.free_block(count, &promised)?;
        self.promised.push((Instant::now(), (first, count)));
        Ok(first)
    }

    /// Lets one in, with these numbers.
    pub(crate) fn admit(&mut self, knock: &Knock, first: u32) -> Result<Reception, String> {
        let Knock { key, from, join, .. } = knock;
        let secret = join.secret.as_deref().ok_or("a token is needed")?;
        self.tokens.check(Instant::now(), secret)?;
        let name = if join.is_name_meant { join.name.clone() } else { self.roster.free_name(&join.name) };
        let at = if join.address.ip().is_unspecified() { from.ip() } else { join.address.ip() };
        let member = Member {
            name: name.clone(),
            key: Key(*key),
            next_key: None,
            address: SocketAddr::new(at, join.address.port()),
            first,
            count: join.cells,
            since_s: now_s(),
        };
        self.roster.add(member)?;
        self.promised.retain(|(_, (promised, _))| *promised != first);
        self.tokens.used(secret);
        Ok(self.admitted(&name))
    }

    /// What one hears who belongs to the comb.
    pub(crate) fn admitted(&self, name: &str) -> Reception {
        let (you, by) = (name.to_owned(), self.roster.own().name.clone());
        Reception::Admitted { you, by, members: self.roster.members().cloned().collect() }
    }

    /// What others say to one who has come in is so from now on. What this host said of itself before it was one was for want of better.
    pub(crate) fn become_member(&mut self, you: &str, members: &[Member]) -> Result<(), String> {
        let own = members.iter().find(|member| member.name == you);
        let own = own.filter(|own| own.key == Key(self.key.public()) && own.check().is_ok());
        let mut roster = Roster::of(own.ok_or("it let in another than this host")?.clone());
        for member in members {
            roster.add(member.clone())?;
        }
        self.roster = roster;
        Ok(())
    }

    /// A new key, by which this host is to prove itself soon.
    pub(crate) fn make_next_key(&mut self) -> Key {
        let key = HostKey::generate();
        let public = key.public();
        self.next_key = Some(key);
        Key(public)
    }

    /// Cells of other hosts that can let others in.
    pub(crate) fn contacts(&self) -> Vec<u32> {
        let up = self.peers.values().filter(|peer| peer.line.is_some() && peer.has_told);
        let cells = up.flat_map(|peer| &peer.cells);
        cells.filter(|cell| cell.state == CellState::Up && cell.is_member).map(|cell| cell.cell).collect()
    }

    /// Whether this host may begin a new group of cells: all others are there, none of them has a cell that lives, and nobody has lower
    /// numbers.
    pub(crate) fn may_found(&self) -> bool {
        let lives = |cell: &CellWord| matches!(cell.state, CellState::Up | CellState::Starting);
        let is_empty = |peer: &Peer| peer.line.is_some() && peer.has_told && !peer.cells.iter().any(lives);
        self.peers.values().all(is_empty) && self.roster.giver().name == self.roster.own().name
    }
}
