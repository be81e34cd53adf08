//! `comb-guest`: the agent, in a guest.

use std::process::ExitCode;

fn main() -> ExitCode {
    let port = std::env::args_os().nth(1);
    let port = port.unwrap_or_else(|| format!("/dev/virtio-ports/{}", comb_guest::wire::PORT).into());
    match comb_guest::agent::serve(port.as_ref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("comb-guest: {}: {error}", port.display());
            ExitCode::FAILURE
        }
    }
}
