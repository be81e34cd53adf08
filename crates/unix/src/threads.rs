//! How processes and threads are made from others, and the calls by which a thread speaks of itself.

use crate::errno::{EAGAIN, EINVAL, ENOMEM, EPERM};
use crate::layouts::{CloneArguments, SignalStack};
use crate::machine::Machine;
use crate::processes::{Process, Thread};
use crate::signals::Pending;
use crate::unix::{Caller, Unix};
use crate::usage::Used;
use crate::waiting::{Id, Outcome};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

const VM: u64 = libc::CLONE_VM as u64;
const FS: u64 = libc::CLONE_FS as u64;
const FILES: u64 = libc::CLONE_FILES as u64;
const SIGHAND: u64 = libc::CLONE_SIGHAND as u64;
const VFORK: u64 = libc::CLONE_VFORK as u64;
const PARENT: u64 = libc::CLONE_PARENT as u64;
const THREAD: u64 = libc::CLONE_THREAD as u64;
const SYSVSEM: u64 = libc::CLONE_SYSVSEM as u64;
const SETTLS: u64 = libc::CLONE_SETTLS as u64;
const PARENT_SETTID: u64 = libc::CLONE_PARENT_SETTID as u64;
const CHILD_CLEARTID: u64 = libc::CLONE_CHILD_CLEARTID as u64;
const CHILD_SETTID: u64 = libc::CLONE_CHILD_SETTID as u64;
const DETACHED: u64 = libc::CLONE_DETACHED as u64;
const UNTRACED: u64 = libc::CLONE_UNTRACED as u64;
/// `CLONE_CLEAR_SIGHAND`, of `clone3` only.
const CLEAR_SIGHAND: u64 = 0x1_0000_0000;
/// Namespaces, which there are none of.
const NAMESPACES: u64 = 0x7e02_0080;

impl<M: Machine> Unix<M> {
    /// `clone` in all its forms; `stack` is where the child's stack pointer is to be, 0 for where the parent's is.
    pub(crate) fn call_clone(&mut self, who: Caller, wanted: CloneArguments) -> Outcome {
        if let Some(child) = self.thread(who.thread).progress.given {
            return self.wait_for_parting(child as Id);
        }
        let flags = wanted.flags;
        let known = VM
            | FS
            | FILES
            | SIGHAND
            | VFORK
            | PARENT
            | THREAD
            | SYSVSEM
            | SETTLS
            | PARENT_SETTID
            | CHILD_CLEARTID
            | CHILD_SETTID
            | DETACHED
            | UNTRACED
            | CLEAR_SIGHAND;
        if flags & NAMESPACES != 0 {
            return Err(EPERM.into());
        }
        let lone = flags & THREAD != 0 && flags & SIGHAND == 0 || flags & SIGHAND != 0 && flags & VM == 0;
        if flags & !known != 0 || lone || flags & THREAD != 0 && flags & VFORK != 0 || wanted.exit_signal > 64
        {
            return Err(EINVAL.into());
        }
        if flags & SETTLS != 0 && wanted.tls >= 1 << 47 {
            return Err(EPERM.into());
        }
        let id = self.new_id()?;
        let space = if flags & VM != 0 { who.space } else { self.memory.fork_space(who.space)? };
        let parent_machine = self.thread(who.thread).machine;
        let machine_space = self.memory.space(space).machine;
        let Some(machine) = self.memory.machine.fork_thread(parent_machine, machine_space) else {
            if flags & VM == 0 {
                self.memory.release_space(space);
            }
            return Err(EAGAIN.into());
        };
        let registers = self.memory.machine.registers(machine);
        registers.rax = 0;
        if wanted.stack != 0 {
            registers.rsp = wanted.stack;
        }
        if flags & SETTLS != 0 {
            registers.fs_base = wanted.tls;
        }
        let process = if flags & THREAD != 0 {
            who.process
        } else {
            self.add_process(who, id, space, &wanted);
            id
        };
        let parent = self.thread(who.thread);
        let mut thread = Thread::new(process, machine);
        thread.mask = parent.saved_mask.unwrap_or(parent.mask);
        thread.name = parent.name;
        if flags & VM == 0 || flags & VFORK != 0 {
            thread.stack = parent.stack;
        } else {
            thread.stack = SignalStack { flags: libc::SS_DISABLE, ..SignalStack::default() };
        }
        if flags & CHILD_CLEARTID != 0 {
            thread.clear_at = wanted.child_tid;
        }
        self.threads.insert(id, thread);
        self.by_machine.insert(machine, id);
        self.process_mut(process).threads.push(id);
        // As on Linux, addresses that cannot be written to are not an error.
        if flags & PARENT_SETTID != 0 {
            let _ = self.memory.write(who.space, wanted.parent_tid, &id);
        }
        if flags & CHILD_SETTID != 0 {
            let _ = self.memory.write(space, wanted.child_tid, &id);
        }
        self.leave(id);
        if flags & VFORK == 0 {
            return Ok(id as u64);
        }
        self.thread_mut(who.thread).progress.given = Some(id as u64);
        self.wait_for_parting(id)
    }

