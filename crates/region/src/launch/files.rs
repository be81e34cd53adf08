//! A program's files that are sent along to other hosts, as the launcher finds them.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::Access;

use super::LaunchError;
use super::conversation::Sent;

/// Sent at once.
const CHUNK_BYTES: usize = 256 << 10;
/// Of a file's mode: who owns it there is another user, whose powers are not given away.
pub(super) const MODE: u32 = 0o777;

/// In the order in which they are made there: each directory before what is in it, and links at last, so that nothing is written by way of one.
#[derive(Debug)]
pub(super) struct Files {
    entries: Vec<Entry>,
    /// All that is in them.
    pub(super) bytes: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    from: PathBuf,
    sent: Sent,
}

/// Why they were not all sent.
pub(super) enum Unsent {
    /// Whoever was to take them has gone.
    Gone,
    /// One cannot be read.
    Ours(String),
}

impl Files {
    /// All that is at these paths, by the names that [`name_there`] gives them.
    pub(super) fn find(paths: &[PathBuf], here: &Path) -> Result<Self, LaunchError> {
        let mut found = BTreeMap::new();
        for path in paths {
            let (from, to) = (here.join(path), name_there(path, here)?);
            // What somebody names is meant, wherever it lies: only links within are links.
            let metadata = std::fs::metadata(&from).map_err(|error| wrong(&from, error.to_string()))?;
            for parent in to.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
                let sent = Sent::Directory { path: parent.into(), mode: 0o700 };
                found.entry(parent.to_owned()).or_insert(Entry { from: here.join(parent), sent });
            }
            add(&mut found, &from, &to, &metadata)?;
        }
        let mut entries: Vec<Entry> = found.into_values().collect();
        entries.sort_by_key(|entry| matches!(entry.sent, Sent::Link { .. }));
        let length = |entry: &Entry| if let Sent::File { length, .. } = entry.sent { length } else { 0 };
        let bytes = entries.iter().map(length).sum();
        Ok(Self { entries, bytes })
    }

    /// Says all of them, one message after the other.
    pub(super) fn send(&self, mut say: impl FnMut(Sent, usize) -> std::io::Result<()>) -> Result<(), Unsent> {
        for Entry { from, sent } in &self.entries {
            let ours = |error: &dyn std::fmt::Display| {
                Unsent::Ours(format!("cannot send {}: {error}", from.display()))
            };
            say(sent.clone(), 0).map_err(|_| Unsent::Gone)?;
            let Sent::File { length, .. } = *sent else { continue };
            let mut file = File::open(from).map_err(|error| ours(&error))?.take(length);
            while file.limit() > 0 {
                let mut chunk = Vec::new();
                let read = (&mut file).take(CHUNK_BYTES as u64).read_to_end(&mut chunk);
                match read.map_err(|error| ours(&error))? {
                    0 => return Err(ours(&"it is shorter than it was")),
                    bytes => say(Sent::Bytes(chunk), bytes).map_err(|_| Unsent::Gone)?,
                }
            }
        }
        Ok(())
    }
}

/// What is within the directory `here` has the same place in the directory there; anything else is there by its last name.
pub(super) fn name_there(path: &Path, here: &Path) -> Result<PathBuf, LaunchError> {
    let climbs = |path: &Path| path.components().any(|component| component == Component::ParentDir);
    if path.is_relative() && !climbs(path) {
        return Ok(path.components().filter(|component| *component != Component::CurDir).collect());
    }
    let from = here.join(path);
    // Its own name, if it is a link.
    let parent =
        from.parent().filter(|_| from.file_name().is_some()).and_then(|parent| parent.canonicalize().ok());
    let whole = match (parent, from.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => from.canonicalize().map_err(|error| wrong(&from, error.to_string()))?,
    };
    let here = here.canonicalize().unwrap_or_else(|_| here.to_owned());
    if let Ok(within) = whole.strip_prefix(&here) {
        return Ok(within.to_owned());
    }
    whole.file_name().map(PathBuf::from).ok_or_else(|| wrong(&from, "it has no name".to_owned()))
}

