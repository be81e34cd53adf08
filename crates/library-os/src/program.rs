//! The program, as it runs for the host: a function, in a thread.

#![expect(unsafe_code, reason = "its arguments are C's, and signals are handled")]

use std::ffi::{CString, OsStr, c_char, c_int};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use comb_guest::agent::{Life, Runs, Started};
use comb_guest::wire::{Command, Ended, FromGuest, ToGuest};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::Signal;

use crate::{files, wrapped};

/// In a program's environment: it is to say what it took.
const USAGE: &str = "COMB_USAGE";

/// The main thread's stack.
pub(crate) const STACK_BYTES: usize = 8 << 20;

/// What a program does to itself that no program survives.
const FATAL: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT];

/// How a program has ended.
#[derive(Clone, Copy)]
pub(crate) enum Over {
    Exited(c_int),
    Killed(c_int),
}

/// Readable when it is over.
static END: OnceLock<OwnedFd> = OnceLock::new();
/// How, once it is: the status, and the signal.
static STATUS: AtomicI32 = AtomicI32::new(0);
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// This thread has ended the program: the host is told, and this process begins anew, which is the thread's end. Makes system calls alone: it may be in a signal's handler.
pub(crate) fn over(how: Over) -> ! {
    match how {
        Over::Exited(status) => {
            flush();
            STATUS.store(status, Ordering::Relaxed);
        }
        Over::Killed(signal) => SIGNAL.store(signal, Ordering::Relaxed),
    }
    if let Some(end) = END.get() {
        let _ = rustix::io::write(end, &1_u64.to_ne_bytes());
    }
    loop {
        std::thread::sleep(Duration::from_secs(1000));
    }
}

/// Whether threads are the program's.
pub(crate) fn is_begun() -> bool {
    END.get().is_some()
}

/// All that the program has written goes out.
pub(crate) fn flush() {
    // SAFETY: of all streams.
    unsafe { libc::fflush(ptr::null_mut()) };
}

extern "C" fn on_fatal(signal: c_int) {
    over(Over::Killed(signal));
}

/// The one program that there is.
pub(crate) struct Program {
    path: PathBuf,
    is_spent: bool,
}

impl Program {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { path: std::env::current_exe()?, is_spent: false })
    }
}

impl Runs for Program {
    fn start(&mut self, command: &Command) -> Result<Started, String> {
        let own = self.path.file_name().unwrap_or_default();
        let first = command.arguments.first().map(|name| OsStr::from_bytes(name)).unwrap_or_default();
        if PathBuf::from(first).file_name() != Some(own) {
            let (first, own) = (first.to_string_lossy(), own.to_string_lossy());
            return Err(format!("{first}: there is no such program: this machine is `{own}` alone"));
        }
        if self.is_spent {
            return Err("it runs already: a program that is alone runs once at a time".into());
        }
        let begun = begin(command).map_err(|error| error.to_string())?;
        self.is_spent = true;
        Ok(begun)
    }

    fn is_spent(&self) -> bool {
        self.is_spent
    }

    fn wants(&self) -> Option<BorrowedFd<'_>> {
        files::wants()
    }

    fn question(&mut self) -> Option<FromGuest> {
        files::question()
    }

    fn answer(&mut self, answer: ToGuest) {
        if let ToGuest::File { number, found } = answer {
            files::answer(number, found);
        }
    }
}

