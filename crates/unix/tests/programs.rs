//! Real programs of this host, run by the emulator. A program that is not installed is passed over.

use comb_unix::traced::Traced;
use comb_unix::{ExitStatus, Options, Unix};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

struct Ran {
    status: ExitStatus,
    out: String,
    error: String,
}

fn temporary(name: &str) -> File {
    let path = std::env::temp_dir().join(format!("comb-unix-test-{}-{name}", std::process::id()));
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .expect("a temporary file");
    std::fs::remove_file(&path).expect("just made");
    file
}

fn text(mut file: File) -> String {
    file.rewind().expect("a regular file");
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).expect("a regular file");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs a program in the host's tree; nothing if it is not there.
fn run(name: &str, arguments: &[&str], input: &str) -> Option<Ran> {
    if !Path::new(arguments[0]).exists() {
        eprintln!("{} is not installed here", arguments[0]);
        return None;
    }
    let mut standard_input = temporary(&format!("{name}-in"));
    standard_input.write_all(input.as_bytes()).expect("room");
    standard_input.rewind().expect("a regular file");
    let (out, error) = (temporary(&format!("{name}-out")), temporary(&format!("{name}-error")));
    let copy = |file: &File| Some(OwnedFd::from(file.try_clone().expect("a copy")));
    let options = Options {
        root: "/".into(),
        working_directory: "/tmp".into(),
        arguments: arguments.iter().map(Into::into).collect(),
        environment: ["PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8"].iter().map(Into::into).collect(),
        standard: [copy(&standard_input), copy(&out), copy(&error)],
        swap: 0,
        sharing: None,
        signals: None,
    };
    let mut unix =
        Unix::new(Traced::new(2 << 30).expect("memory"), options).expect("a program that can be started");
    let status = unix.run();
    let unsupported = unix.unsupported();
    if !unsupported.is_empty() {
        eprintln!("{name}: not supported: {unsupported:?}");
    }
    if std::env::var_os("COMB_UNIX_TRAPS").is_some() {
        eprintln!("{name}: {} traps, frames {:?}", unix.machine().traps(), unix.frames());
    }
    drop(unix);
    Some(Ran { status, out: text(out), error: text(error) })
}

fn expect(name: &str, arguments: &[&str], input: &str, out: &str) {
    let Some(ran) = run(name, arguments, input) else { return };
    assert_eq!((ran.status, ran.out.as_str()), (ExitStatus::Exited(0), out), "errors: {}", ran.error);
}

const BUSYBOX: &str = "/usr/bin/busybox";
const PYTHON: &str = "/usr/bin/python3";

fn shell(name: &str, script: &str, out: &str) {
    expect(name, &[BUSYBOX, "sh", "-c", script], "", out);
}

#[test]
fn a_static_program_says_hello() {
    expect("hello", &[BUSYBOX, "echo", "hello", "world"], "", "hello world\n");
}

#[test]
fn input_is_read() {
    expect("cat", &[BUSYBOX, "cat"], "one\ntwo\n", "one\ntwo\n");
}

#[test]
fn a_shell_makes_pipelines() {
    shell(
        "pipes",
        "echo b a c | tr ' ' '\\n' | sort | busybox tr '\\n' ,; seq 1 20000 | wc -l",
        "a,b,c,20000\n",
    );
}

#[test]
fn a_shell_waits_for_its_children() {
    shell(
        "wait",
        "(exit 3); echo $?; (sleep 0.05; echo late) & wait; echo end; false || echo no",
        "3\nlate\nend\nno\n",
    );
}

#[test]
fn a_shell_handles_signals() {
    shell(
        "signals",
        "trap 'echo got' USR1; kill -USR1 $$; sleep 5 & p=$!; kill $p; wait $p; echo $?; sh -c 'kill -9 $$'; echo $?; yes | head -1",
        "got\n143\n137\ny\n",
    );
}

#[test]
fn files_are_made_and_changed() {
    let script = "d=$(mktemp -d) && cd $d && echo one > a && echo two >> a && cp a b && mv b c && ln -s c l && cat l && readlink l \
                  && mkdir -p x/y && rmdir x/y && chmod 640 a && stat -c %a a && ls && rm -r $d && cd / && pwd && test ! -e $d";
    shell("files", script, "one\ntwo\nc\n640\na\nc\nl\nx\n/\n");
}

