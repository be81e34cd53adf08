//! A new process, born in the cgroup that it belongs to.
//!
//! A process that is moved from one cgroup to another waits until every processor has passed a quiet state, ten milliseconds or more. One that
//! is cloned into a cgroup waits for nothing, but [`Command`] cannot clone so.
#![expect(unsafe_code, reason = "what a new process does before its program begins")]

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, WaitOptions};

/// In the kernel's uapi/linux/sched.h. The `libc` crate's has too few bits for it.
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// Where a stream of a new process comes from or goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flow {
    /// Where ours does.
    Inherited,
    /// Nowhere.
    Nothing,
    /// To us.
    Piped,
}

/// A process that has come to its program.
pub(super) struct Spawned {
    pub(super) process: Pid,
    /// Our ends of its input, output and errors, where these are piped.
    pub(super) pipes: [Option<OwnedFd>; 3],
}

/// A program that is open for writing for longer is one that somebody writes.
const BUSY_MS: u32 = 1000;

/// All that the new process needs, made before it is there: between clone and exec nothing allocates or takes a lock.
struct Ready<'a> {
    file: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    directory: Option<CString>,
    streams: [Option<OwnedFd>; 3],
    /// Where it says why it does not come to its program.
    failure: OwnedFd,
    cgroup: Option<BorrowedFd<'a>>,
}

/// Starts the command's program with its arguments, variables and directory; of its streams, what is said here counts. `before` runs in the new process
/// and makes only system calls. The cgroup is a directory.
pub(super) fn spawn(
    command: &Command,
    name: Option<&OsStr>,
    streams: [Flow; 3],
    cgroup: Option<BorrowedFd<'_>>,
    before: impl Fn() -> Result<()>,
) -> Result<Spawned> {
    let (mut theirs, mut pipes) = ([const { None }; 3], [const { None }; 3]);
    for (number, stream) in streams.into_iter().enumerate() {
        (theirs[number], pipes[number]) = ends(stream, number == 0)?;
    }
    let (why, failure) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let arguments = std::iter::once(name.unwrap_or(command.get_program())).chain(command.get_args());
    let ready = Ready {
        file: text(command.get_program())?,
        arguments: arguments.map(text).collect::<Result<_>>()?,
        environment: environment(command).iter().map(|variable| text(variable)).collect::<Result<_>>()?,
        directory: command.get_current_dir().map(|directory| text(directory.as_os_str())).transpose()?,
        streams: theirs,
        failure,
        cgroup,
    };
    let process = born(&ready, &before)?;
    drop(ready);
    let mut failed = Vec::new();
    File::from(why).read_to_end(&mut failed)?;
    match <[u8; 4]>::try_from(failed) {
        Err(_) => Ok(Spawned { process, pipes }),
        Ok(code) => {
            let _ = rustix::process::waitpid(Some(process), WaitOptions::empty());
            Err(Error::from_raw_os_error(i32::from_ne_bytes(code)))
        }
    }
}

/// Their end of a stream, and ours.
fn ends(stream: Flow, is_input: bool) -> Result<(Option<OwnedFd>, Option<OwnedFd>)> {
    Ok(match stream {
        Flow::Inherited => (None, None),
        Flow::Nothing => {
            let flags = OFlags::RDWR | OFlags::CLOEXEC;
            (Some(rustix::fs::open("/dev/null", flags, Mode::empty())?), None)
        }
        Flow::Piped => {
            let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
            if is_input { (Some(read), Some(write)) } else { (Some(write), Some(read)) }
        }
    })
}

fn text(text: &OsStr) -> Result<CString> {
    CString::new(text.as_bytes())
        .map_err(|_| Error::new(ErrorKind::InvalidInput, "a nul byte within the text"))
}

/// Ours, but for what the command says, as `NAME=value`.
fn environment(command: &Command) -> Vec<OsString> {
    let mut variables: std::collections::BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => variables.insert(name.to_owned(), value.to_owned()),
            None => variables.remove(name),
        };
    }
    let joined = |(name, value): (OsString, OsString)| {
        let mut text = name.into_vec();
        text.push(b'=');
        text.extend(value.into_vec());
        OsString::from_vec(text)
    };
    variables.into_iter().map(joined).collect()
}

