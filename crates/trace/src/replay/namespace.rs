//! What is called what at each time of a trace, and what must have been there before it.
//!
//! A trace names a file once, when it is opened first, and paths only where something failed or nothing was opened. Which file an operation
//! was about when others had been renamed or deleted meanwhile follows from all that came before: this is the one who remembers.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;

use crate::event::Identity;

/// A place in the tree of names, whether or not something is there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct NodeId(u32);

/// The root of the file system, which becomes the sandbox.
pub(super) const ROOT: NodeId = NodeId(0);

/// Where those are put whose names nobody told.
const UNNAMED: &[u8] = b".unnamed";

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Kind {
    #[default]
    File,
    Directory,
    /// A symbolic link of so many bytes; where it led is not recorded.
    Link(u16),
}

/// What has to be there before the replay begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Prior {
    pub(super) path: Vec<u8>,
    /// Nothing if it has only ever been asked whether it is there.
    pub(super) kind: Option<Kind>,
    pub(super) size: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Unknown,
    Missing,
    There,
}

#[derive(Default)]
struct Node {
    parent: u32,
    name: Box<[u8]>,
    below: BTreeMap<Box<[u8]>, NodeId>,
    state: State,
    prior: Option<usize>,
    file: Identity,
}

/// How something that is there came to be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// It has been seen before, or was there when the trace began.
    Known,
    /// It can neither have been there before, nor has anybody been seen to make it.
    Unexplained,
}

/// All names.
pub(super) struct Namespace {
    nodes: Vec<Node>,
    of_file: HashMap<Identity, Vec<NodeId>, RandomState>,
    priors: Vec<Prior>,
}

impl Default for Namespace {
    fn default() -> Self {
        let root = Node { state: State::There, ..Node::default() };
        Self { nodes: vec![root], of_file: HashMap::default(), priors: Vec::new() }
    }
}

impl Namespace {
    /// What has to be there, each directory before what is in it.
    pub(super) fn into_priors(self) -> Vec<Prior> {
        self.priors
    }

    /// Where all is that is there now.
    pub(super) fn present(&self) -> impl Iterator<Item = Vec<u8>> {
        let all = (1..self.nodes.len()).map(|index| NodeId(u32::try_from(index).expect("nodes are counted")));
        all.filter(|at| self.node(*at).state == State::There).map(|at| self.path(at))
    }

    /// Follows a path as a program gave it. There is no way out above the root, and links are not known.
    pub(super) fn follow(&mut self, base: NodeId, path: &[u8]) -> NodeId {
        let mut at = if path.first() == Some(&b'/') { ROOT } else { base };
        for part in path.split(|&byte| byte == b'/') {
            at = match part {
                b"" | b"." => at,
                b".." => NodeId(self.node(at).parent),
                name => self.child(at, name),
            };
        }
        at
    }

    /// Where a path begins that starts from this directory, if it has been named.
    pub(super) fn base(&mut self, directory: Identity) -> Option<NodeId> {
        if !directory.is_some() {
            return Some(ROOT);
        }
        self.named(directory)
    }

    /// A file is called so: parts innermost first, each ended by a zero.
    pub(super) fn name(&mut self, file: Identity, parts: &[u8]) {
        let parts: Vec<&[u8]> = parts.split(|&byte| byte == 0).filter(|part| !part.is_empty()).collect();
        // A part that is a path itself, or leads upwards, is none of the kernel's: it is followed like any other.
        let mut at = ROOT;
        for part in parts.into_iter().rev() {
            at = self.follow(at, part.strip_prefix(b"/").unwrap_or(part));
        }
        self.bind(at, file);
    }

    /// Where a file is now; a place of its own if nobody told.
    pub(super) fn place(&mut self, file: Identity) -> NodeId {
        self.named(file).unwrap_or_else(|| {
            let folder = self.child(ROOT, UNNAMED);
            let Identity { inode, device, generation } = file;
            let at = self.child(folder, format!("{device}-{inode}-{generation}").as_bytes());
            self.bind(at, file);
            at
        })
    }

    /// The file that is known to be there.
    pub(super) fn file(&self, at: NodeId) -> Option<Identity> {
        Some(self.node(at).file).filter(|file| file.is_some())
    }

    /// From the sandbox, without a slash in front; the sandbox itself is a dot.
    pub(super) fn path(&self, at: NodeId) -> Vec<u8> {
        let mut parts = Vec::new();
        let mut at = at;
        while at != ROOT {
            parts.push(&*self.node(at).name);
            at = NodeId(self.node(at).parent);
        }
        if parts.is_empty() {
            return b".".to_vec();
        }
        parts.reverse();
        parts.join(&b'/')
    }

