//! House rules that no compiler knows, over the texts of the repository.

mod links;

use std::fmt;

/// A longer file holds more than one idea.
const LONGEST_RUST_FILE_LINES: usize = 900;

/// Names that say nothing of what is inside.
const EMPTY_MODULE_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "manager"];

/// Texts that people write. Recorded data and drawings keep the bytes they came with.
const WRITTEN_BY_HAND: &[&str] =
    &["rs", "toml", "md", "sh", "c", "h", "cpp", "js", "ts", "css", "html", "py", "yml"];

/// One file of the repository; `text` is none where it is not UTF-8.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: Option<String>,
}

impl File {
    fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// Its lines with their numbers, from 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text().split('\n').enumerate().map(|(index, line)| (index + 1, line))
    }

    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// The end of its name after a point, or nothing.
    fn kind(&self) -> &str {
        self.name().rsplit_once('.').map_or("", |(_, kind)| kind)
    }
}

/// One place where a rule is broken.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    /// From 1; 0 where the file as a whole is meant.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Every broken rule, by file and line.
pub(crate) fn findings(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        white_space(file, &mut findings);
        if file.kind() == "rs" {
            length(file, &mut findings);
            unfinished(file, &mut findings);
            module_names(file, &mut findings);
        }
        if file.kind() == "md" {
            links::missing(file, files, &mut findings);
        }
    }
    crates_are_described(files, &mut findings);
    if !exists(files, "CHANGELOG.md") {
        findings.push(Finding::new("CHANGELOG.md", 0, "missing"));
    }
    findings.sort();
    findings
}

fn exists(files: &[File], path: &str) -> bool {
    files.iter().any(|file| file.path == path)
}

fn white_space(file: &File, findings: &mut Vec<Finding>) {
    if !WRITTEN_BY_HAND.contains(&file.kind()) && file.name().contains('.') {
        return;
    }
    for (number, line) in file.lines() {
        if line.ends_with(char::is_whitespace) {
            findings.push(Finding::new(&file.path, number, "white space at the end of the line"));
        }
    }
}

fn length(file: &File, findings: &mut Vec<Finding>) {
    let lines = file.text().lines().count();
    if lines > LONGEST_RUST_FILE_LINES {
        let message = format!("{lines} lines, more than {LONGEST_RUST_FILE_LINES}: look for a missing type");
        findings.push(Finding::new(&file.path, 0, message));
    }
}

fn unfinished(file: &File, findings: &mut Vec<Finding>) {
    // Put together here, so that this file keeps its own rule.
    for name in ["todo", "unimplemented"] {
        let call = format!("{name}!");
        for (number, line) in file.lines() {
            if line.contains(&call) {
                findings.push(Finding::new(&file.path, number, format!("{call}: unfinished code")));
            }
        }
    }
}

fn module_names(file: &File, findings: &mut Vec<Finding>) {
    let is_empty = |name: &str| EMPTY_MODULE_NAMES.contains(&name);
    let path = file.path.strip_suffix(".rs").unwrap_or(&file.path);
    if let Some(name) = path.split('/').find(|name| is_empty(name)) {
        findings.push(Finding::new(&file.path, 0, format!("`{name}` does not say what is inside")));
    }
    // A module in a file of its own is found by that file's name; here are those inside another.
    for (number, line) in file.lines() {
        let mut words =
            line.split(|c: char| !(c.is_alphanumeric() || c == '_')).skip_while(|&word| word != "mod");
        if let Some(name) = words.nth(1).filter(|name| is_empty(name) && line.trim_end().ends_with('{')) {
            findings.push(Finding::new(&file.path, number, format!("`{name}` does not say what is inside")));
        }
    }
}

/// Every crate has a README, and a line in ARCHITECTURE.md.
fn crates_are_described(files: &[File], findings: &mut Vec<Finding>) {
    let architecture = files.iter().find(|file| file.path == "ARCHITECTURE.md");
    if architecture.is_none() {
        findings.push(Finding::new("ARCHITECTURE.md", 0, "missing"));
    }
    for file in files {
        let Some(directory) =
            file.path.strip_prefix("crates/").and_then(|path| path.strip_suffix("/Cargo.toml"))
        else {
            continue;
        };
        if !exists(files, &format!("crates/{directory}/README.md")) {
            findings.push(Finding::new(&file.path, 0, "the crate has no README.md"));
        }
        if architecture.is_some_and(|architecture| !speaks_of(architecture, directory)) {
            findings.push(Finding::new(&file.path, 0, "ARCHITECTURE.md does not speak of the crate"));
        }
    }
}