/// A process that goes on with [`Ready::become_program`], in its cgroup.
fn born(ready: &Ready<'_>, before: &impl Fn() -> Result<()>) -> Result<Pid> {
    let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(&ready.arguments), pointers(&ready.environment));
    let cloned = ready.cgroup.map_or(Err(Errno::NOSYS), clone_into);
    // Before the kernel knew of that, or where somebody forbids it, a process moved by itself.
    let moves = cloned.is_err();
    // SAFETY: the child has this thread alone, and others may have held locks: what follows takes none and allocates nothing.
    let number = cloned.unwrap_or_else(|_| unsafe { libc::fork() });
    match number {
        -1 => Err(Error::last_os_error()),
        0 => {
            // SAFETY: as above; the pointers lead to texts that the child has a copy of.
            let why = unsafe { ready.become_program(&arguments, &environment, moves, before) };
            let code = why.raw_os_error().unwrap_or(libc::EINVAL);
            let _ = rustix::io::write(&ready.failure, &code.to_ne_bytes());
            // SAFETY: nothing that this process has a copy of is dropped.
            unsafe { libc::_exit(127) }
        }
        number => Ok(Pid::from_raw(number).expect("a child has a number")),
    }
}

/// As `fork()`, but for the cgroup.
fn clone_into(cgroup: BorrowedFd<'_>) -> std::result::Result<i32, Errno> {
    // SAFETY: all zero is what the kernel takes for nothing said.
    let mut how: libc::clone_args = unsafe { std::mem::zeroed() };
    how.flags = CLONE_INTO_CGROUP;
    how.exit_signal = libc::SIGCHLD as u64;
    how.cgroup = cgroup.as_raw_fd() as u64;
    // SAFETY: without a stack and without shared memory the child goes on here, on its copy of this stack.
    let number = unsafe { libc::syscall(libc::SYS_clone3, &raw mut how, size_of::<libc::clone_args>()) };
    i32::try_from(number).ok().filter(|number| *number >= 0).ok_or(Errno::NOSYS)
}

