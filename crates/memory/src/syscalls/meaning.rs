//! What an argument means where another one decides on that.
//!
//! A register whose value a call does not use holds what was there before, and libc's `fcntl`, `ioctl`, `prctl`, `clone` and `syscall` look for
//! more arguments than they are given. That may look like an address of shared memory: it is neither touched nor a reason to
//! fail. The same goes for numbers that only look like one.

use super::futex;
use super::perform::Call;

/// Of `fcntl`: commands that take a number or nothing. Others may come to be, and then take anything.
const FCNTL_WITHOUT_ADDRESS: [std::ops::RangeInclusive<i32>; 3] =
    [libc::F_DUPFD..=libc::F_SETFL, libc::F_SETOWN..=F_GETSIG, libc::F_SETLEASE..=libc::F_GET_SEALS];
const F_GETSIG: i32 = 11;

/// Of `ioctl`, as above. What else there is drivers know.
const IOCTL_WITHOUT_ADDRESS: [libc::Ioctl; 12] = [
    libc::FIOCLEX,
    libc::FIONCLEX,
    libc::TCSBRK,
    libc::TCSBRKP,
    libc::TCXONC,
    libc::TCFLSH,
    libc::TIOCEXCL,
    libc::TIOCNXCL,
    libc::TIOCSCTTY,
    libc::TIOCNOTTY,
    libc::TIOCSBRK,
    libc::TIOCCBRK,
];

/// Of `prctl`: those whose second argument is an address. Most take numbers there, or nothing.
const PRCTL_WITH_ADDRESS: [i32; 11] = [
    libc::PR_GET_PDEATHSIG,
    libc::PR_GET_UNALIGN,
    libc::PR_GET_FPEMU,
    libc::PR_GET_FPEXC,
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_GET_ENDIAN,
    libc::PR_GET_TSC,
    libc::PR_GET_CHILD_SUBREAPER,
    libc::PR_GET_TID_ADDRESS,
    PR_GET_AUXV,
];
const PR_GET_AUXV: i32 = 0x4155_5856;

/// Of `arch_prctl`: those that note an address and look at nothing there.
const ARCH_SET: [i32; 2] = [0x1001, 0x1002];

/// Whether an argument that the table takes for an address is one in this call.
#[expect(clippy::cast_possible_truncation, reason = "these arguments are 32 bits")]
pub(super) fn is_address(call: &Call, index: usize) -> bool {
    let arguments = call.arguments;
    let number = |index: usize| arguments[index] as i32;
    let has = |index: usize, flags: i32| number(index) & flags != 0;
    match (call.number as libc::c_long, index) {
        // Whoever wants no name gets no length.
        (libc::SYS_recvfrom, 5) => arguments[4] != 0,
        (libc::SYS_accept | libc::SYS_accept4, 2) => arguments[1] != 0,
        (libc::SYS_epoll_ctl, 3) => number(1) != libc::EPOLL_CTL_DEL,
        (libc::SYS_clock_nanosleep, 3) => !has(1, libc::TIMER_ABSTIME),
        (libc::SYS_futex, 3) => futex::waits(number(1)),
        (libc::SYS_futex, 4) => futex::has_second_word(number(1)),
        (libc::SYS_fcntl, 2) => !FCNTL_WITHOUT_ADDRESS.iter().any(|some| some.contains(&number(1))),
        (libc::SYS_ioctl, 2) => !IOCTL_WITHOUT_ADDRESS.contains(&(number(1) as libc::Ioctl)),
        (libc::SYS_prctl, 1) => PRCTL_WITH_ADDRESS.contains(&number(0)),
        (libc::SYS_arch_prctl, 1) => !ARCH_SET.contains(&number(0)),
        // Without these a wish.
        (libc::SYS_mmap, 0) => has(3, libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE),
        (libc::SYS_mremap, 4) => has(3, libc::MREMAP_FIXED),
        (libc::SYS_clone, 2) => has(0, libc::CLONE_PARENT_SETTID | libc::CLONE_PIDFD),
        (libc::SYS_clone, 3) => has(0, libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID),
        _ => true,
    }
}