fn add(
    found: &mut BTreeMap<PathBuf, Entry>,
    from: &Path,
    to: &Path,
    metadata: &Metadata,
) -> Result<(), LaunchError> {
    let (path, mode, kind) =
        (to.to_owned().into_os_string(), metadata.permissions().mode() & MODE, metadata.file_type());
    let sent = if kind.is_dir() {
        Sent::Directory { path, mode }
    } else if kind.is_file() {
        Sent::File { path, mode, length: metadata.len() }
    } else if kind.is_symlink() {
        let target = std::fs::read_link(from).map_err(|error| wrong(from, error.to_string()))?;
        if !stays_within(to, &target) {
            let target = target.display();
            return Err(wrong(
                from,
                format!("it is a link to {target}, which is not among the files that are sent"),
            ));
        }
        Sent::Link { path, target: target.into_os_string() }
    } else {
        return Err(wrong(from, "only files, directories and links can be sent".to_owned()));
    };
    let needed = if kind.is_dir() { Access::READ_OK | Access::EXEC_OK } else { Access::READ_OK };
    if !kind.is_symlink() {
        rustix::fs::access(from, needed).map_err(|error| wrong(from, error.to_string()))?;
    }
    if let Some(other) = found.get(to)
        && other.from != from
        && !(kind.is_dir() && matches!(other.sent, Sent::Directory { .. }))
    {
        let (other, to) = (other.from.display(), to.display());
        return Err(wrong(from, format!("it would be {to} there, and so would {other}")));
    }
    if !to.as_os_str().is_empty() {
        found.insert(to.to_owned(), Entry { from: from.to_owned(), sent });
    }
    if kind.is_dir() {
        let failed = |error: std::io::Error| wrong(from, error.to_string());
        for entry in std::fs::read_dir(from).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let metadata = entry.metadata().map_err(failed)?;
            add(found, &entry.path(), &to.join(entry.file_name()), &metadata)?;
        }
    }
    Ok(())
}

/// Whether a link at `path` leads to nothing above the directory that `path` begins in. By words alone: another link on the way may lead elsewhere, which
/// whoever writes there keeps from mattering.
pub(super) fn stays_within(path: &Path, target: &Path) -> bool {
    let mut depth = path.components().count() as i64 - 1;
    target.components().all(|component| {
        match component {
            Component::Normal(_) => depth += 1,
            Component::ParentDir => depth -= 1,
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => depth = i64::MIN / 2,
        }
        depth >= 0
    })
}

fn wrong(path: &Path, reason: String) -> LaunchError {
    LaunchError::Send { path: path.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn scene(name: &str) -> PathBuf {
        let here = std::env::temp_dir().join(format!("comb-files-test-{name}-{}", std::process::id()));
        std::fs::create_dir_all(here.join("work/data/deep")).unwrap();
        std::fs::write(here.join("work/data/deep/numbers"), "123").unwrap();
        std::fs::write(here.join("outside"), "x").unwrap();
        here
    }

    fn names(paths: &[&str], here: &Path) -> Result<Vec<String>, String> {
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        let files = Files::find(&paths, here).map_err(|error| error.to_string())?;
        Ok(files.entries.iter().map(|entry| format!("{:?}", entry.sent)).collect())
    }

    #[test]
    fn directories_come_before_what_is_in_them_and_links_at_last() {
        let scene = scene("order");
        let work = scene.join("work");
        symlink("deep/numbers", work.join("data/a-link")).unwrap();
        let found = names(&["data/", "../outside"], &work).unwrap();
        let kinds: Vec<&str> = found.iter().map(|entry| entry.split(", mode").next().unwrap()).collect();
        let expected = [
            "Directory { path: \"data\"",
            "Directory { path: \"data/deep\"",
            "File { path: \"data/deep/numbers\"",
            "File { path: \"outside\"",
            "Link { path: \"data/a-link\", target: \"deep/numbers\" }",
        ];
        assert_eq!(kinds, expected);
        assert_eq!(names(&["."], &work.join("data")).unwrap().len(), 3, "what is in it, and not itself");
        assert_eq!(names(&[scene.join("work/data/deep").to_str().unwrap()], &work).unwrap().len(), 3);
        std::fs::remove_dir_all(scene).unwrap();
    }

    #[test]
    fn what_leads_out_is_no_file_or_has_anothers_name_is_refused() {
        let scene = scene("refused");
        let work = scene.join("work");
        let refused = |paths: &[&str], words: &str| {
            let said = names(paths, &work).unwrap_err();
            assert!(said.contains(words), "{said}");
        };
        refused(&["no-such"], "No such file");
        refused(&["/dev/null"], "only files");
        std::fs::write(work.join("outside"), "y").unwrap();
        refused(&["outside", "../outside"], "so would");
        for target in ["../../outside", "/etc/passwd"] {
            symlink(target, work.join("data/link")).unwrap();
            refused(&["data"], "is a link to");
            std::fs::remove_file(work.join("data/link")).unwrap();
        }
        std::fs::remove_dir_all(scene).unwrap();
    }

    #[test]
    fn a_link_is_judged_by_where_it_lies() {
        let stays = |path: &str, target: &str| stays_within(Path::new(path), Path::new(target));
        assert!(stays("a", "b") && stays("a/b", "../c") && stays("a/b/c", "./../../d/../e"));
        assert!(
            !stays("a", "../a")
                && !stays("a/b", "../../c/d")
                && !stays("a", "/b")
                && !stays("a", "b/../../a")
        );
    }
}