    /// Something was found to be there, and so are all directories above it.
    pub(super) fn is_there(&mut self, at: NodeId, kind: Option<Kind>, size: Option<u64>) -> Origin {
        if at == ROOT {
            return Origin::Known;
        }
        let parent = NodeId(self.node(at).parent);
        let above = self.is_there(parent, Some(Kind::Directory), None);
        match self.node(at).state {
            State::There => {}
            State::Missing => {
                self.node_mut(at).state = State::There;
                return Origin::Unexplained;
            }
            State::Unknown => {
                self.node_mut(at).state = State::There;
                // A directory that moved since had it at its old place.
                let folder = match self.node(parent).prior {
                    Some(prior) => self.priors[prior].path.clone(),
                    None if parent == ROOT => Vec::new(),
                    None => return Origin::Unexplained,
                };
                let name: &[u8] = &self.node(at).name;
                let path = if folder.is_empty() { name.to_vec() } else { [&folder, name].join(&b'/') };
                let prior = self.priors.len();
                self.priors.push(Prior { path, kind, size });
                self.node_mut(at).prior = Some(prior);
            }
        }
        if let Some(prior) = self.node(at).prior {
            let prior = &mut self.priors[prior];
            // Who has something in it is a directory, whatever else was said of it.
            if prior.kind.is_none() || kind == Some(Kind::Directory) {
                prior.kind = kind.or(prior.kind);
            }
            prior.size = prior.size.or(size);
        }
        above
    }

    /// It was found not to be there. What is above it is no file, then: of one it would have been said that it is no directory.
    pub(super) fn is_missing(&mut self, at: NodeId) {
        if self.node(at).state == State::Unknown {
            self.node_mut(at).state = State::Missing;
        }
        let mut above = at;
        while above != ROOT {
            above = self.parent(above);
            let node = self.node(above);
            if node.state == State::There {
                if let Some(prior) = node.prior {
                    self.priors[prior].kind.get_or_insert(Kind::Directory);
                }
                break;
            }
        }
    }

    /// Somebody made it; so the directories above it are there.
    pub(super) fn make(&mut self, at: NodeId) -> Origin {
        if at == ROOT {
            return Origin::Known;
        }
        let above = self.is_there(self.parent(at), Some(Kind::Directory), None);
        let node = self.node_mut(at);
        (node.state, node.prior) = (State::There, None);
        above
    }

    /// The directory that something is in.
    pub(super) fn parent(&self, at: NodeId) -> NodeId {
        NodeId(self.node(at).parent)
    }

    /// Somebody deleted it.
    pub(super) fn remove(&mut self, at: NodeId) {
        if at == ROOT {
            return;
        }
        self.unbind(at);
        let node = self.node_mut(at);
        (node.state, node.prior) = (State::Missing, None);
        node.below.clear();
    }

    /// Somebody gave it another name, and with it all that is below. What was there before is gone.
    pub(super) fn rename(&mut self, from: NodeId, to: NodeId) {
        if from == to || from == ROOT || to == ROOT || self.is_below(to, from) {
            return;
        }
        self.unbind(to);
        let (old_parent, old_name) = (NodeId(self.node(from).parent), self.node(from).name.clone());
        let (new_parent, new_name) = (NodeId(self.node(to).parent), self.node(to).name.clone());
        self.node_mut(old_parent).below.remove(&old_name);
        self.node_mut(new_parent).below.insert(new_name.clone(), from);
        let node = self.node_mut(from);
        (node.parent, node.name) = (new_parent.0, new_name);
        let left = self.child(old_parent, &old_name);
        self.node_mut(left).state = State::Missing;
    }

    /// Two changed places.
    pub(super) fn exchange(&mut self, one: NodeId, other: NodeId) {
        if one == other
            || one == ROOT
            || other == ROOT
            || self.is_below(one, other)
            || self.is_below(other, one)
        {
            return;
        }
        let place = |node: &Node| (node.parent, node.name.clone());
        let (of_one, of_other) = (place(self.node(one)), place(self.node(other)));
        self.node_mut(NodeId(of_one.0)).below.insert(of_one.1.clone(), other);
        self.node_mut(NodeId(of_other.0)).below.insert(of_other.1.clone(), one);
        let node = self.node_mut(one);
        (node.parent, node.name) = of_other;
        let node = self.node_mut(other);
        (node.parent, node.name) = of_one;
    }

    /// What is there is this file.
    pub(super) fn bind(&mut self, at: NodeId, file: Identity) {
        if self.node(at).file == file || at == ROOT {
            return;
        }
        self.unbind(at);
        self.node_mut(at).file = file;
        self.of_file.entry(file).or_default().push(at);
    }

    fn unbind(&mut self, at: NodeId) {
        let file = std::mem::take(&mut self.node_mut(at).file);
        if let Some(places) = self.of_file.get_mut(&file) {
            places.retain(|&place| place != at);
        }
    }

    /// By what it was called last. Of files that were open when the recording began, the generation is not known.
    fn named(&self, file: Identity) -> Option<NodeId> {
        let last = |file: &Identity| self.of_file.get(file)?.last().copied();
        last(&file).or_else(|| last(&Identity { generation: 0, ..file }))
    }

