//! Programs in C, compiled as their users do: by cc and by c++, against comb.h and libcomb.so of this build.

#[path = "../../region/tests/conditions/mod.rs"]
mod conditions;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use comb_net::Agent;
use comb_net::agent::Limits;
use comb_net::agent::policy::SameUser;
use comb_net::agent::server::Server;
use comb_region::launch::{Launch, Outcome, Output};
use comb_region::named::home::{Home, HomeOptions};
use comb_region::named::{Ask, Mode, Wanted};
use comb_region::task::Share;
use conditions::wait_until;

/// For what takes seconds on an idle machine. A program that runs into this has failed.
const LIMIT: Duration = Duration::from_secs(300);

const LANGUAGES: [(&str, &[&str]); 2] = [
    ("cc", &["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]),
    ("c++", &["-x", "c++", "-std=c++11", "-pedantic", "-Wall", "-Wextra", "-Werror"]),
];

/// Beside this test is the library that was built with it. Cargo names other places first in this variable, and in them is one of an
/// earlier build.
const LIBRARIES_VARIABLE: &str = "LD_LIBRARY_PATH";

fn libraries() -> String {
    std::env::current_exe().unwrap().parent().unwrap().display().to_string()
}

/// Where programs of a test are, and what they write.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("comb-capi-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn compile(&self, source: &Path, (compiler, options): (&str, &[&str])) -> PathBuf {
        let program = self.0.join(format!("{}-{compiler}", source.file_stem().unwrap().display()));
        let libraries = libraries();
        let done = Command::new(compiler)
            .args(options)
            .arg(source)
            .args(["-I", concat!(env!("CARGO_MANIFEST_DIR"), "/include"), "-L", &libraries, "-lcomb", "-lm"])
            .arg(format!("-Wl,-rpath,{libraries}"))
            .arg("-o")
            .arg(&program)
            .output()
            .expect("a compiler");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        program
    }

    fn program(&self, name: &str, text: &str, language: (&str, &[&str])) -> PathBuf {
        let source = self.0.join(name);
        std::fs::write(&source, text).unwrap();
        self.compile(&source, language)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

fn launch(program: &Path, components: u32, share: Share) -> Launch {
    Launch::new(program)
        .environment(LIBRARIES_VARIABLE, libraries())
        .components(components)
        .share(share)
        .output(Output::Collected)
        .without_input()
        .limit(LIMIT)
}

fn run(launch: &Launch) -> Outcome {
    launch.start().unwrap().wait()
}

fn said(outcome: &Outcome) -> String {
    let of = |printed: &comb_region::launch::Printed| {
        [&printed.output[..], &printed.error].map(String::from_utf8_lossy).concat()
    };
    outcome.printed.iter().map(of).collect()
}

#[track_caller]
fn says(launch: &Launch, expected: &str) {
    let outcome = run(launch);
    assert!(outcome.is_success(), "{}", said(&outcome));
    assert_eq!(said(&outcome), expected);
}

/// Runs an example in both languages, alone and with others, by shared page frames and by copies.
fn everywhere(name: &str, expected: impl Fn(u32) -> String) {
    let directory = Directory::new(name);
    for language in LANGUAGES {
        let program = directory.compile(&example(name), language);
        for (components, share) in
            [(1, Share::Auto), (2, Share::Auto), (2, Share::Copy), (4, Share::Auto), (4, Share::Copy)]
        {
            says(&launch(&program, components, share), &expected(components));
        }
    }
}

#[test]
fn hello() {
    everywhere("hello.c", |count| {
        let sum = count * (count + 1) / 2;
        (0..count).map(|rank| format!("component {rank} of {count}: the sum is {sum}\n")).collect()
    });
}

#[test]
fn jacobi() {
    everywhere("jacobi.c", |_| "2000 steps, the last change 0.011016, in the middle 4.106806\n".to_owned());
}

#[test]
fn counter() {
    everywhere("counter.c", |count| format!("counted to {}\n", 200 * count));
}

#[test]
fn a_program_that_nobody_launched_is_a_task_of_its_own() {
    let directory = Directory::new("alone");
    let program = directory.compile(&example("hello.c"), LANGUAGES[0]);
    let done = Command::new(program).env(LIBRARIES_VARIABLE, libraries()).output().unwrap();
    assert!(done.status.success());
    assert_eq!(String::from_utf8_lossy(&done.stdout), "component 0 of 1: the sum is 1\n");
}

#[test]
fn the_numbers_of_the_header_are_those_of_the_library() {
    let mut names: Vec<(&str, usize)> = Vec::new();
    names.extend(comb::GUARDS.iter().enumerate().map(|(number, &(name, _))| (name, number)));
    names.extend(comb::SHARINGS.iter().enumerate().map(|(number, &(name, _))| (name, number)));
    names.extend(comb::PLACEMENTS.iter().enumerate().map(|(number, &(name, _))| (name, number)));
    names.extend(comb::COMBINES.iter().enumerate().map(|(number, &(name, _))| (name, number)));
    names.extend(comb::ATTACHING.iter().map(|&(name, number)| (name, number as usize)));
    let prints: String =
        names.iter().map(|(name, _)| format!("    printf(\"%d\\n\", (int){name});\n")).collect();
    let size = std::mem::size_of::<comb::CombTerms>();
    let text = format!(
        "#include <comb.h>\n#include <stdio.h>\nint main(void) {{\n{prints}    printf(\"%d\\n\", (int)sizeof(struct comb_terms));\n    return 0;\n}}\n"
    );
    let expected: String =
        names.iter().map(|(_, number)| *number).chain([size]).map(|number| format!("{number}\n")).collect();
    let directory = Directory::new("numbers");
    for language in LANGUAGES {
        let program = directory.program("numbers.c", &text, language);
        assert_eq!(
            String::from_utf8_lossy(
                &Command::new(program).env(LIBRARIES_VARIABLE, libraries()).output().unwrap().stdout
            ),
            expected
        );
    }
}

/// What a program does wrong is an error with a text, not a crash.
const MISTAKES: &str = r#"
#include <comb.h>
#include <stdio.h>
#include <string.h>

static int wrong = 0;

static void expect(int is_error, const char *words) {
    if (!is_error || strstr(comb_error(), words) == NULL) {
        printf("expected \"%s\", found \"%s\"\n", words, comb_error());
        wrong = 1;
    }
}

static void on_loss(void *address, const char *reason, int is_store) {
    printf("%p %s %d\n", address, reason, is_store);
}

int main(void) {
    struct comb_terms terms;
    uint64_t value = 3;
    unsigned ranks[4];
    void *memory;

    expect(comb_alloc(10, NULL) == NULL, "comb_init() comes first");
    expect(comb_lock(1) != 0, "comb_init() comes first");
    expect(comb_attach("r", 0, NULL) == NULL, "comb_init() comes first");
    if (comb_init() != 0 || comb_init() != 0) {
        return 1;
    }
    memset(&terms, 0, sizeof terms);
    expect(comb_alloc(0, &terms) == NULL, "a byte at least");
    expect(comb_alloc((size_t)-1, &terms) == NULL, "more than memory");
    terms.block_bytes = 100;
    expect(comb_alloc(10, &terms) == NULL, "a power of two");
    terms.block_bytes = 0;
    terms.sharing = (enum comb_sharing)7;
    expect(comb_alloc(10, &terms) == NULL, "no sharing 7");
    terms.sharing = COMB_STACHE;
    terms.guard = (enum comb_guard)2;
    expect(comb_alloc(10, &terms) == NULL, "no guard 2");
    terms.guard = COMB_PAGE;
    terms.placement = COMB_AT;
    terms.at = 50;
    expect(comb_alloc(10, &terms) == NULL, "no component 50");
    expect(comb_free(NULL) != 0, "is not the beginning");
    expect(comb_free(&value) != 0, "is not the beginning");
    expect(comb_objects(NULL) != 0 || comb_object(&value, 0) != NULL || comb_free(NULL) != 0, "");
    expect(comb_reduce((enum comb_combine)9, &value, 1) != 0, "no way 9");
    expect(comb_reduce(COMB_SUM, NULL, 1) != 0, "NULL");
    expect(comb_reduce(COMB_SUM, &value, 100000) != 0, "too many");
    expect(comb_unlock(5) != 0, "does not hold lock 0x5");
    expect(comb_wait(5, 1) != 0, "does not hold lock 0x5");
    if (comb_lock(5) != 0) {
        return 1;
    }
    expect(comb_lock(5) != 0, "holds lock 0x5 already");
    expect(comb_try_lock(5) != 0, "holds lock 0x5 already");
    expect(comb_wait(5, ~(uint64_t)0) != 0, "no condition");
    expect(comb_notify(5, ~(uint64_t)0, 1) != 0, "no condition");
    if (comb_unlock(5) != 0 || comb_read_lock(5) != 0) {
        return 1;
    }
    expect(comb_wait(5, 1) != 0, "held beside others");
    expect(comb_attach(NULL, 0, NULL) == NULL, "needs a name");
    expect(comb_attach("r", 4, NULL) == NULL, "knows no way 4");
    expect(comb_attach("../r", 0, NULL) == NULL, "no name for a region");
    expect(comb_detach(&value) != 0, "is not the beginning of a region");
    expect(comb_checkpoint() != 0, "no directory for checkpoints");
    memory = comb_alloc(10, NULL);
    if (memory == NULL || comb_free(memory) != 0 || comb_on_loss(on_loss) != 0 || comb_on_loss(NULL) != 0) {
        return 1;
    }
    comb_prefetch(NULL, 100, 1);
    comb_prefetch(&value, 100, 1);
    if (comb_push(NULL, 100, COMB_ALL) != 0 || comb_push(&value, 100, 4711) != 0 || comb_misses() != 0
        || comb_move_home(NULL, 100, 0) != 0 || comb_move_home(&value, 100, 0) != 0 || comb_home(&value) != COMB_ALL) {
        return 1;
    }
    comb_poll();
    comb_publish();
    if (comb_restored() || comb_dependencies(ranks, 4) != 0 || comb_dependencies(NULL, 0) != 0) {
        return 1;
    }
    comb_barrier();
    return wrong; /* a lock is held still */
}
"#;

/// Component 0 stores and offers; component 1 reads when what it has asked for must be there.
const PUSHED: &str = r#"
#include <comb.h>
#include <stdio.h>

enum { PAGES = 40, WORDS = 512 };

int main(void) {
    struct comb_terms terms = {4096, COMB_PAGE, COMB_STACHE, COMB_AT, 0, 0, 1};
    volatile uint64_t *numbers;
    uint64_t before, sum = 0;
    size_t moving;
    int index;
    if (comb_init() != 0) {
        return 1;
    }
    numbers = (volatile uint64_t *)comb_alloc_together(PAGES * WORDS * sizeof *numbers, &terms);
    if (numbers == NULL) {
        return 1;
    }
    if (comb_rank() == 0) {
        for (index = 0; index < PAGES; index++) {
            numbers[index * WORDS] = (uint64_t)index;
        }
        printf("%d blocks\n", (int)comb_push((const void *)numbers, PAGES * WORDS * sizeof *numbers, comb_count() == 1 ? 0 : 1));
        fflush(stdout);
    }
    comb_barrier(); /* offers come before it ... */
    comb_barrier(); /* ... and what was asked for then, before this one */
    before = comb_misses();
    for (index = 0; index < PAGES; index++) {
        sum += numbers[index * WORDS];
    }
    if (comb_rank() == 1) {
        printf("%d, %s\n", (int)sum, comb_misses() == before ? "without a miss" : "with misses");
        fflush(stdout);
    }
    comb_barrier();
    moving = comb_move_home((const void *)numbers, 3 * WORDS * sizeof *numbers, 1);
    if (moving > 0) {
        printf("%d on their way\n", (int)moving);
        while (comb_home((const void *)numbers) != 1) {
            comb_poll();
        }
    }
    comb_barrier();
    return sum == PAGES * (PAGES - 1) / 2 ? 0 : 1;
}
"#;

#[test]
fn what_was_pushed_is_not_missed() {
    let directory = Directory::new("pushed");
    for language in LANGUAGES {
        let program = directory.program("pushed.c", PUSHED, language);
        says(&launch(&program, 1, Share::Copy), "0 blocks\n");
        says(&launch(&program, 2, Share::Copy), "40 blocks\n3 on their way\n780, without a miss\n");
        says(&launch(&program, 2, Share::Auto), "0 blocks\n780, without a miss\n");
    }
}

#[test]
fn mistakes_are_errors_with_a_text() {
    let directory = Directory::new("mistakes");
    for language in LANGUAGES {
        let program = directory.program("mistakes.c", MISTAKES, language);
        says(&launch(&program, 1, Share::Auto), "");
    }
}

/// The others wait in a barrier for a component that has returned 3 from `main`.
#[test]
fn who_fails_ends_the_others_and_waits_for_none() {
    let text = r#"
#include <comb.h>
int main(void) {
    if (comb_init() != 0) {
        return 1;
    }
    if (comb_rank() == 1) {
        return 3;
    }
    comb_barrier();
    return 0;
}
"#;
    let directory = Directory::new("fails");
    let program = directory.program("fails.c", text, LANGUAGES[0]);
    let outcome = run(&launch(&program, 3, Share::Auto));
    assert_eq!(outcome.failed.as_ref().map(|end| end.rank), Some(1), "{outcome:?}");
    assert_eq!(outcome.status(), 3);
}

#[test]
fn a_program_that_was_killed_goes_on_from_its_checkpoint() {
    for share in [Share::Auto, Share::Copy] {
        let directory = Directory::new(&format!("checkpoint-{share:?}"));
        let program = directory.compile(&example("checkpoint.c"), LANGUAGES[0]);
        let files = directory.0.join("files");
        // More steps than it comes to.
        let running =
            launch(&program, 2, share).argument("1000000").checkpoint(&files, false).start().unwrap();
        let control = running.control();
        let current = || std::fs::read_to_string(files.join("current")).ok()?.trim().parse::<u64>().ok();
        wait_until("some checkpoints", || current().is_some_and(|number| number >= 5));
        control.signal(9);
        let outcome = running.wait();
        assert_eq!(outcome.status(), 128 + 9, "{outcome:?}");
        let reached = current().unwrap();
        let outcome =
            run(&launch(&program, 2, share).argument((reached + 3).to_string()).checkpoint(&files, true));
        let text = said(&outcome);
        assert!(outcome.is_success(), "{text}");
        assert!(text.starts_with(&format!("goes on at {reached}\nstep {}\n", reached + 1)), "{text}");
        assert!(text.ends_with(&format!("counted to {}, 0 wrong\n", reached + 3)), "{text}");
    }
}

/// An agent, and a home in this process.
struct Comb {
    directory: Directory,
    home: Option<Home>,
    _agent: Server,
}

impl Comb {
    fn new(name: &str) -> Self {
        let directory = Directory::new(name);
        let socket = directory.0.join("agent.sock");
        let agent = Server::bind(&socket, Box::new(SameUser), Limits::default()).unwrap();
        let cell = Agent::connect(&socket, "cell-1").unwrap();
        let options = HomeOptions {
            cell: 1,
            incarnation: 1,
            runtime: directory.0.clone(),
            keeper: None,
            published: None,
            others: None,
            most_bytes: None,
        };
        let home = Home::begin(&cell, options).unwrap();
        Self { directory, home: Some(home), _agent: agent }
    }

    fn create(&self, name: &str) {
        let wanted = Wanted {
            name: name.to_owned(),
            bytes: Some(100_000),
            block_bytes: 4096,
            migratory: false,
            mode: Mode::default(),
            sparse: false,
            from: None,
            parent: None,
            memory_home: None,
        };
        Ask::at(&self.directory.0, 1).unwrap().create(&wanted).unwrap();
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env(LIBRARIES_VARIABLE, libraries()).env("COMB_RUNTIME_DIR", &self.directory.0);
        command
    }
}

#[test]
fn memory_with_a_name_outlives_programs() {
    let comb = Comb::new("tally");
    comb.create("visits");
    let mut run = 0;
    for language in LANGUAGES {
        let program = comb.directory.compile(&example("tally.c"), language);
        for _ in 0..3 {
            run += 1;
            let done = comb.command(&program).arg("visits").output().unwrap();
            assert_eq!(String::from_utf8_lossy(&done.stdout), format!("run {run} of visits\n"), "{done:?}");
        }
        let done = comb.command(&program).arg("others").output().unwrap();
        assert!(String::from_utf8_lossy(&done.stderr).contains("there is no region others"), "{done:?}");
    }
}

/// Uses a region, waits for a line, and finds it lost.
const LOSER: &str = r#"
#include <comb.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

static sigjmp_buf back;

static void on_loss(void *address, const char *reason, int is_store) {
    (void)address;
    printf("%s: %s\n", is_store ? "store" : "load", reason);
    siglongjmp(back, 1);
}

int main(int count, char **arguments) {
    char line[8];
    size_t bytes = 0;
    uint64_t value = 0;
    volatile uint64_t *region;

    if (comb_init() != 0 || count < 2) {
        return 1;
    }
    region = (volatile uint64_t *)comb_attach("r", strcmp(arguments[1], "copies") == 0 ? COMB_BY_COPIES : 0, &bytes);
    if (region == NULL) {
        fprintf(stderr, "%s\n", comb_error());
        return 1;
    }
    region[3] = 7;
    if (comb_load(&value, (const void *)&region[3], sizeof value) != 0 || value != 7 || region[1000] != 0) {
        return 1;
    }
    value = 8;
    if (comb_store((void *)&region[3], &value, sizeof value) != 0 || region[3] != 8) {
        return 1;
    }
    printf("attached %d\n", (int)bytes);
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL) {
        return 1;
    }
    while (comb_load(&value, (const void *)&region[3], sizeof value) == 0) {
    }
    printf("%s\n", strstr(comb_error(), "is lost"));
    comb_on_loss(on_loss);
    if (sigsetjmp(back, 1) == 0) {
        printf("found %d\n", (int)region[3]);
    }
    if (sigsetjmp(back, 1) == 0) {
        region[5000] = 1;
        printf("stored\n");
    }
    printf("%d\n", comb_detach((void *)region));
    return 0;
}
"#;

#[test]
fn a_lost_region_is_an_error_or_a_signal_with_its_reason() {
    for (language, way) in LANGUAGES.into_iter().zip(["imports", "copies"]) {
        let mut comb = Comb::new(&format!("loser-{way}"));
        comb.create("r");
        let options = [language.1, &["-D_POSIX_C_SOURCE=200809L"]].concat();
        let program = comb.directory.program("loser.c", LOSER, (language.0, &options));
        let mut child =
            comb.command(&program).arg(way).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        output.read_line(&mut said).unwrap();
        assert_eq!(said, "attached 100000\n");
        comb.home = None;
        writeln!(child.stdin.take().unwrap()).unwrap();
        said.clear();
        output.read_to_string(&mut said).unwrap();
        let why = "cell 1 died, where it was homed";
        assert_eq!(said, format!("is lost: {why}\nload: {why}\nstore: {why}\n0\n"));
        assert!(child.wait().unwrap().success());
    }
}
