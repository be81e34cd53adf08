//! `comb kernel run` as its users have it: unmodified programs, what they may reach, and what is said when something is wrong.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A folder of its own, gone at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("comb-kernel-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn comb(&self, options: &[&str], program: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_comb"));
        command.args(["kernel", "run"]).args(options).arg("--").args(program);
        command.current_dir(&self.0).stdin(Stdio::null()).env("COMB_CONFIG", "/dev/null");
        command
    }

    /// What a program writes, and how it ends, over the emulator.
    #[track_caller]
    fn run(&self, program: &[&str]) -> Output {
        self.comb(&["--list-unsupported"], program).output().unwrap()
    }

    /// As [`Self::run`]: it ends well.
    #[track_caller]
    fn says(&self, program: &[&str]) -> String {
        let output = self.run(program);
        assert!(output.status.success(), "{program:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A program of these lines of C.
    fn compiled(&self, name: &str, options: &[&str], source: &str) -> String {
        let path = self.0.join(name);
        let text = path.with_extension("c");
        fs::write(&text, source).unwrap();
        let compiled = Command::new("cc")
            .args(["-O1", "-pthread"])
            .args(options)
            .arg(&text)
            .arg("-o")
            .arg(&path)
            .status();
        assert!(compiled.unwrap().success(), "{source}");
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const HELLO: &str = r#"
#include <stdio.h>
int main(int count, char **words) { printf("hello %d %s\n", count, words[1]); return 7; }
"#;

#[test]
fn static_and_dynamic_programs_run_and_say_how_they_ended() {
    let place = Place::new("hello");
    for (name, options) in [("static", &["-static"][..]), ("static-pie", &["-static-pie"]), ("dynamic", &[])]
    {
        let program = place.compiled(name, options, HELLO);
        let output = place.run(&[&program, "you"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "hello 2 you\n", "{name}: {output:?}");
        assert_eq!(output.status.code(), Some(7), "{name}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{name}");
    }
}

#[test]
fn a_shell_has_pipes_children_and_files() {
    let place = Place::new("shell");
    let said = place.says(&[
        "/bin/sh",
        "-c",
        "for i in 3 1 2; do echo $i; done | sort | tr '\\n' ' '; echo a >f; cat f; (exit 5); echo $?",
    ]);
    assert_eq!(said, "1 2 3 a\n5\n");
    assert_eq!(fs::read_to_string(place.0.join("f")).unwrap(), "a\n");
    let said = place.says(&[
        "/bin/sh",
        "-c",
        "x=$(echo deep | (read y; echo $y | cat)); echo $x; cd /; pwd; test -e /proc/self/exe && echo there",
    ]);
    assert_eq!(said, "deep\n/\nthere\n");
}

#[test]
fn threads_forks_and_signals_work_as_on_the_host() {
    let place = Place::new("threads");
    let program = place.compiled(
        "many",
        &[],
        r#"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long sum;
static volatile sig_atomic_t came;
static void *add(void *argument) {
    for (long i = 0; i < 10000; i++) { pthread_mutex_lock(&lock); sum += (long)argument; pthread_mutex_unlock(&lock); }
    return NULL;
}
static void handle(int signal, siginfo_t *about, void *context) { (void)context; came = signal * 100 + about->si_value.sival_int; }
int main(void) {
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, add, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    printf("%ld\n", sum);
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR2, &action, NULL);
    sigqueue(getpid(), SIGUSR2, (union sigval){.sival_int = 7});
    printf("%d\n", (int)came);
    char *shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *own = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(own, "parent");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) { strcpy(shared, own); strcpy(own, "child"); shared[4096] = own[0]; raise(SIGKILL); }
    int status;
    waitpid(child, &status, 0);
    printf("%s %s %c %d\n", shared, own, shared[4096], WTERMSIG(status));
    double value = 1.5;
    for (int i = 0; i < 3; i++) { if (fork() == 0) { value *= i; _exit((int)value); } }
    int all = 0;
    while (wait(&status) > 0) all += WEXITSTATUS(status);
    printf("%d %.1f\n", all, value);
    fflush(stdout);
    *(volatile int *)8 = 1;
}
"#,
    );
    let output = place.run(&[&program]);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "60000\n1207\nparent parent c 9\n4 1.5\n",
        "{output:?}"
    );
    assert_eq!(output.status.code(), Some(128 + 11));
}

#[test]
fn programs_of_others_do_what_they_do_on_the_host() {
    let place = Place::new("others");
    fs::write(place.0.join("one.c"), "int one(int x) { return x + 1; }\n").unwrap();
    let programs: [&[&str]; 6] = [
        &[
            "busybox",
            "sh",
            "-c",
            "seq 1 200 | grep 7 | sort -rn | sed 's/7/seven/g' | head -n 5; expr 6 '*' 7; printf '%05d\\n' 42",
        ],
        &[
            "sqlite3",
            ":memory:",
            "create table t(a,b); with recursive c(x) as (select 1 union all select x+1 from c where x<1000) insert into t select x, x*x from c; select count(*), sum(b) from t;",
        ],
        &[
            "python3",
            "-c",
            "import json,subprocess,threading; t=threading.Thread(target=lambda: print('thread')); t.start(); t.join(); print(json.dumps(sorted({'b':1,'a':[2.5]}))); print(subprocess.run(['echo','child'],capture_output=True,text=True).stdout)",
        ],
        &["cc", "-O2", "-S", "one.c", "-o", "-"],
        &["tar", "-cf", "-", "--mtime=@0", "one.c"],
        &["find", "/usr/include/linux", "-name", "f*.h"],
    ];
    for program in programs {
        let native = Command::new(program[0]).args(&program[1..]).current_dir(&place.0).output().unwrap();
        assert!(native.status.success(), "{program:?}: {native:?}");
        let output = place.run(program);
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            String::from_utf8_lossy(&native.stderr),
            "{program:?}"
        );
        assert!(output.stdout == native.stdout, "{program:?}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn nothing_outside_the_root_is_there() {
    let place = Place::new("root");
    let root = place.0.join("root");
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::write(place.0.join("secret"), "secret\n").unwrap();
    std::os::unix::fs::symlink("/secret", root.join("absolute")).unwrap();
    std::os::unix::fs::symlink("../secret", root.join("relative")).unwrap();
    fs::write(root.join("own"), "own\n").unwrap();
    let busybox = Command::new("sh").args(["-c", "cat $(command -v busybox)"]).output().unwrap().stdout;
    fs::write(root.join("bin/busybox"), busybox).unwrap();
    let made = Command::new("chmod").arg("755").arg(root.join("bin/busybox")).status().unwrap();
    assert!(made.success());
    let script = "busybox cat /own; for f in /absolute /relative /../secret ../secret; do busybox cat $f; done; busybox kill -9 1; busybox ls /";
    let options = ["--root", root.to_str().unwrap(), "-e", "PATH=/bin"];
    let output = place.comb(&options, &["busybox", "sh", "-c", script]).output().unwrap();
    let (said, mistakes) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(said.starts_with("own\n") && !said.contains("secret"), "{said} {mistakes}");
    assert_eq!(mistakes.matches("No such file or directory").count(), 4, "{mistakes}");
    assert!(said.contains("absolute\n") && said.contains("bin\n"), "{said}");
}

#[test]
fn what_a_user_says_to_it_reaches_the_program() {
    let place = Place::new("signal");
    let mut child = place
        .comb(
            &[],
            &["/bin/sh", "-c", "trap 'echo told; exit 3' TERM; echo ready; while :; do sleep 0.05; done"],
        )
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let told = Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(told.success());
    assert_eq!(lines.next().unwrap().unwrap(), "told");
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn input_is_the_programs() {
    let place = Place::new("input");
    let mut child =
        place.comb(&[], &["wc", "-c"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for _ in 0..100 {
        input.write_all(&[b'x'; 1000]).unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "100000");
}

#[test]
fn nothing_is_left_when_it_is_killed() {
    let place = Place::new("killed");
    let mut child = place
        .comb(&[], &["/bin/sh", "-c", "sleep 1000 & sleep 1000 & echo ready; wait"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let children = descendants(child.id());
    assert!(children.len() >= 3, "{children:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    let since = Instant::now();
    while children.iter().any(|process| is_alive(*process)) {
        assert!(since.elapsed() < Duration::from_secs(20), "{children:?} are left");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn programs_that_attack_what_is_below_them_end_alone() {
    let place = Place::new("hostile");
    let hostile = place.compiled(
        "hostile",
        &["-static"],
        r#"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static void call(long number, long argument) {
    __asm__ volatile("syscall" : "+a"(number) : "D"(argument), "S"(argument), "d"(argument) : "rcx", "r11", "memory");
}
int main(int count, char **words) {
    char *stub = (char *)0x700000000000;
    char *areas = stub + 0x10000000;
    int way = atoi(words[1]);
    (void)count;
    switch (way) {
    case 0: memset(areas, 0xff, 4096); getpid(); break;                          // its own thread's area
    case 1: memset(stub + 0x20000, 0xff, 4096); fork(); fork(); break;           // the mapper's results
    case 2: memset(stub + 0x30000, 0xff, 4096); getpid(); break;                 // the bell
    case 3: memset(areas + 4096, 0xff, 0x7000); getpid(); break;                 // its stack for signals
    case 4: memset(stub, 0, 1); break;                                           // the code
    case 5: memset(stub + 0x10000, 0, 1); break;                                 // the orders
    case 6: for (int i = 0; i < 4096; i++) { if (vfork() == 0) { ((void (*)(void))(stub + i))(); _exit(0); } } break;
    case 7: __asm__ volatile("mov $0, %rsp; mov $15, %eax; syscall"); break;
    case 8: __asm__ volatile("int $0x80" : : "a"(20)); break;
    case 9: for (long number = 0; number < 700; number++) if (number != 60 && number != 231 && number != 34 && number != 0 && number != 61 && number != 247 && number != 15 && number != 130 && number != 219) call(number, -1); break;
    case 10: {                                                                   // code that writes itself
        unsigned char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (int i = 0; i < 2000; i++) { code[0] = 0x0f; code[1] = 0x05; code[2] = 0xc3; ((long (*)(void))code)(); code[0] = 0x90; code[1] = 0x90; ((long (*)(void))code)(); }
        break; }
    case 11: munmap(stub, 0x20000000); mmap(stub, 4096, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); getpid(); break;
    case 12: for (long i = 0; i < 300000; i++) if (mmap(0, 1l << 46, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED) break; break;
    }
    puts("went on");
    return 0;
}
"#,
    );
    for way in 0..=12 {
        let script = format!(
            "{hostile} {way} >/dev/null 2>&1 & seq 1 300 | (while read x; do last=$x; done; echo $last); echo other; wait; echo end"
        );
        let mut child = place
            .comb(&["--memory", "256M"], &["/bin/sh", "-c", &script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let since = Instant::now();
        while child.try_wait().unwrap().is_none() {
            assert!(since.elapsed() < Duration::from_secs(60), "way {way} does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "300\nother\nend\n", "way {way}: {output:?}");
        println!("way {way}: {:?}", since.elapsed());
    }
}

/// All processes whose parent, or parent's parent, this one is.
fn descendants(process: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    children.split_whitespace().map(|child| child.parse().unwrap()).collect()
}

fn is_alive(process: u32) -> bool {
    let state =
        fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat")).unwrap_or_default();
    state
        .rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with(['Z', 'X']))
}

#[test]
fn what_cannot_be_run_is_said() {
    let place = Place::new("mistakes");
    let cases: [(&[&str], &[&str], &str); 5] = [
        (
            &["--memory", "48M"],
            &["python3", "-c", "x = bytearray(200000000)"],
            "programs wanted more than the 48",
        ),
        (
            &[],
            &["/nowhere/program"],
            "/nowhere/program: the program cannot be run: No such file or directory",
        ),
        (&["--root", "/nowhere"], &["/bin/true"], "/nowhere"),
        (&["--memory", "much"], &["/bin/true"], "such as 512M"),
        (&["--directory", "/nowhere"], &["/bin/true"], "working directory"),
    ];
    for (options, program, wanted) in cases {
        let output = place.comb(options, program).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(wanted), "{options:?} {program:?}: {said}");
    }
}

#[test]
fn programs_run_over_ptrace_alone_as_well() {
    let place = Place::new("ptrace");
    let script = "for i in 1 2 3; do echo $i | sed s/2/two/; done; exit 7";
    let output = place.comb(&["--ptrace", "--swap", "0"], &["sh", "-c", script]).output().unwrap();
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(7), &b"1\ntwo\n3\n"[..]),
        "{output:?}"
    );
    let words = "with open('/dev/zero', 'rb') as zero: blocks = [zero.read(1 << 20) for _ in range(64)]";
    let output = place.comb(&["--ptrace", "--memory", "24M"], &["python3", "-c", words]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("programs wanted more than the 24 MiB"), "{output:?}");
}

#[test]
fn idle_programs_give_way_to_others_and_come_back() {
    let place = Place::new("idle");
    // Each has 24 MiB, and looks at all of it again when the other has had its turn.
    let program = "import os, sys\n\
        me, mine = sys.argv[1], bytearray(24 << 20)\n\
        for page in range(0, len(mine), 4096): mine[page:page + 4] = (page ^ int(me)).to_bytes(4, 'little')\n\
        print('has', flush=True); sys.stdin.readline()\n\
        good = all(mine[page:page + 4] == (page ^ int(me)).to_bytes(4, 'little') for page in range(0, len(mine), 4096))\n\
        print(me, good, flush=True)\n";
    fs::write(place.0.join("has.py"), program).unwrap();
    // Each waits until the other has filled its own; then both look.
    let script = "mkfifo one two\n\
        python3 has.py 1 < one > first & exec 3> one\n\
        until grep -q has first; do sleep 0.05; done\n\
        python3 has.py 2 < two > second & exec 4> two\n\
        until grep -q has second; do sleep 0.05; done\n\
        echo >&3; until grep -q 1 first; do sleep 0.05; done\n\
        echo >&4; wait; cat first second";
    let output = place.comb(&["--memory", "48M", "--swap", "64M"], &["sh", "-c", script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "has\n1 True\nhas\n2 True\n", "{output:?}");
}

/// What all cells that share a board are told.
fn sharing<'a>(meeting: &'a str, cells: &'a str) -> [&'a str; 6] {
    ["--share", "board=64K", "--cells", cells, "--meet", meeting]
}

fn piped(command: &mut Command) -> std::process::Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn programs_of_two_cells_share_what_they_map() {
    let place = Place::new("sharing");
    let program = place.compiled("adds", &["-w"], include_str!("../../unix/tests/programs_in_c/sharing.c"));
    let meeting = place.0.join("meeting").to_str().unwrap().to_owned();
    let words = [program.as_str(), "/board", "2", "500"];
    let cells = [(); 2].map(|()| piped(&mut place.comb(&sharing(&meeting, "2"), &words)));
    for cell in cells {
        let output = cell.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "2000 2000 0\n", "{output:?}");
        assert!(output.status.success());
    }
}

#[test]
fn what_a_killed_cell_had_alone_is_lost_and_nothing_else() {
    let place = Place::new("outliving");
    let program = place.compiled("lives", &["-w"], include_str!("../../unix/tests/programs_in_c/sharing.c"));
    let meeting = place.0.join("meeting");
    let directory = meeting.to_str().unwrap();
    let mut first = piped(&mut place.comb(&sharing(directory, "2"), &[&program, "/board", "2", "1", "0"]));
    while !meeting.join("cell-0.socket").exists() {
        assert!(first.try_wait().unwrap().is_none(), "it has ended: {:?}", first.wait_with_output());
        std::thread::sleep(Duration::from_millis(5));
    }
    // Whoever says something else is told so, and does no harm.
    let mut other = place.comb(&["--share", "board=128K", "--cells", "1", "--meet", directory], &["true"]);
    let output = other.output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("all 1 cells are there already"), "{said}");
    let mut second = piped(&mut place.comb(&sharing(directory, "2"), &[&program, "/board", "2", "1", "1"]));
    let mut out = first.stdout.take().unwrap();
    let mut waits = [0; 6];
    std::io::Read::read_exact(&mut out, &mut waits).unwrap();
    assert_eq!(&waits, b"waits\n");
    second.kill().unwrap();
    second.wait().unwrap();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut out, &mut rest).unwrap();
    assert_eq!(rest, "lost 1, here 7, counted 3\n");
    let output = first.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("cell 1 has died"), "{output:?}");
}
