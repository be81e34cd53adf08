//! Files that the emulator makes up: a few devices, and what programs look for below `/proc`.

use crate::descriptors::Kind;
use crate::errno::{EACCES, ENOENT, ENOTDIR, ENXIO, Errno};
use crate::host;
use crate::machine::{Machine, PAGE_BYTES};
use crate::processes::{Process, State};
use crate::unix::{Caller, Unix};
use crate::usage::ticks;
use crate::waiting::Id;
use std::fmt::Write;
use std::os::fd::AsRawFd;

/// A device of the emulator's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Device {
    Null,
    Zero,
    Full,
    Random,
    Terminal,
}

impl Device {
    /// The device that the host calls by these numbers, if programs may use it.
    pub(crate) fn known(number: u64) -> Option<Device> {
        match (libc::major(number), libc::minor(number)) {
            (1, 3) => Some(Device::Null),
            (1, 5) => Some(Device::Zero),
            (1, 7) => Some(Device::Full),
            (1, 8 | 9) => Some(Device::Random),
            (5, 0) => Some(Device::Terminal),
            _ => None,
        }
    }

    /// Its numbers.
    pub(crate) fn number(self) -> u64 {
        let (major, minor) = match self {
            Device::Null => (1, 3),
            Device::Zero => (1, 5),
            Device::Full => (1, 7),
            Device::Random => (1, 9),
            Device::Terminal => (5, 0),
        };
        libc::makedev(major, minor)
    }
}

/// What is listed in a directory: a name, and the kind as `getdents64` tells it.
pub(crate) type Entry = (Vec<u8>, u8);

/// A directory of the emulator's own that is open.
pub(crate) struct Listing {
    pub(crate) path: Vec<u8>,
    pub(crate) entries: std::cell::RefCell<Vec<Entry>>,
}

/// Something that the emulator makes up.
pub(crate) enum Node {
    Directory(Vec<Entry>),
    Text(Vec<u8>),
    /// A text about a process, of which some has to be asked.
    Stat(Id),
    Link(Vec<u8>),
    Device(Device),
    /// A link to what a descriptor of a process is open on.
    Descriptor(Id, i32),
}

/// What is known of a process: its program, what it does, and how many pages and bytes it has.
struct Standing {
    command: String,
    letter: char,
    resident: u64,
    size: u64,
}

const DEVICES: [(&str, Device); 6] = [
    ("null", Device::Null),
    ("zero", Device::Zero),
    ("full", Device::Full),
    ("random", Device::Random),
    ("urandom", Device::Random),
    ("tty", Device::Terminal),
];

const PROCESS_FILES: [&str; 10] =
    ["cmdline", "comm", "environ", "limits", "maps", "mountinfo", "mounts", "stat", "statm", "status"];
const SYSTEM_FILES: [&str; 9] =
    ["cpuinfo", "filesystems", "loadavg", "meminfo", "mounts", "stat", "swaps", "uptime", "version"];

const MOUNTS: &str =
    "comb / ext4 rw 0 0\nproc /proc proc rw 0 0\ndev /dev tmpfs rw 0 0\nshm /dev/shm tmpfs rw 0 0\n";

fn files(names: &[&str]) -> Vec<Entry> {
    names.iter().map(|name| (name.as_bytes().to_vec(), libc::DT_REG)).collect()
}

fn text_of(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or("")
}

