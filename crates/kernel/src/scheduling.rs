//! How much of the processors threads of the host use, and which of them the host prefers.
#![expect(unsafe_code, reason = "a call that no crate of ours has")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::shares::{HIGHEST_USUAL_PRIORITY, USUAL_PRIORITY};

/// The host's highest real-time priority is for supervisors.
const HIGHEST_REAL_TIME: u8 = 98;

/// How the host schedules a thread. Those of the real-time class run before all others, in order of their priority, and each for a slice of time in turn with
/// those of its own; usual ones share what is left by their weights; idle ones have what nobody else wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    Idle,
    Usual { nice: i8 },
    RealTime { priority: u8 },
}

impl Class {
    /// What a new thread has.
    pub(crate) const NEW: Self = Self::Usual { nice: 0 };

    /// That of a supervisor, which must be able to stop all others.
    pub(crate) const SUPERVISOR: Self = Self::RealTime { priority: HIGHEST_REAL_TIME + 1 };

    /// That of a thread that a supervisor waits for.
    pub(crate) const STOPPING: Self = Self::RealTime { priority: HIGHEST_REAL_TIME };

    /// What a priority of ours is on the host.
    pub(crate) fn of(priority: u8) -> Self {
        match priority {
            0 => Self::Idle,
            1..=HIGHEST_USUAL_PRIORITY => Self::Usual { nice: USUAL_PRIORITY as i8 - priority as i8 },
            _ => Self::RealTime { priority: (priority - HIGHEST_USUAL_PRIORITY).min(HIGHEST_REAL_TIME) },
        }
    }

    /// Has the host do so, or as much of it as it permits: who may not have real-time threads has threads of great weight instead, or usual ones.
    pub(crate) fn apply(self, thread: u32) {
        let less: &[Self] = match self {
            Self::RealTime { .. } => &[Self::Usual { nice: -20 }, Self::NEW],
            Self::Usual { nice } if nice < 0 => &[Self::NEW],
            _ => &[],
        };
        let _ = self.set(thread) || less.iter().any(|class| class.set(thread));
    }

    fn set(self, thread: u32) -> bool {
        const RESET_ON_FORK: u64 = 1;
        let (policy, nice, priority) = match self {
            Self::Idle => (libc::SCHED_IDLE, 0, 0),
            Self::Usual { nice } => (libc::SCHED_OTHER, nice, 0),
            Self::RealTime { priority } => (libc::SCHED_RR, 0, priority),
        };
        let attributes = Attributes {
            bytes: ATTRIBUTES_BYTES,
            policy: policy.cast_unsigned(),
            flags: RESET_ON_FORK,
            nice: nice.into(),
            priority: priority.into(),
            times: [0; 3],
        };
        // SAFETY: a structure of this length, which lives during the call.
        unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const attributes, 0) == 0 }
    }
}

/// Has the host prefer the calling thread by a priority of ours, as far as it permits: for a kernel that has a thread of the host's for itself.
pub fn prefer_this_thread(priority: u8) {
    Class::of(priority).apply(0);
}

/// As the host's kernel lays it out.
#[repr(C)]
struct Attributes {
    bytes: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    times: [u64; 3],
}

const ATTRIBUTES_BYTES: u32 = 48;
const _: () = assert!(size_of::<Attributes>() == ATTRIBUTES_BYTES as usize);

/// How much of the processors a thread of the host's has used. Nothing: there is none.
pub fn used_by(process: u32, thread: u32) -> Option<Duration> {
    Files::open(process, thread)?.used()
}

/// A thread of the host's.
#[derive(Debug)]
pub(crate) struct Thread {
    process: u32,
    pub(crate) number: u32,
    pub(crate) priority: u8,
    /// Open once somebody wants to know.
    files: Option<Files>,
    charged: Duration,
    class: Class,
}

#[derive(Debug)]
struct Files {
    /// Nanoseconds that it ran, if the host counts them.
    time: Option<File>,
    /// Clock ticks that it ran, and where.
    place: File,
}

impl Files {
    fn open(process: u32, thread: u32) -> Option<Self> {
        let path = |name: &str| format!("/proc/{process}/task/{thread}/{name}");
        Some(Self { time: File::open(path("schedstat")).ok(), place: File::open(path("stat")).ok()? })
    }

