//! What each system call's arguments point at: which of them the filter looks at, and how the handler moves what is there.
//!
//! Where an argument's meaning depends on another, `meaning` has the last word. A call that is not here is looked at whole, and made
//! as it stands after its addresses were touched.

/// One argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Piece {
    /// No address, whatever it looks like.
    Number,
    /// An address of something whose length nobody says: it is touched, not moved.
    Opaque,
    /// A string with its zero.
    Text,
    /// Read by the kernel.
    In(Length),
    /// Read by the kernel, which may take less than all.
    Taken(Length),
    /// Written by the kernel as far as the result says, in units of so many bytes.
    Filled(Length, u16),
    /// Read and written. Also what is only written, but not by every call that succeeds.
    InOut(Length),
}

/// How many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Length {
    Fixed(u16),
    /// Another argument's value.
    Argument(u8),
    /// Another argument's value, so many bytes each.
    Times(u8, u16),
    /// The number of 32 bits that another argument points at.
    At(u8),
    /// So many bits, in words of 64.
    Bits(u8),
}

/// How a call is dealt with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// As its pieces say.
    Pieces,
    /// One buffer and its length, second and third argument: may be long.
    Read,
    Write,
    /// Arrays of buffers.
    ReadVector,
    WriteVector,
    ReceiveMessage,
    SendMessage,
    ReceiveMessages,
    SendMessages,
    Futex,
    SignalMask,
    SignalStack,
    SignalAction,
    /// Refused wherever its addresses are shared, for it would change what this crate relies on.
    Refused,
    /// Refused where the array of buffers names shared memory: who takes them, takes them past all rights.
    RefusedVector,
    /// The same of asynchronous transfers.
    RefusedTransfers,
    /// Refused as well, and never made by the handler: two would come back.
    Clone,
    /// Refused as well, and what would undo the guard of imported memory wherever the call comes from.
    Advice,
    AdviceVector,
    Moved,
    /// Requests to a userfaultfd are refused, for it speaks of the whole process; the others are made after their addresses were touched.
    Control,
    /// Refused always.
    Userfaultfd,
    Ring,
}

#[derive(Debug)]
pub(super) struct Row {
    number: usize,
    symbol: &'static str,
    pub(super) way: Way,
    pub(super) pieces: &'static [Piece],
}

impl Row {
    pub(super) fn name(&self) -> &'static str {
        self.symbol.strip_prefix("SYS_").unwrap_or(self.symbol)
    }
}

/// What the filter does with a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Look {
    /// At these arguments, a bit each.
    Arguments(u8),
    /// Stop it: its addresses stand in memory, where the filter cannot look.
    Always,
    /// Stop it if it changes something, for what that is stands in memory.
    SignalAction,
    SignalMask,
    /// Stop it, and refuse it where it cannot be stopped.
    Ring,
    /// The same, of what undoes the guard of imported memory (advice, moves); of other calls, at the address.
    Advice,
    AdviceVector,
    Moved(u8),
    /// Stop requests to a userfaultfd; of others, at the address.
    Control,
    /// At those arguments that the operation takes for addresses: the others hold what was there before, and a word's waiters are woken often.
    Futex,
}

/// Numbers from here on are not known.
pub(super) const NUMBERS: usize = 512;
pub(super) const UNKNOWN: Look = Look::Arguments(0x3f);

pub(super) fn find(number: usize) -> Option<&'static Row> {
    ROWS.get(usize::from(*INDEX.get(number)?))
}

pub(super) fn look(number: usize) -> Look {
    let Some(row) = find(number) else {
        return UNKNOWN;
    };
    match row.way {
        Way::ReadVector
        | Way::WriteVector
        | Way::ReceiveMessage
        | Way::SendMessage
        | Way::ReceiveMessages
        | Way::SendMessages
        | Way::RefusedVector
        | Way::RefusedTransfers
        | Way::Userfaultfd => Look::Always,
        Way::SignalAction => Look::SignalAction,
        Way::SignalMask => Look::SignalMask,
        Way::Ring => Look::Ring,
        Way::Advice => Look::Advice,
        Way::AdviceVector => Look::AdviceVector,
        Way::Moved => Look::Moved(addresses(row)),
        Way::Control => Look::Control,
        Way::Futex => Look::Futex,
        _ => Look::Arguments(addresses(row)),
    }
}

