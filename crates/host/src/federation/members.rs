//! Who belongs to the comb, and which numbers their cells have.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;

use comb_net::hosts::{KnownHosts, PublicKey};
use serde::{Deserialize, Serialize};

use crate::MOST_CELLS;

/// The most hosts of a comb: each has a number for a cell at least.
pub const MOST_HOSTS: usize = MOST_CELLS as usize;
/// Keys of hosts that were put out, which are remembered. The oldest is forgotten first.
const MOST_OUT: usize = 64;

/// A key as text, in files and in words.
pub(super) mod key_text {
    use comb_net::hosts::PublicKey;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(key: &PublicKey, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(key)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PublicKey, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// A key, in places where there may be several or none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Key(#[serde(with = "key_text")] pub PublicKey);

/// A host of the comb.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// What all call it.
    pub name: String,
    /// By what it proves that it is the one.
    pub key: Key,
    /// What it is about to prove it by, while it changes its key: either will do.
    pub next_key: Option<Key>,
    /// Where its agent listens.
    pub address: SocketAddr,
    /// The first number of its cells.
    pub first: u32,
    /// How many numbers it has.
    pub count: u32,
    /// Since when it has belonged to the comb, in seconds since 1970.
    pub since_s: u64,
}

impl Member {
    /// Whether that number is one of its cells'.
    pub fn has(&self, cell: u32) -> bool {
        self.cells().contains(&cell)
    }

    /// The numbers of its cells.
    pub fn cells(&self) -> std::ops::Range<u32> {
        self.first..self.first.saturating_add(self.count)
    }

    /// Whether it can be a host at all. Everything that is said of one by others is looked at so.
    pub fn check(&self) -> Result<(), String> {
        if !KnownHosts::is_name(&self.name) {
            return Err(format!(
                "{:?} is no name of a host",
                self.name.chars().take(100).collect::<String>()
            ));
        }
        let last = u64::from(self.first) + u64::from(self.count);
        if self.first == 0 || self.count == 0 || last > u64::from(MOST_CELLS) + 1 {
            return Err(format!("{} cannot have {} cells from {} on", self.name, self.count, self.first));
        }
        Ok(())
    }
}

/// All of them, as this host knows them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Roster {
    own: String,
    members: BTreeMap<String, Member>,
    /// Who was put out: the keys, each with its host's name. They are let in no more.
    out: Vec<(String, Key)>,
}

impl Roster {
    /// With this host alone.
    pub fn of(own: Member) -> Self {
        Self { own: own.name.clone(), members: [(own.name.clone(), own)].into(), out: Vec::new() }
    }

    /// This host.
    pub fn own(&self) -> &Member {
        &self.members[&self.own]
    }

    /// This host, to be changed.
    pub fn own_mut(&mut self) -> &mut Member {
        self.members.get_mut(&self.own).expect("this host is one of them")
    }

    /// All, by name.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// All but this one, by name.
    pub fn others(&self) -> impl Iterator<Item = &Member> {
        self.members.values().filter(|member| member.name != self.own)
    }

    /// The one of that name.
    pub fn get(&self, name: &str) -> Option<&Member> {
        self.members.get(name)
    }

