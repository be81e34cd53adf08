//! What is attached to a machine besides its memory and its root: disks, and a place on a subnet. (Disco §4.2.4)

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::children;
use crate::devices::disk::Writes;
use crate::devices::switch::control::WayOut;
use crate::names::Name;

/// A disk's process serves by then, or has ended.
const BEGIN_LIMIT: Duration = Duration::from_secs(20);

/// How soon that is seen.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// One that ends is started again, not more often than this.
const BETWEEN_STARTS: Duration = Duration::from_secs(1);

/// A disk that a machine is to have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DiskOf {
    /// The file with its content.
    pub base: PathBuf,
    /// What becomes of what the machine writes.
    pub writes: Writes,
}

/// What is said after a file's name, and what it means.
const WRITES: &str = "FILE, FILE:temporary, FILE:exclusive, FILE:read-only or FILE:overlay=OTHER-FILE";

impl FromStr for DiskOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (base, writes) = match text.rsplit_once(':') {
            None => (text, Writes::Temporary),
            Some((base, "temporary")) => (base, Writes::Temporary),
            Some((base, "exclusive")) => (base, Writes::Exclusive),
            Some((base, "read-only")) => (base, Writes::Refused),
            Some((base, how)) => match how.strip_prefix("overlay=") {
                Some(overlay) if !overlay.is_empty() => (base, Writes::Overlay(overlay.into())),
                _ => return Err(format!("say {WRITES}")),
            },
        };
        if base.is_empty() {
            return Err(format!("say {WRITES}"));
        }
        Ok(Self { base: base.into(), writes })
    }
}

impl DiskOf {
    /// The same, from whichever directory.
    pub fn absolute(mut self) -> io::Result<Self> {
        self.base = std::path::absolute(&self.base)?;
        if let Writes::Overlay(overlay) = &mut self.writes {
            *overlay = std::path::absolute(&*overlay)?;
        }
        Ok(self)
    }
}

/// A place on a subnet that a machine is to have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SubnetOf {
    /// What it is called.
    pub name: String,
    /// What the machine is to reach besides.
    pub way: WayOut,
}

impl FromStr for SubnetOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, way) = match text.split_once(':') {
            None => (text, WayOut::Inside),
            Some((name, way)) => (name, way.parse()?),
        };
        let name: Name = name.parse().map_err(|error| format!("{error}"))?;
        Ok(Self { name: name.to_string(), way })
    }
}

/// All that a machine is to have.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Attached {
    /// Disks.
    pub disks: Vec<DiskOf>,
    /// A place on a subnet.
    pub subnet: Option<SubnetOf>,
}

impl Attached {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Where what is attached to a machine from its beginning is: its engine shows it the machine's memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Devices {
    /// The sockets of its disks.
    pub disks: Vec<PathBuf>,
    /// Its port, and the address of the device there.
    pub port: Option<(PathBuf, [u8; 6])>,
    /// More that the device at the port is told.
    pub port_options: String,
    /// The engine's own, as it is told of them. (To compare with.)
    pub own: Vec<OsString>,
}

impl Devices {
    /// Whether the engine shows them the machine's memory.
    pub(crate) fn see_memory(&self) -> bool {
        !self.disks.is_empty() || self.port.is_some()
    }

    /// How an engine is told of them.
    pub(crate) fn options(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        let mut socket = |id: &str, path: &Path| {
            words.push("-chardev".into());
            words.push(with_path(format!("socket,id={id},reconnect=1,path=").into(), path));
        };
        for (number, path) in self.disks.iter().enumerate() {
            socket(&format!("disk-{number}"), path);
        }
        if let Some((path, _)) = &self.port {
            socket("port", path);
        }
        // Interrupts are of the old kind: what the engine has for others does not pass a translated processor.
        let mut add = |option: &str, value: String| words.extend([option.into(), value.into()]);
        for number in 0..self.disks.len() {
            let device = "vhost-user-blk-pci,num-queues=1,vectors=0";
            add("-device", format!("{device},id=disk-{number}-device,chardev=disk-{number}"));
        }
        if let Some((_, mac)) = &self.port {
            add("-netdev", "type=vhost-user,id=subnet,chardev=port".into());
            let more = &self.port_options;
            add("-device", format!("virtio-net-pci,netdev=subnet,vectors=0,mac={}{more}", mac_text(*mac)));
        }
        words.extend(self.own.iter().cloned());
        words
    }
}

/// As people write it.
pub fn mac_text(mac: [u8; 6]) -> String {
    crate::devices::switch::subnet::Address(mac).to_string()
}

/// A path at the end of an engine's option.
pub(crate) fn with_path(mut options: OsString, path: &Path) -> OsString {
    // A comma ends a value, and two are one that does not.
    let mut parts = path.as_os_str().as_encoded_bytes().split(|&byte| byte == b',');
    let mut escaped = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        escaped.extend_from_slice(b",,");
        escaped.extend_from_slice(part);
    }
    options.push(OsString::from_vec(escaped));
    options
}

/// A disk is not served.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct DiskError(String);

