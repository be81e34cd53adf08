//! Between clang and the linker: this program again, called with the linker's words. It looks whether all that compiled code calls is
//! covered, names what is not, and lets the linker do its work.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use comb_cc_library::{Lists, mixtures, uncovered};

use crate::arguments::{Job, is_object};
use crate::library::Library;
use crate::options::Options;

/// Set for the process that stands in for the linker: the real one's name.
const LINKER: &str = "COMB_LINKER";
/// Functions that the user wants to link whatever they do.
const ALLOWED: &str = "COMB_ALLOWED";
/// Where the lists are.
const LISTS: &str = "COMB_LISTS";

/// Puts this program between clang and the linker, which is the one that the user chose by `-fuse-ld`.
pub(crate) fn stand_between(command: &mut Command, own: &Options, library: &Library, passed: &[String]) {
    let Ok(this) = env::current_exe() else { return };
    let chosen = passed.iter().rev().find_map(|word| word.strip_prefix("-fuse-ld="));
    let linker = match chosen {
        Some(path) if path.starts_with('/') => path.to_owned(),
        Some(name) => format!("ld.{name}"),
        None => "ld".to_owned(),
    };
    let mut path = OsString::from("--ld-path=");
    path.push(this);
    command.arg(path).env(LINKER, linker).env(ALLOWED, own.allowed.join(",")).env(LISTS, library.directory());
}

/// Whether this process is to be the linker; then it is.
pub(crate) fn link(words: &[String]) -> Option<Result<ExitCode, String>> {
    let linker = env::var_os(LINKER)?;
    let lists = PathBuf::from(env::var_os(LISTS)?);
    let allowed = env::var(ALLOWED).unwrap_or_default();
    // A library's calls are looked at with those of whom it is linked to.
    if !is_library(words)
        && let Err(message) = check(&lists, &allowed, &inputs(words))
    {
        return Some(Err(message));
    }
    // The linker may call compilers (for plug-ins), and those are not in between.
    let error = Command::new(&linker).args(to_link(words)).env_remove(LINKER).exec();
    Some(Err(format!("{}: {error}", linker.to_string_lossy())))
}

fn is_library(words: &[String]) -> bool {
    words.iter().any(|word| matches!(word.as_str(), "-shared" | "--shared" | "-Bshareable"))
}

/// What the linker is told. A library finds the runtime in the executable that loads it, so it may not be demanded that nothing is left to be found.
fn to_link(words: &[String]) -> Vec<&str> {
    let mut kept = Vec::new();
    let is_library = is_library(words);
    let mut rest = words.iter().map(String::as_str).peekable();
    while let Some(word) = rest.next() {
        match word {
            "--no-undefined" | "-no-undefined" | "-zdefs" if is_library => {}
            "-z" if is_library && rest.next_if_eq(&"defs").is_some() => {}
            _ => kept.push(word),
        }
    }
    kept
}

