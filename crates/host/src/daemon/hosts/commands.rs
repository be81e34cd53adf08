//! What people command that concerns other hosts.

use super::*;

impl Daemon {
    /// What concerns other hosts. `false`: it does not.
    pub(in crate::daemon) fn handle_abroad(&mut self, connection: u64, request: &Request) -> bool {
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

    pub(super) fn give_token(
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

    pub(super) fn join(
        &mut self,
        connection: u64,
        wanted: &crate::control::WantedJoin,
    ) -> Result<(), String> {
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

    pub(super) fn joined(&mut self, connection: u64, outcome: Result<(String, String, Vec<Member>), String>) {
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

    pub(super) fn leave(&mut self, connection: u64) {
        if !self.abroad.federation.has_others() {
            return self
                .reply(connection, &Reply::Refused("this host belongs to no comb with others".into()));
        }
        self.abroad.is_leaving = true;
        say("leaves the comb");
        self.end_all(Some(connection));
    }

    /// Says farewell to the others. When this returns, that is on its way.
    pub(in crate::daemon) fn part_from_hosts(&mut self) {
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

    pub(super) fn put_out(&mut self, uid: u32, name: &str) -> Result<Reply, String> {
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

    pub(super) fn rotate_key(&mut self, connection: u64, force: bool) -> Result<(), String> {
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

    pub(super) fn next_key_known(&mut self, host: &str, number: u64, is_known: bool) {
        let Some(rotation) = &mut self.abroad.rotation else { return };
        rotation.waits_for.remove(&number);
        if is_known {
            rotation.told += 1;
        } else {
            rotation.missed.push(host.to_owned());
        }
        self.finish_rotation();
    }

    pub(super) fn finish_rotation(&mut self) {
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

    /// Where a part of another host's task may run: in a cell that is up, whose end is its end. And that a machine may come. It is one user's, here and
    /// there.
    pub(super) fn seat_for(&self, host: &str, program: Program, uid: u32) -> Result<Seat, String> {
        self.abroad.federation.access.may(Some(host), uid)?;
        let own = rustix::process::geteuid().as_raw();
        if uid != own {
            return Err(format!(
                "its programs run as user {own}, and are for that user of other hosts, not for {uid}"
            ));
        }
        let cell = self.cells.iter().find(|cell| cell.is_up() && self.ending.is_none());
        let cell = cell.ok_or("no cell is up on it")?;
        if program == Program::Machine {
            // In whose charge it is then, its monitor asks.
            say(format_args!("host {host} sends a machine, or asks for one"));
            return Ok(Seat { cgroup: None, runtime: self.directory.path().to_owned() });
        }
        let cgroup = self.cgroup.as_ref().map(|parent| parent.path().join(format!("cell-{}", cell.number)));
        say(format_args!("host {host} has a part of a task started in cell {}", cell.number));
        Ok(Seat { cgroup, runtime: self.directory.path().to_owned() })
    }
}
