//! Programs give the same results under kernels that page for them as on the host.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use comb_kernel::objects::Sizes;
use comb_kernels::file_kernel::{Policy, Ran, run};
use comb_kernels::memory::{BackingError, FaultError, Resources};
use comb_kernels::processing::End;
use comb_kernels::{database, mp3d, programs};

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
    let output = Command::new(program).args(arguments).output().expect("programs run on the host");
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
