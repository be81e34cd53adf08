//! Snapshots of trees that are really there.

#[path = "../src/temporary_folder.rs"]
mod temporary_folder;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use comb_trace::privacy::Privacy;
use comb_trace::snapshot::{
    Change, DifferenceError, Entry, Inside, Options, SnapshotFileError, SnapshotReader, Totals, Tree,
    difference, take,
};
use temporary_folder::TemporaryFolder;

fn snapshot_with(roots: &[&Path], options: &Options) -> Vec<u8> {
    let roots: Vec<PathBuf> = roots.iter().map(|root| root.to_path_buf()).collect();
    let mut bytes = Vec::new();
    let taken = take(&roots, options, &mut bytes).unwrap();
    assert_eq!(taken.bytes, bytes.len() as u64);
    bytes
}

fn snapshot(root: &Path) -> Vec<u8> {
    snapshot_with(&[root], &Options::default())
}

/// Names that programs stumble over.
fn odd_names() -> Vec<Vec<u8>> {
    vec![
        b"new\nline".to_vec(),
        b"\xff\xfe not UTF-8 \x80".to_vec(),
        vec![b'x'; 255],
        [vec![b'x'; 254], b"y".to_vec()].concat(),
        b" ".to_vec(),
        b"...".to_vec(),
        b"-rf".to_vec(),
        b"a-b".to_vec(),
        b"\x01".to_vec(),
        "ünïcödé".as_bytes().to_vec(),
        b"*?[]\\\"'".to_vec(),
    ]
}

fn filled_with_odd_names() -> TemporaryFolder {
    let folder = TemporaryFolder::new();
    for (number, name) in odd_names().iter().enumerate() {
        let inner = folder.path().join(OsStr::from_bytes(name));
        if number % 2 == 0 {
            fs::write(&inner, vec![b'.'; number * 1000]).unwrap();
        } else {
            fs::create_dir(&inner).unwrap();
            fs::write(inner.join(OsStr::from_bytes(name)), "inside").unwrap();
        }
    }
    symlink("nowhere", folder.path().join("link")).unwrap();
    folder
}

/// All paths below a directory, in the order of a snapshot, by other means.
fn walked(at: &Path, found: &mut Vec<PathBuf>) {
    found.push(at.to_path_buf());
    if fs::symlink_metadata(at).unwrap().is_dir() {
        let mut below: Vec<PathBuf> = fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path()).collect();
        below.sort_by(|one, other| one.as_os_str().as_bytes().cmp(other.as_os_str().as_bytes()));
        below.iter().for_each(|path| walked(path, found));
    }
}

#[test]
fn a_tree_with_odd_names_comes_back_with_all_that_is_known_of_it() {
    let folder = filled_with_odd_names();
    let (tree, fault) = Tree::read(snapshot(folder.path()).as_slice()).unwrap();
    assert!(fault.is_none());
    let mut expected = Vec::new();
    walked(folder.path(), &mut expected);
    let paths: Vec<PathBuf> =
        tree.entries().iter().map(|entry| PathBuf::from(OsStr::from_bytes(&entry.path))).collect();
    assert_eq!(paths, expected);
    for (entry, path) in tree.entries().iter().zip(&paths) {
        let status = fs::symlink_metadata(path).unwrap();
        let of = &entry.attributes;
        let time_ns = |seconds: i64, fraction: i64| seconds * 1_000_000_000 + fraction;
        assert_eq!((of.mode, of.user, of.group), (status.mode(), status.uid(), status.gid()), "{path:?}");
        assert_eq!((of.size, of.allocated_bytes), (status.size(), status.blocks() * 512), "{path:?}");
        assert_eq!((of.file.inode, u64::from(of.links)), (status.ino(), status.nlink()), "{path:?}");
        assert_eq!(of.modified_ns, time_ns(status.mtime(), status.mtime_nsec()), "{path:?}");
        assert_eq!(of.changed_ns, time_ns(status.ctime(), status.ctime_nsec()), "{path:?}");
        let born =
            status.created().ok().map(|time| time.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos());
        assert_eq!(of.born_ns.map(|time| time as u128), born, "{path:?}");
        assert_eq!(
            Some(entry.name()),
            path.file_name().map(OsStr::as_bytes).filter(|_| entry.depth > 0).or(Some(&entry.path))
        );
    }
    let root = tree.roots().collect::<Vec<_>>();
    assert_eq!(root, [0]);
    let children: Vec<&Entry> = tree.children(0).map(|at| &tree.entries()[at]).collect();
    let directories = children.iter().filter(|entry| entry.directory.is_some()).count() as u64;
    let of_root = tree.entries()[0].directory.unwrap();
    assert_eq!((of_root.files, of_root.directories), (children.len() as u64 - directories, directories));
    assert_eq!(tree.subtree(0).len(), tree.entries().len());
}

#[test]
fn a_snapshot_is_read_up_to_where_it_was_cut_and_every_changed_byte_is_noticed() {
    let folder = filled_with_odd_names();
    let whole = snapshot(folder.path());
    let read = |bytes: &[u8]| -> (usize, Option<SnapshotFileError>) {
        let mut reader = match SnapshotReader::new(bytes) {
            Ok(reader) => reader,
            Err(error) => return (0, Some(error)),
        };
        let mut count = 0;
        loop {
            match reader.next_entry() {
                Ok(Some(_)) => count += 1,
                Ok(None) => return (count, None),
                Err(error) => return (count, Some(error)),
            }
        }
    };
    let (all, fault) = read(&whole);
    assert!(all > odd_names().len() && fault.is_none());
    let mut counts = Vec::new();
    for length in 0..whole.len() {
        let (count, fault) = read(&whole[..length]);
        let fault = fault.unwrap();
        if length < b"comb snapshot\n1".len() {
            assert!(matches!(fault, SnapshotFileError::Foreign));
        } else {
            assert!(fault.leaves_good_part() && fault.to_string().contains("cut off"), "{length}: {fault}");
        }
        counts.push(count);
    }
    counts.dedup();
    assert_eq!(counts, [0, all]);
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x41;
        assert!(read(&bytes).1.is_some(), "byte {at}");
    }
    let told = |bytes: &[u8]| read(bytes).1.unwrap().to_string();
    assert_eq!(told(b"comb trace\n1 and so on"), "this is no snapshot of comb");
    assert_eq!(
        told(b"comb snapshot\n2 and so on"),
        "this snapshot has format '2', and this comb reads format '1'"
    );
}

