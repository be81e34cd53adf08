//! What a second comb of one user is called. It is part of a directory's name, and nothing else.

use std::fmt;
use std::str::FromStr;

/// With it, a directory's path is still short enough for the addresses of sockets.
const LONGEST: usize = 32;

/// A comb's name: letters, digits, `-` and `_`, a letter or digit first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CombName(String);

/// That is no name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no name for a comb: say up to {LONGEST} letters, digits, - and _, a letter or digit first")]
pub struct BadName(String);

impl FromStr for CombName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let is_known = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let begins_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if begins_well && text.len() <= LONGEST && text.chars().all(is_known) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadName(text.to_owned()))
        }
    }
}

impl fmt::Display for CombName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_to_no_other_directory() {
        for good in ["a", "b2", "night-build_7"] {
            assert_eq!(good.parse::<CombName>().unwrap().to_string(), good);
        }
        let long = "a".repeat(LONGEST + 1);
        for bad in ["", "-a", "..", "a/b", "a b", "\u{e4}", long.as_str()] {
            assert!(bad.parse::<CombName>().is_err(), "{bad:?}");
        }
    }
}
