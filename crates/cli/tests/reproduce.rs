//! `comb reproduce`, as people call it, as far as that measures nothing.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// A folder for a report, which is gone afterwards.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("comb-reproduce-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        Self(folder)
    }

    fn reproduce(&self, arguments: &str) -> Output {
        let arguments = arguments.split(' ');
        let mut comb = Command::new(env!("CARGO_BIN_EXE_comb"));
        comb.arg("reproduce").args(arguments).arg("--into").arg(&self.0).output().expect("our own program")
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn lines(bytes: &[u8]) -> Vec<Value> {
    text(bytes).lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[test]
fn the_list_has_every_paper_and_changes_nothing() {
    let place = Place::new("list");
    let (people, programs) = (place.reproduce("list"), place.reproduce("list --json"));
    assert!(people.status.success() && programs.status.success(), "{}", text(&people.stderr));
    let rows = lines(&programs.stdout);
    let names: Vec<&str> = rows.iter().map(|row| row["paper"].as_str().expect("a name")).collect();
    for name in ["unet", "via", "mscs", "blizzard", "hive", "disco", "cache-kernel", "giganet", "galaxy"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let said = text(&people.stdout);
    for row in &rows {
        let name = row["paper"].as_str().expect("a name");
        let line = said.lines().find(|line| line.starts_with(&format!("{name} "))).expect(name);
        for count in ["items", "pending"] {
            let count = row[count].to_string();
            assert!(line.split_whitespace().any(|word| word == count), "{count}: {line}");
        }
        assert_eq!(row["measured"], 0, "{name} was never measured");
        assert_eq!(row["takes_s"].is_null(), row["pending"] == row["items"], "{name}");
    }
    assert!(!place.0.exists(), "to look is not to measure");
}

#[test]
fn who_names_no_paper_is_told_which_there_are() {
    let place = Place::new("unknown");
    let run = place.reproduce("nosuch");
    assert_eq!(run.status.code(), Some(2));
    let said = text(&run.stderr);
    for word in ["'nosuch'", "list", "all", "unet", "blizzard", "cache-kernel"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(!place.0.exists());
}

#[test]
fn what_nothing_measures_is_pending_in_what_is_printed_and_in_the_page() {
    let place = Place::new("pending");
    let run = place.reproduce("giganet --json");
    assert_eq!(run.status.code(), Some(1));
    assert!(text(&run.stderr).contains("nothing here measures giganet yet"), "{}", text(&run.stderr));
    let rows = lines(&run.stdout);
    assert!(rows.len() > 20);
    for row in &rows {
        assert!(row["measured"].is_null() && row["baseline"].is_null(), "{row}");
        assert!(row["note"].as_str().expect("a note").starts_with("pending"), "{row}");
    }
    let page = place.read("index.html");
    assert!(page.contains("Test 3, 100%, node 10"), "{page}");
    assert!(page.contains("comb reproduce unet"), "the others are told of as well");
}

#[test]
fn a_report_that_cannot_be_read_is_put_aside() {
    let place = Place::new("aside");
    std::fs::create_dir_all(&place.0).expect("a folder");
    std::fs::write(place.0.join("report.json"), "{ half of").expect("a file");
    let run = place.reproduce("quintet");
    let said = text(&run.stderr);
    assert!(said.contains("report.json is no report") && said.contains("report-put-aside-"), "{said}");
    let entries =
        std::fs::read_dir(&place.0).expect("the folder").map(|entry| entry.expect("an entry").path());
    let kept = entries.into_iter().filter(|path| path.to_string_lossy().contains("put-aside"));
    let kept: Vec<String> = kept.map(|path| std::fs::read_to_string(path).expect("a file")).collect();
    assert_eq!(kept, ["{ half of"]);
}

#[test]
fn a_folder_that_cannot_be_written_is_said_before_anything_is_measured() {
    let place = Place::new("unwritable");
    std::fs::write(&place.0, "a file in its place").expect("a file");
    let run = place.reproduce("unet");
    assert_eq!(run.status.code(), Some(1));
    assert!(text(&run.stderr).contains("the report cannot be written there"), "{}", text(&run.stderr));
    assert!(run.stdout.is_empty());
    std::fs::remove_file(&place.0).expect("our own");
    let missing = place.reproduce("hive --injected /nonexistent/lines");
    assert!(text(&missing.stderr).contains("/nonexistent/lines"), "{}", text(&missing.stderr));
}
