//! `comb completion` and the hidden `comb man`: what shells and `man` know of this command's words.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::output::Output;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

const EXAMPLES: &str = "\
Examples:
  source <(comb completion bash)                                      in this shell
  comb completion bash > ~/.local/share/bash-completion/completions/comb
  comb completion zsh > ~/.zfunc/_comb                                with ~/.zfunc in fpath
  comb completion fish > ~/.config/fish/completions/comb.fish";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completion {
    /// Whose
    shell: Shell,
}

impl Completion {
    pub(crate) fn run(self, command: &clap::Command, output: Output) -> Outcome {
        use clap_complete::Shell as Known;
        let shell = match self.shell {
            Shell::Bash => Known::Bash,
            Shell::Zsh => Known::Zsh,
            Shell::Fish => Known::Fish,
        };
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut visible(command), "comb", &mut script);
        let script = String::from_utf8_lossy(&script).into_owned();
        let object = json!({ "shell": shell.to_string(), "script": script });
        output.show(&object, || script.clone())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Without what is hidden, which shells would offer as well.
fn visible(command: &clap::Command) -> clap::Command {
    let about = command.get_about().cloned().unwrap_or_default();
    let below = command.get_subcommands().filter(|below| !below.is_hide_set()).map(visible);
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned();
    // Names are for as long as the program runs, and this one ends soon.
    let name: &'static str = command.get_name().to_owned().leak();
    clap::Command::new(name).about(about).args(arguments).subcommands(below)
}

/// Writes a page for each command.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Where to; made if it is not there
    directory: PathBuf,
}

impl Man {
    pub(crate) fn run(self, command: clap::Command, output: Output) -> Outcome {
        let directory = self.directory;
        let cannot = |error: std::io::Error| {
            Failure::from(error).about(format_args!("cannot write pages to {}", directory.display()))
        };
        std::fs::create_dir_all(&directory).map_err(cannot)?;
        let mut pages = Vec::new();
        // Only a whole set of commands knows its names: comb-region-create.
        let mut command = command.disable_help_subcommand(true);
        command.build();
        write_pages(&command, &directory, &mut pages).map_err(cannot)?;
        let text = format!("{} pages are in {}", pages.len(), directory.display());
        output.tell(&json!({ "directory": directory, "pages": pages }), text)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn write_pages(
    command: &clap::Command,
    directory: &std::path::Path,
    pages: &mut Vec<String>,
) -> std::io::Result<()> {
    let page = clap_mangen::Man::new(command.clone());
    let file = page.get_filename();
    let mut text = Vec::new();
    page.render(&mut text)?;
    std::fs::File::create(directory.join(&file))?.write_all(&text)?;
    pages.push(file);
    command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
        .try_for_each(|below| write_pages(below, directory, pages))
}
