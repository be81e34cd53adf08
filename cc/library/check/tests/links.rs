//! Links of objects that the C compiler made, with and without combcc's note.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use comb_cc_library::{Lists, mixtures, uncovered};

/// A directory of one test; gone with it.
struct Workshop(PathBuf);

impl Workshop {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("comb-cc-library-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    /// Compiles a text; `access` is what the note says.
    fn object(&self, name: &str, access: Option<&str>, text: &str) -> PathBuf {
        let note = access.map_or(String::new(), |access| {
            format!(
                "__asm__(\".pushsection .comb.note,\\\"MS\\\",@progbits,1\\n\
                 .asciz \\\"comb 1 access={access} block=128\\\"\\n.popsection\");\n"
            )
        });
        let (source, object) = (self.0.join(format!("{name}.c")), self.0.join(format!("{name}.o")));
        fs::write(&source, note + text).unwrap();
        run(Command::new("cc").args(["-c", "-fno-builtin", "-w", "-o"]).args([&object, &source]));
        object
    }

    fn archive(&self, name: &str, members: &[PathBuf]) -> PathBuf {
        let archive = self.0.join(name);
        run(Command::new("ar").arg("rcs").arg(&archive).args(members));
        archive
    }

    fn shared(&self, name: &str, objects: &[PathBuf]) -> PathBuf {
        let library = self.0.join(name);
        run(Command::new("cc").args(["-shared", "-nostdlib", "-o"]).arg(&library).args(objects));
        library
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}");
}

fn lists() -> Lists {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let [covered, safe, advice] = ["covered.txt", "safe.txt", "advice.txt"].map(|name| here.join(name));
    Lists::read(&[&covered], &[&safe], &[&advice]).unwrap()
}

fn complaints(files: &[PathBuf]) -> Vec<String> {
    let found = uncovered(&lists(), files).unwrap();
    found.iter().map(|one| format!("{} {}", one.symbol, one.advice.as_deref().unwrap_or("-"))).collect()
}

#[test]
fn what_a_list_or_an_instrumented_object_has_is_no_complaint() {
    let workshop = Workshop::new("fine");
    let main = workshop.object(
        "main",
        Some("check"),
        "int main(void) { part(); comb_lib_memcpy(0, 0, 0); memset(0, 0, 0); return getpid() + (int)sqrt(2); }",
    );
    let part = workshop.object("part", Some("check"), "int part(void) { return 0; }");
    assert_eq!(complaints(&[main, part]), [""; 0]);
}

#[test]
fn what_nobody_has_is_named_with_the_file_and_with_advice() {
    let workshop = Workshop::new("missing");
    let main =
        workshop.object("main", Some("check"), "int main(void) { return shmat(0, 0, 0) == strange(); }");
    let found = uncovered(&lists(), std::slice::from_ref(&main)).unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[0].symbol, "shmat");
    assert_eq!(found[0].file, main.display().to_string());
    assert!(found[0].to_string().contains("malloc"), "{}", found[0]);
    assert_eq!((found[1].symbol.as_str(), found[1].advice.as_deref()), ("strange", None));
}

/// A plain object runs unchecked: that it has the function is no help, but worth saying.
#[test]
fn what_only_a_plain_object_has_is_a_complaint_that_names_it() {
    let workshop = Workshop::new("plain");
    let main = workshop.object("main", Some("check"), "int main(void) { return part(); }");
    let part = workshop.object("part", None, "int part(void) { return strange(); }");
    let found = complaints(&[main, part.clone()]);
    assert_eq!(found, [format!("part {} defines it: compile that with combcc", part.display())]);
}

#[test]
fn members_of_archives_count_when_they_are_needed() {
    let workshop = Workshop::new("archive");
    let main = workshop.object("main", Some("check"), "int main(void) { return one(); }");
    let one = workshop.object("one", Some("check"), "int one(void) { return two(); }");
    let two = workshop.object("two", Some("check"), "int two(void) { return strange(); }");
    let three = workshop.object("three", Some("check"), "int three(void) { return stranger(); }");
    let archive = workshop.archive("libparts.a", &[three, two, one]);
    let found = uncovered(&lists(), &[main, archive]).unwrap();
    assert_eq!(found.len(), 1, "nothing needs three: {found:?}");
    assert_eq!(found[0].symbol, "strange");
    assert!(found[0].file.ends_with("libparts.a(two.o)"), "{}", found[0].file);
}

#[test]
fn an_instrumented_library_has_its_functions_and_a_plain_one_does_not() {
    let workshop = Workshop::new("shared");
    let main = workshop.object("main", Some("check"), "int main(void) { return part(); }");
    let text = "__attribute__((visibility(\"default\"))) int part(void) { return 0; }";
    let instrumented = workshop.object("instrumented", Some("check"), text);
    let plain = workshop.object("plain", None, text);
    let [instrumented, plain] =
        [("a.so", instrumented), ("b.so", plain)].map(|(name, object)| workshop.shared(name, &[object]));
    assert_eq!(complaints(&[main.clone(), instrumented]), [""; 0]);
    assert_eq!(complaints(&[main, plain]).len(), 1);
}

#[test]
fn objects_for_different_access_do_not_go_together() {
    let workshop = Workshop::new("mixture");
    let main = workshop.object("main", Some("check"), "int main(void) { return 0; }");
    let same = workshop.object("same", Some("check"), "int same;");
    let plain = workshop.object("plain", None, "int plain;");
    let other = workshop.object("other", Some("page"), "int other;");
    assert_eq!(mixtures(&[main.clone(), same.clone(), plain.clone()]).unwrap(), []);
    let found = mixtures(&[main, same, plain, other.clone()]).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].other_file, other.display().to_string());
    assert!(found[0].to_string().contains("access=page"), "{}", found[0]);
}

#[test]
fn a_linker_script_is_no_object_and_rubbish_is_an_error() {
    let workshop = Workshop::new("rubbish");
    let [script, rubbish] = ["libm.so", "rubbish.o"].map(|name| workshop.0.join(name));
    fs::write(&script, "INPUT ( -lm )").unwrap();
    fs::write(&rubbish, [0x7f, b'E', b'L', b'F', 0xff, 0, 1]).unwrap();
    assert_eq!(complaints(&[script]), [""; 0]);
    assert!(uncovered(&lists(), &[rubbish]).is_err());
    assert!(uncovered(&lists(), &[workshop.0.join("nothing.o")]).is_err());
}