#[test]
fn what_is_made_up_is_seen_and_what_is_the_hosts_is_not() {
    shell(
        "proc",
        "readlink /proc/self/exe; cat /proc/self/comm; echo x > /dev/null; ls /proc/self/fd | wc -l",
        "/usr/bin/busybox\nbusybox\n4\n",
    );
    shell(
        "outside",
        "cat /proc/1/mem /sys/kernel/vmcoreinfo 2>/dev/null; echo $?; ls /sys 2>/dev/null; echo $?",
        "1\n1\n",
    );
}

#[test]
fn a_dynamic_program_runs() {
    expect("dynamic", &["/bin/echo", "dynamic"], "", "dynamic\n");
    let script =
        "x=$(ls / | grep -c '^etc$'); echo $x; printf '%s\\n' a b | while read l; do echo \"<$l>\"; done";
    expect("bash", &["/bin/bash", "-c", script], "", "1\n<a>\n<b>\n");
}

#[test]
fn sqlite_keeps_its_tables() {
    let file = std::env::temp_dir().join(format!("comb-unix-test-{}.db", std::process::id()));
    let name = file.to_str().expect("a plain name");
    let statements =
        "pragma journal_mode=wal; create table t(a); insert into t values(1),(2); select sum(a) from t;";
    expect("sqlite", &["/usr/bin/sqlite3", name, statements], "", "wal\n3\n");
    expect("sqlite-again", &["/usr/bin/sqlite3", name, "select count(*) from t;"], "", "2\n");
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{name}{suffix}"));
    }
}

#[test]
fn python_computes() {
    expect(
        "python",
        &[PYTHON, "-c", "import json, math; print(json.dumps([math.pi > 3, 2**100]))"],
        "",
        "[true, 1267650600228229401496703205376]\n",
    );
}

#[test]
fn python_has_threads_children_and_sockets() {
    let script = "
import os, subprocess, threading, socket, signal, tempfile, mmap, time, queue
q = queue.Queue()
ts = [threading.Thread(target=lambda i=i: q.put(i * i)) for i in range(8)]
[t.start() for t in ts]; [t.join() for t in ts]
print(sorted(q.get() for _ in ts))
print(subprocess.check_output(['/bin/echo', 'child']).decode().strip())
a, b = socket.socketpair(); a.send(b'hi'); print(b.recv(9))
s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()
t = threading.Thread(target=lambda: socket.create_connection(s.getsockname()).sendall(b'loop')); t.start()
c, _ = s.accept(); t.join(); print(c.recv(9))
got = []
signal.signal(signal.SIGALRM, lambda *_: got.append('alarm'))
signal.setitimer(signal.ITIMER_REAL, 0.02); signal.pause(); print(got)
with tempfile.TemporaryFile() as f:
    f.truncate(8192); m = mmap.mmap(f.fileno(), 8192); m[5000:5003] = b'abc'; m.flush()
    f.seek(5000); print(f.read(3)); f.seek(0); f.write(b'xyz'); f.flush(); print(m[:3]); m.close()
pid = os.fork()
if pid == 0: os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
try: open('/proc/1/mem')
except OSError as e: print(type(e).__name__)
";
    let out = "[0, 1, 4, 9, 16, 25, 36, 49]\nchild\nb'hi'\nb'loop'\n['alarm']\nb'abc'\nb'xyz'\n7\nFileNotFoundError\n";
    expect("python-more", &[PYTHON, "-c", script], "", out);
}

#[test]
fn python_has_a_loop_of_events_and_a_pool() {
    let script = "
import asyncio, multiprocessing
async def main():
    p = await asyncio.create_subprocess_exec('/bin/cat', stdin=-1, stdout=-1)
    out, _ = await p.communicate(b'through')
    await asyncio.sleep(0.01)
    print(out, p.returncode)
asyncio.run(main())
with multiprocessing.Pool(2) as pool: print(pool.map(abs, range(-3, 1)))
with multiprocessing.Manager() as m: l = m.list([1]); l.append(2); print(list(l))
import socket
s = socket.socket(socket.AF_UNIX); s.bind('\\0comb-name'); s.listen()
c = socket.socket(socket.AF_UNIX); c.connect('\\0comb-name'); a, _ = s.accept()
r, w = __import__('os').pipe()
socket.send_fds(c, [b'fd'], [w, 1]); got, fds, _, _ = socket.recv_fds(a, 9, 5)
__import__('os').write(fds[0], b'passed'); [__import__('os').close(f) for f in fds + [w]]
print(got, len(fds), __import__('os').read(r, 99), __import__('os').read(r, 99))
c.send(b'abstract'); print(a.recv(20), s.getsockname(), c.getpeername(), a.getsockname())
";
    expect(
        "python-loop",
        &[PYTHON, "-c", script],
        "",
        "b'through' 0\n[3, 2, 1, 0]\n[1, 2]\nb'fd' 2 b'passed' b''\nb'abstract' b'\\x00comb-name' b'\\x00comb-name' b'\\x00comb-name'\n",
    );
}

