//! Processor time as programs see it, on both machines. Passed over where there is no Python.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::OwnedFd;
use std::path::Path;

use comb_kernel::calls::Direct;
use comb_kernel::objects::Sizes;
use comb_kernel::supervisor::Supervisor;
use comb_unix::supervised::Supervised;
use comb_unix::traced::Traced;
use comb_unix::{ExitStatus, Machine, Options, Unix};

const PYTHON: &str = "/usr/bin/python3";

/// Sleeps, computes by itself, in threads, and in a child: each as long as its own clock says.
const SCRIPT: &str = "
import os, resource, threading, time
before = time.process_time()
time.sleep(0.3)
print(time.process_time() - before < 0.15)

def computes(clock, seconds):
    begin = clock()
    while clock() - begin < seconds: pass

computes(time.process_time, 0.05)
before = time.process_time()
threads = [threading.Thread(target=computes, args=(time.thread_time, 0.03)) for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(time.process_time() - before >= 0.09)
own = time.process_time()
child = os.fork()
if child == 0:
    begins_at_zero = time.process_time() < own
    computes(time.process_time, 0.05)
    os._exit(0 if begins_at_zero else 1)
_, status, usage = os.wait4(child, 0)
print(status, usage.ru_utime >= 0.05, usage.ru_utime < own + 0.05)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime == usage.ru_utime, os.times().children_user >= 0.05)
fields = open('/proc/self/stat').read().rsplit(')', 1)[1].split()
print(int(fields[11]) >= own * 100 - 1, int(fields[13]) >= 5)
print(resource.getrusage(resource.RUSAGE_SELF).ru_utime >= own)
print(time.clock_gettime(time.pthread_getcpuclockid(threading.get_ident())) <= time.process_time())
";

const SAID: &str = "True\nTrue\n0 True True\nTrue True\nTrue True\nTrue\nTrue\n";

fn says_what_it_used(name: &str, machine: impl Machine) {
    let path = std::env::temp_dir().join(format!("comb-unix-clocks-{}-{name}", std::process::id()));
    let mut out = File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
    std::fs::remove_file(&path).expect("just made");
    let copy = || Some(OwnedFd::from(out.try_clone().expect("a copy")));
    let null = File::open("/dev/null").expect("there is one");
    let options = Options {
        root: "/".into(),
        working_directory: "/tmp".into(),
        arguments: [PYTHON, "-c", SCRIPT].iter().map(Into::into).collect(),
        environment: ["PATH=/usr/bin:/bin", "LANG=C.UTF-8"].iter().map(Into::into).collect(),
        standard: [Some(null.into()), copy(), copy()],
        swap: 0,
        sharing: None,
        signals: None,
    };
    let status = Unix::new(machine, options).expect("a program that can be started").run();
    let mut text = String::new();
    out.rewind().expect("a regular file");
    out.read_to_string(&mut text).expect("text");
    assert_eq!((status, text.as_str()), (ExitStatus::Exited(0), SAID));
}

#[test]
fn traced_programs_see_what_they_used() {
    if Path::new(PYTHON).exists() {
        says_what_it_used("traced", Traced::new(1 << 30).expect("memory"));
    }
}

/// With so few places its threads are written back again and again, and what they used with them.
#[test]
fn programs_on_a_cache_kernel_see_what_they_used() {
    if Path::new(PYTHON).exists() {
        let sizes = Sizes { threads: 2, spaces: 2, ..Sizes::default() };
        let (supervisor, kernel) = Supervisor::new(sizes, 512).expect("memory");
        says_what_it_used("supervised", Supervised::new(Direct::new(supervisor, kernel), sizes, 0));
    }
}