    /// The one of that name, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Member> {
        self.members.get_mut(name)
    }

    /// The one that has this cell.
    pub fn host_of(&self, cell: u32) -> Option<&Member> {
        self.members.values().find(|member| member.has(cell))
    }

    /// The one with this key.
    pub fn with_key(&self, key: Key) -> Option<&Member> {
        self.members.values().find(|member| member.key == key || member.next_key == Some(key))
    }

    /// The one that gives numbers to those who come: who has the lowest itself.
    pub fn giver(&self) -> &Member {
        self.members.values().min_by_key(|member| member.first).expect("this host is one of them")
    }

    /// Whether a host with that key was put out.
    pub fn is_out(&self, key: Key) -> bool {
        self.out.iter().any(|(_, out)| *out == key)
    }

    /// Who was put out.
    pub fn out(&self) -> &[(String, Key)] {
        &self.out
    }

    /// So many numbers in a row that nobody has, and that are not promised to anybody.
    pub fn free_block(&self, count: u32, promised: &[(u32, u32)]) -> Result<u32, String> {
        let overlaps = |first: u32, (of, many): (u32, u32)| first < of + many && of < first + count;
        let taken = self.members.values().map(|member| (member.first, member.count));
        let taken: Vec<(u32, u32)> = taken.chain(promised.iter().copied()).collect();
        let is_free = |first: &u32| !taken.iter().any(|&block| overlaps(*first, block));
        (1..=(MOST_CELLS + 1).saturating_sub(count)).filter(|_| count > 0).find(is_free).ok_or_else(|| {
            let has: u32 = self.members.values().map(|member| member.count).sum();
            format!(
                "a comb has {MOST_CELLS} numbers for cells, {has} are taken, and {count} in a row are not left: \
                 `comb join --cells` with fewer"
            )
        })
    }

    /// One more. `Ok(false)`: it is known as it is. `Err`: that cannot be, and nothing has changed.
    pub fn add(&mut self, member: Member) -> Result<bool, String> {
        member.check()?;
        let Member { name, key, .. } = &member;
        if self.members.get(name) == Some(&member) {
            return Ok(false);
        }
        if self.is_out(*key) {
            return Err(format!("{name} was put out"));
        }
        if let Some(known) = self.members.get(name) {
            let is_same = known.key == member.key && known.cells() == member.cells();
            return if is_same {
                Ok(false)
            } else {
                Err(format!("there is a host {name} already, with another key or other cells"))
            };
        }
        if let Some(other) = self.with_key(*key) {
            return Err(format!("the key of {name} is that of {}", other.name));
        }
        if let Some(other) = member.cells().find_map(|cell| self.host_of(cell)) {
            return Err(format!("cells of {name} are those of {}", other.name));
        }
        if self.members.len() >= MOST_HOSTS {
            return Err(format!("there are {MOST_HOSTS} hosts already"));
        }
        self.members.insert(member.name.clone(), member);
        Ok(true)
    }

    /// One is gone for good. This host itself never is.
    pub fn remove(&mut self, name: &str, is_put_out: bool) -> Option<Member> {
        if name == self.own {
            return None;
        }
        let gone = self.members.remove(name)?;
        if is_put_out {
            self.out.extend(
                [Some(gone.key), gone.next_key].into_iter().flatten().map(|key| (name.to_owned(), key)),
            );
            self.out.drain(..self.out.len().saturating_sub(MOST_OUT));
        }
        Some(gone)
    }

    /// A name that nobody has yet: this one, or with a number behind.
    pub fn free_name(&self, wanted: &str) -> String {
        let tries = (2..).map(|number| format!("{wanted}-{number}"));
        let is_free = |name: &String| !self.members.contains_key(name);
        std::iter::once(wanted.to_owned()).chain(tries).find(is_free).expect("numbers do not end")
    }

    /// For the handshake: whose key is whose.
    pub fn known(&self, file: &Path) -> KnownHosts {
        let keys = self.others().flat_map(|member| {
            let keys = [Some(member.key), member.next_key].into_iter().flatten();
            keys.map(|Key(key)| (member.name.as_str(), key))
        });
        KnownHosts::of(file, keys)
    }

    /// Where the others are.
    pub fn addresses(&self) -> BTreeMap<String, SocketAddr> {
        self.others().map(|member| (member.name.clone(), member.address)).collect()
    }
}

/// What is written down of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Saved {
    /// Of this form.
    pub version: u32,
    /// This host's name.
    pub own: String,
    /// Where it listens.
    pub listen: SocketAddr,
    /// All hosts.
    pub members: Vec<Member>,
    /// Who was put out.
    #[serde(default)]
    pub out: Vec<(String, Key)>,
    /// Which lives this host's cells had last: the next ones are later, whatever became of the runtime directory.
    #[serde(default)]
    pub lives: BTreeMap<u32, u64>,
}

/// Another form is not read.
const VERSION: u32 = 1;

impl Saved {
    /// What is to be written down.
    pub fn of(roster: &Roster, listen: SocketAddr, lives: BTreeMap<u32, u64>) -> Self {
        let (own, members) = (roster.own.clone(), roster.members.values().cloned().collect());
        Self { version: VERSION, own, listen, members, out: roster.out.clone(), lives }
    }