/// A file speaks of a crate where it names its package or its directory, or has a line that opens with its short name.
fn speaks_of(file: &File, directory: &str) -> bool {
    let is_part_of_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '/');
    let (package, path) = (format!("comb-{directory}"), format!("crates/{directory}"));
    file.lines().any(|(_, line)| {
        let mut names =
            line.split(|c| !is_part_of_name(c)).filter(|name| name.contains(char::is_alphanumeric));
        names.clone().next() == Some(directory)
            || names.any(|name| {
                name == package || name.trim_end_matches('/') == path || name.starts_with(&format!("{path}/"))
            })
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: Some(text.to_owned()) }
    }

    /// A repository with nothing to find, and these files.
    fn repository(files: impl IntoIterator<Item = File>) -> Vec<File> {
        let mut all =
            vec![file("CHANGELOG.md", "# Changes\n"), file("ARCHITECTURE.md", "# Where things are\n")];
        for new in files {
            all.retain(|old| old.path != new.path);
            all.push(new);
        }
        all
    }

    fn found(files: impl IntoIterator<Item = File>) -> Vec<String> {
        findings(&repository(files)).iter().map(ToString::to_string).collect()
    }

    const NOTHING: [&str; 0] = [];

    #[test]
    fn a_clean_repository_has_no_finding() {
        assert_eq!(found([file("xtask/src/main.rs", "fn main() {}\n")]), NOTHING);
    }

    #[test]
    fn white_space_at_the_end_is_found_in_texts_only() {
        let text = "one\ntwo \nthree\t\r\n";
        for path in ["a.rs", "docs/a.md", "Makefile"] {
            let expected = [2, 3].map(|line| format!("{path}:{line}: white space at the end of the line"));
            assert_eq!(found([file(path, text)]), expected);
        }
        assert_eq!(found([file("plot.svg", text)]), NOTHING);
        assert_eq!(found([File { path: "logo.rs".to_owned(), text: None }]), NOTHING);
    }

    #[test]
    fn a_rust_file_may_have_900_lines() {
        assert_eq!(found([file("a.rs", &"\n".repeat(900))]), NOTHING);
        assert_eq!(
            found([file("a.rs", &"\n".repeat(901))]),
            ["a.rs: 901 lines, more than 900: look for a missing type"]
        );
        assert_eq!(found([file("a.md", &"\n".repeat(901))]), NOTHING);
    }

    #[test]
    fn unfinished_code_is_found() {
        let text = concat!("fn a() { to", "do!() }\nfn b() { unimple", "mented!(\"later\") }\n");
        assert_eq!(found([file("a.rs", text)]).len(), 2);
        assert_eq!(found([file("a.md", text)]), NOTHING);
    }

    #[test]
    fn a_module_is_named_for_what_is_inside() {
        let file_name = |path| found([file(path, "")]).len();
        assert_eq!(file_name("src/util.rs"), 1);
        assert_eq!(file_name("tests/common/mod.rs"), 1);
        assert_eq!(file_name("crates/helpers/src/ring.rs"), 1);
        assert_eq!(file_name("src/utility_rate.rs"), 0);
        let inside = |text| found([file("src/a.rs", text)]).len();
        assert_eq!(inside("pub(crate) mod manager {\n"), 1);
        assert_eq!(inside("mod common;\n"), 0, "its file is found by name");
        assert_eq!(inside("mod commons {\n"), 0);
        assert_eq!(inside("use std::common;\n"), 0);
    }

    #[test]
    fn a_crate_needs_a_readme_and_a_line_in_the_architecture() {
        let of = |architecture: &str| {
            let files = ["crates/net/Cargo.toml", "crates/net/README.md"].map(|path| file(path, ""));
            found(files.into_iter().chain([file("ARCHITECTURE.md", architecture)]))
        };
        for line in [
            "net   endpoints",
            "- `net`: rings",
            "see `comb-net`",
            "in crates/net/src/ring.rs",
            "| crates/net | rings |",
        ] {
            assert_eq!(of(&format!("# Where things are\n{line}\n")), NOTHING, "{line}");
        }
        for line in ["the net", "comb-network", "crates/network", "types"] {
            let expected = ["crates/net/Cargo.toml: ARCHITECTURE.md does not speak of the crate"];
            assert_eq!(of(&format!("# Where things are\n{line}\n")), expected, "{line}");
        }
        let alone = [file("crates/net/Cargo.toml", ""), file("ARCHITECTURE.md", "net\n")];
        assert_eq!(found(alone), ["crates/net/Cargo.toml: the crate has no README.md"]);
    }

    #[test]
    fn the_two_files_that_every_change_touches_are_there() {
        let found: Vec<String> = findings(&[]).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["ARCHITECTURE.md: missing", "CHANGELOG.md: missing"]);
    }
}
