//! What hosts ask of each other, and what comes of it.

use super::*;

impl Daemon {
    /// Asks another host; what comes of it is for somebody.
    pub(super) fn ask(&mut self, host: &str, uid: Option<u32>, ask: Asked, purpose: Purpose) {
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

    pub(super) fn answered(&mut self, host: &str, number: u64, answer: Result<Answered, String>) {
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
    pub(super) fn asked(&mut self, host: &str, number: u64, uid: Option<u32>, ask: &Asked) {
        let outcome = self.do_for(host, number, uid, ask);
        if let Some(answer) = outcome {
            self.say_answer(host, number, answer);
        }
    }

    pub(super) fn say_answer(&self, host: &str, number: u64, answer: Result<Answered, String>) {
        if let Some(comb) = &self.abroad.federation.comb {
            comb.say(host, &Word::Answer { number, answer: answer.map_err(|why| plain(&why)) });
        }
    }

    /// `None`: it takes time, and is answered then.
    pub(super) fn do_for(
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

    pub(super) fn wait_for(
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
    pub(in crate::daemon) fn answer_abroad(&mut self, connection: u64, reply: &Reply) {
        if let Some((host, number)) = self.abroad.answering.remove(&connection) {
            self.say_answer(&host, number, answer_of(reply));
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