    /// What was. `None`: nothing. `Err`: something that cannot be read, in words.
    pub fn read(file: &Path) -> Result<Option<Self>, String> {
        let text = match std::fs::read(file) {
            // What this user may not read, this user has not written.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
                return Ok(None);
            }
            read => read.map_err(|error| format!("{}: {error}", file.display()))?,
        };
        let saved: Self =
            serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        if saved.version != VERSION {
            return Err(format!(
                "{} is of version {}, and {VERSION} is read here",
                file.display(),
                saved.version
            ));
        }
        Ok(Some(saved))
    }

    /// Wholly or not at all, and on the disk when this returns: a machine that loses its power is a member when it is back.
    pub fn write(&self, file: &Path) -> std::io::Result<()> {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let fresh = file.with_extension("json.new");
        let mut open = std::fs::OpenOptions::new();
        let mut written = open.write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        written.write_all(&serde_json::to_vec_pretty(self).expect("plain data"))?;
        written.sync_all()?;
        std::fs::rename(fresh, file)
    }

    /// As it was. `Err`: it contradicts itself.
    pub fn roster(&self) -> Result<Roster, String> {
        let own = self.members.iter().find(|member| member.name == self.own);
        let own = own.ok_or("this host is none of those in the file of hosts")?;
        own.check()?;
        let mut roster = Roster::of(own.clone());
        for member in &self.members {
            roster.add(member.clone())?;
        }
        roster.out.clone_from(&self.out);
        Ok(roster)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use comb_net::hosts::HostKey;

    pub(crate) fn member(name: &str, first: u32, count: u32) -> Member {
        Member {
            name: name.to_owned(),
            key: Key(HostKey::generate().public()),
            next_key: None,
            address: "10.0.0.1:7170".parse().unwrap(),
            first,
            count,
            since_s: 7,
        }
    }

    #[test]
    fn numbers_are_given_once_and_freed_with_their_host() {
        let mut roster = Roster::of(member("alpha", 1, 4));
        assert_eq!(roster.free_block(4, &[]), Ok(5));
        assert_eq!(roster.free_block(4, &[(5, 4)]), Ok(9), "promised to another who comes");
        assert_eq!(roster.add(member("beta", 5, 4)), Ok(true));
        assert_eq!(roster.add(member("gamma", 9, 4)), Ok(true));
        assert_eq!(roster.host_of(6).unwrap().name, "beta");
        assert_eq!(roster.giver().name, "alpha");
        roster.remove("beta", false);
        assert_eq!(roster.free_block(4, &[]), Ok(5));
        assert_eq!(roster.free_block(5, &[]), Ok(13));
        assert!(roster.free_block(60, &[]).unwrap_err().contains("--cells"));
        assert!(roster.free_block(0, &[]).is_err());
    }

    #[test]
    fn nobody_takes_anothers_name_key_or_cells() {
        let mut roster = Roster::of(member("alpha", 1, 4));
        let beta = member("beta", 5, 2);
        assert_eq!(roster.add(beta.clone()), Ok(true));
        assert_eq!(roster.add(beta.clone()), Ok(false), "known");
        let lies = [
            Member { key: member("x", 1, 1).key, ..beta.clone() },
            Member { first: 8, ..beta.clone() },
            Member { name: "zeta".into(), first: 9, ..beta.clone() },
            member("zeta", 4, 2),
            member("zeta", 6, 2),
            member("zeta", 0, 2),
            member("zeta", u32::MAX, 2),
            member("zeta", 60, 6),
            member("", 9, 1),
            member("a b", 9, 1),
        ];
        for lie in lies {
            assert!(roster.add(lie.clone()).is_err(), "{lie:?}");
        }
        assert_eq!(roster.members().count(), 2);
        assert!(roster.remove("alpha", true).is_none() && roster.get("alpha").is_some());
    }

    #[test]
    fn who_was_put_out_comes_in_no_more_with_that_key() {
        let mut roster = Roster::of(member("alpha", 1, 4));
        let beta = member("beta", 5, 2);
        roster.add(beta.clone()).unwrap();
        roster.remove("beta", true);
        assert!(roster.add(beta).unwrap_err().contains("put out"));
        assert_eq!(roster.add(member("beta", 5, 2)), Ok(true), "with another key it is another");
    }

    #[test]
    fn names_are_made_different() {
        let mut roster = Roster::of(member("box", 1, 1));
        assert_eq!(roster.free_name("beta"), "beta");
        assert_eq!(roster.free_name("box"), "box-2");
        roster.add(member("box-2", 2, 1)).unwrap();
        assert_eq!(roster.free_name("box"), "box-3");
    }

    #[test]
    fn what_is_saved_is_read_again() {
        let file = std::env::temp_dir().join(format!("comb-hosts-{}.json", std::process::id()));
        assert_eq!(Saved::read(&file), Ok(None));
        let mut roster = Roster::of(member("alpha", 1, 4));
        roster.add(member("beta", 5, 2)).unwrap();
        let saved = Saved::of(&roster, "0.0.0.0:7170".parse().unwrap(), [(1, 3)].into());
        saved.write(&file).unwrap();
        let read = Saved::read(&file).unwrap().unwrap();
        assert_eq!((read.roster().unwrap(), &read), (roster, &saved));
        std::fs::write(&file, "{").unwrap();
        assert!(Saved::read(&file).is_err());
        std::fs::remove_file(&file).unwrap();
    }
}
