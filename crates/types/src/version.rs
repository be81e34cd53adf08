//! Versions of what crosses a boundary between cells.

use core::fmt;

/// The version that a handshake or a frame carries. Neighbours one version apart understand each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version(pub u8);

/// The peer speaks a version that we cannot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VersionError {
    /// What the peer said.
    pub theirs: Version,
    /// What we speak.
    pub ours: Version,
}

impl Version {
    /// The version that this build speaks. Version 0 never existed, so that zeroed memory is no valid handshake.
    pub const CURRENT: Self = Self(1);

    /// Checks a version that a peer alleges against ours: equal, or one apart.
    pub const fn accept(self, theirs: Self) -> Result<Self, VersionError> {
        if theirs.0 != 0 && self.0.abs_diff(theirs.0) <= 1 {
            Ok(if theirs.0 < self.0 { theirs } else { self })
        } else {
            Err(VersionError { theirs, ours: self })
        }
    }
}

impl fmt::Display for VersionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the peer speaks version {} and we speak {}: neighbours may be one version apart",
            self.theirs.0, self.ours.0
        )
    }
}

impl core::error::Error for VersionError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_meet_at_the_lower_version_and_strangers_do_not() {
        let ours = Version(5);
        assert_eq!(ours.accept(Version(5)), Ok(Version(5)));
        assert_eq!(ours.accept(Version(4)), Ok(Version(4)));
        assert_eq!(ours.accept(Version(6)), Ok(Version(5)));
        assert!(ours.accept(Version(3)).is_err());
        assert!(ours.accept(Version(7)).is_err());
        assert!(Version(1).accept(Version(0)).is_err(), "zeroed memory is not a version");
    }
}
