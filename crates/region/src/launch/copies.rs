//! The copies of comb that a host without it keeps: `bootstrap.sh` puts them there.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::tree::{Tree, is_old, is_ours};

/// So many builds take turns on a host before one is sent again.
const KEPT: usize = 4;
/// What a copy's directory begins with while it is made.
const NEW: &str = ".new-";

/// Where this comb is that was brought to a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Copy {
    /// In this directory of copies, which are there the next time.
    Kept(PathBuf),
    /// In this directory, which goes with it.
    Temporary(PathBuf),
}

impl Copy {
    /// Tidies up around itself; what is to go at the end is in the hands of who asks.
    pub(super) fn settle_in(&self) -> std::io::Result<Option<Tree>> {
        match self {
            Self::Kept(directory) => {
                if is_ours(directory) {
                    sweep(directory);
                }
                Ok(None)
            }
            Self::Temporary(directory) => Tree::adopt(directory.clone()).map(Some),
        }
    }
}

/// Leaves the copies that were used last. One that runs goes on running without its file.
fn sweep(directory: &Path) {
    let mut copies = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
        if !is_ours(&path) {
            continue;
        }
        if name.starts_with(NEW) {
            if is_old(&path) {
                let _ = std::fs::remove_dir_all(&path);
            }
        } else if path.join("comb").is_file() {
            let used = entry.metadata().and_then(|found| found.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            copies.push((used, path));
        }
    }
    copies.sort();
    let surplus = copies.len().saturating_sub(KEPT);
    for (_, path) in copies.drain(..surplus) {
        let _ = std::fs::remove_dir_all(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::time::Duration;

    #[test]
    fn the_copies_that_were_used_last_are_kept_and_nothing_else_is_touched() {
        let directory = std::env::temp_dir().join(format!("comb-copies-{}", std::process::id()));
        let make = |name: &str, age: u64| {
            let path = directory.join(name);
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("comb"), "").unwrap();
            let time = SystemTime::now() - Duration::from_secs(age);
            File::open(&path).unwrap().set_modified(time).unwrap();
            path
        };
        let copies: Vec<_> = (0..6).map(|age| make(&format!("copy-{age}"), 1000 * (age + 1))).collect();
        let (fresh, left) = (make(".new-1", 1), make(".new-2", 100_000));
        std::fs::create_dir(directory.join("other")).unwrap();
        assert!(Copy::Kept(directory.clone()).settle_in().unwrap().is_none());
        let exist: Vec<bool> = copies.iter().map(|copy| copy.exists()).collect();
        assert_eq!(exist, [true, true, true, true, false, false]);
        assert!(fresh.exists() && !left.exists() && directory.join("other").exists());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