/// Which arguments are addresses, a bit each.
fn addresses(row: &Row) -> u8 {
    let bits = row.pieces.iter().enumerate();
    bits.fold(0, |mask, (i, &piece)| mask | (u8::from(piece != Piece::Number) << i))
}

#[expect(clippy::cast_possible_truncation, reason = "there are a few hundred rows")]
const INDEX: [u16; NUMBERS] = {
    let mut index = [u16::MAX; NUMBERS];
    let mut row = 0;
    while row < ROWS.len() {
        assert!(index[ROWS[row].number] == u16::MAX, "a call is there twice");
        index[ROWS[row].number] = row as u16;
        row += 1;
    }
    index
};

const N: Piece = Piece::Number;
const P: Piece = Piece::Opaque;
const T: Piece = Piece::Text;
const fn i(bytes: u16) -> Piece {
    Piece::In(Length::Fixed(bytes))
}
/// Written alone; see [`Piece::InOut`].
const fn o(bytes: u16) -> Piece {
    io(bytes)
}
const fn io(bytes: u16) -> Piece {
    Piece::InOut(Length::Fixed(bytes))
}
/// Read, as long as that argument says.
const fn i_by(argument: u8) -> Piece {
    Piece::In(Length::Argument(argument))
}
const fn i_times(argument: u8, bytes: u16) -> Piece {
    Piece::In(Length::Times(argument, bytes))
}
const fn io_times(argument: u8, bytes: u16) -> Piece {
    Piece::InOut(Length::Times(argument, bytes))
}
/// Written as far as the result says, at most as long as that argument says.
const fn f_by(argument: u8) -> Piece {
    Piece::Filled(Length::Argument(argument), 1)
}
const fn f_times(argument: u8, bytes: u16) -> Piece {
    Piece::Filled(Length::Times(argument, bytes), bytes)
}
/// A place whose size is a value and a result.
const fn at(argument: u8) -> Piece {
    Piece::InOut(Length::At(argument))
}
const BITS: Piece = Piece::InOut(Length::Bits(0));

const STAT: Piece = o(144);
const STATFS: Piece = o(120);
/// Seconds and parts of seconds.
const TIME: u16 = 16;
const EVENT: u16 = 12;

macro_rules! rows {
    ($($number:ident $($way:ident)? [$($piece:expr),*];)*) => {
        &[$(Row {
            number: libc::$number as usize,
            symbol: stringify!($number),
            way: rows!(@ $($way)?),
            pieces: &[$($piece),*],
        }),*]
    };
    (@ $way:ident) => { Way::$way };
    (@) => { Way::Pieces };
}

