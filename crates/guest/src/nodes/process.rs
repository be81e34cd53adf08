//! The process of a node: it uses pages as it is told, and counts what it has no right to. It has a copy of what is replicated, and gives it up when somebody wants to store.

#![expect(unsafe_code, reason = "rights to pages, and handlers of signals")]

use std::io;
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use super::PAGES;
use super::calls::{self, Node, let_others};
use super::shared::{NODES, PAGE_BYTES, Shared};

/// A process, which ends with this.
pub(super) struct Process {
    node: usize,
    pid: libc::pid_t,
}

/// What handlers of signals know: of this process alone, and set before they are.
static SHARED: AtomicPtr<Shared> = AtomicPtr::new(null_mut());
static NODE: AtomicU32 = AtomicU32::new(0);
/// Pages of which this process has a copy.
static HAS_COPY: [AtomicBool; PAGES] = [const { AtomicBool::new(false) }; PAGES];

impl Process {
    pub(super) fn begin(shared: &'static Shared, number: usize, node: &Node) -> io::Result<Self> {
        // SAFETY: the child goes on in this function alone, and never returns from it. Where there are other threads, in a test, it has none of their locks to wait for: it
        // allocates nothing and prints nothing.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // SAFETY: it ends with who has begun it, whatever that one does.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                let is_there = calls::run_on(node).is_ok() && handle_signals(shared, number);
                if is_there {
                    shared.set_process(number, std::process::id());
                    serve(shared, number, node.number);
                }
                // SAFETY: nothing of the parent's is to be done here.
                unsafe { libc::_exit(1) }
            }
            pid => Ok(Self { node: number, pid }),
        }
    }

    pub(super) fn number(&self) -> usize {
        self.node
    }

    pub(super) fn is_alive(&mut self) -> io::Result<()> {
        let mut status = 0;
        // SAFETY: a child that has not been waited for.
        if unsafe { libc::waitpid(self.pid, &raw mut status, libc::WNOHANG) } == 0 {
            return Ok(());
        }
        self.pid = 0;
        Err(io::Error::other(format!("the process of node {} has ended: status {status:#x}", self.node)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.pid > 0 {
            // SAFETY: a child that has not been waited for.
            unsafe {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, null_mut(), 0);
            }
        }
    }
}

/// Round after round, for ever.
fn serve(shared: &Shared, number: usize, node: u32) {
    let mut stored = [0; PAGES];
    for round in 1.. {
        while shared.round() < round {
            let_others();
        }
        for page in 0..PAGES {
            if !prepare(shared, number, node, page) {
                return;
            }
        }
        for (page, stored) in stored.iter_mut().enumerate() {
            let (loads, stores) = shared.told(page, number);
            if loads {
                load(shared, page);
            }
            if stores {
                *stored += 1;
                shared.set_word(page, 1 + number, *stored);
                shared.has_stored(page, number, *stored);
            }
            shared.sees(page, number, if loads || stores { calls::node_of(shared.page(page)) } else { None });
        }
        shared.has_done(number, round);
    }
}

/// Looks whether all is there that was stored before.
fn load(shared: &Shared, page: usize) {
    for node in 0..NODES {
        let least = shared.stored(page, node);
        if shared.word(page, 1 + node) < least {
            shared.is_stale();
        }
    }
}

/// Makes a copy if there is to be one; else what is accessed is to be noticed.
fn prepare(shared: &Shared, number: usize, node: u32, page: usize) -> bool {
    let is_wanted = || shared.replicas(page) & 1 << number != 0;
    let has_copy = HAS_COPY[page].load(Ordering::Relaxed);
    if is_wanted() && has_copy {
        return true;
    }
    while !shared.hold(page) {
        let_others();
    }
    let done = if is_wanted() {
        copy(shared, node, page)
    } else if has_copy {
        drop_copy(shared, page)
    } else {
        set_rights(shared, page, libc::PROT_NONE)
    };
    shared.let_go(page);
    done
}

fn set_rights(shared: &Shared, page: usize, rights: libc::c_int) -> bool {
    // SAFETY: of a page that is mapped; who accesses it without a right comes to the handler below.
    unsafe { libc::mprotect(shared.page(page).cast(), PAGE_BYTES, rights) == 0 }
}