/// The process that serves a disk, which is started again when it ends, and ends with this.
#[derive(Debug)]
pub struct DiskServer {
    arguments: Vec<OsString>,
    program: PathBuf,
    cgroup: Option<PathBuf>,
    child: Child,
    started: Instant,
    /// How often it was started again.
    pub restarts: u32,
}

impl DiskServer {
    /// Serves a disk at a socket, by this program, which is called with `vm-disk`, and what the disk is.
    pub fn start(
        program: &Path,
        disk: &DiskOf,
        socket: &Path,
        cgroup: Option<&Path>,
    ) -> Result<Self, DiskError> {
        let failed = |error: io::Error| DiskError(format!("{}: {error}", disk.base.display()));
        let mut arguments: Vec<OsString> = ["vm-disk", "--socket"].map(OsString::from).to_vec();
        arguments.extend([socket.into(), "--base".into(), disk.base.clone().into()]);
        match &disk.writes {
            Writes::Temporary => arguments.push("--temporary".into()),
            Writes::Exclusive => arguments.push("--exclusive".into()),
            Writes::Refused => arguments.push("--read-only".into()),
            Writes::Overlay(path) => arguments.extend(["--overlay".into(), path.clone().into()]),
        }
        let mut child = spawn(program, &arguments, cgroup, Stdio::piped()).map_err(failed)?;
        let started = Instant::now();
        while UnixStream::connect(socket).is_err() {
            if let Some(status) = child.try_wait().map_err(failed)? {
                let mut said = String::new();
                let _ = child.stderr.take().map(|errors| errors.take(1 << 16).read_to_string(&mut said));
                let last = said.lines().rev().find(|line| !line.is_empty());
                let why = last.map_or_else(|| format!("it ended: {status}"), |line| strip(line).to_owned());
                return Err(DiskError(why));
            }
            if started.elapsed() > BEGIN_LIMIT {
                let _ = child.kill().and_then(|()| child.wait());
                return Err(DiskError(format!("{} is not served", disk.base.display())));
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
        let (program, cgroup) = (program.to_owned(), cgroup.map(Path::to_owned));
        Ok(Self { arguments, program, cgroup, child, started, restarts: 0 })
    }

    /// The process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Starts it again if it has ended. The machine waits for its disk meanwhile.
    pub fn look(&mut self) {
        let has_ended = !matches!(self.child.try_wait(), Ok(None));
        if has_ended && self.started.elapsed() >= BETWEEN_STARTS {
            self.started = Instant::now();
            let started = spawn(&self.program, &self.arguments, self.cgroup.as_deref(), Stdio::null());
            if let Ok(child) = started {
                self.child = child;
                self.restarts += 1;
            }
        }
    }
}

fn spawn(program: &Path, arguments: &[OsString], cgroup: Option<&Path>, errors: Stdio) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    children::bind(&mut command, cgroup)?;
    command.spawn()
}

/// A message without the name of who says it.
fn strip(line: &str) -> &str {
    line.strip_prefix("comb-vm-disk: ").unwrap_or(line)
}

impl Drop for DiskServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_a_file_and_what_becomes_of_writes() {
        let writes = |text: &str| text.parse::<DiskOf>().map(|disk| disk.writes);
        assert_eq!(writes("a.img"), Ok(Writes::Temporary));
        assert_eq!(writes("a.img:exclusive"), Ok(Writes::Exclusive));
        assert_eq!(writes("a:b.img:read-only"), Ok(Writes::Refused));
        assert_eq!(writes("a.img:overlay=b.over"), Ok(Writes::Overlay("b.over".into())));
        for text in ["", ":exclusive", "a.img:", "a.img:overlay=", "a.img:mine"] {
            assert!(text.parse::<DiskOf>().unwrap_err().contains("FILE:read-only"), "{text}");
        }
    }

    #[test]
    fn a_subnet_is_a_name_and_a_way_out() {
        let subnet = |text: &str| text.parse::<SubnetOf>().map(|subnet| subnet.way);
        assert_eq!(subnet("lab"), Ok(WayOut::Inside));
        assert_eq!(subnet("lab:nat"), Ok(WayOut::Nat));
        assert_eq!(subnet("lab:tap=tap0"), Ok(WayOut::Tap("tap0".into())));
        for text in ["", ":nat", "../lab", "lab:", "lab:host"] {
            assert!(subnet(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_engine_is_told_of_each() {
        let port = Some(("/s/0.socket".into(), [0x52, 0x54, 0, 1, 2, 3]));
        let disks = vec!["/m/a,b".into(), "/m/c".into()];
        let devices = Devices { disks, port, ..Devices::default() };
        let words: Vec<_> = devices.options().iter().map(|word| word.to_str().unwrap().to_owned()).collect();
        assert_eq!(words[1], "socket,id=disk-0,reconnect=1,path=/m/a,,b");
        assert!(words.iter().any(|word| word.ends_with("chardev=disk-1")));
        assert_eq!(words.last().unwrap(), "virtio-net-pci,netdev=subnet,vectors=0,mac=52:54:00:01:02:03");
    }
}