impl Ready<'_> {
    /// Returns only if that fails, with the reason.
    ///
    /// # Safety
    ///
    /// Only in a process that was forked for it. Both lists end with null, and lead to texts.
    unsafe fn become_program(
        &self,
        arguments: &[*const libc::c_char],
        environment: &[*const libc::c_char],
        moves: bool,
        before: &impl Fn() -> Result<()>,
    ) -> Error {
        // SAFETY: as the caller promises.
        let prepared = || unsafe { self.prepare(moves, before) };
        match prepared() {
            Err(error) => error,
            // SAFETY: the same. The search path is that of the new environment, as for every shell's child.
            Ok(()) => unsafe {
                unsafe extern "C" {
                    static mut environ: *const *const libc::c_char;
                }
                environ = environment.as_ptr();
                // A program that was just written is open for writing in whatever another thread has forked, until that begins its own.
                for _ in 0..BUSY_MS {
                    libc::execvp(self.file.as_ptr(), arguments.as_ptr());
                    let why = Error::last_os_error();
                    if why.kind() != std::io::ErrorKind::ExecutableFileBusy {
                        return why;
                    }
                    libc::usleep(1000);
                }
                Error::from_raw_os_error(libc::ETXTBSY)
            },
        }
    }

    /// # Safety
    ///
    /// Only in a process that was forked for it.
    unsafe fn prepare(&self, moves: bool, before: &impl Fn() -> Result<()>) -> Result<()> {
        for (number, stream) in (0..).zip(&self.streams) {
            let Some(stream) = stream else { continue };
            // SAFETY: the three numbers are what the program expects there; what they were is not used before it begins.
            if unsafe { libc::dup2(stream.as_raw_fd(), number) } < 0 {
                return Err(Error::last_os_error());
            }
        }
        if let Some(directory) = &self.directory {
            rustix::process::chdir(directory.as_c_str())?;
        }
        // SAFETY: of this process alone. Our runtime ignores the signal and a program expects not to find it so; the mask is that of a
        // thread.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        }
        if let Some(cgroup) = self.cgroup.filter(|_| moves) {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            let members = rustix::fs::openat(cgroup, c"cgroup.procs", flags, Mode::empty())?;
            rustix::io::write(members.as_fd(), b"0")?;
        }
        before()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    /// What it writes, and its status.
    fn run(command: &Command, input: &str, before: impl Fn() -> Result<()>) -> Result<(String, i32)> {
        let streams = [Flow::Piped, Flow::Piped, Flow::Nothing];
        let Spawned { process, pipes: [to, from, none] } =
            spawn(command, Some(OsStr::new("a name")), streams, None, before)?;
        assert!(none.is_none());
        File::from(to.expect("piped")).write_all(input.as_bytes())?;
        let mut said = String::new();
        File::from(from.expect("piped")).read_to_string(&mut said)?;
        let (_, status) =
            rustix::process::waitpid(Some(process), WaitOptions::empty())?.expect("it has ended");
        Ok((said, status.exit_status().unwrap_or(-1)))
    }

    fn nothing() -> Result<()> {
        Ok(())
    }

    #[test]
    fn a_program_has_its_name_streams_variables_and_directory() {
        let mut command = shell("read word; echo $0, $word, $ANIMAL, $HOME, $PWD; exit 7");
        command.env("ANIMAL", "bee").env_remove("HOME").current_dir("/usr");
        let outcome = run(&command, "honey\n", nothing).unwrap();
        assert_eq!(outcome, ("a name, honey, bee, , /usr\n".to_owned(), 7));
    }

    #[test]
    fn a_program_hears_signals_that_this_one_does_not() {
        let (said, _) = run(&shell("kill -PIPE $$; echo on"), "", nothing).unwrap();
        assert_eq!(said, "", "our runtime ignores it");
        let block = |how| {
            // SAFETY: of this thread alone.
            unsafe {
                let mut signals = std::mem::zeroed();
                libc::sigemptyset(&raw mut signals);
                libc::sigaddset(&raw mut signals, libc::SIGTERM);
                libc::pthread_sigmask(how, &raw const signals, std::ptr::null_mut());
            }
        };
        block(libc::SIG_BLOCK);
        let outcome = run(&shell("kill -TERM $$; echo on"), "", nothing);
        block(libc::SIG_UNBLOCK);
        assert_eq!(outcome.unwrap().0, "");
    }

    #[test]
    fn what_keeps_a_process_from_its_program_is_told_to_who_starts_it() {
        let reason = |command: &Command, before: fn() -> Result<()>| {
            run(command, "", before).expect_err("it cannot begin").raw_os_error()
        };
        assert_eq!(reason(&Command::new("/nowhere/nothing"), nothing), Some(libc::ENOENT));
        assert_eq!(reason(&Command::new("/etc"), nothing), Some(libc::EACCES));
        assert_eq!(reason(shell("true").current_dir("/nowhere"), nothing), Some(libc::ENOENT));
        assert_eq!(reason(&shell("true"), || Err(Errno::MFILE.into())), Some(libc::EMFILE));
    }

    /// Where it could not be, all would go on as before, and wait.
    #[test]
    fn a_process_is_born_in_a_cgroup_and_not_moved_there() {
        let name = format!("comb-spawn-{}", std::process::id());
        let made = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].into_iter().find_map(|base| {
            let own = std::path::Path::new(base).join(&name);
            let is_of_version_2 = std::path::Path::new(base).join("cgroup.procs").exists();
            (is_of_version_2 && std::fs::create_dir(&own).is_ok()).then_some(own)
        });
        let Some(own) = made else { return println!("skipped: no cgroup can be made here") };
        let directory = rustix::fs::open(&own, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let cloned = clone_into(directory.as_fd());
        if cloned == Ok(0) {
            // SAFETY: nothing that this process has a copy of is dropped.
            unsafe { libc::_exit(7) }
        }
        let process = cloned.map(|number| Pid::from_raw(number).expect("a child has a number"));
        let ended = process.map(|process| rustix::process::waitpid(Some(process), WaitOptions::empty()));
        let streams = [Flow::Nothing, Flow::Piped, Flow::Nothing];
        let mut command = Command::new("cat");
        command.arg("/proc/self/cgroup");
        let spawned = spawn(&command, None, streams, Some(directory.as_fd()), nothing).unwrap();
        let mut said = String::new();
        let [_, from, _] = spawned.pipes;
        File::from(from.expect("piped")).read_to_string(&mut said).unwrap();
        let _ = rustix::process::waitpid(Some(spawned.process), WaitOptions::empty());
        let removed = std::fs::remove_dir(&own);
        assert_eq!(ended.unwrap().unwrap().unwrap().1.exit_status(), Some(7));
        assert!(said.lines().any(|line| line.ends_with(&format!("/{name}"))), "{said}");
        removed.unwrap();
    }

    /// A text without a first line for the kernel is the shell's, as everywhere.
    #[test]
    fn a_script_without_a_first_line_is_the_shells() {
        let file = std::env::temp_dir().join(format!("comb-spawn-{}", std::process::id()));
        std::fs::write(&file, "echo $((6 * 7))\n").unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let outcome = run(&Command::new(&file), "", nothing);
        // Also if it was written a moment ago, but not while it is.
        let written_for = |seconds: &str| {
            let script = format!("exec 3>>{}; echo; exec sleep {seconds}", file.display());
            let mut writer = shell(&script).stdout(std::process::Stdio::piped()).spawn().unwrap();
            writer.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            writer
        };
        let mut writer = written_for("0.02");
        let soon = run(&Command::new(&file), "", nothing);
        writer.wait().unwrap();
        let mut writer = written_for("60");
        let busy = run(&Command::new(&file), "", nothing);
        writer.kill().unwrap();
        writer.wait().unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!((&*outcome.unwrap().0, &*soon.unwrap().0), ("42\n", "42\n"));
        assert_eq!(busy.expect_err("it is written").raw_os_error(), Some(libc::ETXTBSY));
    }
}