/// A page of this process alone takes the place of the common one: with its content, in memory of this node, to read.
fn copy(shared: &Shared, node: u32, page: usize) -> bool {
    let mut content = [0_u8; PAGE_BYTES];
    let place = shared.page(page);
    if !set_rights(shared, page, libc::PROT_READ) {
        return false;
    }
    let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: both are a page long. Nobody stores into the page now: who wants to has to hold it first, as this does.
    unsafe {
        place.copy_to_nonoverlapping(content.as_mut_ptr(), PAGE_BYTES);
        if libc::mmap(place.cast(), PAGE_BYTES, rights, flags | libc::MAP_FIXED, -1, 0) == libc::MAP_FAILED {
            return false;
        }
        if calls::bind(place, node).is_err() {
            return false;
        }
        place.copy_from_nonoverlapping(content.as_ptr(), PAGE_BYTES);
    }
    HAS_COPY[page].store(true, Ordering::Relaxed);
    set_rights(shared, page, libc::PROT_READ)
}

/// The common page is in its place again.
fn drop_copy(shared: &Shared, page: usize) -> bool {
    let (flags, offset) = (libc::MAP_SHARED | libc::MAP_FIXED, page * PAGE_BYTES);
    let offset = libc::off_t::try_from(offset).unwrap_or(0);
    // SAFETY: in the place of a page of ours, of which nobody has a reference but for the time of one access.
    let place = unsafe {
        libc::mmap(shared.page(page).cast(), PAGE_BYTES, libc::PROT_NONE, flags, shared.file(), offset)
    };
    HAS_COPY[page].store(false, Ordering::Relaxed);
    place != libc::MAP_FAILED
}

fn handle_signals(shared: &'static Shared, number: usize) -> bool {
    SHARED.store(std::ptr::from_ref(shared).cast_mut(), Ordering::Relaxed);
    NODE.store(u32::try_from(number).unwrap_or(u32::MAX), Ordering::Relaxed);
    // SAFETY: handlers that do nothing but system calls and accesses to atomics.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        action.sa_sigaction = on_fault as *const () as usize;
        let faults = libc::sigaction(libc::SIGSEGV, &raw const action, null_mut());
        action.sa_sigaction = on_withdrawal as *const () as usize;
        faults == 0 && libc::sigaction(libc::SIGUSR1, &raw const action, null_mut()) == 0
    }
}

fn known() -> (&'static Shared, usize) {
    // SAFETY: it was set before there was a handler, and is mapped for as long as the process lives.
    let shared = unsafe { &*SHARED.load(Ordering::Relaxed) };
    (shared, NODE.load(Ordering::Relaxed) as usize)
}

/// Of x86: the access was a store.
const IS_STORE: i64 = 2;

extern "C" fn on_fault(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let (shared, number) = known();
    // SAFETY: the kernel gives both to a handler that has asked for them.
    let (address, is_store) = unsafe {
        let context = &*context.cast::<libc::ucontext_t>();
        ((*info).si_addr().addr(), context.uc_mcontext.gregs[libc::REG_ERR as usize] & IS_STORE != 0)
    };
    let Some(page) = shared.page_at(address) else { give_up() };
    shared.missed(page, number, is_store);
    if is_store {
        withdraw(shared, number, page);
    }
    let rights = if is_store { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    if !set_rights(shared, page, rights) {
        give_up();
    }
}

fn give_up() -> ! {
    // SAFETY: whoever waits for this process sees that it has ended.
    unsafe { libc::_exit(2) }
}

/// Nobody has a copy any more when this returns.
fn withdraw(shared: &Shared, number: usize, page: usize) {
    while !shared.hold(page) {
        let_others();
    }
    let had = shared.withdraw(page);
    for node in (0..NODES).filter(|node| had & 1 << node != 0) {
        if node == number {
            give_copy_up(shared, number, page);
        } else if let Ok(process @ 1..) = libc::pid_t::try_from(shared.process(node)) {
            // SAFETY: a process that has a handler for it, or has ended.
            unsafe { libc::kill(process, libc::SIGUSR1) };
        }
    }
    while shared.going(page) != 0 {
        let_others();
    }
    shared.let_go(page);
}

fn give_copy_up(shared: &Shared, number: usize, page: usize) {
    if HAS_COPY[page].load(Ordering::Relaxed) && !drop_copy(shared, page) {
        give_up();
    }
    shared.is_gone(page, number);
}

extern "C" fn on_withdrawal(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let (shared, number) = known();
    for page in (0..PAGES).filter(|&page| shared.going(page) & 1 << number != 0) {
        give_copy_up(shared, number, page);
    }
}