    /// How long it ran in all. Nothing: it does not exist any more.
    fn used(&self) -> Option<Duration> {
        let Some(time) = &self.time else { return Some(Duration::from_millis(10) * self.place()?[1]) };
        let text = read(time)?;
        Some(Duration::from_nanos(text.split(' ').next()?.parse().ok()?))
    }

    /// The processor that it is on or was last, and its clock ticks.
    fn place(&self) -> Option<[u32; 2]> {
        let text = read(&self.place)?;
        // Its name is whatever it says, in parentheses.
        let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
        let user: u32 = fields.nth(11)?.parse().ok()?;
        let system: u32 = fields.next()?.parse().ok()?;
        Some([fields.nth(23)?.parse().ok()?, user.saturating_add(system)])
    }
}

impl Thread {
    /// One of a process's, which has not been anything but new.
    pub(crate) fn new(process: u32, number: u32) -> Self {
        Self {
            process,
            number,
            priority: USUAL_PRIORITY,
            files: None,
            charged: Duration::ZERO,
            class: Class::NEW,
        }
    }

    fn files(&mut self) -> Option<&Files> {
        if self.files.is_none() {
            let files = Files::open(self.process, self.number)?;
            self.charged = files.used()?;
            self.files = Some(files);
        }
        self.files.as_ref()
    }

    /// How long it ran in all.
    pub(crate) fn used(&self) -> Option<Duration> {
        self.files.as_ref().map_or_else(|| used_by(self.process, self.number), Files::used)
    }

    /// What it used since it was asked last, if it has run, and on which processor it was in the end.
    pub(crate) fn take_used(&mut self) -> Option<(Duration, usize)> {
        let used = self.files()?.used()?;
        if used == self.charged {
            return None;
        }
        let since = used.saturating_sub(self.charged);
        self.charged = used;
        Some((since, self.processor()))
    }

    /// The processor that it is on or was last.
    pub(crate) fn processor(&mut self) -> usize {
        self.files().and_then(Files::place).map_or(0, |[processor, _]| processor as usize)
    }

    /// Has the host schedule it so. A thread may have changed that itself, if it is not of a space.
    pub(crate) fn prefer(&mut self, class: Class, may_have_changed: bool) {
        if class == self.class && !may_have_changed {
            return;
        }
        // A thread that is not there any more has no number: it could be another's by now.
        // SAFETY: no signal is sent; it is asked whether one could be.
        if unsafe { libc::syscall(libc::SYS_tgkill, self.process, self.number, 0) } == 0 {
            class.apply(self.number);
            self.class = class;
        }
    }
}

fn read(file: &File) -> Option<String> {
    let mut bytes = [0; 1024];
    loop {
        match file.read_at(&mut bytes, 0) {
            Ok(length) => return Some(String::from_utf8_lossy(&bytes[..length]).into_owned()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// All threads of a process, by their numbers.
#[derive(Debug)]
pub(crate) struct Process {
    number: u32,
    /// Of all its threads.
    pub(crate) priority: u8,
    threads: BTreeMap<u32, Thread>,
    /// Those that are found from now on are new.
    is_known: bool,
}

impl Process {
    pub(crate) fn new(number: u32) -> Self {
        Self { number, priority: USUAL_PRIORITY, threads: BTreeMap::new(), is_known: false }
    }

    /// Of all its threads, as they are now, from the next time on that they are preferred.
    pub(crate) fn set_priority(&mut self, priority: u8) {
        self.priority = priority;
        let _ = self.look();
    }

    /// Finds its threads as they are now. Nothing: there are none any more.
    pub(crate) fn look(&mut self) -> Option<()> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.number)).ok()?;
        let number = |task: std::fs::DirEntry| task.file_name().to_str()?.parse::<u32>().ok();
        let now: Vec<u32> = tasks.flatten().filter_map(number).collect();
        self.threads.retain(|number, _| now.contains(number));
        for number in now {
            if !self.threads.contains_key(&number) {
                let mut thread = Thread::new(self.number, number);
                if thread.files().is_some() {
                    if self.is_known {
                        thread.charged = Duration::ZERO;
                    }
                    self.threads.insert(number, thread);
                }
            }
        }
        self.is_known = true;
        Some(())
    }

    pub(crate) fn threads(&mut self) -> impl Iterator<Item = &mut Thread> {
        self.threads.values_mut()
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}
