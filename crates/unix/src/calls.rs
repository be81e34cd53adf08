//! The table of calls: which number is which, and how its arguments are read. What is not here returns `ENOSYS` and is remembered.

use crate::errno::{EINVAL, ENOSYS, EPERM, ESRCH};
use crate::layouts::{OpenHow, Timespec, Timeval};
use crate::machine::Machine;
use crate::timers::milliseconds;
use crate::unix::{Caller, Unix};
use crate::waiting::{Outcome, Stop, Wait};

/// The directory that paths without one are relative to.
const HERE: i32 = libc::AT_FDCWD;

impl<M: Machine> Unix<M> {
    /// Makes a call.
    pub(crate) fn perform(&mut self, who: Caller, number: u64, arguments: [u64; 6]) -> Outcome {
        let outcome = match i64::try_from(number) {
            Ok(number) => self
                .perform_file_call(who, number, arguments)
                .or_else(|| self.perform_memory_call(who, number, arguments))
                .or_else(|| self.perform_process_call(who, number, arguments))
                .or_else(|| self.perform_other_call(who, number, arguments)),
            Err(_) => None,
        };
        outcome.unwrap_or_else(|| {
            self.note_unsupported(number, 0);
            Err(ENOSYS.into())
        })
    }

    fn perform_file_call(&mut self, who: Caller, number: i64, arguments: [u64; 6]) -> Option<Outcome> {
        let [a, b, c, d, e, _] = arguments;
        let (int_a, int_b, int_c, int_d) = (a as i32, b as i32, c as i32, d as i32);
        Some(match number {
            libc::SYS_read => self.call_read(who, int_a, &Self::one_buffer(b, c), None),
            libc::SYS_write => self.call_write(who, int_a, &Self::one_buffer(b, c), None),
            libc::SYS_pread64 | libc::SYS_pwrite64 if (d as i64) < 0 => Err(EINVAL.into()),
            libc::SYS_pread64 => self.call_read(who, int_a, &Self::one_buffer(b, c), Some(d)),
            libc::SYS_pwrite64 => self.call_write(who, int_a, &Self::one_buffer(b, c), Some(d)),
            libc::SYS_readv => self
                .buffers(who, b, c)
                .map_err(Stop::from)
                .and_then(|all| self.call_read(who, int_a, &all, None)),
            libc::SYS_writev => self
                .buffers(who, b, c)
                .map_err(Stop::from)
                .and_then(|all| self.call_write(who, int_a, &all, None)),
            libc::SYS_preadv | libc::SYS_preadv2 | libc::SYS_pwritev | libc::SYS_pwritev2 => {
                let with_flags = matches!(number, libc::SYS_preadv2 | libc::SYS_pwritev2);
                let at = if d == u64::MAX && with_flags { None } else { Some(d) };
                if at.is_some_and(|at| at > i64::MAX as u64) || with_flags && arguments[5] != 0 {
                    return Some(Err(if with_flags { crate::errno::EOPNOTSUPP } else { EINVAL }.into()));
                }
                let reads = matches!(number, libc::SYS_preadv | libc::SYS_preadv2);
                self.buffers(who, b, c).map_err(Stop::from).and_then(|all| {
                    if reads {
                        self.call_read(who, int_a, &all, at)
                    } else {
                        self.call_write(who, int_a, &all, at)
                    }
                })
            }
            libc::SYS_open => self.call_open(who, HERE, a, int_b, c as u32),
            libc::SYS_creat => {
                self.call_open(who, HERE, a, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, b as u32)
            }
            libc::SYS_openat => self.call_open(who, int_a, b, int_c, d as u32),
            libc::SYS_openat2 => {
                if d != size_of::<OpenHow>() as u64 {
                    return Some(Err(EINVAL.into()));
                }
                match self.memory.read::<OpenHow>(who.space, c) {
                    // What a program may reach is limited anyway; the limits it sets for itself are not known here.
                    Ok(how) if how.resolve != 0 => Err(crate::errno::EOPNOTSUPP.into()),
                    Ok(how) => self.call_open(who, int_a, b, how.flags as i32, how.mode as u32),
                    Err(error) => Err(error.into()),
                }
            }
            libc::SYS_close => self.call_close(who, int_a),
            libc::SYS_close_range => self.call_close_range(who, a as u32, b as u32, c as u32),
            libc::SYS_stat => self.call_stat(who, HERE, a, b, 0),
            libc::SYS_lstat => self.call_stat(who, HERE, a, b, libc::AT_SYMLINK_NOFOLLOW),
            libc::SYS_newfstatat => self.call_stat(who, int_a, b, c, int_d),
            libc::SYS_fstat => self.call_stat_open(who, int_a, b),
            libc::SYS_statx => self.call_statx(who, int_a, b, int_c, d as u32, e),
            libc::SYS_statfs => self
                .path_argument(who, a)
                .and_then(|path| self.held(who, HERE, &path, 0))
                .map_err(Stop::from)
                .and_then(|held| self.call_statfs(who, &held, b)),
            libc::SYS_fstatfs => {
                let file = self.file(who, int_a).map(crate::files::Held::Open);
                file.map_err(Stop::from).and_then(|held| self.call_statfs(who, &held, b))
            }
            libc::SYS_access => self.call_access(who, HERE, a, int_b, 0),
            libc::SYS_faccessat => self.call_access(who, int_a, b, int_c, 0),
            libc::SYS_faccessat2 => self.call_access(who, int_a, b, int_c, int_d),
            libc::SYS_readlink => self.call_read_link(who, HERE, a, b, c),
            libc::SYS_readlinkat => self.call_read_link(who, int_a, b, c, d),
            libc::SYS_lseek => self.call_seek(who, int_a, b as i64, int_c),
            libc::SYS_getdents64 => self.call_entries(who, int_a, b, c),
            libc::SYS_mkdir => self.call_make_directory(who, HERE, a, b as u32),
            libc::SYS_mkdirat => self.call_make_directory(who, int_a, b, c as u32),
            libc::SYS_mknod => self.call_make_node(who, HERE, a, b as u32),
            libc::SYS_mknodat => self.call_make_node(who, int_a, b, c as u32),
            libc::SYS_rmdir => self.call_unlink(who, HERE, a, libc::AT_REMOVEDIR),
            libc::SYS_unlink => self.call_unlink(who, HERE, a, 0),
            libc::SYS_unlinkat => self.call_unlink(who, int_a, b, int_c),
            libc::SYS_rename => self.call_rename(who, (HERE, a), (HERE, b), 0),
            libc::SYS_renameat => self.call_rename(who, (int_a, b), (int_c, d), 0),
            libc::SYS_renameat2 => self.call_rename(who, (int_a, b), (int_c, d), e as u32),
            libc::SYS_symlink => self.call_symlink(who, a, HERE, b),
            libc::SYS_symlinkat => self.call_symlink(who, a, int_b, c),
            libc::SYS_link => self.call_link(who, (HERE, a), (HERE, b), 0),
            libc::SYS_linkat => self.call_link(who, (int_a, b), (int_c, d), e as i32),
            libc::SYS_chmod => {
                self.change(who, (HERE, Some(a)), 0, |unix, held| unix.call_change_mode(held, b as u32))
            }
            libc::SYS_fchmod => {
                self.change(who, (int_a, None), 0, |unix, held| unix.call_change_mode(held, b as u32))
            }
            libc::SYS_fchmodat => {
                self.change(who, (int_a, Some(b)), 0, |unix, held| unix.call_change_mode(held, c as u32))
            }
            libc::SYS_fchmodat2 => {
                self.change(who, (int_a, Some(b)), int_d, |unix, held| unix.call_change_mode(held, c as u32))
            }
            libc::SYS_chown => self.change(who, (HERE, Some(a)), 0, |unix, held| {
                unix.call_change_owner(held, b as u32, c as u32)
            }),
            libc::SYS_lchown => self.change(who, (HERE, Some(a)), libc::AT_SYMLINK_NOFOLLOW, |unix, held| {
                unix.call_change_owner(held, b as u32, c as u32)
            }),
            libc::SYS_fchown => self
                .change(who, (int_a, None), 0, |unix, held| unix.call_change_owner(held, b as u32, c as u32)),
            libc::SYS_fchownat => self.change(who, (int_a, Some(b)), e as i32, |unix, held| {
                unix.call_change_owner(held, c as u32, d as u32)
            }),
            libc::SYS_utimensat => self.call_set_times(who, int_a, b, c, int_d),
            libc::SYS_truncate => self.call_truncate(who, a, b as i64),
            libc::SYS_ftruncate => self.call_truncate_open(who, int_a, b as i64),
            libc::SYS_fallocate => self.call_allocate(who, int_a, int_b, c as i64, d as i64),
            libc::SYS_fsync => self.call_synchronize(who, int_a, false),
            libc::SYS_fdatasync => self.call_synchronize(who, int_a, true),
            libc::SYS_fadvise64 | libc::SYS_readahead | libc::SYS_syncfs | libc::SYS_sync_file_range => {
                self.call_check_descriptor(who, int_a)
            }
            libc::SYS_sync => Ok(0),
            libc::SYS_chdir => self.call_change_directory(who, a),
            libc::SYS_fchdir => self.call_change_directory_open(who, int_a),
            libc::SYS_getcwd => self.call_working_directory(who, a, b),
            libc::SYS_umask => self.call_mask_files(who, a as u32),
            libc::SYS_dup => self.call_duplicate(who, int_a),
            libc::SYS_dup2 => self.call_duplicate_to(who, int_a, int_b, None),
            libc::SYS_dup3 => self.call_duplicate_to(who, int_a, int_b, Some(int_c)),
            libc::SYS_pipe => self.call_pipe(who, a, 0),
            libc::SYS_pipe2 => self.call_pipe(who, a, int_b),
            libc::SYS_fcntl => self.call_fcntl(who, int_a, int_b, c),
            libc::SYS_ioctl => self.call_ioctl(who, int_a, b, c),
            libc::SYS_flock => self.call_flock(who, int_a, int_b),
            libc::SYS_sendfile => self.call_send_file(who, int_a, int_b, [c, 0], d),
            libc::SYS_copy_file_range => {
                // (from, from_at, to, to_at, bytes, flags); between files only.
                let both = [self.file(who, int_a), self.file(who, int_c)];
                if both.iter().flatten().any(|file| file.name().is_none()) || arguments[5] != 0 {
                    return Some(Err(EINVAL.into()));
                }
                self.call_send_file(who, int_c, int_a, [b, d], e)
            }
            libc::SYS_eventfd => self.call_event_counter(who, a as u32, 0),
            libc::SYS_eventfd2 => self.call_event_counter(who, a as u32, int_b),
            libc::SYS_memfd_create => self.call_memory_file(who, a, b as u32),
            libc::SYS_getxattr
            | libc::SYS_lgetxattr
            | libc::SYS_fgetxattr
            | libc::SYS_setxattr
            | libc::SYS_lsetxattr
            | libc::SYS_fsetxattr
            | libc::SYS_removexattr
            | libc::SYS_lremovexattr
            | libc::SYS_fremovexattr => Err(crate::errno::EOPNOTSUPP.into()),
            libc::SYS_listxattr | libc::SYS_llistxattr | libc::SYS_flistxattr => Ok(0),
            _ => return None,
        })
    }