fn check(lists: &Path, allowed: &str, files: &[PathBuf]) -> Result<(), String> {
    let [covered, safe, advice] = ["covered.txt", "safe.txt", "advice.txt"].map(|name| lists.join(name));
    // A library made for a test has a runtime of its own.
    if !safe.is_file() {
        return Ok(());
    }
    let lists = Lists::read(&[&covered], &[&safe], &[&advice]).map_err(|error| error.to_string())?;
    // What cannot be read is the linker's to complain of.
    let Ok(mixtures) = mixtures(files) else { return Ok(()) };
    if let Some(mixture) = mixtures.first() {
        return Err(mixture.to_string());
    }
    let Ok(missing) = uncovered(&lists, files) else { return Ok(()) };
    let is_allowed = |symbol: &str| allowed.split(',').any(|allowed| allows(allowed, symbol));
    let missing: Vec<_> = missing.into_iter().filter(|missing| !is_allowed(&missing.symbol)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = missing.iter().map(|missing| format!("  {missing}")).collect();
    Err(format!(
        "these functions may touch memory that is on another cell, and nothing covers them:\n{}\n\
         Where they touch none of the program's memory, --allow-uncovered=FUNCTION,… links them.",
        lines.join("\n")
    ))
}

/// A name, or how names begin, before a star.
fn allows(allowed: &str, symbol: &str) -> bool {
    match allowed.strip_suffix('*') {
        Some(begin) => symbol.starts_with(begin),
        None => allowed == symbol,
    }
}

/// The linker's options whose value is the next word.
const TAKES_NEXT_WORD: &[&str] = &[
    "-o",
    "-T",
    "-z",
    "-m",
    "-e",
    "-u",
    "-y",
    "-h",
    "-soname",
    "-rpath",
    "-dynamic-linker",
    "-plugin",
    "--defsym",
    "-Map",
];

/// The same, as far as the compiler's own words name them.
pub(crate) fn objects(job: &Job, words: &[String]) -> Vec<PathBuf> {
    let named = job.objects.iter().map(PathBuf::from);
    let libraries = inputs(words).into_iter().filter(|file| is_object(&file.to_string_lossy()));
    let mut all: Vec<PathBuf> = Vec::new();
    for file in named.chain(libraries) {
        if file.is_file() && !is_of_the_system(&file) && !all.contains(&file) {
            all.push(file);
        }
    }
    all
}

/// The objects, archives and libraries that are linked. A library that is not in the directories of the user, but the system's, is not one of them.
fn inputs(words: &[String]) -> Vec<PathBuf> {
    let mut inputs = Vec::new();
    let mut directories = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        // The value may be a word of its own.
        let mut value = |option: &str| match word.strip_prefix(option)? {
            "" => rest.next().map(String::as_str),
            value => Some(value),
        };
        if let Some(directory) = value("-L") {
            directories.push(PathBuf::from(directory));
        } else if let Some(name) = value("-l") {
            let names = [format!("lib{name}.so"), format!("lib{name}.a")];
            let places = directories.iter().filter(|directory| !is_of_the_system(directory));
            inputs.extend(
                places
                    .flat_map(|directory| names.each_ref().map(|name| directory.join(name)))
                    .find(|file| file.is_file()),
            );
        } else if TAKES_NEXT_WORD.contains(&word.as_str())
            || TAKES_NEXT_WORD.iter().any(|option| word.strip_prefix('-') == Some(*option))
        {
            rest.next();
        } else if !word.starts_with('-') && !is_of_the_system(Path::new(word)) {
            inputs.push(PathBuf::from(word));
        }
    }
    inputs
}

fn is_of_the_system(path: &Path) -> bool {
    ["/lib", "/lib64", "/usr"].iter().any(|root| path.starts_with(root)) && !path.starts_with("/usr/local")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_and_libraries_of_the_user_are_looked_at() {
        let words =
            "-m elf_x86_64 -dynamic-linker /lib64/ld.so -o out -L/usr/lib /lib/crt1.o a.o -z now lib/b.a -lc";
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        assert_eq!(inputs(&words), [PathBuf::from("a.o"), PathBuf::from("lib/b.a")]);
    }

    #[test]
    fn a_library_is_found_where_the_user_says() {
        let directory = std::env::temp_dir().join(format!("combcc-inputs-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let library = directory.join("libpart.a");
        std::fs::write(&library, "").unwrap();
        let place = directory.display();
        for line in [format!("a.o -L{place} -lpart"), format!("a.o -L {place} -l part")] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(inputs(&words), [PathBuf::from("a.o"), library.clone()], "{line}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_library_may_leave_the_runtime_to_be_found() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let library = words("-shared --no-undefined -z defs -z now a.o");
        assert_eq!(to_link(&library), ["-shared", "-z", "now", "a.o"]);
        let program = words("--no-undefined -z defs a.o");
        assert_eq!(to_link(&program), ["--no-undefined", "-z", "defs", "a.o"]);
    }

    #[test]
    fn a_star_stands_for_any_end() {
        assert!(allows("Tcl_*", "Tcl_Eval") && allows("*", "anything") && allows("dlopen", "dlopen"));
        assert!(!allows("Tcl_*", "Tk_Main") && !allows("dlopen", "dlopen64") && !allows("", "dlopen"));
    }

    #[test]
    fn the_systems_places_are_known() {
        assert!(is_of_the_system(Path::new("/usr/lib/x86_64-linux-gnu/crti.o")));
        assert!(!is_of_the_system(Path::new("/usr/local/lib/libmine.a")));
        assert!(!is_of_the_system(Path::new("libhere.a")));
    }
}
