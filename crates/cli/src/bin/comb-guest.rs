//! `comb-guest`: the agent, in a guest. With `files …` what the host has done there with files that machines have in common; `comb-guest nodes` shows what becomes of pages
//! where memory has nodes.

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args_os().skip(1).filter_map(|word| word.into_string().ok()).collect();
    if let Some(("files", words)) = words.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return match comb_guest::files::run(words) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let port = std::env::args_os().nth(1);
    if port.as_ref().is_some_and(|first| first == "nodes") {
        return match comb_guest::nodes::show(&mut std::io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("comb-guest: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let port = port.unwrap_or_else(|| format!("/dev/virtio-ports/{}", comb_guest::wire::PORT).into());
    match comb_guest::agent::serve(port.as_ref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("comb-guest: {}: {error}", port.display());
            ExitCode::FAILURE
        }
    }
}