impl<M: Machine> Unix<M> {
    /// What is at a path below `/dev` or `/proc`, and the parts of the path that are behind it, if it is a link.
    pub(crate) fn node<'a>(
        &self,
        who: Caller,
        parts: &'a [&'a [u8]],
    ) -> Result<(Node, &'a [&'a [u8]]), Errno> {
        let (node, used) = match parts {
            [b"dev", rest @ ..] => self.device_node(who, rest)?,
            [_, rest @ ..] => self.proc_node(who, rest)?,
            [] => return Err(ENOENT),
        };
        Ok((node, &parts[(used + 1).min(parts.len())..]))
    }

    fn device_node(&self, who: Caller, parts: &[&[u8]]) -> Result<(Node, usize), Errno> {
        let descriptors = || format!("/proc/{}/fd", who.process);
        Ok(match parts {
            [] => {
                let mut entries: Vec<Entry> =
                    DEVICES.iter().map(|(name, _)| (name.as_bytes().to_vec(), libc::DT_CHR)).collect();
                for link in ["fd", "stdin", "stdout", "stderr"] {
                    entries.push((link.as_bytes().to_vec(), libc::DT_LNK));
                }
                entries.push((b"shm".to_vec(), libc::DT_DIR));
                (Node::Directory(entries), 0)
            }
            [b"fd", ..] => (Node::Link(descriptors().into_bytes()), 1),
            [b"stdin", ..] => (Node::Link(format!("{}/0", descriptors()).into_bytes()), 1),
            [b"stdout", ..] => (Node::Link(format!("{}/1", descriptors()).into_bytes()), 1),
            [b"stderr", ..] => (Node::Link(format!("{}/2", descriptors()).into_bytes()), 1),
            [name, rest @ ..] => {
                let known = DEVICES.iter().find(|(known, _)| known.as_bytes() == *name);
                let (_, device) = known.ok_or(ENOENT)?;
                if !rest.is_empty() {
                    return Err(ENOTDIR);
                }
                (Node::Device(*device), 1)
            }
        })
    }

    fn proc_node(&self, who: Caller, parts: &[&[u8]]) -> Result<(Node, usize), Errno> {
        let [name, rest @ ..] = parts else {
            let mut entries = files(&SYSTEM_FILES);
            entries.push((b"self".to_vec(), libc::DT_LNK));
            entries.push((b"sys".to_vec(), libc::DT_DIR));
            for id in self.processes.keys() {
                entries.push((id.to_string().into_bytes(), libc::DT_DIR));
            }
            return Ok((Node::Directory(entries), 0));
        };
        match *name {
            b"self" => return Ok((Node::Link(format!("/proc/{}", who.process).into_bytes()), 1)),
            b"thread-self" => {
                return Ok((
                    Node::Link(format!("/proc/{}/task/{}", who.process, who.thread).into_bytes()),
                    1,
                ));
            }
            b"sys" => {
                return self.system_setting(rest).map(|text| (Node::Text(text.into_bytes()), parts.len()));
            }
            _ => {}
        }
        if let Ok(id) = text_of(name).parse::<Id>() {
            let process = self.processes.get(&id).ok_or(ENOENT)?;
            let (node, used) = self.process_node(process, rest)?;
            return Ok((node, used + 1));
        }
        if !rest.is_empty() {
            return Err(ENOENT);
        }
        let text = self.system_text(text_of(name)).ok_or(ENOENT)?;
        Ok((Node::Text(text.into_bytes()), 1))
    }

    fn process_node(&self, process: &Process, parts: &[&[u8]]) -> Result<(Node, usize), Errno> {
        let place = |directory: &crate::descriptors::OpenFile| {
            self.directory_name(directory).unwrap_or(b"/".to_vec())
        };
        Ok(match parts {
            [] => {
                let mut entries = files(&PROCESS_FILES);
                for link in ["cwd", "exe", "root"] {
                    entries.push((link.as_bytes().to_vec(), libc::DT_LNK));
                }
                for directory in ["fd", "task"] {
                    entries.push((directory.as_bytes().to_vec(), libc::DT_DIR));
                }
                (Node::Directory(entries), 0)
            }
            [b"exe", ..] => (Node::Link(process.executable.clone()), 1),
            [b"cwd", ..] => (Node::Link(place(&process.place.borrow().directory)), 1),
            [b"root", ..] => (Node::Link(b"/".to_vec()), 1),
            [b"fd" | b"fdinfo"] => {
                let used = process.table.borrow().used();
                (
                    Node::Directory(
                        used.into_iter().map(|one| (one.to_string().into_bytes(), libc::DT_LNK)).collect(),
                    ),
                    1,
                )
            }
            [b"fd", name, rest @ ..] => {
                let descriptor = text_of(name).parse().map_err(|_| ENOENT)?;
                let file = process.table.borrow().get(descriptor).map_err(|_| ENOENT)?;
                if !rest.is_empty() {
                    return Ok((Node::Link(self.directory_name(&file)?), 2));
                }
                (Node::Descriptor(process.id, descriptor), 2)
            }
            [b"task"] => {
                let threads = process.threads.iter();
                (Node::Directory(threads.map(|id| (id.to_string().into_bytes(), libc::DT_DIR)).collect()), 1)
            }
            [b"task", thread, rest @ ..] => {
                let id: Id = text_of(thread).parse().map_err(|_| ENOENT)?;
                if !process.threads.contains(&id) || rest.first() == Some(&b"task".as_slice()) {
                    return Err(ENOENT);
                }
                let (node, used) = self.process_node(process, rest)?;
                (node, used + 2)
            }
            [b"stat"] => (Node::Stat(process.id), 1),
            [name] => (Node::Text(self.process_text(process, text_of(name)).ok_or(ENOENT)?), 1),
            _ => return Err(ENOENT),
        })
    }

    fn system_setting(&self, parts: &[&[u8]]) -> Result<String, Errno> {
        let name: Vec<&str> = parts.iter().map(|part| text_of(part)).collect();
        Ok(match name.join("/").as_str() {
            "kernel/ngroups_max" => "65536\n".into(),
            "kernel/pid_max" => "4194304\n".into(),
            "kernel/cap_last_cap" => "40\n".into(),
            "kernel/osrelease" => crate::system::RELEASE.to_owned() + "\n",
            "kernel/ostype" => "Linux\n".into(),
            "kernel/random/boot_id" => format!("{}\n", self.boot_id),
            "vm/overcommit_memory" => "1\n".into(),
            "vm/max_map_count" => "65530\n".into(),
            "fs/pipe-max-size" => format!("{}\n", crate::pipes::MOST_CAPACITY),
            _ => return Err(ENOENT),
        })
    }

    fn system_text(&self, name: &str) -> Option<String> {
        let uptime = self.began.elapsed();
        Some(match name {
            "cpuinfo" => {
                let mut text = String::new();
                for processor in 0..host::processors() {
                    let _ = write!(
                        text,
                        "processor\t: {processor}\nvendor_id\t: unknown\nmodel name\t: x86-64\ncpu cores\t: 1\n\n"
                    );
                }
                text
            }
            "filesystems" => "nodev\tproc\nnodev\ttmpfs\n\text4\n".into(),
            "loadavg" => format!("0.00 0.00 0.00 1/{} {}\n", self.threads.len(), self.last_id),
            "meminfo" => {
                let (total, free) = self.memory_size();
                format!(
                    "MemTotal:       {:8} kB\nMemFree:        {:8} kB\nMemAvailable:   {:8} kB\nBuffers:               0 kB\n\
                     Cached:                0 kB\nSwapTotal:             0 kB\nSwapFree:              0 kB\n",
                    total / 1024,
                    free / 1024,
                    free / 1024
                )
            }
            "mounts" => MOUNTS.into(),
            "stat" => {
                let mut text = String::from("cpu  0 0 0 0 0 0 0 0 0 0\n");
                for processor in 0..host::processors() {
                    let _ = writeln!(text, "cpu{processor} 0 0 0 0 0 0 0 0 0 0");
                }
                let _ = write!(text, "btime {}\nprocesses {}\n", self.began_at.as_secs(), self.last_id);
                text
            }
            "swaps" => "Filename\tType\tSize\tUsed\tPriority\n".into(),
            "uptime" => format!("{}.{:02} 0.00\n", uptime.as_secs(), uptime.subsec_millis() / 10),
            "version" => format!("Linux version {} (comb)\n", crate::system::RELEASE),
            _ => return None,
        })
    }

    /// What `stat` says of a process.
    pub(crate) fn stat_text(&mut self, id: Id) -> Option<Vec<u8>> {
        let (own, children) = (self.used_by_process(id), self.processes.get(&id)?.used.by_children);
        let (own, children) = (ticks(own), ticks(children));
        let process = self.processes.get(&id)?;
        let Standing { command, letter, resident, size } = self.standing(process);
        let (parent, group, session) = (process.parent, process.group, process.session);
        let (threads, start) = (process.threads.len(), ticks(process.begun.duration_since(self.began)));
        let text = format!(
            "{id} ({command}) {letter} {parent} {group} {session} 0 -1 0 0 0 0 0 {own} 0 {children} 0 20 0 {threads} 0 {start} {size} {resident} \
             18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        );
        Some(text.into_bytes())
    }

    fn standing(&self, process: &Process) -> Standing {
        let base = process.executable.rsplit(|&byte| byte == b'/').next().unwrap_or(b"");
        let command = String::from_utf8_lossy(&base[..base.len().min(15)]).into_owned();
        let lasts = process.ended.is_none();
        let (resident, size) = if lasts {
            let regions = &self.memory.space(process.space).regions;
            let size: u64 = regions.iter().map(|(start, region)| region.end - start).sum();
            (self.memory.resident_pages(process.space), size)
        } else {
            (0, 0)
        };
        let letter = if !lasts {
            'Z'
        } else if process.halted {
            'T'
        } else {
            let runs = |id: &Id| {
                self.threads
                    .get(id)
                    .is_some_and(|thread| matches!(thread.state, State::Running | State::Stopped))
            };
            let faults = |id: &Id| {
                self.threads.get(id).is_some_and(|thread| matches!(thread.state, State::Faulted { .. }))
            };
            let has = |what: &dyn Fn(&Id) -> bool| process.threads.iter().any(what);
            if has(&runs) {
                'R'
            } else if has(&faults) {
                'D'
            } else {
                'S'
            }
        };
        Standing { command, letter, resident, size }
    }

    fn process_text(&self, process: &Process, name: &str) -> Option<Vec<u8>> {
        let joined = |parts: &[Vec<u8>]| {
            parts.iter().flat_map(|part| part.iter().copied().chain([0])).collect::<Vec<u8>>()
        };
        let Standing { command, letter, resident, size } = self.standing(process);
        let (id, parent) = (process.id, process.parent);
        Some(match name {
            "cmdline" => joined(&process.arguments),
            "environ" => joined(&process.environment),
            "comm" => format!("{command}\n").into_bytes(),
            "maps" => self.maps(process).into_bytes(),
            "statm" => format!("{} {resident} 0 0 0 0 0\n", size / PAGE_BYTES).into_bytes(),
            "status" => {
                let user = self.user();
                format!(
                    "Name:\t{command}\nUmask:\t{:04o}\nState:\t{letter}\nTgid:\t{id}\nPid:\t{id}\nPPid:\t{parent}\nTracerPid:\t0\n\
                     Uid:\t{user}\t{user}\t{user}\t{user}\nVmSize:\t{} kB\nVmRSS:\t{} kB\nThreads:\t{}\n",
                    process.place.borrow().mask,
                    size / 1024,
                    resident * PAGE_BYTES / 1024,
                    process.threads.len()
                )
                .into_bytes()
            }
            "limits" => b"Limit Soft Hard Units\n".to_vec(),
            "mounts" => MOUNTS.as_bytes().to_vec(),
            "mountinfo" => b"1 1 0:1 / / rw - ext4 comb rw\n2 1 0:2 / /proc rw - proc proc rw\n3 1 0:3 / /dev rw - tmpfs dev rw\n\
                             4 3 0:4 / /dev/shm rw - tmpfs shm rw\n"
                .to_vec(),
            _ => return None,
        })
    }

    fn maps(&self, process: &Process) -> String {
        let mut text = String::new();
        if process.ended.is_some() {
            return text;
        }
        let space = self.memory.space(process.space);
        for (start, region) in space.regions.iter() {
            let rights = region.rights;
            let letter = |held: bool, letter: char| if held { letter } else { '-' };
            let name = if region.grows_down {
                "[stack]".to_owned()
            } else if space.heap.contains(&start) {
                "[heap]".to_owned()
            } else {
                let host = region.backing.as_ref().and_then(|(object, _)| object.descriptor());
                let name = host.and_then(|host| self.host_name(host).ok()).unwrap_or_default();
                String::from_utf8_lossy(&name).into_owned()
            };
            let offset = region.backing.as_ref().map_or(0, |&(_, page)| page * PAGE_BYTES);
            let _ = writeln!(
                text,
                "{start:08x}-{:08x} {}{}{}{} {offset:08x} 00:00 0 {:>20}{name}",
                region.end,
                letter(rights.read, 'r'),
                letter(rights.write, 'w'),
                letter(rights.execute, 'x'),
                if region.shared { 's' } else { 'p' },
                ""
            );
        }
        text
    }

    /// Memory that programs may use altogether, and what of it is free, in bytes.
    pub(crate) fn memory_size(&self) -> (u64, u64) {
        let information = host::system_information();
        let unit = u64::from(information.mem_unit);
        (information.totalram * unit, information.freeram * unit)
    }

    /// What a link to a descriptor says.
    pub(crate) fn descriptor_text(&self, process: Id, descriptor: i32) -> Result<Vec<u8>, Errno> {
        let file =
            self.processes.get(&process).ok_or(ENOENT)?.table.borrow().get(descriptor).map_err(|_| ENOENT)?;
        let text = match &file.kind {
            Kind::Regular { host, .. } => {
                return self.host_name(host.as_raw_fd()).or(Ok(b"/unknown".to_vec()));
            }
            Kind::Directory { .. } | Kind::Path { .. } | Kind::Listing(_) => {
                return self.directory_name(&file);
            }
            Kind::Stream { host } => return host::path_of(host.as_raw_fd()),
            Kind::Device(device) => {
                let name =
                    DEVICES.iter().find(|(_, known)| known == device).map_or("null", |&(name, _)| name);
                format!("/dev/{name}")
            }
            Kind::Pipe(end) => format!("pipe:[{}]", end.pipe.number),
            Kind::Socket { .. } => format!("socket:[{}]", file.number),
            Kind::Counter { .. } => "anon_inode:[eventfd]".into(),
            Kind::Timer(_) => "anon_inode:[timerfd]".into(),
            Kind::Epoll(_) => "anon_inode:[eventpoll]".into(),
            Kind::Text(_) => "/proc/text".into(),
        };
        Ok(text.into_bytes())
    }

    /// Opens a device.
    pub(crate) fn open_device(&self, device: Device) -> Result<Kind, Errno> {
        if device != Device::Terminal {
            return Ok(Kind::Device(device));
        }
        // The terminal that the emulator was started on, if there is one.
        for descriptor in 0..3 {
            if host::is_terminal(descriptor) {
                return Ok(Kind::Stream { host: host::duplicate(descriptor).map_err(|_| EACCES)? });
            }
        }
        Err(ENXIO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_known_by_the_numbers_that_they_show() {
        for (_, device) in DEVICES {
            assert_eq!(Device::known(device.number()), Some(device));
        }
        assert_eq!(Device::known(libc::makedev(8, 0)), None);
    }
}