#[test]
fn hidden_names_say_nothing_and_can_be_compared_only_if_they_are_hidden_alike() {
    let folder = TemporaryFolder::new();
    fs::write(folder.path().join("diary of ann.txt"), "").unwrap();
    let hidden = Options { privacy: Privacy::hashed(), ..Options::default() };
    let before = snapshot_with(&[folder.path()], &hidden);
    let (tree, _) = Tree::read(before.as_slice()).unwrap();
    let all: Vec<u8> = tree.entries().iter().flat_map(|entry| entry.path.clone()).collect();
    let all = String::from_utf8(all).unwrap();
    assert!(!all.contains("ann") && !all.contains("comb-trace-") && all.ends_with(".txt"), "{all}");
    assert!(!tree.head().roots[0].ends_with(folder.path().file_name().unwrap().as_bytes()));
    fs::write(folder.path().join("more"), "").unwrap();
    let after = snapshot_with(&[folder.path()], &hidden);
    let found = difference(before.as_slice(), after.as_slice(), |_| {}).unwrap();
    assert_eq!((found.files.added, found.files.total(), found.unchanged_files), (1, 1, 1));
    let other =
        snapshot_with(&[folder.path()], &Options { privacy: Privacy::hashed(), ..Options::default() });
    let error = difference(before.as_slice(), other.as_slice(), |_| {}).unwrap_err();
    assert!(matches!(error, DifferenceError::OtherNames));
}

#[test]
fn a_day_s_changes_are_found_in_trees_that_are_really_there() {
    let folder = TemporaryFolder::new();
    let at = |name: &str| folder.path().join(name);
    for name in ["etc/conf", "home/ann/keep.txt", "home/ann/move.rs", "home/ann/cache/gone.tmp"] {
        fs::create_dir_all(at(name).parent().unwrap()).unwrap();
        fs::write(at(name), name).unwrap();
    }
    let before = snapshot(folder.path());
    fs::rename(at("home/ann/move.rs"), at("home/ann/cache/moved.rs")).unwrap();
    fs::remove_file(at("home/ann/cache/gone.tmp")).unwrap();
    fs::write(at("home/ann/cache/new.html"), "page").unwrap();
    fs::write(at("etc/conf"), "something longer").unwrap();
    let after = snapshot(folder.path());
    let mut moved = Vec::new();
    let found = difference(before.as_slice(), after.as_slice(), |change| {
        if let Change::Moved { old, new } = change {
            moved.push((old.name().to_vec(), new.name().to_vec()));
        }
    })
    .unwrap();
    assert_eq!(moved, [(b"move.rs".to_vec(), b"moved.rs".to_vec())]);
    assert_eq!(
        (found.files.added, found.files.removed, found.files.changed, found.files.moved),
        (1, 1, 1, 1)
    );
    assert_eq!(found.by_category()["document"].added, 1);
    let way = found.by_place.down_to(0.7);
    assert_eq!(
        (&way.last().unwrap().path, way.last().unwrap().share),
        (&at("home/ann/cache").as_os_str().as_bytes().to_vec(), 0.75)
    );
    let none = difference(after.as_slice(), after.as_slice(), |_| panic!("nothing has changed")).unwrap();
    assert_eq!((none.files.total(), none.unchanged_files, none.fault), (0, 4, None));
    let (totals, _) = Totals::read(after.as_slice()).unwrap();
    assert_eq!((totals.files.files, totals.directories), (4, 5));
}

#[test]
fn roots_within_others_are_part_of_those_and_what_the_kernel_makes_up_is_not_entered() {
    let folder = TemporaryFolder::new();
    fs::create_dir_all(folder.path().join("a/b")).unwrap();
    fs::create_dir(folder.path().join("a-b")).unwrap();
    let at = |name: &str| folder.path().join(name);
    let bytes = snapshot_with(&[&at("a-b"), &at("a/b"), &at("a")], &Options::default());
    let (tree, _) = Tree::read(bytes.as_slice()).unwrap();
    let roots: Vec<_> = tree.roots().map(|root| tree.entries()[root].path.clone()).collect();
    assert_eq!(roots, [at("a"), at("a-b")].map(|path| path.as_os_str().as_bytes().to_vec()));
    assert_eq!(tree.entries().len(), 3);
    let crossing = Options { crosses_file_systems: true, ..Options::default() };
    let (tree, _) = Tree::read(snapshot_with(&[Path::new("/proc")], &crossing).as_slice()).unwrap();
    assert_eq!((tree.entries().len(), tree.entries()[0].directory.unwrap().inside), (1, Inside::OfKernel));
}

#[test]
fn a_tree_that_is_not_there_is_named() {
    let error = take(&[PathBuf::from("/no such place")], &Options::default(), &mut Vec::new()).unwrap_err();
    assert!(error.to_string().starts_with("/no such place: "), "{error}");
    assert!(take(&[], &Options::default(), &mut Vec::new()).is_err());
}
