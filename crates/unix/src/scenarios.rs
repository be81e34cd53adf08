//! Whole scenarios on the fake machine: what one process does is seen by another through calls and memory only.
//!
//! A program is a function from where a thread is and what it has in its registers to its next step. All programs share one text;
//! a thread of the text keeps what it must remember in its registers, as real ones do.

use crate::elf;
use crate::fake::{Code, Fake, Step, View};
use crate::machine::{PAGE_BYTES, Registers};
use crate::unix::{ExitStatus, Options, Unix};
use std::cell::RefCell;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the text of all programs begins: behind the page with the headers.
const TEXT: u64 = 0x40_1000;
/// Memory that is there from the beginning and may be written, behind the text.
const DATA: u64 = 0x40_2800;
const STACK: u64 = DATA + 1024;
/// Where code for handlers is.
const HANDLER: u64 = TEXT + 0x400;
const RETURN: u64 = TEXT + 0x500;

static LAST_TREE: AtomicU32 = AtomicU32::new(0);

/// A directory of the host with a program in it, which goes with its owner.
struct Tree(PathBuf);

impl Tree {
    fn new() -> Tree {
        let number = LAST_TREE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("comb-unix-scenario-{}-{number}", std::process::id()));
        std::fs::create_dir_all(path.join("tmp")).expect("a temporary directory");
        let file = elf::sample(2, TEXT, 0x40_0000, &[0x90; 0x800]);
        std::fs::write(path.join("program"), file).expect("room");
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path.join("program"), executable).expect("our own file");
        Tree(path)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The sample program, with nothing to read and nowhere to write.
fn options(tree: &Tree) -> Options {
    let null = || Some(OwnedFd::from(std::fs::File::open("/dev/null").expect("there is one")));
    Options {
        root: tree.0.clone(),
        working_directory: "/tmp".into(),
        arguments: vec!["/program".into()],
        environment: Vec::new(),
        standard: [null(), null(), null()],
        swap: 0,
        sharing: None,
        signals: None,
    }
}