#[test]
fn a_compiler_makes_a_program_that_runs() {
    let script = "d=$(mktemp -d); cd $d; cat > h.c; gcc -O1 -o h h.c && ./h; r=$?; cd /; rm -r $d; exit $r";
    let source = "#include <stdio.h>\n#include <signal.h>\n#include <unistd.h>\nstatic volatile double kept;\n\
                  static void on(int s) { double x = s; kept = x * 1.5; }\n\
                  int main(void) { double y = getpid() * 0.0 + 2.25; signal(SIGUSR1, on); raise(SIGUSR1);\n\
                  printf(\"%.2f %.2f\\n\", y * 2, kept); return 0; }\n";
    if Path::new("/usr/bin/gcc").exists() {
        expect("gcc", &["/bin/sh", "-c", script], source, "4.50 15.00\n");
    }
}

/// Compiles a program of ours, runs it on the host and on the emulator, and compares what it says.
fn as_on_the_host(name: &str) {
    if !Path::new("/usr/bin/gcc").exists() {
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs_in_c").join(format!("{name}.c"));
    let program = std::env::temp_dir().join(format!("comb-unix-test-{}-{name}", std::process::id()));
    let built = std::process::Command::new("/usr/bin/gcc")
        .args(["-O1", "-w", "-pthread", "-o"])
        .args([&program, &source])
        .status()
        .expect("a compiler that runs");
    assert!(built.success());
    let path = program.to_str().expect("a plain name");
    // A group of its own, since the program sends signals to its group; on the emulator it has one anyway.
    let host = std::process::Command::new("/usr/bin/setsid")
        .args(["-w", path])
        .output()
        .expect("a program that runs");
    let ran = run(name, &[path], "");
    std::fs::remove_file(&program).expect("just made");
    let ran = ran.expect("it was just made");
    assert_eq!(ran.out, String::from_utf8_lossy(&host.stdout), "errors: {}", ran.error);
    assert_eq!(ran.status, ExitStatus::Exited(host.status.code().expect("it says how it ended")));
}

#[test]
fn signals_are_as_on_the_host() {
    as_on_the_host("signals");
}

#[test]
fn memory_is_as_on_the_host() {
    as_on_the_host("memory");
}

#[test]
fn threads_are_as_on_the_host() {
    as_on_the_host("threads");
}

#[test]
fn calls_that_make_no_sense_are_survived() {
    if !Path::new("/usr/bin/gcc").exists() {
        return;
    }
    let root = std::env::temp_dir().join(format!("comb-unix-test-{}-wild", std::process::id()));
    std::fs::create_dir_all(root.join("tmp")).expect("a temporary directory");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs_in_c/wild.c");
    let arguments = ["-O1", "-w", "-static", "-o"];
    let built = std::process::Command::new("/usr/bin/gcc")
        .args(arguments)
        .args([&root.join("wild"), &source])
        .status();
    assert!(built.expect("a compiler that runs").success());
    let out = temporary("wild-out");
    let copy = |file: &File| Some(OwnedFd::from(file.try_clone().expect("a copy")));
    // Other seeds can be tried by hand.
    let first = std::env::var("WILD_FIRST").unwrap_or_else(|_| "1".into());
    let count = std::env::var("WILD_COUNT").unwrap_or_else(|_| "25".into());
    let options = Options {
        root: root.clone(),
        working_directory: "/tmp".into(),
        arguments: vec!["/wild".into(), first.into(), count.into()],
        environment: Vec::new(),
        standard: [copy(&out), copy(&out), copy(&out)],
        swap: 0,
        sharing: None,
        signals: None,
    };
    let mut unix =
        Unix::new(Traced::new(2 << 30).expect("memory"), options).expect("a program that can be started");
    let status = unix.run();
    drop(unix);
    let _ = std::fs::remove_dir_all(&root);
    assert_eq!(status, ExitStatus::Exited(23));
}
