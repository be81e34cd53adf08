//! `comb-guest`: the agent, in a guest. `comb-guest nodes` shows there what becomes of pages where memory has nodes.

use std::process::ExitCode;

fn main() -> ExitCode {
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
