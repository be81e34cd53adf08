//! `comb config`: what is in effect and why, and whether a file is right.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::keys::{self, KEYS};
use super::{Config, Options};
use crate::failure::Outcome;
use crate::output::Output;

const EXAMPLES: &str = "\
Comb needs no configuration. What is to be otherwise is in one file, or in the environment; flags count more than the environment, and
that more than the file.

Examples:
  comb config show                 what is in effect, and where each value is from
  comb config show > config.toml   a file to begin with
  comb config check config.toml    whether it is right, before it counts";

/// Show what is configured, or check a file
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Configuration {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print what is in effect as a file, with where each value is from
    Show,
    /// Say whether a file is right
    Check {
        /// Which [default: the one that would be read]
        file: Option<PathBuf>,
    },
}

impl Configuration {
    pub(crate) fn run(self, output: Output, options: &Options) -> Outcome {
        match self.command {
            Command::Show => {
                let config = Config::read(options)?;
                output.show(&object(&config), || text(&config))?;
            }
            Command::Check { file } => {
                let file = match file {
                    Some(file) => Some(std::path::absolute(file)?),
                    None => super::path(options, |variable| std::env::var_os(variable))?,
                };
                let mut config = Config::default();
                if let Some(file) = &file {
                    config.read_file(file)?;
                }
                let keys: Vec<&str> = config.sources.keys().copied().collect();
                let said = match (&file, keys.len()) {
                    (None, _) => "there is no configuration file, and none is needed".to_owned(),
                    (Some(file), 1) => format!("{} is right: it sets 1 key", file.display()),
                    (Some(file), count) => format!("{} is right: it sets {count} keys", file.display()),
                };
                output.tell(&json!({ "file": file, "keys": keys }), said)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Of each key its value, where that is from, and more exactly.
fn object(config: &Config) -> Value {
    let mut all = Map::new();
    for key in KEYS {
        let source = config.source(key.name);
        let value = json!({ "value": (key.get)(config), "source": source.word(), "where": source.place() });
        all.insert(key.name.to_owned(), value);
    }
    all.into()
}

/// A file that says the same.
fn text(config: &Config) -> String {
    let mut text = match &config.file {
        Some(file) => format!("# What is in effect; the file is {}\n", file.display()),
        None => "# What is in effect; there is no file\n".to_owned(),
    };
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut table = "";
    for key in KEYS {
        let in_table = keys::table_of(key.name);
        if in_table != table {
            lines.push((String::new(), String::new()));
            lines.push((format!("[{in_table}]"), String::new()));
            table = in_table;
        }
        let short = key.name.rsplit('.').next().unwrap_or(key.name);
        let line = match (key.get)(config) {
            // As JSON has it, so does TOML.
            Some(value) => format!("{short} = {value}"),
            None => format!("# {short} ="),
        };
        lines.push((line, format!("# {}; {}", key.about, config.source(key.name))));
    }
    let width = lines.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0);
    for (line, comment) in lines {
        let _ = writeln!(text, "{}", format!("{line:width$}  {comment}").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_is_shown_can_be_read_again() {
        let mut config = Config::default();
        let file = "name = 'b'\nmemory = '1M'\n[hosts]\nallow = ['ann', 7]\n[metrics]\nlisten = '[::1]:9'\n\
                    [run]\nshell = 'a \"b\" \\c'\n";
        config.read_text(file, Path::new("/c.toml")).unwrap();
        let mut again = Config::default();
        again.read_text(&text(&config), Path::new("/again.toml")).unwrap();
        let values = |config: &Config| KEYS.iter().map(|key| (key.get)(config)).collect::<Vec<_>>();
        assert_eq!(values(&config), values(&again));
        assert!(
            text(&config).contains("# of one process; default") && text(&config).contains("; /c.toml:1\n")
        );
    }

    #[test]
    fn programs_are_told_each_value_and_its_source() {
        let mut config = Config::default();
        config.read_text("cells = 2", Path::new("/c.toml")).unwrap();
        let object = object(&config);
        assert_eq!(object["cells"], json!({ "value": 2, "source": "file", "where": "/c.toml:1" }));
        assert_eq!(object["memory"], json!({ "value": null, "source": "default", "where": null }));
    }
}
