//! Names that say nothing to others: each part of a path becomes a hash, by a key that is thrown away when the recording ends.
//!
//! The same name has the same hash within one trace, so that what belongs together still does. What is needed to tell what kind of file it
//! is stays: an ending that many files have. Names of programs stay, too.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};

use crate::Operation;
use crate::event::{append_text, texts};
use crate::file_type;

/// Whether and how names are hidden. A clone has the same key.
#[derive(Clone)]
pub struct Privacy(Option<RandomState>);

impl Privacy {
    /// Names are written as they are.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Names are hashed, by a key that nobody else has or gets.
    pub fn hashed() -> Self {
        Self(Some(RandomState::new()))
    }

    /// Whether names are hidden at all.
    pub const fn hides(&self) -> bool {
        self.0.is_some()
    }

    /// What is written instead of a path.
    pub fn path<'a>(&self, path: &'a [u8]) -> Cow<'a, [u8]> {
        if self.hides() { Cow::Owned(self.parts(path, b'/')) } else { Cow::Borrowed(path) }
    }

    /// What is written instead of the texts of an event; nothing if they stay as they are.
    pub fn texts(&self, operation: u8, behind: &[u8]) -> Option<Vec<u8>> {
        let separator = match Operation::of_number(operation) {
            _ if behind.is_empty() || !self.hides() => return None,
            // What it is called, not where it is.
            Some(Operation::ProcessBegins | Operation::ProcessEnds) => return None,
            Some(Operation::Name) => b'\0',
            _ => b'/',
        };
        let is_program_name = operation == Operation::Execute as u8;
        let mut hidden = Vec::with_capacity(behind.len() * 2);
        for (base, text) in texts(behind) {
            let text = if is_program_name && !text.contains(&b'/') {
                text.to_vec()
            } else {
                self.parts(text, separator)
            };
            append_text(&mut hidden, base, &text);
        }
        Some(hidden)
    }

    fn parts(&self, text: &[u8], separator: u8) -> Vec<u8> {
        let parts = text.split(|&byte| byte == separator).map(|part| self.part(part));
        parts.collect::<Vec<_>>().join(&separator)
    }

    fn part(&self, part: &[u8]) -> Vec<u8> {
        let Some(key) = &self.0 else { return part.to_vec() };
        if matches!(part, b"" | b"." | b"..") {
            return part.to_vec();
        }
        let mut hidden = format!("{:013x}", key.hash_one(part) >> 12).into_bytes();
        if let Some(ending) = file_type::known_ending(part) {
            hidden.push(b'.');
            hidden.extend_from_slice(ending);
        }
        hidden
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Identity;

    #[test]
    fn the_same_name_has_the_same_hash_and_nothing_of_it_is_left_but_a_common_ending() {
        let privacy = Privacy::hashed();
        let hidden =
            String::from_utf8(privacy.path(b"/home/ann/diary/../ann/diary.txt").into_owned()).unwrap();
        let parts: Vec<&str> = hidden.split('/').collect();
        assert!(!hidden.contains("ann") && !hidden.contains("diary"), "{hidden}");
        assert_eq!((parts[0], parts[4], parts[2]), ("", "..", parts[5]));
        assert!(parts[6].ends_with(".txt"));
        assert_ne!(privacy.path(b"/home"), Privacy::hashed().path(b"/home"), "another key");
        assert_eq!(*privacy.path(b"secret.annsown"), *privacy.path(b"secret.annsown"));
        assert!(!String::from_utf8_lossy(&privacy.path(b"secret.annsown")).contains("annsown"));
        assert_eq!(*Privacy::none().path(b"/home/ann"), *b"/home/ann");
    }

    #[test]
    fn texts_of_events_are_hidden_each_in_its_form() {
        let privacy = Privacy::hashed();
        let behind = |text: &[u8]| {
            let mut behind = Vec::new();
            append_text(&mut behind, Identity::default(), text);
            behind
        };
        let one = |operation: Operation, text: &[u8]| {
            privacy
                .texts(operation as u8, &behind(text))
                .map(|hidden| texts(&hidden).next().unwrap().1.to_vec())
        };
        let name = one(Operation::Name, b"diary.txt\0ann\0home\0").unwrap();
        assert_eq!((name.split(|&byte| byte == 0).count(), name.last()), (4, Some(&0)));
        assert_eq!(one(Operation::ProcessBegins, b"bash"), None);
        assert_eq!(one(Operation::Execute, b"bash").unwrap(), b"bash");
        assert_ne!(one(Operation::Execute, b"/bin/bash").unwrap(), b"/bin/bash");
        assert_ne!(one(Operation::Open, b"diary").unwrap(), b"diary");
    }
}
