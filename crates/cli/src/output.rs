//! How a command speaks: text for people or JSON for programs, with colours or without.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::failure::Failure;

/// The heading of what every command understands.
pub(crate) const GLOBAL: &str = "Options of all commands";

/// For whom.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub(crate) enum Format {
    #[default]
    Text,
    Json,
}

/// When there are colours.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub(crate) enum When {
    /// On a terminal, unless `NO_COLOR` is set
    #[default]
    Auto,
    Always,
    Never,
}

/// What every command understands of it.
// Commands have arguments of these names as well: what is global has ids of its own.
#[derive(Debug, Default, Args)]
#[group(skip)]
pub(crate) struct Options {
    /// Text for people, or JSON for programs
    #[arg(short = 'o', long = "output", id = "global_output", global = true, value_enum, value_name = "FORMAT", default_value_t, help_heading = GLOBAL)]
    output: Format,
    /// The same as --output json
    #[arg(long = "json", id = "global_json", global = true, help_heading = GLOBAL)]
    json: bool,
    /// Colours: on terminals, unless NO_COLOR is set; or whether there are any
    #[arg(long = "color", id = "global_color", global = true, value_enum, value_name = "WHEN", default_value_t, hide_possible_values = true,
          help_heading = GLOBAL)]
    color: When,
}

/// Where words of a state may stand out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Colour {
    Red,
    Green,
    Yellow,
    /// What matters less.
    Dim,
}

impl Colour {
    fn code(self) -> &'static str {
        match self {
            Self::Red => "31",
            Self::Green => "32",
            Self::Yellow => "33",
            Self::Dim => "2",
        }
    }

    pub(crate) fn paint(self, text: &str) -> String {
        format!("\x1b[{}m{text}\x1b[0m", self.code())
    }
}

/// What a command speaks. Every command takes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Output {
    format: Format,
    colours: bool,
    colours_of_errors: bool,
}

impl Output {
    pub(crate) fn of(options: &Options) -> Self {
        let format = if options.json { Format::Json } else { options.output };
        let asked_for_none = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colours = |is_terminal: bool| match options.color {
            When::Always => true,
            When::Never => false,
            When::Auto => is_terminal && !asked_for_none,
        };
        Self {
            format,
            colours: format == Format::Text && colours(std::io::stdout().is_terminal()),
            colours_of_errors: format == Format::Text && colours(std::io::stderr().is_terminal()),
        }
    }

    pub(crate) fn is_json(self) -> bool {
        self.format == Format::Json
    }

    /// Whether text on standard output has colours.
    pub(crate) fn has_colours(self) -> bool {
        self.colours
    }

    /// Whether a line on standard error may be written again and again, to say how far something is.
    pub(crate) fn shows_progress(self) -> bool {
        !self.is_json() && std::io::stderr().is_terminal()
    }

    /// What a command has to say in the end: a sentence, or an object.
    pub(crate) fn tell<T: Serialize>(self, object: &T, text: impl Display) -> std::io::Result<()> {
        if self.is_json() {
            return self.line(object);
        }
        writeln!(std::io::stdout(), "{text}")
    }

    /// A list or a large object; the text has its line ends.
    pub(crate) fn show<T: Serialize>(self, object: &T, text: impl FnOnce() -> String) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        if self.is_json() {
            writeln!(out, "{}", serde_json::to_string_pretty(object)?)?;
        } else {
            write!(out, "{}", text())?;
        }
        Ok(())
    }

    /// One object a line, for what goes on. Whoever reads it has it at once.
    #[expect(clippy::unused_self, reason = "who speaks so has asked whether it is to be JSON")]
    pub(crate) fn line<T: Serialize>(self, object: &T) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(object)?)?;
        out.flush()
    }

    /// What went otherwise than one would think, though the command goes on.
    pub(crate) fn warn(self, text: impl Display) {
        let text = text.to_string();
        let line = match self.format {
            Format::Json => serde_json::json!({ "warning": text }).to_string(),
            Format::Text => format!("{} {text}", self.mark(Colour::Yellow)),
        };
        let _ = writeln!(std::io::stderr(), "{line}");
    }

    /// Why the command has failed.
    pub(crate) fn fail(self, failure: &Failure) {
        let line = match self.format {
            Format::Json => failure.object().to_string(),
            Format::Text => format!("{} {failure}", self.mark(Colour::Red)),
        };
        let _ = writeln!(std::io::stderr(), "{line}");
    }

    fn mark(self, colour: Colour) -> String {
        if self.colours_of_errors { colour.paint("comb:") } else { "comb:".to_owned() }
    }
}

/// What these arguments ask for, as far as one can tell of arguments that are wrong.
pub(crate) fn guess(arguments: impl Iterator<Item = std::ffi::OsString>) -> Options {
    let mut options = Options::default();
    let words: Vec<String> =
        arguments.map(|word| word.to_string_lossy().into_owned()).take_while(|word| word != "--").collect();
    for (nth, word) in words.iter().enumerate() {
        let next = words.get(nth + 1).map_or("", String::as_str);
        match (word.as_str(), next) {
            ("--json" | "-ojson" | "-o=json" | "--output=json", _) | ("-o" | "--output", "json") => {
                options.output = Format::Json;
            }
            ("--color=never", _) | ("--color", "never") => options.color = When::Never,
            ("--color=always", _) | ("--color", "always") => options.color = When::Always,
            _ => {}
        }
    }
    options
}

impl From<&Options> for clap::ColorChoice {
    fn from(options: &Options) -> Self {
        match options.color {
            When::Auto => Self::Auto,
            When::Always => Self::Always,
            When::Never => Self::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_arguments_are_answered_as_they_ask_for() {
        let guess = |line: &str| guess(line.split(' ').map(Into::into));
        assert_eq!(guess("comb fly -o json").output, Format::Json);
        assert_eq!(guess("comb --json fly").output, Format::Json);
        assert_eq!(guess("comb run -n x -- prog -o json").output, Format::Text, "that is the program's");
        assert_eq!(guess("comb --color never fly").color, When::Never);
    }

    #[test]
    fn json_has_no_colours() {
        let options = Options { output: Format::Json, json: false, color: When::Always };
        assert!(!Output::of(&options).has_colours());
        let options = Options { color: When::Always, ..Options::default() };
        assert!(Output::of(&options).has_colours());
    }
}
