//! The files of a made-up workload: which is opened next, how long it is, where it lies, and how a new one ends.

use comb_types::Dice;

use super::model::{Model, Reuse};
use crate::event::Identity;
use crate::statistics::distributions::uniform;

/// So many numbers of inodes are a file system's own.
const FIRST_INODE: u64 = 1000;

/// Tries at a file that is long enough.
const MOST_TRIES: u32 = 32;

/// What a file system can hold in one file, and a session read of it.
const MOST_FILE_BYTES: u64 = 1 << 43;

/// No path of ours is longer: a name has ten bytes at most, and a path of Linux 4096.
const DEEPEST: u64 = 200;

/// The number of a file, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct FileId(u32);

/// How a new file ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Fate {
    /// It does not, as far as the trace goes.
    Stays,
    /// It is emptied.
    Overwritten,
    /// It is deleted.
    Deleted,
}

pub(super) struct File {
    pub(super) size_bytes: u64,
    pub(super) is_named: bool,
    /// What comes of it, if it is new.
    pub(super) fate: Fate,
    directory: usize,
    /// How often it was opened, among those that are opened again.
    opens: u32,
}

struct Directory {
    above: Option<usize>,
    depth: u64,
}

/// All of them.
pub(super) struct Files {
    all: Vec<File>,
    /// Each open of a file that may be opened again, so that one at random is of a file in proportion to its opens.
    opened: Vec<FileId>,
    /// How many of those that may be opened again there are.
    known: u32,
    directories: Vec<Directory>,
    /// Where the next file goes, and how many more will.
    current: usize,
    room: u64,
    dice: Dice,
}

impl Files {
    pub(super) fn new(dice: Dice) -> Self {
        let root = Directory { above: None, depth: 0 };
        Self {
            all: Vec::new(),
            opened: Vec::new(),
            known: 0,
            directories: vec![root],
            current: 0,
            room: 0,
            dice,
        }
    }

    pub(super) fn get(&self, file: FileId) -> &File {
        &self.all[file.0 as usize]
    }

    pub(super) fn get_mut(&mut self, file: FileId) -> &mut File {
        &mut self.all[file.0 as usize]
    }

    pub(super) fn identity(&self, file: FileId) -> Identity {
        Identity { inode: FIRST_INODE + u64::from(file.0), device: 8 << 20 | 1, generation: 1 }
    }

    /// A file that is opened: not shorter than `least_bytes`, and as long as is wanted if one of several tries is.
    pub(super) fn pick(&mut self, model: &Model, least_bytes: u64, wanted_bytes: u64) -> FileId {
        let Some(mut file) = self.reused(&model.reuse) else {
            return self.fresh(model, least_bytes, wanted_bytes);
        };
        for _ in 0..MOST_TRIES {
            if self.get(file).size_bytes >= wanted_bytes {
                break;
            }
            // Whether it is the turn of a fresh one has been decided: or else those who want much would fill the disk with long files.
            let other = self.one_of_opened(model.reuse.discount);
            if self.get(other).size_bytes > self.get(file).size_bytes {
                file = other;
            }
        }
        if self.get(file).size_bytes < least_bytes {
            return self.fresh(model, least_bytes, wanted_bytes);
        }
        self.note_open(file);
        file
    }

    fn fresh(&mut self, model: &Model, least_bytes: u64, wanted_bytes: u64) -> FileId {
        let mut size_bytes = 0;
        for _ in 0..MOST_TRIES {
            size_bytes = model.file_bytes.draw(&mut self.dice).clamp(size_bytes, MOST_FILE_BYTES);
            if size_bytes >= wanted_bytes {
                break;
            }
        }
        let file = self.add(model, size_bytes.max(least_bytes));
        self.may_be_opened_again(file);
        file
    }

    /// One that was opened before, unless it is the turn of one that was not.
    fn reused(&mut self, reuse: &Reuse) -> Option<FileId> {
        let fresh = reuse.strength + f64::from(self.known) * reuse.discount;
        let is_fresh = uniform(&mut self.dice) * (reuse.strength + self.opened.len() as f64) < fresh;
        (!is_fresh && !self.opened.is_empty()).then(|| self.one_of_opened(reuse.discount))
    }

    /// One of those that were opened, each as often as it was less the discount.
    fn one_of_opened(&mut self, discount: f64) -> FileId {
        let mut file = self.opened[self.dice.index(self.opened.len())];
        // If all were opened once and lose nearly all of that, most tries are in vain.
        for _ in 0..MOST_TRIES {
            let opens = f64::from(self.get(file).opens);
            if uniform(&mut self.dice) * opens < opens - discount {
                break;
            }
            file = self.opened[self.dice.index(self.opened.len())];
        }
        file
    }

