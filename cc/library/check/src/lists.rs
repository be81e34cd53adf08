//! The lists: which names have wrappers, which need none, and what to do instead of the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// What the lists beside this crate, and the runtime's, say of names.
#[derive(Debug, Default)]
pub struct Lists {
    covered: BTreeSet<String>,
    safe: BTreeSet<String>,
    advice: BTreeMap<String, String>,
}

/// Why a list could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// There is no such file, or it cannot be read.
    #[error("{path}: {error}", path = path.display())]
    Read {
        /// Which list.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A line of an advice list is not a name, a tab, and a text.
    #[error("{path}:{line}: not a name, a tab and what to do instead", path = path.display())]
    Advice {
        /// Which list.
        path: PathBuf,
        /// From 1.
        line: usize,
    },
}

impl Lists {
    /// Reads lists of each kind: several, because the library and the runtime have their own.
    pub fn read(covered: &[&Path], safe: &[&Path], advice: &[&Path]) -> Result<Self, ListError> {
        let mut lists = Self::default();
        for path in covered {
            lists.covered.extend(text(path)?.lines().map(str::to_owned));
        }
        for path in safe {
            lists.safe.extend(text(path)?.lines().map(str::to_owned));
        }
        for path in advice {
            for (index, line) in text(path)?.lines().enumerate() {
                let (name, instead) = line
                    .split_once('\t')
                    .ok_or_else(|| ListError::Advice { path: path.to_path_buf(), line: index + 1 })?;
                lists.advice.insert(name.to_owned(), instead.to_owned());
            }
        }
        Ok(lists)
    }

    /// Whether an instrumented program may call it: through its wrapper, or because it touches nothing of the program's.
    ///
    /// A covered name may also stand plain in an object: the compiler's back end makes such calls on private memory.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.covered.contains(name) || self.safe.contains(name) || is_of_the_compiler(name)
    }

    /// What to do instead of calling it, where that is known.
    #[must_use]
    pub fn advice(&self, name: &str) -> Option<&str> {
        self.advice.get(name).map(String::as_str)
    }
}

/// Comb's own names, the unwinder, and type descriptions, which are constants.
fn is_of_the_compiler(name: &str) -> bool {
    ["comb_", "_Unwind_", "_ZTI", "_ZTS"].iter().any(|beginning| name.starts_with(beginning))
}

fn text(path: &Path) -> Result<String, ListError> {
    fs::read_to_string(path).map_err(|error| ListError::Read { path: path.to_path_buf(), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_this_library() -> Lists {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let [covered, safe, advice] = ["covered.txt", "safe.txt", "advice.txt"].map(|name| here.join(name));
        Lists::read(&[&covered], &[&safe], &[&advice]).unwrap()
    }

    #[test]
    fn a_wrapper_a_harmless_function_and_one_that_cannot_work() {
        let lists = of_this_library();
        assert!(lists.has("memcpy"), "has a wrapper");
        assert!(lists.has("sqrt"), "touches nothing");
        assert!(lists.has("_Unwind_Resume"), "is the compiler's");
        assert!(!lists.has("shmat"), "cannot work");
        assert!(lists.advice("shmat").is_some_and(|instead| instead.contains("malloc")));
        assert_eq!(lists.advice("memcpy"), None);
    }

    #[test]
    fn a_line_without_advice_is_named() {
        let path = std::env::temp_dir().join(format!("comb-advice-{}", std::process::id()));
        fs::write(&path, "shmat\tuse malloc\nvfork\n").unwrap();
        let read = Lists::read(&[], &[], &[&path]);
        fs::remove_file(&path).unwrap();
        assert!(matches!(read, Err(ListError::Advice { line: 2, .. })), "{read:?}");
    }
}
