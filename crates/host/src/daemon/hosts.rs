//! The other hosts: they come in, say how they are, ask for something, and go.

use std::net::{IpAddr, SocketAddr};

use comb_cell::supervision::CellElsewhere;
use comb_net::hosts::KnownHosts;

use super::*;
use crate::control::{Killed, WentOn};
use crate::federation::members::{Key, Member};
use crate::federation::shell::Seat;
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
                Event::Shell { host, wanted, answer } => {
                    let _ = answer.send(self.seat_for_part(&host, wanted.uid));
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

    // ── who comes in ──

    fn let_in(&mut self, knock: Knock) {
        match self.consider(&knock) {
            Ok(Some(first)) => self.admit(&knock, Ok(first)),
            // It was let in before.
            Ok(None) => {}
            Err(None) => self.ask_for_numbers(knock),
            Err(Some(why)) => self.turn_away(&knock, &why),
        }
    }

    /// Numbers for it. `Err(None)`: another host gives these.
    fn consider(&mut self, knock: &Knock) -> Result<Option<u32>, Option<String>> {
        let comb =
            self.abroad.federation.comb.as_mut().ok_or_else(|| Some("this host has left".to_owned()))?;
        if let Some(known) = comb.roster.with_key(Key(knock.key)) {
            let _ = knock.answer.send(comb.admitted(&known.name));
            return Ok(None);
        }
        let Join { secret, name, is_name_meant, cells, .. } = &knock.join;
        let secret =
            secret.as_deref().ok_or_else(|| Some("a token is needed: `comb token` makes one".to_owned()))?;
        comb.tokens.check(Instant::now(), secret).map_err(Some)?;
        if !KnownHosts::is_name(name) {
            return Err(Some("that is no name of a host".to_owned()));
        }
        if *is_name_meant && comb.roster.get(name).is_some() {
            return Err(Some(format!(
                "there is a host {name} already: `comb join --as NAME` says another name"
            )));
        }
        if comb.roster.giver().name != comb.roster.own().name {
            return Err(None);
        }
        comb.promise(*cells).map(Some).map_err(Some)
    }

    fn ask_for_numbers(&mut self, knock: Knock) {
        let Some(comb) = self.abroad.federation.comb.as_ref() else { return };
        let (giver, count) = (comb.roster.giver().name.clone(), knock.join.cells);
        if comb.peers.get(&giver).is_none_or(|peer| peer.line.is_none()) {
            let why = format!(
                "numbers for its cells are given by host {giver}, which is not reached now \
                 (if it is gone for good, `comb host rm {giver}`)"
            );
            return self.turn_away(&knock, &why);
        }
        self.ask(&giver, None, Asked::Numbers { count }, Purpose::Admission(Box::new(knock)));
    }

    fn admit(&mut self, knock: &Knock, first: Result<u32, String>) {
        let Some(comb) = self.abroad.federation.comb.as_mut() else { return };
        match first.and_then(|first| comb.admit(knock, first)) {
            Ok(reception) => {
                let Reception::Admitted { you, .. } = &reception else { return };
                say(format_args!(
                    "host {you} has come in from {}, with {} cells",
                    knock.from, knock.join.cells
                ));
                self.abroad.federation.hosts_changed(&self.server);
                let _ = knock.answer.send(reception);
            }
            Err(why) => self.turn_away(knock, &why),
        }
    }

    fn turn_away(&mut self, knock: &Knock, why: &str) {
        // Whoever knocks without end does not fill the log.
        if self.abroad.turned_away.is_none_or(|at| at.elapsed() >= BETWEEN_TURNED_AWAY) {
            self.abroad.turned_away = Some(Instant::now());
            say(format_args!("turned away a host that came from {}: {}", knock.from, plain(why)));
        }
        let _ = knock.answer.send(Reception::Refused(why.to_owned()));
    }

    // ── questions ──

    /// Asks another host; what comes of it is for somebody.
    fn ask(&mut self, host: &str, uid: Option<u32>, ask: Asked, purpose: Purpose) {
        let Some(comb) = self.abroad.federation.comb.as_mut() else { return };
        let number = comb.question();
        self.abroad.questions.insert(number, (host.to_owned(), purpose));
        if !comb.say(host, &Word::Ask { number, uid, ask }) {
            self.answered(
                host,
                number,
                Err(format!("host {host} is not reached now: `comb host ls` shows why")),
            );
        }
    }

    fn answered(&mut self, host: &str, number: u64, answer: Result<Answered, String>) {
        let Some((_, purpose)) = self.abroad.questions.remove(&number) else { return };
        match purpose {
            Purpose::Command { connection, cell } => {
                let reply = match answer {
                    Ok(answered) => reply_of(cell, answered),
                    Err(why) => Reply::Refused(format!("host {host}: {why}")),
                };
                self.reply(connection, &reply);
            }
            Purpose::Admission(knock) => {
                let first = answer.and_then(|answered| match answered {
                    Answered::Numbers { first } => Ok(first),
                    _ => Err(format!("host {host}, which gives numbers, gave none")),
                });
                self.admit(&knock, first);
            }
            Purpose::NextKey => self.next_key_known(host, number, answer.is_ok()),
            Purpose::Nobody => {
                if let Err(why) = answer {
                    say(format_args!("host {host} does not do it: {}", plain(&why)));
                }
            }
        }
    }

    /// Another host asks for something.
    fn asked(&mut self, host: &str, number: u64, uid: Option<u32>, ask: &Asked) {
        let outcome = self.do_for(host, number, uid, ask);
        if let Some(answer) = outcome {
            self.say_answer(host, number, answer);
        }
    }

    fn say_answer(&self, host: &str, number: u64, answer: Result<Answered, String>) {
        if let Some(comb) = &self.abroad.federation.comb {
            comb.say(host, &Word::Answer { number, answer: answer.map_err(|why| plain(&why)) });
        }
    }

    /// `None`: it takes time, and is answered then.
    fn do_for(
        &mut self,
        host: &str,
        number: u64,
        uid: Option<u32>,
        ask: &Asked,
    ) -> Option<Result<Answered, String>> {
        if self.ending.is_some() {
            return Some(Err("the cells are being taken down".to_owned()));
        }
        let is_users = matches!(ask, Asked::Kill { .. } | Asked::Start { .. } | Asked::PutOut { .. });
        if is_users {
            let allowed = uid.ok_or_else(|| "nobody wants it".to_owned());
            let allowed = allowed.and_then(|uid| self.abroad.federation.access.may(Some(host), uid));
            if let Err(why) = allowed {
                say(format_args!("refused what a user of host {host} wants: {why}"));
                return Some(Err(why));
            }
        }
        match ask {
            Asked::Kill { cell, hold } => {
                let awaited = self.kill(*cell, *hold);
                self.wait_for(host, number, awaited)
            }
            Asked::Start { cell } => {
                let awaited = self.start_again(*cell);
                self.wait_for(host, number, awaited)
            }
            Asked::Restart { cell } => {
                self.restart(*cell, &format!("the recovery master, on host {host}, finds it fit"));
                Some(Ok(Answered::Done))
            }
            Asked::Numbers { count } => {
                let comb = self.abroad.federation.comb.as_mut()?;
                Some(comb.promise(*count).map(|first| Answered::Numbers { first }))
            }
            Asked::PutOut { name } => {
                let comb = self.abroad.federation.comb.as_ref()?;
                if *name == comb.roster.own().name {
                    return Some(Err(format!("{name} is this host itself, and leaves by `comb leave`")));
                }
                self.remove_host(name, true, &format!("host {host} has put it out"));
                Some(Ok(Answered::Done))
            }
            Asked::NextKey(key) => {
                let comb = self.abroad.federation.comb.as_mut()?;
                if comb.roster.with_key(*key).is_some_and(|member| member.name != host)
                    || comb.roster.is_out(*key)
                {
                    return Some(Err("that key is another's".to_owned()));
                }
                comb.roster.get_mut(host)?.next_key = Some(*key);
                self.abroad.federation.hosts_changed(&self.server);
                Some(Ok(Answered::Done))
            }
        }
    }

    fn wait_for(
        &mut self,
        host: &str,
        number: u64,
        awaited: Result<Awaited, String>,
    ) -> Option<Result<Answered, String>> {
        match awaited {
            Ok(awaited) => {
                let connection = self.next_connection;
                self.next_connection += 1;
                self.abroad.answering.insert(connection, (host.to_owned(), number));
                self.waits.push(Wait::new(connection, awaited));
                None
            }
            Err(why) => Some(Err(why)),
        }
    }

    /// A reply may be for another host.
    pub(super) fn answer_abroad(&mut self, connection: u64, reply: &Reply) {
        if let Some((host, number)) = self.abroad.answering.remove(&connection) {
            self.say_answer(&host, number, answer_of(reply));
        }
    }

    // ── commands ──

    /// What concerns other hosts. `false`: it does not.
    pub(super) fn handle_abroad(&mut self, connection: u64, request: &Request) -> bool {
        let uid = self.commands.get(&connection).map_or(u32::MAX, |command| command.uid);
        let outcome = match request {
            Request::Kill { cell, .. } | Request::Start { cell } => {
                let Some(host) = self.abroad.federation.host_of(*cell).map(|member| member.name.clone())
                else {
                    return false;
                };
                let ask = match request {
                    Request::Kill { cell, hold } => Asked::Kill { cell: *cell, hold: *hold },
                    _ => Asked::Start { cell: *cell },
                };
                self.ask(&host, Some(uid), ask, Purpose::Command { connection, cell: *cell });
                None
            }
            Request::Token { ttl_s, uses, listen, address, name } => {
                let (listen, address) = (*listen, *address);
                Some(self.give_token(*ttl_s, *uses, listen, address, name.as_deref()))
            }
            Request::Join(wanted) => self.join(connection, wanted).err().map(Err),
            Request::Leave => {
                self.leave(connection);
                None
            }
            Request::RemoveHost { name } => Some(self.put_out(uid, name)),
            Request::RotateKey { force } => self.rotate_key(connection, *force).err().map(Err),
            _ => return false,
        };
        if let Some(outcome) = outcome {
            self.reply(connection, &outcome.unwrap_or_else(Reply::Refused));
        }
        true
    }

    fn give_token(
        &mut self,
        ttl_s: u64,
        uses: u32,
        listen: Option<SocketAddr>,
        address: Option<IpAddr>,
        name: Option<&str>,
    ) -> Result<Reply, String> {
        let first = self.cells.iter().map(|cell| cell.number).min();
        let last = self.cells.iter().map(|cell| cell.number).max();
        let (first, last) =
            first.zip(last).ok_or("there are no cells here that others could come to: `comb up`")?;
        let federation = &mut self.abroad.federation;
        federation.open(&mut self.server, listen, name, address, (first, last - first + 1))?;
        for cell in &self.cells {
            federation.life_begins(cell.number, cell.incarnation);
        }
        let token = federation.token(Duration::from_secs(ttl_s), uses, address)?;
        let listens = federation.comb.as_ref().map(|comb| comb.roster.own().name.clone()).unwrap_or_default();
        say(format_args!("gave a token for {uses} hosts and {ttl_s} s; is host {listens}"));
        Ok(Reply::Token { token: token.to_string(), host: listens })
    }

    fn join(&mut self, connection: u64, wanted: &crate::control::WantedJoin) -> Result<(), String> {
        if self.abroad.federation.has_others() {
            return Err(
                "this host belongs to a comb already: `comb host ls` shows it, `comb leave` leaves it".into(),
            );
        }
        if !self.cells.is_empty() {
            return Err(
                "cells run here already, with numbers that the others may have as well: `comb down`, and then join"
                    .into(),
            );
        }
        let token: crate::federation::token::Token = wanted.token.parse()?;
        let name = wanted.name.clone().unwrap_or_else(usual_name);
        let federation = &mut self.abroad.federation;
        // Its door is open before anybody can know of it. The numbers come with the answer.
        let comb = federation.open(
            &mut self.server,
            wanted.listen,
            Some(&name),
            wanted.own_address,
            (1, wanted.cells),
        )?;
        let port = comb.roster.own().address.port();
        let at = wanted.own_address.or_else(|| wanted.listen.map(|listen| listen.ip()));
        let join = Join {
            secret: Some(token.secret),
            name,
            is_name_meant: wanted.name.is_some(),
            address: SocketAddr::new(at.unwrap_or(std::net::Ipv4Addr::UNSPECIFIED.into()), port),
            cells: wanted.cells,
        };
        federation.join(wanted.address.unwrap_or(token.address), token.key, join, connection);
        Ok(())
    }

    fn joined(&mut self, connection: u64, outcome: Result<(String, String, Vec<Member>), String>) {
        let outcome = outcome.and_then(|(you, by, members)| {
            let comb = self.abroad.federation.comb.as_mut().ok_or("the door was closed meanwhile")?;
            comb.become_member(&you, &members)?;
            Ok((you, by, comb.roster.own().clone(), members.len()))
        });
        match outcome {
            Ok((name, by, own, hosts)) => {
                say(format_args!(
                    "is host {name} from now on, let in by host {by}, with cells from {} on",
                    own.first
                ));
                self.take_cells(&own);
                self.abroad.federation.hosts_changed(&self.server);
                let hosts = u32::try_from(hosts).unwrap_or(u32::MAX);
                self.reply(
                    connection,
                    &Reply::Joined { name, by, first: own.first, count: own.count, hosts },
                );
            }
            Err(why) => {
                self.abroad.federation.forget();
                self.reply(connection, &Reply::Refused(format!("not let in: {}", plain(&why))));
            }
        }
    }

    fn leave(&mut self, connection: u64) {
        if !self.abroad.federation.has_others() {
            return self
                .reply(connection, &Reply::Refused("this host belongs to no comb with others".into()));
        }
        self.abroad.is_leaving = true;
        say("leaves the comb");
        self.end_all(Some(connection));
    }

    /// Says farewell to the others. When this returns, that is on its way.
    pub(super) fn part_from_hosts(&mut self) {
        let Some(comb) = &self.abroad.federation.comb else { return };
        if self.abroad.is_leaving {
            comb.say_all(&Word::Leave);
        }
        let mut lines = comb.peers.values().filter(|peer| peer.line.is_some()).count();
        if self.abroad.is_leaving {
            self.abroad.federation.forget();
        } else {
            self.abroad.federation.comb = None;
        }
        // Each says what it has to say, and that it has.
        let deadline = Instant::now() + Duration::from_secs(1);
        while lines > 0 && Instant::now() < deadline {
            let closed = self.abroad.federation.take_events();
            lines =
                lines.saturating_sub(closed.iter().filter(|it| matches!(it, Event::Closed { .. })).count());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn put_out(&mut self, uid: u32, name: &str) -> Result<Reply, String> {
        let comb = self.abroad.federation.comb.as_ref().ok_or("this host belongs to no comb with others")?;
        if name == comb.roster.own().name {
            return Err(format!("{name} is this host: `comb leave` leaves the comb"));
        }
        if comb.roster.get(name).is_none() {
            return Err(format!("there is no host {name}: `comb host ls` shows them"));
        }
        let others: Vec<String> = comb
            .peers
            .iter()
            .filter(|(host, peer)| *host != name && peer.line.is_some())
            .map(|(host, _)| host.clone())
            .collect();
        self.remove_host(name, true, "put out from here");
        for host in &others {
            self.ask(host, Some(uid), Asked::PutOut { name: name.to_owned() }, Purpose::Nobody);
        }
        Ok(Reply::HostRemoved { told: u32::try_from(others.len()).unwrap_or(u32::MAX) })
    }

    fn rotate_key(&mut self, connection: u64, force: bool) -> Result<(), String> {
        if self.abroad.rotation.is_some() {
            return Err("the key is being changed already".into());
        }
        let comb = self.abroad.federation.comb.as_mut().ok_or("this host belongs to no comb with others")?;
        let missed: Vec<String> =
            comb.peers.iter().filter(|(_, peer)| peer.line.is_none()).map(|(host, _)| host.clone()).collect();
        if !missed.is_empty() && !force {
            return Err(format!(
                "{} cannot be told now, and would not know this host any more: try again when all are up, or \
                 `comb host rotate-key --force`, and let it in anew then",
                missed.join(", ")
            ));
        }
        let up: Vec<String> =
            comb.peers.iter().filter(|(_, peer)| peer.line.is_some()).map(|(host, _)| host.clone()).collect();
        let key = comb.make_next_key();
        let waits_for = BTreeSet::new();
        self.abroad.rotation = Some(Rotation { connection, waits_for, told: 0, missed });
        for host in &up {
            self.ask(host, None, Asked::NextKey(key), Purpose::NextKey);
        }
        let asked =
            self.abroad.questions.iter().filter(|(_, (_, purpose))| matches!(purpose, Purpose::NextKey));
        let asked = asked.map(|(&number, _)| number).collect();
        if let Some(rotation) = &mut self.abroad.rotation {
            rotation.waits_for = asked;
        }
        self.finish_rotation();
        Ok(())
    }

    fn next_key_known(&mut self, host: &str, number: u64, is_known: bool) {
        let Some(rotation) = &mut self.abroad.rotation else { return };
        rotation.waits_for.remove(&number);
        if is_known {
            rotation.told += 1;
        } else {
            rotation.missed.push(host.to_owned());
        }
        self.finish_rotation();
    }

    fn finish_rotation(&mut self) {
        let Some(rotation) = self.abroad.rotation.take_if(|rotation| rotation.waits_for.is_empty()) else {
            return;
        };
        let reply = match self.abroad.federation.switch_key(&self.server) {
            Ok(()) => {
                let comb = self.abroad.federation.comb.as_ref().expect("it has a key");
                let fingerprint = comb.roster.own().key.0.to_string();
                say(format_args!("proves itself by {fingerprint} from now on; {} hosts know", rotation.told));
                Reply::KeyRotated { fingerprint, told: rotation.told, missed: rotation.missed }
            }
            Err(why) => Reply::Refused(why),
        };
        self.reply(rotation.connection, &reply);
    }

    /// Where a part of another host's task may run: in a cell that is up, whose end is its end. It is one user's, here and there.
    fn seat_for_part(&self, host: &str, uid: u32) -> Result<Seat, String> {
        self.abroad.federation.access.may(Some(host), uid)?;
        let own = rustix::process::geteuid().as_raw();
        if uid != own {
            return Err(format!(
                "its programs run as user {own}, and are for that user of other hosts, not for {uid}"
            ));
        }
        let cell = self.cells.iter().find(|cell| cell.is_up() && self.ending.is_none());
        let cell = cell.ok_or("no cell is up on it")?;
        let cgroup = self.cgroup.as_ref().map(|parent| parent.path().join(format!("cell-{}", cell.number)));
        say(format_args!("host {host} has a part of a task started in cell {}", cell.number));
        Ok(Seat { cgroup, runtime: self.directory.path().to_owned() })
    }

    // ── cells ──

    /// What is due with other hosts, at each turn of the loop.
    pub(super) fn begin_what_is_due_abroad(&mut self) {
        if self.abroad.federation.comb.is_none() || self.ending.is_some() {
            return;
        }
        self.abroad.federation.tend();
        self.tell_where_others_are(None);
        self.start_those_that_wait_for_hosts();
        let light: Vec<_> = self
            .cells
            .iter()
            .map(|cell| {
                (
                    cell.number,
                    cell.incarnation,
                    cell.is_up(),
                    cell.running.is_some(),
                    cell.is_member,
                    cell.linked.len(),
                )
            })
            .collect();
        let is_due = self.abroad.federation.comb.as_ref().is_some_and(|comb| comb.is_to_tell(&light));
        if is_due {
            let words = self.cell_words();
            if let Some(comb) = &mut self.abroad.federation.comb {
                comb.tell_cells(light, words);
            }
        }
    }

    /// When that is to be looked at next.
    pub(super) fn next_due_abroad(&self) -> Option<Instant> {
        self.abroad.federation.next_due().filter(|_| self.ending.is_none())
    }

    /// How the cells of this host are, for others.
    pub(super) fn cell_words(&self) -> Vec<CellWord> {
        let word = |cell: &Cell| {
            let status = cell.status(&self.cells);
            let state = match (&status.state, &cell.again) {
                (CellCondition::Up, _) => CellState::Up,
                (CellCondition::Starting, Again::WhenReached) => CellState::Waiting,
                (CellCondition::Starting, _) => CellState::Starting,
                (CellCondition::Ended(how), _) => CellState::Ended(plain(how)),
            };
            CellWord {
                cell: status.cell,
                incarnation: status.incarnation,
                state,
                is_member: cell.is_member && !cell.is_stranded,
                pid: status.pid,
                channels: u32::try_from(cell.linked.len()).unwrap_or(u32::MAX),
                uptime_ms: status.uptime_ms,
                cpu_ms: status.cpu_ms,
                memory_bytes: status.memory_bytes,
                round_trips: status.round_trips,
            }
        };
        self.cells.iter().map(word).collect()
    }

    /// Where the cells of other hosts are, for one cell or, if there is something new in it, for all.
    pub(super) fn tell_where_others_are(&mut self, to: Option<u64>) {
        let Some(comb) = &self.abroad.federation.comb else { return };
        let cells = comb.roster.others().flat_map(|member| {
            let peer = comb.peers.get(&member.name);
            let is_host_heard = peer.is_some_and(|peer| peer.line.is_some());
            let is_up = move |cell: u32| {
                peer.is_some_and(|peer| {
                    peer.line.is_some()
                        && peer.cells.iter().any(|word| word.cell == cell && word.state == CellState::Up)
                })
            };
            let host = member.name.clone();
            member.cells().map(move |cell| CellElsewhere {
                cell,
                host: host.clone(),
                is_up: is_up(cell),
                is_host_heard,
            })
        });
        let cells: Vec<CellElsewhere> = cells.collect();
        let is_new = cells != self.abroad.told;
        let order = Order::Elsewhere { cells: cells.clone() };
        for (connection, known) in &mut self.cell_connections {
            let is_cell = known.cell.is_some_and(|cell| cell != POLICY.0);
            if is_cell && to.map_or(is_new, |to| to == *connection) {
                known.tell(&order);
            }
        }
        if to.is_none() {
            self.abroad.told = cells;
        }
    }

    /// How a cell begins beside those that live, wherever they do. `None`: not before its host has reached the others. One that began
    /// alone meanwhile would be a second comb.
    pub(super) fn beginning_beside_others(&self, number: u32) -> Option<Beginning> {
        let federation = &self.abroad.federation;
        let here = self.cells.iter().filter(|cell| cell.running.is_some()).map(|cell| cell.number);
        let elsewhere = federation.comb.as_ref().map(|comb| comb.contacts()).unwrap_or_default();
        let others: Vec<u32> = here.chain(elsewhere).collect();
        if !others.is_empty() {
            return Some(Beginning::ComingIn(others));
        }
        let may_found =
            !federation.has_others() || federation.comb.as_ref().is_some_and(|comb| comb.may_found());
        may_found.then(|| Beginning::Together(vec![number]))
    }

    fn start_those_that_wait_for_hosts(&mut self) {
        let waiting = self.cells.iter().filter(|cell| cell.again == Again::WhenReached && !cell.is_held);
        let waiting: Vec<u32> = waiting.map(|cell| cell.number).collect();
        for number in waiting {
            if self.beginning_beside_others(number).is_some() {
                self.restart(number, "the other hosts are there");
            }
        }
    }

    /// What cells are told when they are started, of those of other hosts.
    pub(super) fn elsewhere_argument(&self) -> String {
        let comb = self.abroad.federation.comb.iter();
        let cells = comb
            .flat_map(|comb| comb.roster.others())
            .flat_map(|member| member.cells().map(|cell| format!("{cell}={}", member.name)));
        cells.collect::<Vec<_>>().join(",")
    }

    /// The recovery master, in a cell of ours, finds that a cell of another host can be started again.
    pub(super) fn restart_abroad(&mut self, cell: u32) {
        if let Some(host) = self.abroad.federation.host_of(cell).map(|member| member.name.clone()) {
            // A host that is not reached has its agent do that by itself.
            let is_up = |comb: &crate::federation::Comb| {
                comb.peers.get(&host).is_some_and(|peer| peer.line.is_some())
            };
            if self.abroad.federation.comb.as_ref().is_some_and(is_up) {
                self.ask(&host, None, Asked::Restart { cell }, Purpose::Nobody);
            }
        }
    }
}

/// What another host has done, as a command here hears it.
fn reply_of(cell: u32, answered: Answered) -> Reply {
    match answered {
        Answered::Killed(KilledWord { pid, peers, noticed, recovered }) => {
            let went_on = |(cell, entered_ns, resumed_ns, discarded_pages)| WentOn {
                cell,
                entered_ns,
                resumed_ns,
                discarded_pages,
            };
            let recovered = recovered.into_iter().map(went_on).collect();
            Reply::Killed(Killed { cell, pid, peers, noticed, recovered })
        }
        Answered::Started { pid, incarnation, channels, channels_expected, took_ns } => {
            Reply::Started { pid, incarnation, channels, channels_expected, took_ns }
        }
        Answered::Done | Answered::Numbers { .. } => Reply::Refused("it answered something else".to_owned()),
    }
}

/// And the other way round.
fn answer_of(reply: &Reply) -> Result<Answered, String> {
    match reply {
        Reply::Killed(killed) => {
            let went_on = |on: &WentOn| (on.cell, on.entered_ns, on.resumed_ns, on.discarded_pages);
            Ok(Answered::Killed(KilledWord {
                pid: killed.pid,
                peers: killed.peers,
                noticed: killed.noticed.clone(),
                recovered: killed.recovered.iter().map(went_on).collect(),
            }))
        }
        Reply::Started { pid, incarnation, channels, channels_expected, took_ns } => Ok(Answered::Started {
            pid: *pid,
            incarnation: *incarnation,
            channels: *channels,
            channels_expected: *channels_expected,
            took_ns: *took_ns,
        }),
        Reply::Refused(why) => Err(why.clone()),
        _ => Err("nothing came of it".to_owned()),
    }
}
