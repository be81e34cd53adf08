//! Where changes are: "94% of them in the tree of user profiles" is what one wants to see. (Thesis §9.5)

use std::collections::BTreeMap;

use super::Changes;

/// When so many directories with changes are known, further ones count as the nearest that is known above them.
const MOST_KNOWN: usize = 1 << 18;

/// The changes in a directory and below it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Subtree {
    /// All of them.
    pub changes: Changes,
    /// By the directories in it.
    pub below: BTreeMap<Box<[u8]>, Subtree>,
    /// How many directories are known; only the root counts.
    known: usize,
}

/// A directory on the way down to where the changes are.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// Which.
    pub path: Vec<u8>,
    /// What has changed below it.
    pub changes: Changes,
    /// Which part of all changes that is.
    pub share: f64,
}

impl Subtree {
    /// Counts a change of the file with this path for all directories above it.
    pub(super) fn count(&mut self, path: &[u8], changes: Changes) {
        self.changes += changes;
        let mut known = self.known;
        let mut parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()).peekable();
        let mut at = &mut *self;
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                break; // the file itself
            }
            if !at.below.contains_key(part) {
                if known >= MOST_KNOWN {
                    break;
                }
                known += 1;
                at.below.insert(part.into(), Self::default());
            }
            at = at.below.get_mut(part).expect("it is there by now");
            at.changes += changes;
        }
        self.known = known;
    }

    /// The directories in this one, those with the most changes first.
    pub fn largest_first(&self) -> Vec<(&[u8], Changes)> {
        let mut all: Vec<_> = self.below.iter().map(|(name, subtree)| (&**name, subtree.changes)).collect();
        all.sort_by_key(|(_, changes)| std::cmp::Reverse(changes.total()));
        all
    }

    /// The way down from here, for as long as one directory holds at least this share of all changes.
    pub fn down_to(&self, least_share: f64) -> Vec<Step> {
        let all = self.changes.total().max(1) as f64;
        let mut way = Vec::new();
        let (mut at, mut path) = (self, Vec::new());
        while let Some((name, below)) = at.below.iter().max_by_key(|(_, subtree)| subtree.changes.total()) {
            let share = below.changes.total() as f64 / all;
            if share < least_share {
                break;
            }
            path.push(b'/');
            path.extend_from_slice(name);
            way.push(Step { path: path.clone(), changes: below.changes, share });
            at = below;
        }
        way
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_goes_down_as_long_as_one_directory_holds_most() {
        let mut root = Subtree::default();
        let one = Changes { added: 1, ..Changes::default() };
        for number in 0..94 {
            root.count(format!("/home/ann/cache/{}/{number}", number % 10).as_bytes(), one);
        }
        for number in 0..6 {
            root.count(format!("/usr/{number}").as_bytes(), one);
        }
        let way = root.down_to(0.5);
        let paths: Vec<_> = way.iter().map(|step| step.path.as_slice()).collect();
        assert_eq!(paths, [&b"/home"[..], b"/home/ann", b"/home/ann/cache"]);
        assert_eq!((way[2].share, way[2].changes.added), (0.94, 94));
        let first: Vec<_> =
            root.largest_first().iter().map(|(name, of)| (name.to_vec(), of.total())).collect();
        assert_eq!(first, [(b"home".to_vec(), 94), (b"usr".to_vec(), 6)]);
    }

    #[test]
    fn when_it_is_full_the_nearest_directory_above_counts() {
        let one = Changes { removed: 1, ..Changes::default() };
        let mut root = Subtree { known: MOST_KNOWN - 1, ..Subtree::default() };
        root.count(b"/a/x", one);
        root.count(b"/a/b/x", one);
        assert_eq!((root.changes.total(), root.below[&b"a"[..]].changes.total()), (2, 2));
        assert!(root.below[&b"a"[..]].below.is_empty());
    }
}
