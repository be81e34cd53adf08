//! Who did it.

use foldhash::{HashMap, HashSet};

use super::FileId;
use crate::trace_file::Process;

/// The number of a program in a history: from 0, without gaps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProgramId(pub u32);

/// One program in one process, from its execution (or the fork that it came by) to its end or the next execution.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// The kernel's number of the process.
    pub process: u32,
    /// What started it, as far as that was seen.
    pub parent: Option<ProgramId>,
    /// Whose it is; `u32::MAX` if that is not known.
    pub user: u32,
    /// What it is called.
    pub name: Vec<u8>,
    /// What was executed, if that was seen.
    pub executable: Option<FileId>,
    /// When it began; nothing if it was there before.
    pub began_ns: Option<u64>,
    /// When it ended; nothing if it did not, as far as the trace goes.
    pub ended_ns: Option<u64>,
    /// When it was seen first.
    pub seen_ns: u64,
}

/// All of them.
#[derive(Default)]
pub struct Processes {
    programs: Vec<Program>,
    current: HashMap<u32, ProgramId>,
    threads: HashMap<u32, HashSet<u32>>,
}

impl Processes {
    /// All programs, in the order of their numbers.
    pub fn programs(&self) -> &[Program] {
        &self.programs
    }

    fn add(&mut self, program: Program) -> ProgramId {
        let id = ProgramId(u32::try_from(self.programs.len()).expect("fewer programs than numbers"));
        self.current.insert(program.process, id);
        self.programs.push(program);
        id
    }

    /// One that was there when the recording began.
    pub(super) fn was_there(&mut self, process: &Process, now_ns: u64) {
        let parent = self.current.get(&process.parent).copied();
        self.add(Program {
            process: process.number,
            parent,
            user: process.user,
            name: process.name.clone(),
            executable: None,
            began_ns: None,
            ended_ns: None,
            seen_ns: now_ns,
        });
    }

    /// A process or a thread begins.
    pub(super) fn begin(
        &mut self,
        process: u32,
        thread: u32,
        parent: u32,
        user: u32,
        name: &[u8],
        now_ns: u64,
    ) {
        if thread != process {
            self.threads.entry(process).or_default().insert(thread);
            return;
        }
        self.end_program(process, now_ns);
        self.threads.insert(process, HashSet::from_iter([thread]));
        let parent = self.current.get(&parent).copied();
        let (began_ns, seen_ns) = (Some(now_ns), now_ns);
        self.add(Program {
            process,
            parent,
            user,
            name: name.to_vec(),
            executable: None,
            began_ns,
            ended_ns: None,
            seen_ns,
        });
    }

    /// The program that runs in a process, which may be one of which nothing was said so far.
    pub(super) fn current(&mut self, process: u32, thread: u32, now_ns: u64) -> ProgramId {
        if let Some(&id) = self.current.get(&process) {
            return id;
        }
        self.threads.entry(process).or_default().insert(thread);
        // What no process asked for, the kernel does.
        let name = if process == 0 { b"kernel".to_vec() } else { b"?".to_vec() };
        self.add(Program {
            process,
            parent: None,
            user: u32::MAX,
            name,
            executable: None,
            began_ns: None,
            ended_ns: None,
            seen_ns: now_ns,
        })
    }

    /// Another program takes the process over.
    pub(super) fn execute(
        &mut self,
        process: u32,
        thread: u32,
        user: u32,
        name: &[u8],
        executable: Option<FileId>,
        now_ns: u64,
    ) -> ProgramId {
        let parent = self.current.get(&process).copied();
        self.end_program(process, now_ns);
        // All other threads are gone, and the one that is left has the process's number.
        self.threads.insert(process, HashSet::from_iter([thread]));
        let (began_ns, seen_ns) = (Some(now_ns), now_ns);
        self.add(Program {
            process,
            parent,
            user,
            name: name.to_vec(),
            executable,
            began_ns,
            ended_ns: None,
            seen_ns,
        })
    }

    /// A thread ends; whether its process does. How many are left of it says `left`, if somebody counted: those that
    /// were there before the recording are not known here.
    pub(super) fn end(&mut self, process: u32, thread: u32, left: Option<u64>, now_ns: u64) -> bool {
        let is_last_known = self.threads.get_mut(&process).is_none_or(|threads| {
            threads.remove(&thread);
            threads.is_empty()
        });
        let is_last = left.map_or(is_last_known, |left| left == 0);
        if is_last {
            self.threads.remove(&process);
            self.end_program(process, now_ns);
            self.current.remove(&process);
        }
        is_last
    }

    fn end_program(&mut self, process: u32, now_ns: u64) {
        if let Some(id) = self.current.get(&process) {
            self.programs[id.0 as usize].ended_ns.get_or_insert(now_ns);
        }
    }
}
