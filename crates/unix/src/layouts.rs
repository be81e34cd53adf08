//! Structures of Linux on x86-64 that programs and the emulator pass to each other in memory.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! layout {
    ($($(#[$note:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? })*) => { $(
        $(#[$note])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $type),* }
    )* };
}

layout! {
    /// `struct timespec`.
    Timespec { seconds: i64, nanoseconds: i64 }
    /// `struct timeval`.
    Timeval { seconds: i64, microseconds: i64 }
    /// `struct itimerval`.
    TimerValue { interval: Timeval, value: Timeval }
    /// `struct itimerspec`.
    TimerSpec { interval: Timespec, value: Timespec }
    /// `struct iovec`.
    Vector { base: u64, bytes: u64 }
    /// `struct pollfd`.
    Polled { descriptor: i32, events: i16, returned: i16 }
    /// `struct msghdr`.
    Message {
        name: u64, name_bytes: u32, hole: u32, vectors: u64, vector_count: u64, control: u64, control_bytes: u64, flags: u32,
        hole_too: u32,
    }
    /// `struct rlimit`.
    Limit { current: u64, most: u64 }
    /// `struct kernel_sigaction`.
    Action { handler: u64, flags: u64, restorer: u64, mask: u64 }
    /// `stack_t`.
    SignalStack { base: u64, flags: i32, hole: u32, bytes: u64 }
    /// `struct sigcontext`.
    SignalContext {
        r8: u64, r9: u64, r10: u64, r11: u64, r12: u64, r13: u64, r14: u64, r15: u64, rdi: u64, rsi: u64, rbp: u64, rbx: u64,
        rdx: u64, rax: u64, rcx: u64, rsp: u64, rip: u64, rflags: u64, cs: u16, gs: u16, fs: u16, ss: u16, error: u64,
        trap: u64, old_mask: u64, cr2: u64, vector_state: u64, reserved: [u64; 8],
    }
    /// `struct ucontext` of the kernel, which is shorter than the C library's.
    UserContext { flags: u64, link: u64, stack: SignalStack, context: SignalContext, mask: u64 }
    /// `siginfo_t` as words: number, error, code, a hole, and the rest by kind.
    SignalInformation { number: i32, error: i32, code: i32, hole: i32, rest: [u64; 14] }
    /// `struct rt_sigframe`.
    SignalFrame { return_address: u64, context: UserContext, information: SignalInformation }
    /// `struct clone_args`.
    CloneArguments {
        flags: u64, pidfd: u64, child_tid: u64, parent_tid: u64, exit_signal: u64, stack: u64, stack_bytes: u64, tls: u64,
        set_tid: u64, set_tid_count: u64, cgroup: u64,
    }
    /// `struct flock`.
    FileLock { kind: i16, whence: i16, hole: u32, start: i64, bytes: i64, process: i32, hole_too: u32 }
    /// `struct open_how`.
    OpenHow { flags: u64, mode: u64, resolve: u64 }
    /// `struct tms`.
    Times { user: i64, system: i64, children_user: i64, children_system: i64 }
}

/// `struct epoll_event`, which is packed on x86-64.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, packed)]
pub(crate) struct EpollEvent {
    pub(crate) events: u32,
    pub(crate) data: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn as_the_c_library_has_them() {
        assert_eq!(size_of::<Timespec>(), size_of::<libc::timespec>());
        assert_eq!(size_of::<Vector>(), size_of::<libc::iovec>());
        assert_eq!(size_of::<Polled>(), size_of::<libc::pollfd>());
        assert_eq!(size_of::<Message>(), size_of::<libc::msghdr>());
        assert_eq!(size_of::<FileLock>(), size_of::<libc::flock>());
        assert_eq!(size_of::<SignalStack>(), size_of::<libc::stack_t>());
        assert_eq!(size_of::<SignalInformation>(), size_of::<libc::siginfo_t>());
        assert_eq!(size_of::<CloneArguments>(), size_of::<libc::clone_args>());
        assert_eq!(size_of::<EpollEvent>(), size_of::<libc::epoll_event>());
        assert_eq!(size_of::<Times>(), size_of::<libc::tms>());
        assert_eq!(offset_of!(Message, flags), offset_of!(libc::msghdr, msg_flags));
        assert_eq!(offset_of!(FileLock, process), offset_of!(libc::flock, l_pid));
    }

    #[test]
    fn a_signal_frame_is_laid_out_as_linux_lays_it_out() {
        let registers = offset_of!(libc::ucontext_t, uc_mcontext);
        assert_eq!(offset_of!(UserContext, context), registers);
        assert_eq!(offset_of!(UserContext, stack), offset_of!(libc::ucontext_t, uc_stack));
        assert_eq!(offset_of!(UserContext, mask), offset_of!(libc::ucontext_t, uc_sigmask));
        for (ours, theirs) in [
            (offset_of!(SignalContext, r8), libc::REG_R8),
            (offset_of!(SignalContext, r15), libc::REG_R15),
            (offset_of!(SignalContext, rdi), libc::REG_RDI),
            (offset_of!(SignalContext, rsi), libc::REG_RSI),
            (offset_of!(SignalContext, rbp), libc::REG_RBP),
            (offset_of!(SignalContext, rbx), libc::REG_RBX),
            (offset_of!(SignalContext, rdx), libc::REG_RDX),
            (offset_of!(SignalContext, rax), libc::REG_RAX),
            (offset_of!(SignalContext, rcx), libc::REG_RCX),
            (offset_of!(SignalContext, rsp), libc::REG_RSP),
            (offset_of!(SignalContext, rip), libc::REG_RIP),
            (offset_of!(SignalContext, rflags), libc::REG_EFL),
            (offset_of!(SignalContext, cs), libc::REG_CSGSFS),
            (offset_of!(SignalContext, error), libc::REG_ERR),
            (offset_of!(SignalContext, trap), libc::REG_TRAPNO),
            (offset_of!(SignalContext, cr2), libc::REG_CR2),
        ] {
            assert_eq!(ours, theirs as usize * 8);
        }
        assert_eq!(offset_of!(SignalContext, vector_state), offset_of!(libc::mcontext_t, fpregs));
        assert_eq!(size_of::<SignalContext>(), size_of::<libc::mcontext_t>());
        assert_eq!(offset_of!(SignalFrame, information), 8 + size_of::<UserContext>());
    }
}