#[rustfmt::skip]
#[expect(clippy::cast_possible_truncation, reason = "numbers of system calls are small")]
const ROWS: &[Row] = rows![
    // Buffers.
    SYS_read Read [N, f_by(2), N];
    SYS_write Write [N, i_by(2), N];
    SYS_pread64 Read [N, f_by(2), N, N];
    SYS_pwrite64 Write [N, i_by(2), N, N];
    SYS_readv ReadVector [N, P, N];
    SYS_writev WriteVector [N, P, N];
    SYS_preadv ReadVector [N, P, N, N, N];
    SYS_pwritev WriteVector [N, P, N, N, N];
    SYS_preadv2 ReadVector [N, P, N, N, N, N];
    SYS_pwritev2 WriteVector [N, P, N, N, N, N];
    SYS_recvfrom [N, f_by(2), N, N, at(5), io(4)];
    SYS_sendto [N, Piece::Taken(Length::Argument(2)), N, N, i_by(5), N];
    SYS_recvmsg ReceiveMessage [N, P, N];
    SYS_sendmsg SendMessage [N, P, N];
    SYS_recvmmsg ReceiveMessages [N, P, N, N, io(TIME)];
    SYS_sendmmsg SendMessages [N, P, N, N];
    SYS_getrandom [f_by(1), N, N];
    SYS_getdents [N, f_by(2), N];
    SYS_getdents64 [N, f_by(2), N];
    SYS_sendfile [N, N, io(8), N];
    SYS_copy_file_range [N, io(8), N, io(8), N, N];
    SYS_splice [N, io(8), N, io(8), N, N];
    SYS_tee [N, N, N, N];
    SYS_mq_timedsend [N, i_by(2), N, N, i(TIME)];
    SYS_mq_timedreceive [N, f_by(2), N, o(4), i(TIME)];
    SYS_mq_open [T, N, N, i(64)];
    SYS_mq_unlink [T];
    SYS_mq_getsetattr [N, i(64), o(64)];
    // Sockets.
    SYS_socket [N, N, N];
    SYS_socketpair [N, N, N, o(8)];
    SYS_bind [N, i_by(2), N];
    SYS_connect [N, i_by(2), N];
    SYS_listen [N, N];
    SYS_shutdown [N, N];
    SYS_accept [N, at(2), io(4)];
    SYS_accept4 [N, at(2), io(4), N];
    SYS_getsockname [N, at(2), io(4)];
    SYS_getpeername [N, at(2), io(4)];
    SYS_setsockopt [N, N, N, i_by(4), N];
    SYS_getsockopt [N, N, N, at(4), io(4)];
    // Waiting.
    SYS_poll [io_times(1, 8), N, N];
    SYS_ppoll [io_times(1, 8), N, io(TIME), i(8), N];
    SYS_select [N, BITS, BITS, BITS, io(TIME)];
    SYS_pselect6 [N, BITS, BITS, BITS, io(TIME), i(16)];
    SYS_epoll_create [N];
    SYS_epoll_create1 [N];
    SYS_epoll_ctl [N, N, N, i(EVENT)];
    SYS_epoll_wait [N, f_times(2, EVENT), N, N];
    SYS_epoll_pwait [N, f_times(2, EVENT), N, N, i(8), N];
    SYS_epoll_pwait2 [N, f_times(2, EVENT), N, i(TIME), i(8), N];
    SYS_eventfd [N];
    SYS_eventfd2 [N, N];
    SYS_futex Futex [P, N, N, P, P, N];
    SYS_nanosleep [i(TIME), io(TIME)];
    SYS_clock_nanosleep [N, N, i(TIME), io(TIME)];
    SYS_pause [];
    SYS_sched_yield [];
    SYS_io_uring_setup Ring [N, P];
    SYS_io_uring_enter Ring [N, N, N, N, P, N];
    SYS_io_uring_register Ring [N, N, P, N];
    SYS_io_submit RefusedTransfers [N, N, P];
    // Times.
    SYS_clock_gettime [N, o(TIME)];
    SYS_clock_getres [N, o(TIME)];
    SYS_clock_settime [N, i(TIME)];
    SYS_gettimeofday [o(TIME), o(8)];
    SYS_settimeofday [i(TIME), i(8)];
    SYS_time [o(8)];
    SYS_times [o(32)];
    SYS_alarm [N];
    SYS_getitimer [N, o(32)];
    SYS_setitimer [N, i(32), o(32)];
    SYS_timer_settime [N, N, i(32), o(32)];
    SYS_timer_gettime [N, o(32)];
    SYS_timer_getoverrun [N];
    SYS_timer_delete [N];
    SYS_timerfd_create [N, N];
    SYS_timerfd_settime [N, N, i(32), o(32)];
    SYS_timerfd_gettime [N, o(32)];
    // Files by descriptor.
    SYS_close [N];
    SYS_close_range [N, N, N];
    SYS_dup [N];
    SYS_dup2 [N, N];
    SYS_dup3 [N, N, N];
    SYS_lseek [N, N, N];
    SYS_fsync [N];
    SYS_fdatasync [N];
    SYS_sync [];
    SYS_syncfs [N];
    SYS_sync_file_range [N, N, N, N];
    SYS_ftruncate [N, N];
    SYS_fallocate [N, N, N, N];
    SYS_fadvise64 [N, N, N, N];
    SYS_readahead [N, N, N];
    SYS_flock [N, N];
    SYS_fchmod [N, N];
    SYS_fchown [N, N, N];
    SYS_fchdir [N];
    SYS_fcntl [N, N, P];
    SYS_ioctl Control [N, N, P];
    SYS_pipe [o(8)];
    SYS_pipe2 [o(8), N];
    SYS_fstat [N, STAT];
    SYS_fstatfs [N, STATFS];
    SYS_signalfd [N, i(8), N];
    SYS_signalfd4 [N, i(8), N, N];
    SYS_inotify_init [];
    SYS_inotify_init1 [N];
    SYS_inotify_rm_watch [N, N];
    // Files by name.
    SYS_open [T, N, N];
    SYS_openat [N, T, N, N];
    SYS_openat2 [N, T, i_by(3), N];
    SYS_creat [T, N];
    SYS_stat [T, STAT];
    SYS_lstat [T, STAT];
    SYS_newfstatat [N, T, STAT, N];
    SYS_statx [N, T, N, N, o(256)];
    SYS_statfs [T, STATFS];
    SYS_access [T, N];
    SYS_faccessat [N, T, N];
    SYS_faccessat2 [N, T, N, N];
    SYS_truncate [T, N];
    SYS_mkdir [T, N];
    SYS_mkdirat [N, T, N];
    SYS_rmdir [T];
    SYS_unlink [T];
    SYS_unlinkat [N, T, N];
    SYS_rename [T, T];
    SYS_renameat [N, T, N, T];
    SYS_renameat2 [N, T, N, T, N];
    SYS_link [T, T];
    SYS_linkat [N, T, N, T, N];
    SYS_symlink [T, T];
    SYS_symlinkat [T, N, T];
    SYS_readlink [T, f_by(2), N];
    SYS_readlinkat [N, T, f_by(3), N];
    SYS_chmod [T, N];
    SYS_fchmodat [N, T, N];
    SYS_chown [T, N, N];
    SYS_lchown [T, N, N];
    SYS_fchownat [N, T, N, N, N];
    SYS_mknod [T, N, N];
    SYS_mknodat [N, T, N, N];
    SYS_utime [T, i(16)];
    SYS_utimes [T, i(32)];
    SYS_futimesat [N, T, i(32)];
    SYS_utimensat [N, T, i(32), N];
    SYS_chdir [T];
    SYS_chroot [T];
    SYS_getcwd [f_by(1), N];
    SYS_inotify_add_watch [N, T, N];
    SYS_memfd_create [T, N];
    SYS_setxattr [T, T, i_by(3), N, N];
    SYS_lsetxattr [T, T, i_by(3), N, N];
    SYS_fsetxattr [N, T, i_by(3), N, N];
    SYS_getxattr [T, T, f_by(3), N];
    SYS_lgetxattr [T, T, f_by(3), N];
    SYS_fgetxattr [N, T, f_by(3), N];
    SYS_listxattr [T, f_by(2), N];
    SYS_llistxattr [T, f_by(2), N];
    SYS_flistxattr [N, f_by(2), N];
    SYS_removexattr [T, T];
    SYS_lremovexattr [T, T];
    SYS_fremovexattr [N, T];
    // Processes and threads.
    SYS_getpid [];
    SYS_getppid [];
    SYS_gettid [];
    SYS_getuid [];
    SYS_geteuid [];
    SYS_getgid [];
    SYS_getegid [];
    SYS_getpgrp [];
    SYS_getpgid [N];
    SYS_setpgid [N, N];
    SYS_getsid [N];
    SYS_setsid [];
    SYS_setuid [N];
    SYS_setgid [N];
    SYS_setreuid [N, N];
    SYS_setregid [N, N];
    SYS_setresuid [N, N, N];
    SYS_setresgid [N, N, N];
    SYS_getresuid [o(4), o(4), o(4)];
    SYS_getresgid [o(4), o(4), o(4)];
    SYS_getgroups [N, f_times(0, 4)];
    SYS_setgroups [N, i_times(0, 4)];
    SYS_umask [N];
    SYS_exit [N];
    SYS_exit_group [N];
    SYS_fork [];
    SYS_vfork [];
    // Stacks, thread ids that the kernel clears at a thread's end: they are a machine's own, not shared.
    SYS_clone Clone [N, P, P, P, N];
    SYS_clone3 Refused [P, N];
    SYS_set_tid_address Refused [P];
    SYS_set_robust_list Refused [P, N];
    SYS_rseq Refused [P, N, N, N];
    SYS_execve [T, P, P];
    SYS_execveat [N, T, P, P, N];
    SYS_wait4 [N, o(4), N, o(144)];
    SYS_waitid [N, N, o(128), N, o(144)];
    SYS_kill [N, N];
    SYS_tkill [N, N];
    SYS_tgkill [N, N, N];
    SYS_personality [N];
    SYS_unshare [N];
    SYS_setns [N, N];
    SYS_setfsuid [N];
    SYS_setfsgid [N];
    SYS_ioprio_get [N, N];
    SYS_ioprio_set [N, N, N];
    SYS_semget [N, N, N];
    SYS_shmget [N, N, N];
    SYS_msgget [N, N];
    SYS_pkey_alloc [N, N];
    SYS_pkey_free [N];
    SYS_pidfd_open [N, N];
    SYS_pidfd_getfd [N, N, N];
    SYS_pidfd_send_signal [N, N, i(128), N];
    SYS_prctl [N, P, N, N, N];
    SYS_arch_prctl [N, P];
    SYS_getrusage [N, o(144)];
    SYS_getrlimit [N, o(16)];
    SYS_setrlimit [N, i(16)];
    SYS_prlimit64 [N, N, i(16), o(16)];
    SYS_getpriority [N, N];
    SYS_setpriority [N, N, N];
    SYS_sched_getaffinity [N, N, f_by(1)];
    SYS_sched_setaffinity [N, N, i_by(1)];
    SYS_sched_getscheduler [N];
    SYS_sched_setscheduler [N, N, i(4)];
    SYS_sched_getparam [N, o(4)];
    SYS_sched_setparam [N, i(4)];
    SYS_sched_get_priority_max [N];
    SYS_sched_get_priority_min [N];
    SYS_sched_rr_get_interval [N, o(TIME)];
    SYS_getcpu [o(4), o(4), N];
    SYS_membarrier [N, N, N];
    SYS_uname [o(390)];
    SYS_sysinfo [o(112)];
    SYS_restart_syscall [];
    // Signals.
    SYS_rt_sigaction SignalAction [N, i(32), o(32), N];
    SYS_rt_sigprocmask SignalMask [N, i(8), o(8), N];
    SYS_sigaltstack SignalStack [i(24), o(24)];
    SYS_rt_sigreturn [];
    SYS_rt_sigpending [o(8), N];
    SYS_rt_sigsuspend [i(8), N];
    SYS_rt_sigtimedwait [i(8), o(128), i(TIME), N];
    SYS_rt_sigqueueinfo [N, N, i(128)];
    SYS_rt_tgsigqueueinfo [N, N, N, i(128)];
    // Mappings.
    SYS_mmap Refused [P, N, N, N, N, N];
    SYS_munmap Refused [P, N];
    SYS_mprotect Refused [P, N, N];
    SYS_pkey_mprotect Refused [P, N, N, N];
    SYS_madvise Advice [P, N, N];
    SYS_process_madvise AdviceVector [N, P, N, N, N];
    SYS_mremap Moved [P, N, N, N, P];
    SYS_remap_file_pages Moved [P, N, N, N, N];
    SYS_mlock Refused [P, N];
    SYS_mlock2 Refused [P, N, N];
    SYS_munlock Refused [P, N];
    SYS_mbind Refused [P, N, N, N, N, N];
    SYS_mseal Refused [P, N, N];
    SYS_shmat Refused [N, P, N];
    SYS_shmdt [N];
    SYS_brk [N];
    SYS_msync [N, N, N];
    SYS_mincore [N, N, P];
    SYS_mlockall [N];
    SYS_munlockall [];
    SYS_vmsplice RefusedVector [N, P, N, N];
    SYS_process_vm_readv RefusedVector [N, P, N, N, N, N];
    SYS_process_vm_writev RefusedVector [N, P, N, N, N, N];
    SYS_userfaultfd Userfaultfd [N];
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_name_arguments_that_are_there_and_are_of_the_right_sort() {
        for row in ROWS {
            for piece in row.pieces {
                let (Piece::In(length)
                | Piece::Taken(length)
                | Piece::InOut(length)
                | Piece::Filled(length, _)) = piece
                else {
                    continue;
                };
                match *length {
                    Length::Fixed(bytes) => assert!(bytes > 0, "{row:?}"),
                    Length::Argument(by) | Length::Times(by, _) | Length::Bits(by) => {
                        assert_eq!(row.pieces[usize::from(by)], Piece::Number, "{row:?}");
                    }
                    Length::At(by) => assert_eq!(row.pieces[usize::from(by)], io(4), "{row:?}"),
                }
            }
        }
    }

    #[test]
    fn a_call_is_found_by_its_number_and_what_is_not_known_is_looked_at_whole() {
        assert_eq!(find(0).unwrap().name(), "read");
        assert_eq!(look(0), Look::Arguments(0b10));
        assert_eq!(look(3), Look::Arguments(0), "close");
        assert_eq!(look(400), UNKNOWN);
        assert_eq!(look(100_000), UNKNOWN);
    }
}
