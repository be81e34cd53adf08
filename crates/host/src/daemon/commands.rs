//! What commands ask, and the answers.

use super::*;

impl Daemon {
    pub(super) fn accept_command(&mut self) {
        let refuse = |socket: &OwnedFd, reason: &str| {
            let _ = protocol::send(socket, &Reply::Refused(reason.to_owned()), &[]);
        };
        let exhausted = |socket: &OwnedFd| refuse(socket, "the agent has no descriptor left (ulimit -n)");
        let Some(socket) = self.control.accept(&self.epoll, exhausted) else { return };
        let uid = match user_of(&socket) {
            Ok(uid) => uid,
            Err(error) => return refuse(&socket, &error),
        };
        if let Err(stranger) = self.abroad.federation.access.may(None, uid) {
            return refuse(&socket, &stranger);
        }
        if self.commands.len() >= MOST_COMMANDS {
            let reason = format!("{MOST_COMMANDS} commands are waiting for the agent: try again later");
            return refuse(&socket, &reason);
        }
        let connection = self.next_connection;
        self.next_connection += 1;
        if self.watch(&socket, Source::Command(connection)).is_ok() {
            let command = Command { socket, uid, since: Instant::now(), asked: false };
            self.commands.insert(connection, command);
        }
    }

    pub(super) fn hear_command(&mut self, connection: u64) {
        let Some(command) = self.commands.get_mut(&connection) else { return };
        match protocol::receive::<Request>(&command.socket) {
            // One connection is one question.
            Ok(_) if command.asked => self.forget_command(connection),
            Ok((request, _)) => {
                command.asked = true;
                self.handle(connection, &request);
            }
            Err(ProtocolError::System(Errno::AGAIN)) => {}
            Err(ProtocolError::Ended | ProtocolError::System(_)) => self.forget_command(connection),
            Err(error) => self.reply(connection, &Reply::Refused(error.to_string())),
        }
    }

    pub(super) fn forget_command(&mut self, connection: u64) {
        self.commands.remove(&connection);
        self.waits.retain(|wait| wait.connection != connection);
    }

    pub(super) fn reply(&mut self, connection: u64, reply: &Reply) {
        if let Some(command) = self.commands.get(&connection) {
            // Whoever does not wait for the answer does not get it.
            let _ = protocol::send(&command.socket, reply, &[]);
        }
        self.answer_abroad(connection, reply);
        self.forget_command(connection);
    }

    pub(super) fn handle(&mut self, connection: u64, request: &Request) {
        if self.ending.is_none() && self.handle_abroad(connection, request) {
            return;
        }
        let outcome = match request {
            Request::Status => Err(Reply::Status(self.status())),
            Request::Down => {
                self.end_all(Some(connection));
                return;
            }
            _ if self.ending.is_some() => Err(Reply::Refused("the cells are being taken down".into())),
            Request::AwaitUp => Ok(Awaited::Up),
            Request::Kill { cell, hold } => self.kill(*cell, *hold).map_err(Reply::Refused),
            Request::Hang { cell } => self.hang(*cell).map_err(Reply::Refused),
            Request::Start { cell } => self.start_again(*cell).map_err(Reply::Refused),
            Request::Restart { cell } => self.end_and_start(*cell).map_err(Reply::Refused),
            Request::Add { cells } => self.add(*cells).map_err(Reply::Refused),
            Request::Drain { cell, drain } => {
                Err(self.drain(*cell, *drain).map_or_else(Reply::Refused, |()| Reply::Done))
            }
            Request::Succeed { program } => match Self::may_succeed(program) {
                Ok(()) => {
                    self.reply(connection, &Reply::Done);
                    return self.succeed(program);
                }
                Err(why) => Err(Reply::Refused(why)),
            },
            Request::Inject { cell, fault } => {
                Err(self.inject(*cell, *fault).map_or_else(Reply::Refused, |()| Reply::Injecting))
            }
            Request::Observe => Err(match &self.observations {
                Some(observations) => Reply::Observed(observations.clone()),
                None => Reply::Refused(NO_FAULTS.to_owned()),
            }),
            Request::Place(wanted) => return self.place(connection, wanted),
            Request::Resume(record) => return self.resume(connection, record),
            Request::Tasks => {
                Err(Reply::Tasks(self.tasks.values().map(|task| task.record.clone()).collect()))
            }
            Request::Recoveries => Err(Reply::Recoveries(self.recoveries.iter().cloned().collect())),
            Request::EndTask { task, signal } => Err(match self.tasks.get(task) {
                Some(found) => {
                    found.tell(&TaskOrder::End { signal: *signal });
                    Reply::TaskTold
                }
                None => Reply::Refused(format!("there is no task {task}: `comb task ls` shows them")),
            }),
            Request::Token { .. }
            | Request::Join(_)
            | Request::Leave
            | Request::RemoveHost { .. }
            | Request::RotateKey { .. } => unreachable!("they concern other hosts, and were done"),
        };
        match outcome {
            Ok(awaited) => self.waits.push(Wait::new(connection, awaited)),
            Err(reply) => self.reply(connection, &reply),
        }
    }

    pub(super) fn index_of(&self, cell: u32) -> Result<usize, String> {
        let found = self.cells.iter().position(|known| known.number == cell);
        found.ok_or_else(|| match self.cells.len() {
            _ if self.abroad.federation.has_others() => {
                format!("there is no cell {cell}: `comb ps` shows them")
            }
            1 => format!("there is no cell {cell}: the only one is cell 1"),
            count => format!("there is no cell {cell}: they are numbered from 1 to {count}"),
        })
    }

    pub(super) fn status(&self) -> Status {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let pid = std::process::id();
        let stat = process::stat(pid);
        let agent = AgentStatus {
            pid,
            uptime_ms: stat.map_or(0, |stat| millis(stat.uptime())),
            cpu_ms: stat.map_or(0, |stat| millis(stat.cpu())),
            memory_bytes: stat.map_or(0, |stat| stat.resident_bytes()),
            directory: self.directory.to_string(),
            cgroup: self.cgroup.as_ref().map(|cgroup| cgroup.path().display().to_string()),
        };
        let cells = self.cells.iter().map(|cell| cell.status(&self.cells)).collect();
        let hosts = self.abroad.federation.status(self.cell_words());
        Status { agent, cells, wax: self.waxing.status(), hosts }
    }
}