    /// Changes what a path or a descriptor leads to.
    fn change(
        &mut self,
        who: Caller,
        (directory, path): (i32, Option<u64>),
        flags: i32,
        change: impl FnOnce(&mut Self, &crate::files::Held) -> Outcome,
    ) -> Outcome {
        let held = match path {
            Some(path) => {
                let path = self.path_argument(who, path)?;
                self.held(who, directory, &path, flags)?
            }
            None => crate::files::Held::Open(self.file(who, directory)?),
        };
        change(self, &held)
    }

    fn perform_memory_call(&mut self, who: Caller, number: i64, arguments: [u64; 6]) -> Option<Outcome> {
        let [a, b, c, ..] = arguments;
        Some(match number {
            libc::SYS_mmap => self.call_map(who, arguments),
            libc::SYS_munmap => self.call_unmap(who, a, b),
            libc::SYS_mprotect => self.call_protect(who, a, b, c),
            libc::SYS_mremap => self.call_remap(who, arguments),
            libc::SYS_madvise => self.call_advise(who, a, b, c as i32),
            libc::SYS_msync => self.call_synchronize_map(who, a, b, c as i32),
            libc::SYS_mincore => self.call_in_core(who, a, b, c),
            libc::SYS_brk => Ok(self.memory.set_heap_end(who.space, a)),
            // Nothing is ever paged out.
            libc::SYS_mlock
            | libc::SYS_munlock
            | libc::SYS_mlockall
            | libc::SYS_munlockall
            | libc::SYS_mlock2 => Ok(0),
            libc::SYS_futex => self.call_futex(who, arguments),
            libc::SYS_arch_prctl => self.call_architecture(who, a as i32, b),
            libc::SYS_membarrier if a == 0 => Ok(0),
            libc::SYS_membarrier => Err(EINVAL.into()),
            _ => return None,
        })
    }