    fn add_process(
        &mut self,
        who: Caller,
        id: Id,
        space: crate::spaces::SpaceNumber,
        wanted: &CloneArguments,
    ) {
        if wanted.flags & VM != 0 {
            self.memory.share_space(space);
        }
        let parent = self.process(who.process);
        let actions = if wanted.flags & SIGHAND != 0 {
            Rc::clone(&parent.actions)
        } else {
            let mut actions = *parent.actions.borrow();
            if wanted.flags & CLEAR_SIGHAND != 0 {
                for action in &mut actions {
                    if action.handler != crate::signals::IGNORE {
                        *action = crate::layouts::Action::default();
                    }
                }
            }
            Rc::new(RefCell::new(actions))
        };
        let copied = wanted.flags & FILES == 0;
        let process = Process {
            id,
            parent: if wanted.flags & PARENT != 0 { parent.parent } else { who.process },
            group: parent.group,
            session: parent.session,
            space,
            table: if copied {
                Rc::new(RefCell::new(parent.table.borrow().clone()))
            } else {
                Rc::clone(&parent.table)
            },
            place: if wanted.flags & FS != 0 {
                Rc::clone(&parent.place)
            } else {
                Rc::new(RefCell::new(parent.place.borrow().clone()))
            },
            actions,
            pending: Pending::default(),
            threads: Vec::new(),
            ended: None,
            exit_signal: wanted.exit_signal as i32,
            halted: false,
            news: None,
            executed: false,
            executable: parent.executable.clone(),
            arguments: parent.arguments.clone(),
            environment: parent.environment.clone(),
            limits: parent.limits,
            alarm: None,
            parting: wanted.flags & VFORK != 0,
            begun: Instant::now(),
            used: Used::default(),
        };
        self.processes.insert(id, process);
    }

    /// `clone` with its arguments in registers.
    pub(crate) fn call_clone_registers(&mut self, who: Caller, arguments: [u64; 6]) -> Outcome {
        let [flags, stack, parent_tid, child_tid, tls, _] = arguments;
        let wanted = CloneArguments {
            flags: flags & 0xffff_ff00,
            exit_signal: flags & 0xff,
            stack,
            parent_tid,
            child_tid,
            tls,
            ..CloneArguments::default()
        };
        self.call_clone(who, wanted)
    }

    /// `clone3`.
    pub(crate) fn call_clone3(&mut self, who: Caller, at: u64, bytes: u64) -> Outcome {
        if !(64..=4096).contains(&bytes) {
            return Err(EINVAL.into());
        }
        let mut raw = vec![0u8; (bytes as usize).max(88)];
        self.memory.read_bytes(who.space, at, &mut raw[..bytes as usize])?;
        let mut wanted = CloneArguments::default();
        zerocopy::IntoBytes::as_mut_bytes(&mut wanted).copy_from_slice(&raw[..88]);
        if raw[88..].iter().any(|&byte| byte != 0) || wanted.set_tid_count != 0 || wanted.cgroup != 0 {
            return Err(crate::errno::E2BIG.into());
        }
        if (wanted.stack == 0) != (wanted.stack_bytes == 0) {
            return Err(EINVAL.into());
        }
        wanted.stack = wanted.stack.checked_add(wanted.stack_bytes).ok_or(ENOMEM)?;
        self.call_clone(who, wanted)
    }

    /// `set_robust_list`.
    pub(crate) fn call_set_robust_list(&mut self, who: Caller, head: u64, bytes: u64) -> Outcome {
        if bytes != 24 {
            return Err(EINVAL.into());
        }
        self.thread_mut(who.thread).robust_list = (head, bytes);
        Ok(0)
    }

    /// Releases the locks that a thread holds at its end and that others are to learn of.
    pub(crate) fn leave_robust_list(&mut self, who: Caller) {
        let (head, _) = self.thread(who.thread).robust_list;
        if head == 0 {
            return;
        }
        let Ok([first, offset, pending]) = self.memory.read::<[u64; 3]>(who.space, head) else { return };
        let mut entry = first;
        // A list may be a ring or endless: it is a program's. Linux stops here, too.
        for _ in 0..2048 {
            if entry & !1 == head || entry == 0 {
                break;
            }
            let next = self.memory.read::<u64>(who.space, entry & !1);
            if entry & !1 != pending & !1 {
                self.release_dead_lock(who, (entry & !1).wrapping_add(offset));
            }
            let Ok(next) = next else { break };
            entry = next;
        }
        if pending & !1 != 0 {
            self.release_dead_lock(who, (pending & !1).wrapping_add(offset));
        }
    }

    fn release_dead_lock(&mut self, who: Caller, at: u64) {
        const OWNER: u32 = 0x3fff_ffff;
        const OWNER_DIED: u32 = 0x4000_0000;
        const WAITERS: u32 = 0x8000_0000;
        let own = who.thread as u32;
        let change = |word: u32| if word & OWNER == own { word & WAITERS | OWNER_DIED } else { word };
        if let Ok(before) = self.memory.change_word(who.space, at, change)
            && before & OWNER == own
            && before & WAITERS != 0
        {
            self.wake_waiters(who, at, 1, u32::MAX);
        }
    }
}
