//! What images and machines may be called: they are directories, and host names.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A name of letters, digits and dashes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Name(String);

/// It is none.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("`{0}` is no name: say up to 40 letters, digits and dashes, a letter or digit first")]
pub struct NameError(String);

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let may_be = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let is_name = (1..=40).contains(&text.len()) && text.bytes().all(may_be) && !text.starts_with('-');
        if is_name { Ok(Self(text.to_owned())) } else { Err(NameError(text.to_owned())) }
    }
}

impl Name {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Of one of many that are made alike.
    pub fn numbered(&self, number: u32) -> Result<Self, NameError> {
        format!("{self}-{number}").parse()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_out_of_no_directory() {
        for text in ["", ".", "..", "a/b", "-a", "a b", "ä", "a\n", &"a".repeat(41)] {
            assert_eq!(text.parse::<Name>(), Err(NameError(text.to_owned())), "{text:?}");
        }
        assert_eq!("Build-7".parse::<Name>().unwrap().numbered(12).unwrap().as_str(), "Build-7-12");
    }
}
