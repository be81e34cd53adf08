//! A running engine with one machine, and the lines to it.

#![expect(unsafe_code, reason = "a descriptor that is inherited is made by a call that has no safe form")]

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use comb_guest::frames::{Frames, framed};
use comb_guest::wire::{Become, Command as WireCommand, Ended, FromGuest, ToGuest, VERSION};
use rustix::process::{Pid, Signal};
use serde_json::json;
use thiserror::Error;

use crate::attached::mac_text;
use crate::children;
use crate::devices::switch::control::Joined;
use crate::hardware::{Accelerator, Backing, Hardware, Lines, QEMU, Root, Under};
use crate::image::Image;
use crate::qmp::{Qmp, QmpError};
use crate::user_mode::{UML, UserMode};

/// An engine that has not said a word by then will not.
const GREETING_LIMIT: Duration = Duration::from_secs(30);

/// Whatever an engine is asked for takes less.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// How often it is asked whether it is done.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// How often it is seen whether it still runs, while its guest is awaited.
const BETWEEN_SIGNS: Duration = Duration::from_millis(200);

/// Why a machine does not run.
#[derive(Debug, Error)]
pub enum EngineError {
    /// There is no engine.
    #[error("{0} is not installed here (apt install {1})")]
    NotInstalled(&'static str, &'static str),
    /// Its machine is to have more memory than there is, on disk as well.
    #[error("a machine of {} MiB is too large for this host, which has {} MiB", .0 >> 20, .1 >> 20)]
    TooLarge(u64, u64),
    /// It ended before it had a machine.
    #[error("the engine ended: {0}")]
    Ended(String),
    /// It does not do what it is told.
    #[error(transparent)]
    Qmp(#[from] QmpError),
    /// The guest has not begun.
    #[error("the guest has not begun within {} s", .0.as_secs())]
    NotBegun(Duration),
    /// What is in the guest says what no agent of ours does.
    #[error("the guest's agent cannot be understood: {0}")]
    Agent(String),
    /// The host.
    #[error("{0}: {1}")]
    Host(&'static str, io::Error),
}

/// An engine, which ends with this.
#[derive(Debug)]
pub struct Engine {
    child: Child,
    /// The machine's own process, which may be one that the first has started.
    process: u32,
    /// To the engine.
    pub qmp: Qmp,
    /// The machine's console.
    pub console: UnixStream,
    /// To the agent in the guest.
    pub agent: UnixStream,
    /// What has come from there.
    pub came: Frames,
    /// The engine's end of that line, as well.
    agent_far: OwnedFd,
}

/// A pair of which the second is inherited.
fn inherited() -> io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = UnixStream::pair()?;
    // SAFETY: a copy of a descriptor is a new one, of nobody else's.
    let copy = unsafe { OwnedFd::from_raw_fd(libc::fcntl(theirs.as_raw_fd(), libc::F_DUPFD, 3)) };
    Ok((ours, copy))
}

impl Engine {
    /// Starts one, in a cgroup if it is to be in one. It ends when the thread that calls this does.
    pub fn start(
        hardware: &Hardware,
        image: &Image,
        backing: &Backing,
        waits: bool,
        cgroup: Option<&Path>,
    ) -> Result<Self, EngineError> {
        let (most, all) = (*hardware.may_have().end(), host_bytes());
        if most > all {
            return Err(EngineError::TooLarge(most, all));
        }
        let host = |what| move |error| EngineError::Host(what, error);
        let pair = || inherited().map_err(host("a line to the engine"));
        let ((qmp, qmp_theirs), (console, console_theirs), (agent, agent_theirs)) =
            (pair()?, pair()?, pair()?);
        let lines = Lines {
            qmp: qmp_theirs.as_raw_fd(),
            console: console_theirs.as_raw_fd(),
            agent: agent_theirs.as_raw_fd(),
        };
        let user_mode = user_mode(hardware, backing, waits)?;
        let mut command = match &user_mode {
            Some(user_mode) => user_mode.command(hardware, lines),
            None => {
                let mut command = Command::new(QEMU);
                command.args(hardware.command_line(image, backing, lines, waits));
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        children::bind(&mut command, cgroup).map_err(host("the cell's cgroup"))?;
        let mut child = command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound if user_mode.is_some() => EngineError::NotInstalled("unshare", "util-linux"),
            ErrorKind::NotFound => EngineError::NotInstalled(QEMU, "qemu-system-x86"),
            _ => EngineError::Host("the engine", error),
        })?;
        drop((qmp_theirs, console_theirs));
        rustix::io::fcntl_setfd(&agent_theirs, rustix::io::FdFlags::CLOEXEC)
            .map_err(|error| EngineError::Host("a line to the engine", error.into()))?;
        let begun = match user_mode {
            None => {
                Qmp::new(qmp, GREETING_LIMIT).map(|qmp| (child.id(), qmp)).map_err(|error| error.to_string())
            }
            Some(user_mode) => user_mode
                .await_begin(&mut child, GREETING_LIMIT, BETWEEN_LOOKS)
                .map(|process| (process, Qmp::unspoken(qmp)))
                .ok_or_else(|| format!("{UML} has not begun")),
        };
        let (process, qmp) = match begun {
            Ok(begun) => begun,
            Err(error) => return Err(EngineError::Ended(last_words(&mut child, None).unwrap_or(error))),
        };
        Ok(Self { child, process, qmp, console, agent, came: Frames::default(), agent_far: agent_theirs })
    }