    /// A file of which nothing was known.
    pub(super) fn add(&mut self, model: &Model, size_bytes: u64) -> FileId {
        let file = FileId(u32::try_from(self.all.len()).expect("files are fewer than four thousand million"));
        let directory = self.place(model);
        self.all.push(File { size_bytes, is_named: false, fate: Fate::Stays, directory, opens: 0 });
        file
    }

    fn note_open(&mut self, file: FileId) {
        let open = &mut self.get_mut(file).opens;
        *open = open.saturating_add(1);
        self.opened.push(file);
    }

    /// From now on it is one of those that are opened again; it has been opened once.
    pub(super) fn may_be_opened_again(&mut self, file: FileId) {
        if self.get(file).opens == 0 {
            self.known += 1;
        }
        self.note_open(file);
    }

    fn place(&mut self, model: &Model) -> usize {
        if self.room == 0 {
            self.room = model.directories.files.draw(&mut self.dice).max(1);
            let depth = model.directories.depth.draw(&mut self.dice).min(DEEPEST);
            self.current = self.directory(depth);
        }
        self.room -= 1;
        self.current
    }

    /// A new directory at this depth: below one that is there, or with what it takes above it.
    fn directory(&mut self, depth: u64) -> usize {
        if depth == 0 {
            return 0;
        }
        let start = self.dice.index(self.directories.len());
        let count = self.directories.len();
        let nearest = (0..count).map(|step| (start + step) % count).take(MOST_TRIES as usize);
        let nearest = nearest.filter(|&at| self.directories[at].depth < depth);
        let mut above = nearest.max_by_key(|&at| self.directories[at].depth).unwrap_or(0);
        while self.directories[above].depth + 1 < depth {
            above = self.add_directory(above);
        }
        self.add_directory(above)
    }

    fn add_directory(&mut self, above: usize) -> usize {
        let depth = self.directories[above].depth + 1;
        self.directories.push(Directory { above: Some(above), depth });
        self.directories.len() - 1
    }

    /// What it is called: parts, innermost first.
    fn parts(&self, file: FileId) -> Vec<String> {
        let mut parts = vec![format!("f{}", file.0)];
        let mut at = self.get(file).directory;
        while let Some(above) = self.directories[at].above {
            parts.push(format!("d{at}"));
            at = above;
        }
        parts
    }

    /// As the kernel tells a name: each part ended by a zero.
    pub(super) fn name(&self, file: FileId) -> Vec<u8> {
        self.parts(file).into_iter().flat_map(|part| (part + "\0").into_bytes()).collect()
    }

    pub(super) fn path(&self, file: FileId) -> String {
        let mut parts = self.parts(file);
        parts.reverse();
        format!("/{}", parts.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popularity_is_as_the_process_of_pitman_and_yor_has_it() {
        let mut model = Model::thesis();
        model.reuse = Reuse { discount: 0.6, strength: 40.0 };
        let (mut all, mut once) = (0.0, 0.0);
        for seed in 0..10 {
            let mut files = Files::new(Dice::new(seed));
            (0..50_000).for_each(|_| _ = files.pick(&model, 0, 0));
            all += files.all.len() as f64 / 10.0;
            once += files.all.iter().filter(|file| file.opens == 1).count() as f64 / 10.0;
        }
        // By its formula 4762 are expected, with a standard deviation of 370 of one; and in the end the discount is the share that is opened once.
        assert!((all / 4762.0 - 1.0).abs() < 0.1, "{all}");
        assert!((once / all - 0.61).abs() < 0.03, "{}", once / all);
    }

    #[test]
    fn directories_are_as_deep_and_as_full_as_they_should_be() {
        let mut model = Model::thesis();
        model.directories.depth = super::super::Variable::always(5);
        model.directories.files = super::super::Variable::always(3);
        let mut files = Files::new(Dice::new(5));
        let paths: Vec<String> = (0..30)
            .map(|_| {
                let file = files.add(&model, 1);
                files.path(file)
            })
            .collect();
        assert!(paths.iter().all(|path| path.matches('/').count() == 6), "{paths:?}");
        let folder = |path: &String| path.rsplit_once('/').map(|(folder, _)| folder.to_owned());
        for three in paths.chunks(3) {
            assert_eq!((folder(&three[0]), folder(&three[1])), (folder(&three[1]), folder(&three[2])));
        }
        assert_ne!(folder(&paths[2]), folder(&paths[3]));
    }
}