    fn perform_process_call(&mut self, who: Caller, number: i64, arguments: [u64; 6]) -> Option<Outcome> {
        let [a, b, c, d, e, _] = arguments;
        let (int_a, int_b, int_c, int_d) = (a as i32, b as i32, c as i32, d as i32);
        let identity = crate::host::identity();
        Some(match number {
            libc::SYS_clone => self.call_clone_registers(who, arguments),
            libc::SYS_clone3 => self.call_clone3(who, a, b),
            libc::SYS_fork => self.call_clone_registers(who, [libc::SIGCHLD as u64, 0, 0, 0, 0, 0]),
            libc::SYS_vfork => {
                let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
                self.call_clone_registers(who, [flags as u64, 0, 0, 0, 0, 0])
            }
            libc::SYS_execve => self.call_exec(who, HERE, [a, b, c], 0),
            libc::SYS_execveat => self.call_exec(who, int_a, [b, c, d], e as i32),
            libc::SYS_exit => {
                self.end_thread(who.thread, (int_a & 0xff) << 8);
                Err(Stop::Gone)
            }
            libc::SYS_exit_group => {
                self.end_process(who.process, (int_a & 0xff) << 8);
                Err(Stop::Gone)
            }
            libc::SYS_wait4 => self.call_wait4(who, int_a, b, int_c, d),
            libc::SYS_waitid => self.call_wait_id(who, int_a, int_b, c, int_d, e),
            libc::SYS_getpid => Ok(who.process as u64),
            libc::SYS_gettid => Ok(who.thread as u64),
            libc::SYS_getppid => Ok(self.process(who.process).parent as u64),
            libc::SYS_getpgrp => self.call_get_group(who, 0, false),
            libc::SYS_getpgid => self.call_get_group(who, int_a, false),
            libc::SYS_getsid => self.call_get_group(who, int_a, true),
            libc::SYS_setpgid => self.call_set_group(who, int_a, int_b),
            libc::SYS_setsid => self.call_new_session(who),
            libc::SYS_set_tid_address => {
                self.thread_mut(who.thread).clear_at = a;
                Ok(who.thread as u64)
            }
            libc::SYS_set_robust_list => self.call_set_robust_list(who, a, b),
            libc::SYS_kill => self.call_kill(who, int_a, int_b),
            libc::SYS_tkill => self.call_thread_kill(who, None, int_a, int_b),
            libc::SYS_tgkill => self.call_thread_kill(who, Some(int_a), int_b, int_c),
            libc::SYS_rt_sigqueueinfo => self.call_queue(who, int_a, None, int_b, c),
            libc::SYS_rt_tgsigqueueinfo => self.call_queue(who, int_a, Some(int_b), int_c, d),
            libc::SYS_rt_sigaction => self.call_action(who, int_a, b, c, d),
            libc::SYS_rt_sigprocmask => self.call_mask(who, int_a, b, c, d),
            libc::SYS_rt_sigpending => self.call_pending(who, a),
            libc::SYS_rt_sigsuspend => self.call_suspend(who, a, b),
            libc::SYS_rt_sigtimedwait => self.call_timed_wait(who, a, b, c, d),
            libc::SYS_rt_sigreturn => self.call_return(who),
            libc::SYS_sigaltstack => self.call_alternate_stack(who, a, b),
            libc::SYS_pause => Err(Wait::until(None).into()),
            libc::SYS_getuid => Ok(u64::from(identity[0])),
            libc::SYS_geteuid => Ok(u64::from(identity[1])),
            libc::SYS_getgid => Ok(u64::from(identity[2])),
            libc::SYS_getegid => Ok(u64::from(identity[3])),
            libc::SYS_getresuid => self.call_three_identities(who, [a, b, c], false),
            libc::SYS_getresgid => self.call_three_identities(who, [a, b, c], true),
            libc::SYS_setuid => self.call_set_identity(&[a], false),
            libc::SYS_setgid => self.call_set_identity(&[a], true),
            libc::SYS_setreuid => self.call_set_identity(&[a, b], false),
            libc::SYS_setregid => self.call_set_identity(&[a, b], true),
            libc::SYS_setresuid => self.call_set_identity(&[a, b, c], false),
            libc::SYS_setresgid => self.call_set_identity(&[a, b, c], true),
            libc::SYS_setfsuid => Ok(u64::from(identity[1])),
            libc::SYS_setfsgid => Ok(u64::from(identity[3])),
            libc::SYS_getgroups => Ok(0),
            libc::SYS_setgroups => Err(EPERM.into()),
            libc::SYS_prctl => self.call_process_control(who, arguments),
            libc::SYS_getrlimit => self.call_limit(who, 0, a as u32, 0, b),
            libc::SYS_setrlimit => self.call_limit(who, 0, a as u32, b, 0),
            libc::SYS_prlimit64 => self.call_limit(who, int_a, b as u32, c, d),
            libc::SYS_getrusage => self.call_usage(who, int_a, b),
            libc::SYS_times => self.call_times(who, a),
            libc::SYS_sched_yield => Ok(0),
            libc::SYS_sched_getaffinity
            | libc::SYS_sched_setaffinity
            | libc::SYS_sched_getscheduler
            | libc::SYS_sched_getparam
            | libc::SYS_sched_setscheduler
            | libc::SYS_sched_setparam => self.perform_scheduling_call(who, number, arguments),
            libc::SYS_sched_get_priority_max | libc::SYS_sched_get_priority_min => match int_a {
                libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE => Ok(0),
                libc::SCHED_FIFO | libc::SCHED_RR if number == libc::SYS_sched_get_priority_max => Ok(99),
                libc::SCHED_FIFO | libc::SCHED_RR => Ok(1),
                _ => Err(EINVAL.into()),
            },
            // The call's own scale is upside down: 20 is nice 0.
            libc::SYS_getpriority => Ok(20),
            libc::SYS_setpriority => Ok(0),
            libc::SYS_personality if a as u32 == u32::MAX || a == 0 => Ok(0),
            libc::SYS_getcpu => self.call_processor(who, a, b),
            // Not supported, without a word: the C library asks for it in each thread and does without.
            libc::SYS_rseq => Err(ENOSYS.into()),
            libc::SYS_ptrace | libc::SYS_process_vm_readv | libc::SYS_process_vm_writev => Err(EPERM.into()),
            libc::SYS_capget => Err(ESRCH.into()),
            _ => return None,
        })
    }

