//! Named regions: memory that lives in a cell, outlives the tasks that use it, and is shared by several of them.
//!
//! The cell's supervisor is its home: it has the page frames, and decides who may do what. A process that attaches on the same host *imports*: it
//! maps the home's frames, loads what is there, and asks before the first store to each block; one elsewhere, or one that wants to, has *copies* as the
//! components of a task have. No importer can store to what it was not granted, however wild its stores are (Hive §4.2): the home
//! marks its pages by a descriptor that the importer has given away.
//!
//! | file | the one idea in it |
//! |---|---|
//! | [`register`] | names, and the addresses that go with them, in the runtime directory |
//! | `door` | what is said at the home's door, before there is a channel: descriptors are handed over there |
//! | [`home`] | the home at work |
//! | [`keeper`] | who has second references, so that nothing opens when a home dies |
//! | `attach` | a process's side |
//! | `saving` | a region in files |
//! | [`shown`] | what a home shows of its regions to other cells |

use serde::{Deserialize, Serialize};

mod attach;
pub(crate) mod door;
pub mod home;
pub mod keeper;
pub mod register;
mod saving;
pub mod shown;

pub use self::attach::{AttachError, Attaching, Region};
pub use self::door::{Ask, AskError, Status, Wanted};
pub use self::home::{Home, HomeError};
pub use self::keeper::{Keeper, KeptReferences, RemoteKeeper};
pub use self::register::{Entry, NameError, Register};

/// Regions are here in the heap, behind what tasks allocate.
pub const ADDRESSES: std::ops::Range<u64> =
    crate::heap::HEAP_BYTES..comb_memory::HEAP_BYTES - comb_memory::IMAGES_BYTES;

/// Whether an address is a region's, be there one or not.
pub(crate) fn is_named(address: usize) -> bool {
    address.checked_sub(comb_memory::HEAP_START).is_some_and(|offset| ADDRESSES.contains(&(offset as u64)))
}

/// The home's endpoint, of the process `cell-N`.
pub const ENDPOINT: &str = "regions";

/// Who may do what with a region: as files have it, without `x`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mode(pub u32);

impl Default for Mode {
    /// Its creator alone.
    fn default() -> Self {
        Self(0o600)
    }
}

impl std::str::FromStr for Mode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = 0o666;
        match u32::from_str_radix(text, 8) {
            Ok(mode) if mode & !known == 0 && mode != 0 => Ok(Self(mode)),
            _ => Err("say who may read (4) and store (2), as for files: owner, group, others, such as 640"),
        }
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:03o}", self.0)
    }
}

/// Whose a region is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Owner {
    /// The user who has made it.
    pub user: u32,
    /// That one's group.
    pub group: u32,
}

impl Mode {
    /// Whether a user may load, and store.
    pub(crate) fn allows(self, owner: Owner, who: Owner, to_store: bool) -> bool {
        let bits = if who.user == 0 {
            0o6
        } else if who.user == owner.user {
            self.0 >> 6
        } else if who.group == owner.group {
            self.0 >> 3
        } else {
            self.0
        };
        let needed = if to_store { 0o6 } else { 0o4 };
        bits & needed == needed
    }
}

/// What a home says to a `Want`.
pub(crate) const GRANTED: u64 = 0;
pub(crate) const LOST: u64 = 1;
pub(crate) const REFUSED: u64 = 2;
pub(crate) const NO_MEMORY: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_those_of_files() {
        let owner = Owner { user: 10, group: 20 };
        let mode: Mode = "640".parse().unwrap();
        assert_eq!(mode.to_string(), "640");
        for (user, group, loads, stores) in
            [(10, 9, true, true), (11, 20, true, false), (11, 21, false, false), (0, 0, true, true)]
        {
            let who = Owner { user, group };
            assert_eq!((mode.allows(owner, who, false), mode.allows(owner, who, true)), (loads, stores));
        }
        for wrong in ["", "700", "8", "0", "rw"] {
            assert!(wrong.parse::<Mode>().is_err(), "{wrong}");
        }
    }
}