/// Runs a text, and says how it ended, what it told, and that nothing is left over.
fn run(
    arguments: &[&str],
    told: &Told,
    text: impl Fn(u64, &mut View<'_>) -> Step + 'static,
) -> (ExitStatus, Vec<String>) {
    let tree = Tree::new();
    let code: Code = Rc::new(text);
    let arguments = arguments.iter().map(|&text| OsString::from(text)).collect();
    let options = Options { arguments, ..options(&tree) };
    let mut unix = Unix::new(Fake::with_code(2048, code), options).expect("the sample program");
    let status = unix.run();
    assert!(unix.machine().is_empty(), "spaces and threads all end");
    assert!(unix.futexes.is_empty(), "nobody waits any more");
    // What is still held is the cache of the program's file; it can all be given back.
    unix.memory.objects.shed(&mut unix.memory.frames, &unix.memory.machine);
    assert_eq!(unix.frames().0, 0, "no frame is lost");
    assert!(tree.0.as_os_str().as_bytes().starts_with(b"/"));
    (status, told.take())
}

/// The number of the step that a thread is at, each step being two bytes long.
fn at(rip: u64) -> u64 {
    (rip - TEXT) / 2
}

fn exit(status: u64) -> Step {
    Step::Call(libc::SYS_exit_group, [status, 0, 0, 0, 0, 0])
}

fn call(number: i64, arguments: &[u64]) -> Step {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    Step::Call(number, all)
}

fn word(bytes: &[u8]) -> u64 {
    let mut all = [0u8; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(all)
}

fn failed(error: i32) -> u64 {
    (-i64::from(error)) as u64
}

type Told = Rc<RefCell<Vec<String>>>;

#[test]
fn a_program_ends_with_its_status() {
    let (status, _) = run(&["/program"], &Told::default(), |_, _| exit(7));
    assert_eq!(status, ExitStatus::Exited(7));
}

#[test]
fn what_a_child_stores_its_parent_does_not_see() {
    let told = Told::default();
    let tell = Rc::clone(&told);
    let (status, told) = run(&["/program"], &told, move |rip, view| match at(rip) {
        0 => Step::Store(DATA, b"before".to_vec()),
        1 => call(libc::SYS_fork, &[]),
        2 => {
            view.registers.rbx = view.registers.rax;
            if view.registers.rbx == 0 {
                Step::Jump(TEXT + 40)
            } else {
                call(libc::SYS_wait4, &[u64::MAX, DATA + 64, 0, 0])
            }
        }
        3 => {
            assert_eq!(view.registers.rax, view.registers.rbx, "the child that there is");
            Step::Load(DATA, 6)
        }
        4 => {
            tell.borrow_mut().push(format!("parent {}", String::from_utf8_lossy(&view.loaded)));
            Step::Load(DATA + 64, 4)
        }
        5 => {
            tell.borrow_mut().push(format!("status {:x}", word(&view.loaded)));
            exit(0)
        }
        20 => Step::Load(DATA, 6),
        21 => {
            tell.borrow_mut().push(format!("child {}", String::from_utf8_lossy(&view.loaded)));
            Step::Store(DATA, b"after!".to_vec())
        }
        _ => exit(5),
    });
    assert_eq!(status, ExitStatus::Exited(0));
    assert_eq!(told, ["child before", "parent before", "status 500"]);
}

/// Each step takes a millisecond of this machine's processor, and no longer by any other clock.
#[test]
fn a_clock_of_processor_time_stands_still_in_a_sleep() {
    let told = Told::default();
    let tell = Rc::clone(&told);
    let clock = libc::CLOCK_PROCESS_CPUTIME_ID as u64;
    let (_, told) = run(&["/program"], &told, move |rip, view| match at(rip) {
        0 => Step::Store(DATA + 512, [0, 300_000_000_u64].map(u64::to_le_bytes).concat()),
        1 => call(libc::SYS_nanosleep, &[DATA + 512, 0]),
        2 => call(libc::SYS_clock_gettime, &[clock, DATA]),
        3 => Step::Load(DATA, 16),
        _ => {
            assert_eq!(word(&view.loaded[..8]), 0, "seconds");
            tell.borrow_mut()
                .push(if word(&view.loaded[8..]) < 50_000_000 { "little" } else { "much" }.into());
            exit(0)
        }
    });
    assert_eq!(told, ["little"]);
}

/// A program and its child compute until their own clocks say that it is enough: each by itself, and the parent has the child's apart.
#[test]
fn processor_time_is_of_threads_and_processes_and_of_children_that_were_waited_for() {
    const ENOUGH: u64 = 50_000_000;
    let told = Told::default();
    let tell = Rc::clone(&told);
    let (_, told) = run(&["/program"], &told, move |rip, view| match at(rip) {
        0 | 10 => call(libc::SYS_clock_gettime, &[libc::CLOCK_THREAD_CPUTIME_ID as u64, DATA]),
        1 | 11 => Step::Load(DATA + 8, 8),
        2 if word(&view.loaded) < ENOUGH => Step::Jump(TEXT),
        2 => call(libc::SYS_fork, &[]),
        3 if view.registers.rax == 0 => Step::Jump(TEXT + 20),
        3 => call(libc::SYS_wait4, &[u64::MAX, 0, 0, DATA + 64]),
        4 => Step::Load(DATA + 64, 16),
        5 => {
            tell.borrow_mut().push(format!("{}", word(&view.loaded[8..]) / 10_000));
            call(libc::SYS_getrusage, &[libc::RUSAGE_CHILDREN as u64, DATA + 64])
        }
        6 => Step::Load(DATA + 64, 16),
        7 => {
            tell.borrow_mut().push(format!("{}", word(&view.loaded[8..]) / 10_000));
            call(libc::SYS_times, &[DATA + 64])
        }
        8 => Step::Load(DATA + 64, 32),
        9 => {
            let ticks: Vec<u64> = view.loaded.chunks(8).map(word).collect();
            tell.borrow_mut().push(format!("{ticks:?}"));
            exit(0)
        }
        // The child's begins at zero.
        12 if word(&view.loaded) < 2 * ENOUGH => Step::Jump(TEXT + 20),
        _ => exit(0),
    });
    // In hundredths of a second: less than one goes by until a program sees that it is enough.
    assert_eq!(told, ["10", "10", "[5, 0, 10, 0]"]);
}

#[test]
fn a_shared_mapping_is_seen_by_both() {
    let told = Told::default();
    let tell = Rc::clone(&told);
    let (_, told) = run(&["/program"], &told, move |rip, view| match at(rip) {
        0 => {
            call(libc::SYS_mmap, &[0, 8192, 3, (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u64, u64::MAX, 0])
        }
        1 => {
            view.registers.r15 = view.registers.rax;
            call(libc::SYS_fork, &[])
        }
        2 if view.registers.rax == 0 => Step::Store(view.registers.r15 + 4096, b"shared".to_vec()),
        2 => {
            view.registers.rip = TEXT + 20;
            Step::Call(libc::SYS_wait4, [u64::MAX, 0, 0, 0, 0, 0])
        }
        11 => Step::Load(view.registers.r15 + 4096, 6),
        12 => {
            tell.borrow_mut().push(String::from_utf8_lossy(&view.loaded).into_owned());
            exit(0)
        }
        _ => exit(0),
    });
    assert_eq!(told, ["shared"]);
}

#[test]
fn a_pipe_carries_and_ends() {
    let told = Told::default();
    let tell = Rc::clone(&told);
    let (_, told) = run(&["/program"], &told, move |rip, view| match at(rip) {
        0 => call(libc::SYS_pipe2, &[DATA, 0]),
        1 => call(libc::SYS_fork, &[]),
        2 if view.registers.rax == 0 => Step::Jump(TEXT + 40),
        // The parent gives up its writing end; or else there would be no end of the stream.
        2 => call(libc::SYS_close, &[4]),
        3 | 5 => call(libc::SYS_read, &[3, DATA + 128, 64]),
        4 => {
            tell.borrow_mut().push(format!("read {}", view.registers.rax));
            Step::Jump(rip + 2)
        }
        6 => {
            tell.borrow_mut().push(format!("read {}", view.registers.rax as i64));
            Step::Load(DATA + 128, 5)
        }
        7 => {
            tell.borrow_mut().push(String::from_utf8_lossy(&view.loaded).into_owned());
            exit(0)
        }
        20 => call(libc::SYS_nanosleep, &[DATA + 512, 0]),
        21 => Step::Store(DATA, b"bytes".to_vec()),
        22 => call(libc::SYS_write, &[4, DATA, 5]),
        _ => exit(0),
    });
    assert_eq!(told, ["read 5", "read 0", "bytes"]);
}

#[test]
fn a_pipe_that_nobody_reads_ends_its_writer() {
    let (status, _) = run(&["/program"], &Told::default(), |rip, _| match at(rip) {
        0 => call(libc::SYS_pipe2, &[DATA, 0]),
        1 => call(libc::SYS_close, &[3]),
        2 => call(libc::SYS_write, &[4, DATA, 1]),
        _ => exit(0),
    });
    assert_eq!(status, ExitStatus::Killed(libc::SIGPIPE));
}

#[test]
fn a_handler_runs_and_all_registers_come_back() {
    let told = Told::default();
    let tell = Rc::clone(&told);
    let (status, told) = run(&["/program"], &told, move |rip, view| match rip {
        HANDLER => {
            let registers = &view.registers;
            assert_eq!(registers.rdi, 10);
            assert_eq!((registers.rsp + 8) % 16, 0, "as after a call");
            // si_signo of the information that rsi points to.
            Step::Load(registers.rsi, 4)
        }
        r if r == HANDLER + 2 => {
            tell.borrow_mut().push(format!("signal {}", word(&view.loaded)));
            // The return address, as the handler's `ret` takes it.
            Step::Load(view.registers.rsp, 8)
        }
        r if r == HANDLER + 4 => {
            view.registers.rsp += 8;
            let to = word(&view.loaded);
            *view.registers = Registers { rsp: view.registers.rsp, rbx: 0xbad, ..Registers::default() };
            Step::Jump(to)
        }
        RETURN => call(libc::SYS_rt_sigreturn, &[]),
        _ => match at(rip) {
            0 => {
                view.registers.rsp = STACK + 0x1000;
                let action = [HANDLER, 0x0400_0000, RETURN, 0];
                Step::Store(DATA, action.iter().flat_map(|word| word.to_le_bytes()).collect())
            }
            1 => call(libc::SYS_rt_sigaction, &[10, DATA, 0, 8]),
            2 => {
                view.registers.rbx = 0x1234_5678_9abc;
                call(libc::SYS_kill, &[2, 10])
            }
            3 => {
                assert_eq!(view.registers.rax, 0, "what kill returned");
                assert_eq!(view.registers.rbx, 0x1234_5678_9abc);
                assert_eq!(view.registers.rsp, STACK + 0x1000);
                tell.borrow_mut().push("back".into());
                exit(3)
            }
            _ => unreachable!("the program ends before"),
        },
    });
    assert_eq!(status, ExitStatus::Exited(3));
    assert_eq!(told, ["signal 10", "back"]);
}

#[test]
fn a_store_where_nothing_is_ends_the_program() {
    let (status, _) = run(&["/program"], &Told::default(), |_, _| Step::Store(0x80_0000, vec![1]));
    assert_eq!(status, ExitStatus::Killed(libc::SIGSEGV));
    // To the text, which the sample has writable: that is fine, and does not come to the file.
    let (status, _) = run(&["/program"], &Told::default(), |rip, _| match at(rip) {
        0 => call(libc::SYS_mprotect, &[0x40_0000, PAGE_BYTES, 1]),
        _ => Step::Store(0x40_0000, vec![1]),
    });
    assert_eq!(status, ExitStatus::Killed(libc::SIGSEGV));
}

#[test]
fn threads_wait_for_each_other_by_a_futex() {
    let told = Told::default();
    let tell = Rc::clone(&told);
    let flags =
        (libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SIGHAND | libc::CLONE_THREAD)
            as u64;
    let clear = libc::CLONE_CHILD_CLEARTID as u64 | libc::CLONE_CHILD_SETTID as u64;
    let (status, told) = run(&["/program"], &told, move |rip, view| match at(rip) {
        0 => call(libc::SYS_clone, &[flags | clear, STACK + 0x1000, 0, DATA + 8, 0]),
        1 if view.registers.rax == 0 => Step::Jump(TEXT + 40),
        // Until the other one has ended, the word there is its number.
        1 => Step::Load(DATA + 8, 4),
        2 => {
            let number = word(&view.loaded);
            if number == 0 {
                Step::Jump(TEXT + 8)
            } else {
                call(libc::SYS_futex, &[DATA + 8, libc::FUTEX_WAIT as u64, number, 0])
            }
        }
        3 => {
            assert_eq!(view.registers.rax, 0, "woken, not refused");
            Step::Jump(TEXT + 8)
        }
        4 => Step::Load(DATA + 16, 4),
        5 => {
            tell.borrow_mut().push(String::from_utf8_lossy(&view.loaded).into_owned());
            exit(0)
        }
        20 => call(libc::SYS_nanosleep, &[DATA + 512, 0]),
        21 => Step::Store(DATA + 16, b"done".to_vec()),
        _ => call(libc::SYS_exit, &[0]),
    });
    assert_eq!(status, ExitStatus::Exited(0));
    assert_eq!(told, ["done"]);
}

#[test]
fn a_child_of_vfork_executes_before_its_parent_goes_on() {
    let told = Told::default();
    let tell = Rc::clone(&told);
    let arguments = Rc::new(RefCell::new(0u32));
    let (_, told) = run(&["/program"], &told, move |rip, view| match at(rip) {
        0 => Step::Load(view.registers.rsp, 8),
        1 => {
            // argc tells the two programs apart.
            let count = word(&view.loaded);
            *arguments.borrow_mut() += 1;
            if count == 2 { Step::Jump(TEXT + 60) } else { Step::Store(DATA, b"/program\0".to_vec()) }
        }
        2 => {
            let list = [DATA, DATA, 0u64];
            Step::Store(DATA + 32, list.iter().flat_map(|word| word.to_le_bytes()).collect())
        }
        3 => call(libc::SYS_vfork, &[]),
        4 if view.registers.rax == 0 => {
            tell.borrow_mut().push("child".into());
            Step::Jump(TEXT + 40)
        }
        4 => {
            tell.borrow_mut().push("parent".into());
            call(libc::SYS_wait4, &[u64::MAX, DATA + 64, 0, 0])
        }
        5 => Step::Load(DATA + 64, 4),
        6 => {
            tell.borrow_mut().push(format!("status {:x}", word(&view.loaded)));
            exit(0)
        }
        20 => call(libc::SYS_execve, &[DATA, DATA + 32, 0]),
        30 => {
            tell.borrow_mut().push("new program".into());
            exit(9)
        }
        _ => exit(1),
    });
    assert_eq!(told[0], "child");
    assert_eq!(told.last().map(String::as_str), Some("status 900"));
    assert!(told.contains(&"parent".into()) && told.contains(&"new program".into()));
}

#[test]
fn pages_around_a_fault_are_mapped_with_it() {
    let code: Code = Rc::new(|rip, view: &mut View<'_>| match at(rip) {
        0 => {
            let private = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
            call(libc::SYS_mmap, &[0x80_0000, 32 * PAGE_BYTES, 3, private, u64::MAX, 0])
        }
        1 => {
            (view.registers.r15, view.registers.r14) = (view.registers.rax, 0);
            Step::Jump(rip + 2)
        }
        2 if view.registers.r14 == 32 => exit(0),
        2 => {
            view.registers.r14 += 1;
            Step::Load(view.registers.r15 + (view.registers.r14 - 1) * PAGE_BYTES, 8)
        }
        _ => {
            assert_eq!(view.loaded, vec![0; 8], "new memory is zeroes");
            Step::Jump(TEXT + 4)
        }
    });
    let tree = Tree::new();
    let mut unix = Unix::new(Fake::with_code(1024, code), options(&tree)).expect("the sample program");
    assert_eq!(unix.run(), ExitStatus::Exited(0));
    // One for each block of the 32 pages. The page of the text was mapped when the zeroes behind the file's end were stored in it.
    assert_eq!(unix.machine().faults, 2);
}

#[test]
fn what_is_not_there_is_refused_and_remembered() {
    let tree = Tree::new();
    let code: Code = Rc::new(|rip, view: &mut View<'_>| match at(rip) {
        0 => call(libc::SYS_bpf, &[]),
        1 => {
            assert_eq!(view.registers.rax, failed(libc::ENOSYS));
            call(99_999, &[])
        }
        2 => {
            assert_eq!(view.registers.rax, failed(libc::ENOSYS));
            Step::Call(-1, [0; 6])
        }
        3 => call(libc::SYS_read, &[0, u64::MAX - 3, 100]),
        // At the end of /dev/null nothing is stored; a place where nothing could be is an error all the same.
        4 => call(libc::SYS_write, &[1, 8, 100]),
        5 => {
            assert_eq!(view.registers.rax, failed(libc::EFAULT));
            call(libc::SYS_mmap, &[0, u64::MAX - 4095, 3, 0x22, u64::MAX, 0])
        }
        6 => {
            assert_eq!(view.registers.rax, failed(libc::ENOMEM));
            call(libc::SYS_openat, &[libc::AT_FDCWD as u64, 16, 0])
        }
        7 => {
            assert_eq!(view.registers.rax, failed(libc::EFAULT));
            exit(0)
        }
        _ => exit(1),
    });
    let mut unix = Unix::new(Fake::with_code(1024, code), options(&tree)).expect("the sample program");
    assert_eq!(unix.run(), ExitStatus::Exited(0));
    let unsupported = unix.unsupported();
    assert!(
        unsupported.contains(&("bpf".into(), 1)) && unsupported.contains(&("call 99999".into(), 1)),
        "{unsupported:?}"
    );
}

#[test]
fn nothing_outside_of_the_root_is_reached() {
    let told = Told::default();
    let tell = Rc::clone(&told);
    let path = |text: &str| [text.as_bytes(), b"\0"].concat();
    let (_, told) = run(&["/program"], &told, move |rip, view| match at(rip) {
        0 => Step::Store(DATA, path("../../../../../../../../etc/passwd")),
        2 => Step::Store(DATA, path("/etc/passwd")),
        4 => {
            tell.borrow_mut().push(format!("{}", view.registers.rax as i64));
            Step::Store(DATA, path("/tmp/out"))
        }
        5 => Step::Store(DATA + 256, path("/etc/passwd")),
        6 => call(libc::SYS_symlink, &[DATA + 256, DATA]),
        1 | 3 | 7 => call(libc::SYS_openat, &[libc::AT_FDCWD as u64, DATA, 0]),
        8 => {
            tell.borrow_mut().push(format!("{}", view.registers.rax as i64));
            exit(0)
        }
        _ => exit(1),
    });
    let missing = format!("{}", -libc::ENOENT);
    assert_eq!(told, [missing.clone(), missing]);
}
