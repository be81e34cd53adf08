//! Programs give the same results under kernels that page for them as on the host.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use comb_kernel::client::Client;
use comb_kernel::objects::Sizes;
use comb_kernel::server::Server;
use comb_kernel::supervisor::Supervisor;
use comb_kernel::thread::Registers;
use comb_kernels::file_kernel::{FileKernel, Policy, Ran, run};
use comb_kernels::limit::Limit;
use comb_kernels::memory::{Anonymous, BackingError, Clock, FaultError, Paged, Resources, Rights};
use comb_kernels::processing::{Answer, Driver, End, Handler, Processors, RoundRobin, Stopped};
use comb_kernels::{database, mp3d, programs};
use proptest::prelude::*;

/// A directory of its own, gone at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let place = Self(std::env::temp_dir().join(format!("comb-kernels-{name}-{}", std::process::id())));
        fs::create_dir(&place.0).expect("a new directory");
        place
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a program says on the host.
fn native(program: &Path, arguments: &[&str]) -> String {
    // While another test forks, a program that was just written may be open for writing there, and cannot be executed.
    let output = loop {
        match Command::new(program).args(arguments).output() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
            output => break output.expect("programs run on the host"),
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn install(place: &Place, program: &[u8]) -> PathBuf {
    let path = place.file("program");
    fs::write(&path, program).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("it is ours");
    path
}

fn resources(groups: u32) -> Resources {
    Resources::alone(Sizes::default(), groups).expect("memory")
}

/// Runs a program on the host and under its kernel, on files that are the same, and compares all.
fn compare(
    name: &str,
    program: &[u8],
    made: [&str; 2],
    rest: &[&str],
    policy: Policy,
    resources: Resources,
) -> Ran {
    let place = Place::new(name);
    let path = install(&place, program);
    let [ours, theirs] = ["ours", "theirs"].map(|name| place.file(name));
    native(&path, &[made[0], ours.to_str().expect("text"), made[1]]);
    fs::copy(&ours, &theirs).expect("a copy");
    let arguments = |file: &Path| -> Vec<String> {
        let file = file.to_str().expect("text").to_owned();
        ["run".to_owned(), file].into_iter().chain(rest.iter().map(ToString::to_string)).collect()
    };
    let on_host = arguments(&theirs);
    let expected = native(&path, &on_host.iter().map(String::as_str).collect::<Vec<_>>());
    let here = arguments(&ours);
    let here: Vec<&str> = std::iter::once(name).chain(here.iter().map(String::as_str)).collect();
    let ran = run(program, &here, &ours, policy, resources).expect("it runs");
    assert!(matches!(ran.end, End::Exit(0)), "{}: {}", ran.end, String::from_utf8_lossy(&ran.output[1]));
    assert_eq!(String::from_utf8_lossy(&ran.output[0]), expected);
    assert!(fs::read(&ours).expect("a file") == fs::read(&theirs).expect("a file"), "the files differ");
    ran
}

#[test]
fn a_simulation_that_is_larger_than_memory_gives_the_same_result() {
    // 3,750 pages of molecules and 513 others, in 2,560 frames.
    let made = ["make", "240000"];
    let ran = compare("mp3d", programs::MP3D, made, &["4", "0"], mp3d::policy(), resources(20));
    // A policy that did not know what is needed last would read all molecules in each of four steps.
    let all = 4 * 3750 + 513;
    assert!(ran.counts.read < all * 85 / 100, "{:?}", ran.counts);
}

/// Where molecules are in the file changes nothing but how long it takes (Cache Kernel §5.2).
#[test]
fn a_simulation_gives_the_same_result_wherever_its_molecules_are() {
    let place = Place::new("scattered");
    let path = install(&place, programs::MP3D);
    // Neither pages nor groups of four or seven are full at the end.
    let mut said = ["0", "1", "4", "7", "1000"].map(|pages| {
        let file = place.file(pages);
        let text = file.to_str().expect("text");
        native(&path, &["make", text, "3001", pages]);
        let content = fs::read(&file).expect("a file");
        let ran = run(programs::MP3D, &["mp3d", "run", text, "3", "0"], &file, mp3d::policy(), resources(8));
        let ran = ran.expect("it runs");
        assert!(matches!(ran.end, End::Exit(0)), "{}", ran.end);
        (ran.output[0].clone(), content)
    });
    assert!(said.iter().all(|(result, _)| *result == said[0].0 && result.len() == 17));
    said.sort_by(|(_, a), (_, b)| a.cmp(b));
    assert!(said.windows(2).all(|pair| pair[0].1 != pair[1].1), "two of them are the same");
}

#[test]
fn a_table_that_is_larger_than_memory_gives_the_same_result() {
    // 8,192 pages of leaves in 4,096 frames.
    let made = ["make", "8192"];
    let ran =
        compare("database", programs::DATABASE, made, &["4", "64", "0"], database::policy(), resources(32));
    let all = 4 * 8192;
    assert!(ran.counts.read < all * 85 / 100, "{:?}", ran.counts);
}

/// With so few places a mapping is written back before its page goes, and what was modified is known by that alone.
#[test]
fn mappings_that_the_cache_kernel_has_no_room_for_change_nothing() {
    let sizes = Sizes { mappings: 200, ..Sizes::default() };
    let resources = Resources::alone(sizes, 4).expect("memory");
    let made = ["make", "1000"];
    let ran = compare("mappings", programs::DATABASE, made, &["2", "8", "0"], database::policy(), resources);
    assert!(ran.counts.written > 0, "{:?}", ran.counts);
}

/// The same kernel elsewhere: it asks over a counter, and has the memory that it was granted by descriptors.
#[test]
fn a_kernel_whose_supervisor_is_elsewhere_pages_as_well() {
    let (told, tells) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        let (supervisor, first) = Supervisor::new(Sizes::default(), 8).expect("memory");
        let mut server = Server::new(supervisor);
        told.send(server.open(first).expect("it is loaded")).expect("somebody waits");
        server.run(0);
    });
    let client = Client::new(tells.recv().expect("it is opened"), 0).expect("it is there");
    let resources = Resources::new(Box::new(client));
    let made = ["make", "2000"];
    compare("elsewhere", programs::DATABASE, made, &["2", "32", "0"], database::policy(), resources);
    server.join().expect("it has nobody to serve");
}