fn begin(command: &Command) -> io::Result<Started> {
    for variable in &command.environment {
        let Some(at) = variable.iter().position(|&byte| byte == b'=').filter(|&at| at > 0) else { continue };
        let (name, value) = (OsStr::from_bytes(&variable[..at]), OsStr::from_bytes(&variable[at + 1..]));
        // SAFETY: no other thread has begun that reads the environment.
        unsafe { std::env::set_var(name, value) };
    }
    let directory = if command.directory.is_empty() { b"/" } else { &command.directory[..] };
    std::env::set_current_dir(OsStr::from_bytes(directory))?;
    let words: Vec<CString> = command
        .arguments
        .iter()
        .map(|word| CString::new(word.clone()).map_err(io::Error::other))
        .collect::<Result<_, _>>()?;
    let [(their_input, input), (output, their_output), (errors, their_errors)] = [pipe()?, pipe()?, pipe()?];
    let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let _ = END.set(end.try_clone()?);
    for (number, theirs) in (0..).zip([&their_input, &their_output, &their_errors]) {
        put_in_place_of(number, theirs)?;
    }
    for ours in [&input, &output, &errors] {
        rustix::io::ioctl_fionbio(ours, true)?;
    }
    for signal in FATAL {
        // SAFETY: the handler makes system calls alone, and does not return.
        unsafe { libc::signal(signal, on_fatal as extern "C" fn(c_int) as libc::sighandler_t) };
    }
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || run(words))?;
    let outputs = [output, errors].map(File::from);
    Ok(Started { life: Box::new(Run { end, killed: None }), input: File::from(input), outputs })
}

/// Makes standard input, output or error what another descriptor is.
pub(crate) fn put_in_place_of(number: c_int, descriptor: &impl AsFd) -> io::Result<()> {
    // SAFETY: the three numbers are the C library's and the program's.
    let done = unsafe { libc::dup2(descriptor.as_fd().as_raw_fd(), number) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Who reads, and who writes.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

/// In the program's main thread.
fn run(words: Vec<CString>) {
    let count = c_int::try_from(words.len()).unwrap_or(c_int::MAX);
    let mut pointers: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(ptr::null());
    // A program may keep them.
    let pointers = pointers.leak();
    words.leak();
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    let since = Usage::now();
    // SAFETY: the words end with a null pointer and are nobody's to give back; the environment is the C library's.
    let status = unsafe { wrapped::main(count, pointers.as_ptr(), environ) };
    flush();
    since.tell();
    over(Over::Exited(status));
}

struct Run {
    end: OwnedFd,
    /// By the host.
    killed: Option<i32>,
}

impl Life for Run {
    fn end(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    fn ended(&mut self) -> io::Result<Option<Ended>> {
        if let Some(signal) = self.killed {
            return Ok(Some(Ended::Killed(signal)));
        }
        match rustix::io::read(&self.end, &mut [0; 8]) {
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let signal = SIGNAL.load(Ordering::Relaxed);
        Ok(Some(if signal == 0 {
            Ended::Exited(STATUS.load(Ordering::Relaxed) & 0xff)
        } else {
            Ended::Killed(signal)
        }))
    }

    /// Whatever signal it is: nobody handles it but by ending.
    fn signal(&mut self, signal: Signal) {
        self.killed = Some(signal.as_raw());
        let _ = rustix::io::write(&self.end, &1_u64.to_ne_bytes());
    }

    fn kill(&mut self) {
        self.killed = Some(libc::SIGKILL);
    }
}

/// What this process has taken of the machine.
#[derive(Clone, Copy)]
pub(crate) struct Usage {
    at: Instant,
    user_us: i64,
    system_us: i64,
    faults: i64,
}

impl Usage {
    pub(crate) fn now() -> Self {
        // SAFETY: all zeroes are such a structure, which the call fills.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
            usage
        };
        let us = |time: libc::timeval| time.tv_sec * 1_000_000 + time.tv_usec;
        Self {
            at: Instant::now(),
            user_us: us(usage.ru_utime),
            system_us: us(usage.ru_stime),
            faults: usage.ru_minflt + usage.ru_majflt,
        }
    }

    /// Says how much was taken since, if somebody wants to know.
    pub(crate) fn tell(self) {
        if std::env::var_os(USAGE).is_some() {
            let (now, since) = (Self::now(), self.at.elapsed());
            eprintln!(
                "took: {} us, {} us as a program, {} us in the kernel, {} page faults",
                since.as_micros(),
                now.user_us - self.user_us,
                now.system_us - self.system_us,
                now.faults - self.faults
            );
        }
    }
}
