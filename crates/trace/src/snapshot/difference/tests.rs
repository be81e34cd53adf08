use super::*;
use crate::snapshot::block::{BlockWriter, Record};
use crate::snapshot::{Attributes, Directory, END, End, FORMAT, HEAD, Head, RECORDS};

/// A file in a snapshot that is made up: a path, a number, a size. A path that ends with a slash is a directory.
type Made<'a> = (&'a str, u64, u64);

/// A snapshot of a tree at `/r`, whose entries are given in order.
fn snapshot(entries: &[Made<'_>], change: impl Fn(&mut Attributes)) -> Vec<u8> {
    let mut block = BlockWriter::default();
    for &(path, inode, size) in entries {
        let is_directory = path.ends_with('/');
        let mut attributes = Attributes {
            mode: if is_directory { 0o040_755 } else { 0o100_644 },
            file: Identity { inode, device: 1, generation: 0 },
            size,
            born_ns: Some(i64::try_from(inode).unwrap()),
            ..Attributes::default()
        };
        change(&mut attributes);
        let name = path.trim_end_matches('/');
        let below = |other: &str| {
            other.trim_end_matches('/').rsplit_once('/').is_some_and(|(above, _)| above == name)
        };
        let count = |of_directories| {
            let all =
                entries.iter().filter(|(other, _, _)| below(other) && other.ends_with('/') == of_directories);
            all.count() as u64
        };
        let directory = Directory { files: count(false), directories: count(true), inside: Inside::Seen };
        let stored = if name == "/r" { name } else { name.rsplit('/').next().unwrap() };
        block.add(Record {
            name: stored.as_bytes().to_vec(),
            attributes,
            directory: is_directory.then_some(directory),
        });
    }
    let head = Head { roots: vec![b"/r".to_vec()], known_name: b"comb".to_vec(), ..Head::default() };
    let mut bytes = FORMAT.magic.to_vec();
    bytes.extend(crate::framing::framed(HEAD, |bytes| postcard::to_extend(&head, bytes).unwrap()));
    bytes.extend(crate::framing::framed(RECORDS, |bytes| [bytes, block.take().unwrap()].concat()));
    bytes.extend(crate::framing::framed(END, |bytes| postcard::to_extend(&End::default(), bytes).unwrap()));
    bytes
}

fn told(old: &[u8], new: &[u8]) -> (Vec<String>, Difference) {
    let mut all = Vec::new();
    let text = |entry: &Entry| String::from_utf8_lossy(&entry.path).into_owned();
    let difference = difference(old, new, |change| {
        all.push(match change {
            Change::Added(entry) => format!("+{}", text(entry)),
            Change::Removed(entry) => format!("-{}", text(entry)),
            Change::Changed { new, .. } => format!("!{}", text(new)),
            Change::Moved { old, new } => format!("{}>{}", text(old), text(new)),
        });
    });
    (all, difference.unwrap())
}

#[test]
fn what_came_went_changed_and_moved_is_told() {
    let old = [
        ("/r/", 1, 0),
        ("/r/a/", 2, 0),
        ("/r/a/kept", 3, 5),
        ("/r/a/moves", 4, 5),
        ("/r/gone", 5, 7),
        ("/r/grows", 6, 1),
    ];
    let new = [
        ("/r/", 1, 0),
        ("/r/a/", 2, 0),
        ("/r/a/kept", 3, 5),
        ("/r/a/new", 7, 2),
        ("/r/b", 4, 5),
        ("/r/grows", 6, 9),
    ];
    let (told, difference) = told(&snapshot(&old, |_| {}), &snapshot(&new, |_| {}));
    assert_eq!(told, ["/r/a/moves>/r/b", "!/r/grows", "-/r/gone", "+/r/a/new"]);
    assert_eq!(difference.files, Changes { added: 1, removed: 1, changed: 1, moved: 1 });
    assert_eq!((difference.unchanged_files, difference.directories.total()), (1, 0));
    assert_eq!((difference.grown_bytes, difference.shrunk_bytes), (10, 7));
    assert_eq!(difference.by_place.below[&b"r"[..]].below[&b"a"[..]].changes.total(), 1);
}

#[test]
fn a_directory_that_is_renamed_takes_its_files_along() {
    let old = [("/r/", 1, 0), ("/r/a/", 2, 0), ("/r/a/x", 3, 5)];
    let new = [("/r/", 1, 0), ("/r/b/", 2, 0), ("/r/b/x", 3, 5)];
    let (told, difference) = told(&snapshot(&old, |_| {}), &snapshot(&new, |_| {}));
    assert_eq!(told, ["/r/a>/r/b", "/r/a/x>/r/b/x"]);
    assert_eq!((difference.files.moved, difference.directories.moved), (1, 1));
}

#[test]
fn a_number_that_another_file_got_is_no_move() {
    let old = [("/r/", 1, 0), ("/r/gone", 9, 5)];
    let new = [("/r/", 1, 0), ("/r/new", 9, 5)];
    let later = |attributes: &mut Attributes| attributes.born_ns = Some(1_000);
    assert_eq!(told(&snapshot(&old, |_| {}), &snapshot(&new, later)).0, ["-/r/gone", "+/r/new"]);
    let unknown = |attributes: &mut Attributes| attributes.born_ns = None;
    assert_eq!(told(&snapshot(&old, unknown), &snapshot(&new, unknown)).0, ["/r/gone>/r/new"]);
    let other = |attributes: &mut Attributes| (attributes.born_ns, attributes.modified_ns) = (None, 7);
    let (told, _) = told(&snapshot(&old, unknown), &snapshot(&new, other));
    assert_eq!(told, ["-/r/gone", "+/r/new"]);
}

#[test]
fn a_file_that_became_a_directory_went_and_came() {
    let old = [("/r/", 1, 0), ("/r/a", 2, 3)];
    let new = [("/r/", 1, 0), ("/r/a/", 3, 0), ("/r/a/x", 4, 5)];
    let (told, _) = told(&snapshot(&old, |_| {}), &snapshot(&new, |_| {}));
    assert_eq!(told, ["-/r/a", "+/r/a", "+/r/a/x"]);
}

#[test]
fn of_a_directory_that_one_of_the_two_could_not_look_into_nothing_is_said() {
    let old = [("/r/", 1, 0), ("/r/a/", 2, 0), ("/r/a/x", 3, 5), ("/r/a-b", 4, 4)];
    let mut records = old.to_vec();
    records.remove(2);
    let unreadable = snapshot(&records, |_| {});
    // The same, but that the directory says that nobody could look into it.
    let mut reader = SnapshotReader::new(unreadable.as_slice()).unwrap();
    let mut unseen = Unseen::default();
    let entries: Vec<Entry> = std::iter::from_fn(|| reader.next_entry().unwrap()).collect();
    let mut closed = entries[1].clone();
    closed.directory = Some(Directory { inside: Inside::Unreadable, ..Directory::default() });
    let below = Entry { path: b"/r/a/x".to_vec(), ..Entry::default() };
    let beside = Entry { path: b"/r/a-b".to_vec(), ..Entry::default() };
    assert!(!unseen.holds(Some(&entries[1]), Some(&closed)));
    assert!(unseen.holds(Some(&below), None));
    assert!(!unseen.holds(None, Some(&beside)));
    assert!(!unseen.holds(Some(&below), None), "it is left by now");
}

#[test]
fn a_snapshot_that_was_cut_off_is_compared_up_to_there() {
    let old = snapshot(&[("/r/", 1, 0), ("/r/a", 2, 3)], |_| {});
    let new = snapshot(&[("/r/", 1, 0), ("/r/a", 2, 4)], |_| {});
    let (told, difference) = told(&old[..old.len() - 1], &new);
    assert_eq!(told, ["!/r/a"]);
    assert!(difference.fault.unwrap().starts_with("the earlier snapshot: the snapshot was cut off after"));
}

#[test]
fn paths_are_in_the_order_of_a_walk() {
    let walk: [&[u8]; 7] = [b"/", b"/a", b"/a/b", b"/a/b/c", b"/a\x01", b"/a-b", b"/b"];
    for (place, one) in walk.iter().enumerate() {
        for (other_place, other) in walk.iter().enumerate() {
            assert_eq!(path_order(one, other), place.cmp(&other_place), "{one:?} {other:?}");
        }
    }
}