fn end_of(name: &str, policy: impl FnOnce(&Path) -> Policy) -> End {
    let place = Place::new(name);
    let program = install(&place, programs::MP3D);
    let file = place.file("file");
    let text = file.to_str().expect("text");
    native(&program, &["make", text, "30000"]);
    let policy = policy(&file);
    run(programs::MP3D, &["mp3d", "run", text, "1", "0"], &file, policy, resources(4)).expect("it runs").end
}

#[test]
fn a_file_that_becomes_shorter_ends_its_program_and_says_where() {
    let end = end_of("shorter", |path| {
        let (path, mut policy) = (path.to_owned(), mp3d::policy());
        Box::new(move |file| {
            let chosen = policy(file)?;
            // Between the moment in which it was mapped and that in which it is read.
            let file = fs::OpenOptions::new().write(true).open(&path).expect("the file");
            file.set_len(600 * 4096 + 1).expect("it is ours");
            Ok(chosen)
        })
    });
    let End::Fault { error: FaultError::Backing(BackingError::Ended { page, .. }), .. } = &end else {
        panic!("{end}")
    };
    assert_eq!(*page, 600);
    assert!(end.to_string().ends_with("file ends before page 600"), "{end}");
}

#[test]
fn a_file_of_another_kind_is_not_mapped() {
    let end = end_of("other", |_| database::policy());
    assert!(matches!(end, End::Exit(1)), "{end}");
}

/// Makes a call with what its registers have, as long as its kernel lets it.
const CALLS: &[u8] = &[0x0f, 0x05, 0xeb, 0xfc];

/// Hands calls on, with other registers each time.
struct Strange {
    kernel: FileKernel,
    left: Vec<[u64; 7]>,
}

impl Handler for Strange {
    fn call(&mut self, stopped: &mut Stopped<'_>) -> Answer {
        let Some([rax, rdi, rsi, rdx, r10, r8, r9]) = self.left.pop() else { return Answer::Leaves };
        let asked = Registers { rax, rdi, rsi, rdx, r10, r8, r9, ..stopped.registers };
        stopped.registers = asked;
        match self.kernel.call(stopped) {
            Answer::Returns(_) | Answer::Ends(End::Exit(_)) => Answer::GoesOn,
            answer => answer,
        }
    }
}

fn word() -> impl Strategy<Value = u64> {
    let file = 0x10_0000 * 4096_u64;
    prop_oneof![
        0..10_u64,
        Just(0x40_0000),
        Just(file),
        (0..10_000_u64).prop_map(move |offset| file + offset),
        Just(9 * 4096),
        any::<u64>(),
    ]
}

fn call() -> impl Strategy<Value = [u64; 7]> {
    let number = prop_oneof![Just(1), Just(2), Just(8), Just(9), Just(26), Just(28), Just(231), any::<u64>()];
    (number, [word(), word(), word(), word(), word(), word()])
        .prop_map(|(number, [a, b, c, d, e, f])| [number, a, b, c, d, e, f])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever a program calls with, its kernel answers, and goes on until the program ends.
    #[test]
    fn calls_that_make_no_sense_are_answered(left in proptest::collection::vec(call(), 1..40)) {
        let place = Place::new(&format!("strange-{:?}", std::thread::current().id()));
        let file = place.file("file");
        fs::write(&file, vec![7; 9 * 4096]).expect("a file");
        let mut driver = Driver::new(resources(2), Box::new(RoundRobin::default()), Processors::Own);
        let space = driver.add_space();
        let (segments, _) = driver.space(space).expect("just added");
        // Behind its code is the file's name, so that it can open it.
        let bytes = [CALLS, file.as_os_str().as_encoded_bytes(), &[0]].concat();
        let code = Anonymous::new(1, bytes, &place.0).expect("a file");
        let code = Paged::new(Arc::new(code), Box::new(Clock::default()), 1);
        segments.add(0x400, Rights { write: false, execute: true }, Box::new(code)).expect("there is room");
        driver.add_thread(space, Registers { rip: 0x40_0000, ..Registers::default() }, 0);
        // It is popped from the end.
        let mut left = left;
        left.push([2, 0x40_0000 + CALLS.len() as u64, 0, 0, 0, 0, 0]);
        let policy: Policy = Box::new(|_| Ok(Box::new(Clock::default())));
        let kernel = FileKernel::new(file, policy, 4);
        let ended = driver.run(&mut Strange { kernel, left }).expect("it runs");
        prop_assert!(matches!(ended[&space], End::LastThread), "{}", ended[&space]);
    }
}

/// A process that has less memory than it uses is ended by the host, as any other limit would not do.
#[test]
fn a_limit_holds() {
    let Ok(limit) = Limit::new("test", 8 << 20) else { return };
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ > \"$0\" && exec head -c 64m /dev/zero | tail"]).arg(limit.members());
    let output = command.output().expect("a shell");
    assert!(!output.status.success(), "{output:?}");
}