    /// Threads have no policies that a program could choose: they are what every thread has at first.
    fn perform_scheduling_call(&mut self, who: Caller, number: i64, arguments: [u64; 6]) -> Outcome {
        let [target, b, c, ..] = arguments;
        let target = target as i32;
        if target < 0 {
            return Err(if number == libc::SYS_sched_getaffinity { ESRCH } else { EINVAL }.into());
        }
        if target != 0 && !self.threads.contains_key(&target) {
            return Err(ESRCH.into());
        }
        match number {
            libc::SYS_sched_getaffinity => self.call_affinity(who, b, c),
            libc::SYS_sched_getparam => {
                self.memory.write(who.space, b, &0i32)?;
                Ok(0)
            }
            libc::SYS_sched_setscheduler if b != 0 => Err(EPERM.into()),
            libc::SYS_sched_setaffinity => {
                let mut mask = vec![0u8; b.min(1024) as usize];
                self.memory.read_bytes(who.space, c, &mut mask)?;
                if mask.iter().all(|&byte| byte == 0) { Err(EINVAL.into()) } else { Ok(0) }
            }
            _ => Ok(0),
        }
    }

    fn call_processor(&mut self, who: Caller, processor: u64, node: u64) -> Outcome {
        for at in [processor, node] {
            if at != 0 {
                self.memory.write(who.space, at, &0u32)?;
            }
        }
        Ok(0)
    }