    fn is_below(&self, at: NodeId, above: NodeId) -> bool {
        let mut at = at;
        while at != ROOT {
            if at == above {
                return true;
            }
            at = NodeId(self.node(at).parent);
        }
        false
    }

    fn child(&mut self, at: NodeId, name: &[u8]) -> NodeId {
        if let Some(&known) = self.node(at).below.get(name) {
            return known;
        }
        let new =
            NodeId(u32::try_from(self.nodes.len()).expect("names are fewer than four thousand million"));
        self.nodes.push(Node { parent: at.0, name: name.into(), ..Node::default() });
        self.node_mut(at).below.insert(name.into(), new);
        new
    }

    fn node(&self, at: NodeId) -> &Node {
        &self.nodes[at.0 as usize]
    }

    fn node_mut(&mut self, at: NodeId) -> &mut Node {
        &mut self.nodes[at.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Identity = Identity { inode: 7, device: 1, generation: 3 };

    fn at(names: &mut Namespace, path: &str) -> NodeId {
        names.follow(ROOT, path.as_bytes())
    }

    fn priors(names: Namespace) -> Vec<(String, Option<Kind>)> {
        let text = |path| String::from_utf8(path).unwrap();
        names.into_priors().into_iter().map(|prior| (text(prior.path), prior.kind)).collect()
    }

    #[test]
    fn no_path_leads_out() {
        let mut names = Namespace::default();
        for (path, expected) in [
            ("../../etc/passwd", "etc/passwd"),
            ("/a/../../../b", "b"),
            ("/", "."),
            ("a//./b/", "a/b"),
            ("/..", "."),
        ] {
            let at = at(&mut names, path);
            assert_eq!(names.path(at), expected.as_bytes(), "{path}");
        }
        names.name(FILE, b"../../x\0..\0/etc\0..\0");
        let place = names.place(FILE);
        assert_eq!(names.path(place), b"x");
    }

    #[test]
    fn a_file_keeps_what_it_is_through_renames_of_it_and_of_what_is_above_it() {
        let mut names = Namespace::default();
        names.name(FILE, b"one\0a\0");
        let one = names.place(FILE);
        assert_eq!(names.is_there(one, Some(Kind::File), Some(5)), Origin::Known);
        let (b, a) = (at(&mut names, "/b"), at(&mut names, "/a"));
        names.rename(a, b);
        let two = at(&mut names, "/b/two");
        names.rename(one, two);
        assert_eq!(names.place(FILE), one);
        assert_eq!(names.path(one), b"b/two");
        // What is found below the new name was there below the old one.
        let found = at(&mut names, "/b/three");
        assert_eq!(names.is_there(found, None, None), Origin::Known);
        let lost = at(&mut names, "/a/one");
        assert_eq!(names.is_there(lost, None, None), Origin::Unexplained, "the directory has moved");
        let file = |path: &str, kind| (path.to_owned(), kind);
        assert_eq!(
            priors(names),
            [file("a", Some(Kind::Directory)), file("a/one", Some(Kind::File)), file("a/three", None)]
        );
    }

    #[test]
    fn what_was_made_or_missing_is_not_there_before() {
        let mut names = Namespace::default();
        let made = at(&mut names, "/d/made");
        names.make(made);
        assert_eq!(names.is_there(made, None, None), Origin::Known);
        let missing = at(&mut names, "/d/missing");
        names.is_missing(missing);
        assert_eq!(names.is_there(missing, None, None), Origin::Unexplained);
        names.remove(made);
        assert_eq!(names.is_there(made, None, None), Origin::Unexplained);
        assert_eq!(priors(names), [("d".to_owned(), Some(Kind::Directory))]);
    }

    #[test]
    fn what_lacks_something_is_a_directory() {
        let mut names = Namespace::default();
        let (a, b) = (at(&mut names, "/a"), at(&mut names, "/b"));
        assert_eq!(
            (names.is_there(a, None, None), names.is_there(b, None, None)),
            (Origin::Known, Origin::Known)
        );
        let missing = at(&mut names, "/a/not/there");
        names.is_missing(missing);
        assert_eq!(priors(names), [("a".to_owned(), Some(Kind::Directory)), ("b".to_owned(), None)]);
    }

    #[test]
    fn a_directory_cannot_be_moved_into_itself() {
        let mut names = Namespace::default();
        let (a, inner) = (at(&mut names, "/a"), at(&mut names, "/a/b"));
        names.rename(a, inner);
        names.exchange(inner, a);
        assert_eq!((names.path(a), names.path(inner)), (b"a".to_vec(), b"a/b".to_vec()));
    }

    #[test]
    fn a_second_name_lives_on_when_the_first_is_deleted() {
        let mut names = Namespace::default();
        let (one, two) = (at(&mut names, "/one"), at(&mut names, "/two"));
        names.bind(one, FILE);
        names.bind(two, FILE);
        names.remove(two);
        assert_eq!(names.place(FILE), one);
        names.remove(one);
        let unnamed = names.place(FILE);
        assert_eq!(names.path(unnamed), b".unnamed/1-7-3");
    }
}