    /// Ends the engine, and says what it has said last.
    pub(crate) fn last_words(&mut self) -> Option<String> {
        last_words(&mut self.child, Some(self.process))
    }

    /// What was said to the guest and has not come to the machine: it is taken back.
    pub(crate) fn unread(&mut self) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        let mut some = [0; 4096];
        loop {
            match rustix::net::recv(&self.agent_far, &mut some, rustix::net::RecvFlags::DONTWAIT) {
                Ok((_, 0)) | Err(rustix::io::Errno::WOULDBLOCK) => return Ok(all),
                Ok((_, read)) => all.extend_from_slice(&some[..read]),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The engine's process.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Whether the line to the guest's agent is a serial one.
    pub(crate) fn is_serial(&self) -> bool {
        !self.qmp.is_spoken()
    }

    /// How an engine has ended that has no protocol to say so, once its line to this is closed; none of one that has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        if self.qmp.is_spoken() { None } else { self.child.wait().ok() }
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Saves what a machine's root is now, as a file system: its state does not contain that.
    pub fn save_root(&mut self, file: &Path) -> Result<(), EngineError> {
        let devices = self.qmp.call("query-memory-devices", &json!({}), ANSWER_LIMIT)?;
        let all = devices.as_array().map(Vec::as_slice).unwrap_or_default();
        let root = all.iter().map(|device| &device["data"]).find(|data| data["id"] == "root-disk");
        let place = root.and_then(|data| Some((data["memaddr"].as_u64()?, data["size"].as_u64()?)));
        let (at, bytes) = place.ok_or_else(|| EngineError::Ended("it has no root in memory".into()))?;
        let name = file.to_str().ok_or_else(|| EngineError::Ended("a file's name is no text".into()))?;
        let arguments = json!({ "val": at, "size": bytes, "filename": name });
        self.qmp.call("pmemsave", &arguments, ANSWER_LIMIT)?;
        Ok(())
    }

    /// Puts in a device of memory with a file under it, that others have, too; the guest has it a while later, for good.
    pub fn plug_memory(
        &mut self,
        id: &str,
        file: &Path,
        bytes: u64,
        align: Option<u64>,
        is_writable: bool,
    ) -> Result<(), EngineError> {
        let name = file.to_str().ok_or_else(|| EngineError::Ended("a file's name is no text".into()))?;
        let mut memory = json!({
            "qom-type": "memory-backend-file", "id": id, "size": bytes, "share": true,
            "readonly": !is_writable, "mem-path": name,
        });
        if let Some(align) = align {
            memory["align"] = align.into();
        }
        self.qmp.call("object-add", &memory, ANSWER_LIMIT)?;
        let device = json!({ "driver": "virtio-pmem-pci", "memdev": id, "id": format!("{id}-device") });
        self.qmp.call("device_add", &device, ANSWER_LIMIT)?;
        Ok(())
    }

    /// Gives a machine that runs a place on a subnet, by a stream of frames.
    pub fn attach(&mut self, joined: &Joined) -> Result<(), EngineError> {
        let path =
            joined.socket.to_str().ok_or_else(|| EngineError::Ended("a socket's name is no text".into()))?;
        let address = json!({ "type": "unix", "path": path });
        let netdev = json!({ "type": "stream", "id": "subnet", "server": false, "addr": address });
        self.qmp.call("netdev_add", &netdev, ANSWER_LIMIT)?;
        let mac = mac_text(joined.mac);
        let device = json!({ "driver": "virtio-net-pci", "netdev": "subnet", "id": "port", "mac": mac });
        self.qmp.call("device_add", &device, ANSWER_LIMIT)?;
        Ok(())
    }

    /// Takes that from it, as far as it is there; the guest may take a while to let go.
    pub fn detach(&mut self) {
        let _ = self.qmp.call("device_del", &json!({ "id": "port" }), ANSWER_LIMIT);
        let _ = self.qmp.call("netdev_del", &json!({ "id": "subnet" }), ANSWER_LIMIT);
    }

    /// Has a machine that is stopped go on.
    pub fn go_on(&mut self) -> Result<(), EngineError> {
        self.qmp.call("cont", &json!({}), ANSWER_LIMIT)?;
        Ok(())
    }

    /// Takes up a machine's state, which was saved without its memory, or with it.
    pub fn take_up(&mut self, state: &Path, is_without_memory: bool) -> Result<(), EngineError> {
        self.ignore_shared(is_without_memory)?;
        self.qmp.call("migrate-incoming", &json!({ "uri": reading(state) }), ANSWER_LIMIT)?;
        self.await_migration(state)?;
        self.go_on()
    }

    /// Stops the machine, and saves its state: without the memory that lies in files, or with it.
    pub fn save(&mut self, state: &Path, is_without_memory: bool) -> Result<(), EngineError> {
        self.qmp.call("stop", &json!({}), ANSWER_LIMIT)?;
        self.ignore_shared(is_without_memory)?;
        self.qmp.call("migrate-set-parameters", &json!({ "max-bandwidth": 1_u64 << 40 }), ANSWER_LIMIT)?;
        self.qmp.call("migrate", &json!({ "uri": writing(state) }), ANSWER_LIMIT)?;
        self.await_migration(state)
    }

    fn ignore_shared(&mut self, is_wanted: bool) -> Result<(), EngineError> {
        let capability = json!({ "capability": "x-ignore-shared", "state": is_wanted });
        self.qmp.call("migrate-set-capabilities", &json!({ "capabilities": [capability] }), ANSWER_LIMIT)?;
        Ok(())
    }

    fn await_migration(&mut self, state: &Path) -> Result<(), EngineError> {
        loop {
            let at = self.qmp.call("query-migrate", &json!({}), ANSWER_LIMIT)?;
            match at["status"].as_str() {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => {
                    let why = at["error-desc"].as_str().unwrap_or("it does not say why");
                    return Err(EngineError::Ended(format!("{}: {why}", state.display())));
                }
                _ => std::thread::sleep(BETWEEN_LOOKS),
            }
        }
    }

    /// Says something to the guest's agent.
    pub fn say(&mut self, said: &ToGuest) -> io::Result<()> {
        self.agent.write_all(&framed(said))
    }

    /// Tells the guest who it is, and waits until it has become that: then it is at work.
    pub fn become_who(&mut self, who: Become, limit: Duration) -> Result<(), EngineError> {
        let until = Instant::now() + limit;
        while self.is_serial() {
            match self.hear(until)? {
                Some(FromGuest::Hears { .. }) => break,
                Some(_) => {}
                None => return Err(EngineError::NotBegun(limit)),
            }
        }
        self.say(&ToGuest::Become(who)).map_err(lost)?;
        loop {
            match self.hear(until)? {
                Some(FromGuest::Became { version: VERSION, is_seeded: true }) => return Ok(()),
                Some(FromGuest::Became { version: VERSION, .. }) => {
                    return Err(EngineError::Agent("its random numbers are not its own".into()));
                }
                Some(FromGuest::Became { version, .. }) => {
                    return Err(EngineError::Agent(format!(
                        "it is of version {version}, and this of {VERSION}"
                    )));
                }
                Some(_) => {}
                None => return Err(EngineError::NotBegun(limit)),
            }
        }
    }

    /// Has a program run in the guest, with nothing to read: what it writes, and how it ends.
    pub fn run(&mut self, command: WireCommand, limit: Duration) -> Result<(Vec<u8>, Ended), EngineError> {
        let until = Instant::now() + limit;
        let mut written = Vec::new();
        self.say(&ToGuest::Exec { exec: 0, command }).map_err(lost)?;
        self.say(&ToGuest::Input { exec: 0, bytes: Vec::new() }).map_err(lost)?;
        loop {
            match self.hear(until)? {
                Some(FromGuest::Output { bytes, .. }) => {
                    let taken = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                    self.say(&ToGuest::Taken { exec: 0, bytes: taken }).map_err(lost)?;
                    written.extend(bytes);
                }
                Some(FromGuest::Ended { how, .. }) => return Ok((written, how)),
                Some(_) => {}
                None => {
                    let why = format!("a program has not ended in {} s", limit.as_secs());
                    return Err(EngineError::Agent(why));
                }
            }
        }
    }

    /// What the guest says next, if it says something by then.
    pub fn hear(&mut self, until: Instant) -> Result<Option<FromGuest>, EngineError> {
        loop {
            match self.came.take() {
                Ok(Some(said)) => return Ok(Some(said)),
                Ok(None) => {}
                Err(error) => return Err(EngineError::Agent(error.to_string())),
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.agent.set_read_timeout(Some(left.min(BETWEEN_SIGNS))).map_err(lost)?;
            let mut some = [0; 4096];
            match self.agent.read(&mut some) {
                Ok(0) => return Err(EngineError::Ended("its line to the guest is closed".into())),
                Ok(read) => self.came.push(&some[..read]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    if self.has_ended() {
                        return Err(EngineError::Ended("before its guest had said what was awaited".into()));
                    }
                }
                Err(error) => return Err(lost(error)),
            }
        }
    }
}

/// All memory of the host, and what it has on disk to help it out.
fn host_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_add(info.totalswap).saturating_mul(info.mem_unit.into())
}

/// Ends an engine, and says what it has said last.
fn last_words(child: &mut Child, process: Option<u32>) -> Option<String> {
    end(child, process);
    let mut said = String::new();
    let _ = child.stderr.take().map(|errors| errors.take(1 << 16).read_to_string(&mut said));
    let last = said.lines().rev().find(|line| !line.is_empty())?;
    Some(last.trim_start_matches(QEMU).trim_start_matches(": ").to_owned())
}

fn lost(error: io::Error) -> EngineError {
    EngineError::Host("the line to the guest", error)
}

impl Drop for Engine {
    fn drop(&mut self) {
        end(&mut self.child, Some(self.process));
    }
}

/// The engine and all that it has started, which is in a group of its own, at once: a guest's program whose kernel is gone would be one of the host's.
fn end(child: &mut Child, process: Option<u32>) {
    if matches!(child.try_wait(), Ok(None)) {
        let process = process.and_then(|process| Pid::from_raw(i32::try_from(process).ok()?));
        let group = process.unwrap_or(Pid::from_child(child));
        if rustix::process::kill_process_group(group, Signal::KILL).is_err() {
            let _ = child.kill();
        }
        let _ = child.wait();
    }
}

/// What user-mode Linux needs beside the command line, if it is to run a machine; that can only boot.
fn user_mode(hardware: &Hardware, backing: &Backing, waits: bool) -> Result<Option<UserMode>, EngineError> {
    if hardware.accelerator != Accelerator::Uml {
        return Ok(None);
    }
    let needs_qemu = |what: &str| EngineError::Qmp(QmpError::Unspoken(what.into()));
    if hardware.processors != 1 || hardware.nodes != 1 || !hardware.attached.is_empty() {
        return Err(needs_qemu("more than one processor or node, disks and networks"));
    }
    let (Root::Memory(root), None, Under::Private, false) =
        (&backing.root, &backing.ram, backing.under, waits)
    else {
        return Err(needs_qemu("templates and snapshots"));
    };
    if !is_installed(UML) {
        return Err(EngineError::NotInstalled(UML, "user-mode-linux"));
    }
    UserMode::over(root).map(Some).map_err(|error| EngineError::Host("the machine's root", error))
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// By a program that the engine starts: it has no way of its own to a file.
fn reading(path: &Path) -> String {
    format!("exec:cat < {}", quoted(path))
}

fn writing(path: &Path) -> String {
    format!("exec:cat > {}", quoted(path))
}

/// For a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', "'\\''"))
}
