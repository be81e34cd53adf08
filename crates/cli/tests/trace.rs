//! `comb trace` as its users have it: recordings, what is read of them, and what is said when something is wrong.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A folder of its own, gone at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("comb-trace-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn comb(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_comb"));
        command
            .arg("trace")
            .args(arguments)
            .current_dir(&self.0)
            .stdin(Stdio::null())
            .env("COMB_CONFIG", "/dev/null");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.comb(arguments).output().unwrap()
    }

    #[track_caller]
    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What it says of a failure, with its exit status.
    #[track_caller]
    fn fails(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap_or_else(|| panic!("{said}")), said)
    }

    /// The only recording in a folder.
    fn recording(&self, folder: &str) -> PathBuf {
        let entries = fs::read_dir(self.0.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        let mut found: Vec<PathBuf> =
            entries.filter(|path| path.extension().is_some_and(|ending| ending == "trace")).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    fn operations(&self, arguments: &[&str]) -> Vec<Value> {
        let said = self.ok(&[&["show", "--json"], arguments].concat());
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The ways that work here. Where the kernel's does not, the tests say so.
fn mechanisms() -> Vec<&'static str> {
    match comb_trace::kernel::Kernel::attach(false) {
        Ok(_) => vec!["kernel", "preload"],
        Err(reason) => {
            println!("skipped for the kernel's way: {reason}");
            vec!["preload"]
        }
    }
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

#[test]
fn a_command_is_recorded_shown_and_reported_on() {
    let place = Place::new("whole");
    for mechanism in mechanisms() {
        let folder = format!("by-{mechanism}");
        fs::write(place.path("old"), "something that is read\n").unwrap();
        let script = "cat old > new; mv new newer; rm newer; cat nothing; exit 7";
        let output =
            place.run(&["record", "--mechanism", mechanism, "--to", &folder, "--", "sh", "-c", script]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(7), "the command's own status: {said}");
        assert!(said.contains(" events in ") && said.contains(", 0 lost: "), "{said}");
        let here = place.0.to_str().unwrap();
        // Some a cat reads, some has the kernel copy.
        let read =
            place.operations(&[&folder, "--path", &format!("{here}/old"), "--operations", "read,transfer"]);
        let moved: u64 = read.iter().map(|one| one["moved"].as_u64().unwrap()).sum();
        assert_eq!((moved, read[0]["process"].as_str()), (23, Some("cat")), "{mechanism}: {read:?}");
        let failed = place.operations(&[&folder, "--failed", "--path", &format!("{here}/nothing")]);
        assert_eq!(
            (failed[0]["operation"].as_str(), failed[0]["error"].as_u64()),
            (Some("open"), Some(2)),
            "{failed:?}"
        );
        // A rename is of what it is called afterwards.
        for (operation, path) in [("rename", "newer"), ("delete", "newer")] {
            let done =
                place.operations(&[&folder, "--operations", operation, "--path", &format!("{here}/{path}")]);
            assert_eq!(done.len(), 1, "{mechanism}, {operation}: {done:?}");
        }
        let text = place.ok(&["report", &folder, "--by", "process"]);
        let page = fs::read_to_string(place.path(&format!("{folder}/report/index.html"))).unwrap();
        assert!(text.contains("index.html") && page.contains("Figure 9.14") && page.contains("By process"));
        let report: Value =
            serde_json::from_slice(&fs::read(place.path(&format!("{folder}/report/report.json"))).unwrap())
                .unwrap();
        assert_eq!(report["tables"].as_array().unwrap().len(), 3);
        assert!(
            report["groups"].as_array().unwrap().iter().any(|group| group["name"] == "cat"),
            "{}",
            report["groups"]
        );
        assert_eq!(
            report["about"]["machines"][0]["lacks"].as_str().unwrap().is_empty(),
            mechanism == "kernel"
        );
        assert!(place.ok(&["store", &folder]).contains("tables"));
    }
}

#[test]
fn names_are_hashed_if_that_is_wanted() {
    let place = Place::new("hashed");
    for mechanism in mechanisms() {
        let folder = format!("by-{mechanism}");
        fs::write(place.path("confidential.txt"), "x").unwrap();
        let words = [
            "record",
            "-q",
            "--hash-names",
            "--mechanism",
            mechanism,
            "--to",
            &folder,
            "--",
            "cat",
            "confidential.txt",
        ];
        assert_eq!(place.ok(&words), "x");
        let all = place.ok(&["show", &folder]);
        assert!(!all.contains("confidential") && all.contains(".txt") && all.contains("cat["), "{all}");
        let recording = fs::read(place.recording(&folder)).unwrap();
        assert!(!recording.windows(12).any(|window| window == b"confidential"));
        // What the report says of kinds of files it says all the same.
        place.ok(&["report", &folder, "--by", "type"]);
        assert!(
            fs::read_to_string(place.path(&format!("{folder}/report/by-type.csv")))
                .unwrap()
                .contains("\ntext,")
        );
    }
}

#[test]
fn a_recorder_that_is_killed_leaves_what_it_has_written() {
    let place = Place::new("killed");
    for mechanism in mechanisms() {
        let folder = format!("by-{mechanism}");
        // Reads until it is killed; says when it has begun.
        let script = "echo begun; while :; do cat /etc/passwd >/dev/null; done";
        let mut command = place.comb(&[
            "record",
            "-q",
            "--mechanism",
            mechanism,
            "--to",
            &folder,
            "--",
            "sh",
            "-c",
            script,
        ]);
        let mut recorder = command.stdout(Stdio::piped()).process_group(0).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(recorder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        // A second after it has begun, something is written.
        let limit = Instant::now() + Duration::from_secs(60);
        let written = |folder: &str| fs::metadata(place.recording(folder)).map_or(0, |status| status.len());
        let head = written(&folder);
        while written(&folder) < head + 10_000 {
            assert!(Instant::now() < limit, "nothing is written");
            std::thread::sleep(Duration::from_millis(50));
        }
        let group = rustix::process::Pid::from_raw(i32::try_from(recorder.id()).unwrap()).unwrap();
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        recorder.wait().unwrap();
        let output = place.run(&["show", &folder, "--path", "/etc/passwd", "--operations", "read"]);
        assert!(output.status.success());
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("cut off"),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(output.stdout.split(|&byte| byte == b'\n').count() > 10);
        let output = place.run(&["report", &folder]);
        assert!(
            output.status.success()
                && String::from_utf8_lossy(&output.stderr).contains("what came before is good")
        );
    }
}

#[test]
fn what_is_no_recording_and_what_is_damaged_is_said() {
    let place = Place::new("wrong");
    fs::create_dir(place.path("empty")).unwrap();
    let (code, said) = place.fails(&["report", "empty"]);
    assert!(code == 4 && said.contains("comb trace record makes one"), "{code} {said}");
    let (code, said) = place.fails(&["show", "nowhere"]);
    assert!(code == 4 && said.contains("nowhere"), "{code} {said}");
    fs::create_dir(place.path("foreign")).unwrap();
    fs::write(place.path("foreign/one.trace"), "PAR1 and nothing of ours").unwrap();
    for command in ["show", "store", "report"] {
        let (code, said) = place.fails(&[command, "foreign"]);
        assert!(
            code == 1 && said.contains("one.trace: this is no trace of comb"),
            "{command}: {code} {said}"
        );
    }
    let mechanism = mechanisms()[0];
    place.ok(&["record", "-q", "--mechanism", mechanism, "--to", "good", "--", "ls", "/etc"]);
    place.ok(&["store", "good"]);
    let part = place.path("good/tables/trace/part-00000.parquet");
    let mut bytes = fs::read(&part).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&part, bytes).unwrap();
    let (code, said) = place.fails(&["report", "good"]);
    assert!(code == 1 && said.contains("it is not as it was written"), "{code} {said}");
}

#[test]
fn wrong_words_and_missing_privileges_are_said() {
    let place = Place::new("words");
    let (code, said) = place.fails(&["record"]);
    assert!(code == 2 && said.contains("comb trace record -- COMMAND"), "{code} {said}");
    let (code, said) = place.fails(&["record", "--mechanism", "preload", "-a"]);
    assert!(code == 2 && said.contains("when they start"), "{code} {said}");
    let (code, said) = place.fails(&["record", "--for", "soon", "--", "true"]);
    assert!(code == 2 && said.contains("such as 10m"), "{code} {said}");
    let (code, said) = place.fails(&["record", "--to", "x", "--", "no-such-program"]);
    assert!(
        code == 4 && said.contains("no-such-program") && !Path::new(&place.path("x")).exists(),
        "{code} {said}"
    );
    if is_root() && mechanisms().contains(&"kernel") {
        let (code, said) = place.fails(&["record", "-p", "999999999", "--to", "y"]);
        assert!(code == 4 && said.contains("there is no process 999999999"), "{code} {said}");
    }
    // Told to do without, which is as if the kernel had nothing.
    let mut command = place.comb(&["record", "-a"]);
    let output = command.env("COMB_WITHOUT", "bpf").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("COMB_WITHOUT"), "{said}");
    let mut command = place.comb(&["record", "--to", "z", "--", "ls", "/"]);
    let output = command.env("COMB_WITHOUT", "bpf").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("by a library that programs load"), "{said}");
}

#[test]
fn who_does_what_is_shown_as_it_happens() {
    let place = Place::new("top");
    if !mechanisms().contains(&"kernel") {
        return;
    }
    fs::write(place.path("busy"), "x").unwrap();
    let mut reader = Command::new("sh");
    reader.args(["-c", "while :; do cat busy >/dev/null; done"]).current_dir(&place.0).process_group(0);
    let mut reader = reader.spawn().unwrap();
    let said = place.ok(&["top", "-p", &reader.id().to_string(), "-n", "2", "-d", "1", "--json"]);
    let group = rustix::process::Pid::from_raw(i32::try_from(reader.id()).unwrap()).unwrap();
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    reader.wait().unwrap();
    let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert!(last["processes"].as_array().unwrap().iter().any(|one| one["process"] == "cat"), "{last}");
    assert!(last["files"].as_array().unwrap().iter().any(|one| one["path"] == place.path("busy")), "{last}");
    assert!(place.ok(&["top", "-p", &std::process::id().to_string(), "-n", "1"]).contains("OPERATIONS/S"));
}

#[test]
fn snapshots_are_taken_and_compared_and_recordings_are_done_again() {
    let place = Place::new("trees");
    fs::create_dir_all(place.path("tree/home")).unwrap();
    fs::write(place.path("tree/home/a.txt"), "one").unwrap();
    place.ok(&["snapshot", "tree", "--to", "before"]);
    let mechanism = mechanisms()[0];
    let script = "cd tree/home && echo two >> a.txt && echo three > b.txt && mkdir c && mv b.txt c/d.txt";
    place.ok(&["record", "-q", "--mechanism", mechanism, "--to", "recorded", "--", "sh", "-c", script]);
    place.ok(&["snapshot", "tree", "--to", "after"]);
    let found: Value =
        serde_json::from_str(&place.ok(&["difference", "before", "after", "--files", "--json"])).unwrap();
    assert_eq!(
        [&found["added"], &found["changed"], &found["removed"]],
        [1, 1, 0].map(Value::from).each_ref()
    );
    assert!(place.ok(&["diff", "before", "after"]).contains("of the changes are in"));
    place.ok(&["report", "recorded", "--before", "before", "--after", "after"]);
    let report = fs::read_to_string(place.path("recorded/report/table-9.1.csv")).unwrap();
    assert!(
        report.lines().any(|line| line.starts_with("changes that are in one subtree,%,100,")),
        "{report}"
    );
    let done: Value = serde_json::from_str(&place.ok(&["replay", "recorded", "sandbox", "--json"])).unwrap();
    assert_eq!(done["differences"], 0, "{done}");
    let again = place.0.join("sandbox").join(place.0.strip_prefix("/").unwrap()).join("tree/home/c/d.txt");
    assert_eq!(fs::metadata(&again).unwrap().len(), 6, "{}", again.display());
    let (code, said) = place.fails(&["replay", "recorded", "sandbox"]);
    assert!(code == 1 && said.contains("sandbox"), "it is not empty: {code} {said}");
    assert!(place.ok(&["fio", "recorded", "--to", "jobs"]).contains("jobs.fio"));
    place.ok(&[
        "synth",
        "thesis",
        "--to",
        "made",
        "--sessions",
        "300",
        "--users",
        "2",
        "--model",
        "model.json",
    ]);
    assert!(place.ok(&["report", "made"]).contains("operations in 300 sessions"));
    place.ok(&["synth", "model.json", "--to", "again", "--sessions", "300"]);
    let same =
        ["made", "again"].map(|folder| fs::read(place.path(&format!("{folder}/synth-1.trace"))).unwrap());
    assert!(same[0] == same[1], "the same model and seed");
}

/// A comb of its own in a folder of its own, and what is beside it there.
#[test]
fn sql_is_answered_by_a_program_beside_comb_or_in_the_path() {
    let place = Place::new("sql");
    // By another process: what this one has open to write, a program that another test starts has open for a moment as well, and nobody can run it.
    let make = |script: &str| {
        let made = Command::new("sh")
            .args(["-ec", script, "sh", env!("CARGO_BIN_EXE_comb")])
            .current_dir(&place.0)
            .status();
        assert!(made.unwrap().success(), "{script}");
    };
    make("mkdir bin elsewhere; ln \"$1\" bin/comb 2>/dev/null || cp \"$1\" bin/comb");
    let comb = place.path("bin/comb");
    place.ok(&["synth", "thesis", "--to", "made", "--sessions", "50"]);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&comb);
        command.args(["trace", "sql"]).args(arguments).current_dir(&place.0).env("COMB_CONFIG", "/dev/null");
        let output = command.env("PATH", place.path("elsewhere")).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, _, said) = run(&["SELECT 1", "made"]);
    assert!(code == Some(1) && said.contains("make trace-sql"), "{code:?} {said}");
    assert!(!Path::new(&place.path("made/tables")).exists(), "for nobody");
    let (code, listed, _) = run(&["--tables"]);
    assert!(code == Some(0) && listed.contains("\ntrace      duration_ns         number\n"), "{listed}");

    let stand_in = |folder: &str| {
        let text = format!("#!/bin/sh\nprintf \"%s\\n\" {folder} \"$@\"\nexit 7\n");
        make(&format!("cat > {folder}/comb-trace-sql <<'END'\n{text}END\nchmod 755 {folder}/comb-trace-sql"));
    };
    stand_in("elsewhere");
    let given = run(&["SELECT 1", "made"]);
    assert_eq!(given, (Some(7), "elsewhere\nmade/tables\nSELECT 1\n".to_owned(), String::new()));
    assert!(Path::new(&place.path("made/tables/complete")).exists());
    stand_in("bin");
    let given = run(&["SELECT 2", "made", "--memory", "2M", "-o", "json"]);
    let expected = "bin\n--json\n--memory\n2097152\nmade/tables\nSELECT 2\n";
    assert_eq!((given.0, given.1.as_str()), (Some(7), expected));
    let (code, _, said) = run(&["SELECT 1"]);
    assert!(code == Some(4) && said.contains("comb trace record makes one"), "{code:?} {said}");
    let (code, _, said) = run(&[]);
    assert!(code == Some(2) && said.contains("QUERY"), "{code:?} {said}");
}