    fn time(&mut self, who: Caller, at: u64) -> Result<Option<Timespec>, Stop> {
        if at == 0 {
            return Ok(None);
        }
        Ok(Some(self.memory.read(who.space, at)?))
    }

    fn perform_other_call(&mut self, who: Caller, number: i64, arguments: [u64; 6]) -> Option<Outcome> {
        let [a, b, c, d, e, f] = arguments;
        let (int_a, int_b, int_c, int_d) = (a as i32, b as i32, c as i32, d as i32);
        Some(match number {
            libc::SYS_poll => self.call_poll(who, a, b, milliseconds(int_c)),
            libc::SYS_ppoll => self.mask_for_call(who, d, e).map_err(Stop::from).and_then(|()| {
                let timeout = self.time(who, c)?;
                self.call_poll(who, a, b, timeout)
            }),
            libc::SYS_select => {
                let timeout = if e == 0 {
                    Ok(None)
                } else {
                    self.memory.read::<Timeval>(who.space, e).map(|time| {
                        let extra = time.microseconds.div_euclid(1_000_000);
                        let nanoseconds = time.microseconds.rem_euclid(1_000_000) * 1000;
                        Some(Timespec { seconds: time.seconds.saturating_add(extra), nanoseconds })
                    })
                };
                timeout
                    .map_err(Stop::from)
                    .and_then(|timeout| self.call_select(who, int_a, [b, c, d], timeout))
            }
            libc::SYS_pselect6 => {
                let set = if f == 0 { Ok([0, 0]) } else { self.memory.read::<[u64; 2]>(who.space, f) };
                set.and_then(|[set, bytes]| self.mask_for_call(who, set, bytes)).map_err(Stop::from).and_then(
                    |()| {
                        let timeout = self.time(who, e)?;
                        self.call_select(who, int_a, [b, c, d], timeout)
                    },
                )
            }
            libc::SYS_epoll_create => self.call_epoll_create(who, 0),
            libc::SYS_epoll_create1 => self.call_epoll_create(who, int_a),
            libc::SYS_epoll_ctl => self.call_epoll_control(who, int_a, int_b, int_c, d),
            libc::SYS_epoll_wait => self.call_epoll_wait(who, int_a, b, int_c, milliseconds(int_d)),
            libc::SYS_epoll_pwait => self
                .mask_for_call(who, e, f)
                .map_err(Stop::from)
                .and_then(|()| self.call_epoll_wait(who, int_a, b, int_c, milliseconds(int_d))),
            libc::SYS_epoll_pwait2 => self.mask_for_call(who, e, f).map_err(Stop::from).and_then(|()| {
                let timeout = self.time(who, d)?;
                self.call_epoll_wait(who, int_a, b, int_c, timeout)
            }),
            libc::SYS_clock_gettime => self.call_clock(who, int_a, b),
            libc::SYS_clock_getres => self.call_clock_step(who, int_a, b),
            libc::SYS_gettimeofday => self.call_time_of_day(who, a, b),
            libc::SYS_time => self.call_time(who, a),
            libc::SYS_nanosleep => self.call_sleep(who, libc::CLOCK_MONOTONIC, false, a),
            libc::SYS_clock_nanosleep => self.call_sleep(who, int_a, int_b & libc::TIMER_ABSTIME != 0, c),
            libc::SYS_alarm => self.call_alarm(who, a as u32),
            libc::SYS_setitimer => self.call_set_timer(who, int_a, b, c),
            libc::SYS_getitimer => self.call_get_timer(who, int_a, b),
            libc::SYS_timerfd_create => self.call_timer_create(who, int_a, int_b),
            libc::SYS_timerfd_settime => self.call_timer_set(who, int_a, int_b, Some(c), d),
            libc::SYS_timerfd_gettime => self.call_timer_set(who, int_a, 0, None, b),
            libc::SYS_uname => self.call_name(who, a),
            libc::SYS_sysinfo => self.call_information(who, a),
            libc::SYS_getrandom => self.call_random(who, a, b, c as u32),
            libc::SYS_socket => self.call_socket(who, int_a, int_b, int_c),
            libc::SYS_socketpair => self.call_socket_pair(who, int_a, int_b, int_c, d),
            libc::SYS_bind => self.call_bind(who, int_a, b, c),
            libc::SYS_connect => self.call_connect(who, int_a, b, c),
            libc::SYS_listen => self.call_listen(who, int_a, int_b),
            libc::SYS_accept => self.call_accept(who, int_a, b, c, 0),
            libc::SYS_accept4 => self.call_accept(who, int_a, b, c, int_d),
            libc::SYS_getsockname => self.call_socket_name(who, int_a, b, c, false),
            libc::SYS_getpeername => self.call_socket_name(who, int_a, b, c, true),
            libc::SYS_sendto => self.call_send_to(who, arguments),
            libc::SYS_recvfrom => self.call_receive_from(who, arguments),
            libc::SYS_sendmsg => self.call_send_message(who, int_a, b, int_c),
            libc::SYS_recvmsg => self.call_receive_message(who, int_a, b, int_c),
            libc::SYS_shutdown => self.call_shut_down(who, int_a, int_b),
            libc::SYS_getsockopt => self.call_get_option(who, int_a, int_b, int_c, [d, e]),
            libc::SYS_setsockopt => self.call_set_option(who, int_a, int_b, int_c, (d, e)),
            _ => return None,
        })
    }
}
