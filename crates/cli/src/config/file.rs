//! Reading a configuration file: what is wrong is said with where it is.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{self, Given, KEYS, Key};
use crate::failure::Failure;
use crate::suggest::did_you_mean;

/// A key with what is written there, and where that is.
pub(super) struct Found {
    pub(super) key: &'static Key,
    pub(super) given: Given,
    pub(super) span: Range<usize>,
}

/// What is wrong with the bytes of this range.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) span: Range<usize>,
    pub(super) why: String,
}

impl Problem {
    /// With file, line and column, and the line itself.
    pub(super) fn tell(&self, text: &str, path: &Path) -> Failure {
        let start = self.span.start.min(text.len());
        let number = line_of(text, start);
        let begin = text[..start].rfind('\n').map_or(0, |end| end + 1);
        let line = text[begin..].lines().next().unwrap_or_default();
        let column = text[begin..start].chars().count();
        // What goes on in the next line is marked in the first.
        let end = self.span.end.clamp(start, begin + line.len().max(start - begin));
        let marks = "^".repeat(text[start..end].chars().count().max(1));
        let (edge, shown) = (" ".repeat(number.to_string().len()), path.display());
        Failure::usage(format!(
            "{shown}:{number}:{}: {}\n{edge} |\n{number} | {line}\n{edge} | {:column$}{marks}",
            column + 1,
            self.why,
            "",
        ))
    }
}

/// The number of the line that a byte is in.
pub(super) fn line_of(text: &str, byte: usize) -> usize {
    text[..byte.min(text.len())].matches('\n').count() + 1
}

/// All keys that are there, in the order of the file.
pub(super) fn parse(text: &str) -> Result<Vec<Found>, Problem> {
    let table = DeTable::parse(text).map_err(|error| Problem {
        span: error.span().unwrap_or(0..0),
        why: error.message().lines().next().unwrap_or("that is no TOML").to_owned(),
    })?;
    let mut found = Vec::new();
    walk("", table.get_ref(), &mut found)?;
    found.sort_by_key(|found| found.span.start);
    Ok(found)
}

fn walk(prefix: &str, table: &DeTable<'_>, found: &mut Vec<Found>) -> Result<(), Problem> {
    for (name, value) in table {
        let full = if prefix.is_empty() {
            name.get_ref().to_string()
        } else {
            format!("{prefix}.{}", name.get_ref())
        };
        let is_table = keys::tables().contains(&full.as_str());
        match value.get_ref() {
            DeValue::Table(inner) if is_table => walk(&full, inner, found)?,
            DeValue::Table(_) if KEYS.iter().all(|key| key.name != full) => {
                let tables = keys::tables();
                let meant = did_you_mean(&full, tables.iter().copied());
                let meant = if meant.is_empty() { ".".to_owned() } else { meant };
                let why = format!("there is no table {full}{meant} There are {}", tables.join(", "));
                return Err(Problem { span: name.span(), why });
            }
            _ if is_table => {
                let why = format!("{full} is a table: write [{full}] and its keys below");
                return Err(Problem { span: value.span(), why });
            }
            _ => {
                let key = keys::find(&full).map_err(|why| Problem { span: name.span(), why })?;
                found.push(Found { key, given: given(value), span: value.span() });
            }
        }
    }
    Ok(())
}

fn given(value: &Spanned<DeValue<'_>>) -> Given {
    match value.get_ref() {
        DeValue::String(text) => Given::Text(text.to_string()),
        DeValue::Boolean(truth) => Given::Truth(*truth),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Given::Number(number),
            Err(_) => Given::Other("a number so large"),
        },
        DeValue::Array(list) => Given::List(list.iter().map(given).collect()),
        DeValue::Float(_) => Given::Other("a fraction"),
        DeValue::Datetime(_) => Given::Other("a date"),
        DeValue::Table(_) => Given::Other("a table"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn say(text: &str) -> String {
        Config::default().read_text(text, Path::new("/c.toml")).unwrap_err().to_string()
    }

    #[test]
    fn what_is_wrong_is_shown_where_it_is() {
        assert_eq!(
            say("# mine\ncells = \"four\"\n"),
            "/c.toml:2:9: cells is a number from 1 to 64; not \"four\"\n  |\n2 | cells = \"four\"\n  |         ^^^^^^"
        );
        let unknown = say("[dashboard]\nlisen = '127.0.0.1:1'\n");
        assert!(
            unknown.starts_with("/c.toml:2:1: there is no key dashboard.lisen; did you mean"),
            "{unknown}"
        );
        assert!(unknown.ends_with("2 | lisen = '127.0.0.1:1'\n  | ^^^^^"), "{unknown}");
    }

    #[test]
    fn nothing_wrong_is_read() {
        for (text, place, words) in [
            ("cells = \n", "1:9", ""),
            ("cells = 1\ncells = 2\n", "2:1", "duplicate"),
            ("[dashbord]\nenabled = true\n", "1:2", "did you mean dashboard?"),
            ("limits = 3\n", "1:10", "limits is a table"),
            ("cells = 65\n", "1:9", "from 1 to 64; not 65"),
            ("cells = { a = 1 }\n", "1:9", "not a table"),
            ("cells = 99999999999999999999\n", "1:9", "so large"),
            ("cells = 1.5\n", "1:9", "not a fraction"),
            ("without = [1]\n", "1:11", "not that list"),
            ("without = ['landlok']\n", "1:11", "did you mean landlock?"),
            ("name = 'a/b'\n", "1:8", "no name for a comb"),
            ("[limits]\nchannels = 0\n", "2:12", "K, M or G; not 0"),
            ("[metrics]\nlisten = 9100\n", "2:10", "an address and a port"),
            ("[dashboard]\nenabled = 'yes'\n", "2:11", "true or false; not \"yes\""),
            ("[hosts]\nallow = [-1]\n", "2:9", "users' names or numbers"),
        ] {
            let said = say(text);
            assert!(
                said.starts_with(&format!("/c.toml:{place}: ")) && said.contains(words),
                "{text}: {said}"
            );
        }
    }

    #[test]
    fn columns_are_characters_and_the_end_of_the_file_is_a_place() {
        let said = say("run = { shell = \"\u{e4}\u{f6}\", cells = 1 }");
        assert!(said.starts_with("/c.toml:1:23: there is no key run.cells"), "{said}");
        assert!(say("name = \"").starts_with("/c.toml:1:"));
    }
}
