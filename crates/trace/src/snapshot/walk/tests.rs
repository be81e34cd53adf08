use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;
use crate::snapshot::Tree;
use crate::temporary_folder::TemporaryFolder;

fn names(tree: &Tree, root: &Path) -> Vec<String> {
    let below = |path: &[u8]| {
        String::from_utf8_lossy(&path[root.as_os_str().len()..]).trim_start_matches('/').to_owned()
    };
    tree.entries().iter().map(|entry| below(&entry.path)).collect()
}

/// What a snapshot shows of a tree that somebody changes at one point of the walk, the given time that it comes to it.
fn walked(root: &Path, stage: Stage, time: u32, change: impl Fn()) -> (Tree, Taken) {
    let (mut output, mut times) = (Vec::new(), 0);
    let mut watch = |now: Stage| {
        times += u32::from(now == stage);
        if now == stage && times == time {
            change();
        }
    };
    let taken = take_watched(&[root.to_path_buf()], &Options::default(), &mut output, &mut watch).unwrap();
    let (tree, fault) = Tree::read(output.as_slice()).unwrap();
    assert!(fault.is_none(), "the numbers in each directory are right: {fault:?}");
    (tree, taken)
}

fn folder_with(names: &[&str]) -> TemporaryFolder {
    let folder = TemporaryFolder::new();
    for name in names {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    folder
}

#[test]
fn a_file_that_is_gone_before_it_is_looked_at_is_counted_and_not_shown() {
    let folder = folder_with(&["one", "two", "in/three"]);
    let root = folder.path();
    let (tree, taken) = walked(root, Stage::Listed, 1, || fs::remove_file(root.join("one")).unwrap());
    assert_eq!(names(&tree, root), ["", "in", "in/three", "two"]);
    assert_eq!((taken.end.vanished, taken.end.unreadable, taken.end.files), (1, 0, 2));
}

#[test]
fn a_directory_that_is_gone_before_it_is_entered_is_shown_with_nothing_in_it() {
    let folder = folder_with(&["a/b/one", "two"]);
    let root = folder.path();
    let (tree, taken) = walked(root, Stage::LookedAt, 1, || fs::remove_dir_all(root.join("a")).unwrap());
    assert_eq!(names(&tree, root), ["", "a", "two"]);
    assert_eq!(tree.entries()[1].directory.unwrap().inside, Inside::Unreadable);
    assert_eq!(taken.end.vanished, 1);
}

#[test]
fn a_directory_that_became_a_link_or_another_directory_is_not_entered() {
    let outside = folder_with(&["secret"]);
    let folder = folder_with(&["a/one"]);
    let root = folder.path();
    let replace_by_link = || {
        fs::rename(root.join("a"), root.join("b")).unwrap();
        symlink(outside.path(), root.join("a")).unwrap();
    };
    let (tree, taken) = walked(root, Stage::LookedAt, 1, replace_by_link);
    assert_eq!((names(&tree, root), taken.end.vanished), (vec![String::new(), "a".to_owned()], 1));
    fs::remove_file(root.join("a")).unwrap();
    let replace_by_directory = || {
        fs::rename(root.join("b"), root.join("c")).unwrap();
        fs::create_dir(root.join("b")).unwrap();
        fs::write(root.join("b/other"), "").unwrap();
    };
    let (tree, taken) = walked(root, Stage::LookedAt, 1, replace_by_directory);
    assert_eq!((names(&tree, root), taken.end.vanished), (vec![String::new(), "b".to_owned()], 1));
}

#[test]
fn what_comes_during_the_walk_is_shown_or_not_and_harms_nothing() {
    let folder = folder_with(&["a/one"]);
    let root = folder.path();
    let (tree, taken) = walked(root, Stage::LookedAt, 1, || {
        fs::write(root.join("a/new"), "").unwrap();
        fs::write(root.join("late"), "").unwrap();
    });
    assert_eq!(names(&tree, root), ["", "a", "a/new", "a/one"]);
    assert_eq!((taken.end.vanished, taken.end.files), (0, 2));
}

#[test]
fn a_tree_that_is_deeper_than_a_path_can_be_is_walked_to_its_ground_and_back() {
    const DEPTH: usize = 400;
    const NAME: &str = "a name of which a hundred are too long for a path";
    let folder = TemporaryFolder::new();
    let mut at = open_folder(CWD, folder.path()).unwrap();
    // Beside each directory one that stands behind it, so that each must be open again on the way back.
    for _ in 0..DEPTH {
        rustix::fs::mkdirat(&at, NAME, Mode::RWXU).unwrap();
        rustix::fs::mkdirat(&at, "b", Mode::RWXU).unwrap();
        at = open_folder(&at, NAME).unwrap();
    }
    drop(at);
    let (tree, taken) = walked(folder.path(), Stage::Listed, 0, || {});
    assert_eq!((taken.end.directories, taken.end.vanished), (2 * DEPTH as u64 + 1, 0));
    let deepest = tree.entries().iter().map(|entry| entry.depth).max();
    assert_eq!(deepest, Some(u32::try_from(DEPTH).unwrap()));
}
