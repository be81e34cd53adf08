//! What a disk is to be, as a process that serves it is told.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use super::{Writes, serve};

const USAGE: &str =
    "usage: --socket PATH --base FILE --overlay FILE | --temporary | --read-only | --exclusive";

/// Is that process.
pub fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let (mut socket, mut base, mut writes) = (None, None, None);
    while let Some(argument) = arguments.next() {
        let mut path = || arguments.next().map(PathBuf::from);
        match argument.to_str() {
            Some("--socket") => socket = path(),
            Some("--base") => base = path(),
            Some("--overlay") => writes = path().map(Writes::Overlay),
            Some("--temporary") => writes = Some(Writes::Temporary),
            Some("--read-only") => writes = Some(Writes::Refused),
            Some("--exclusive") => writes = Some(Writes::Exclusive),
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    let (Some(socket), Some(base), Some(writes)) = (socket, base, writes) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let Err(error) = serve(&socket, &base, &writes);
    eprintln!("comb-vm-disk: {error}");
    ExitCode::FAILURE
}
