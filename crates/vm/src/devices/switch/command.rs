//! What a switch is to be, as its process is told: `--directory DIR [--port NAME=MAC]... [--stream PATH | --tap NAME] [--subnet NAME]`.
//!
//! An engine reaches a port by `DIR/NAME.socket`. By `DIR/control` the switch is asked for `counters`, for one more `port NAME=MAC`, or for a port as long as the
//! line stands (`join`), a line each.

use std::path::PathBuf;
use std::process::ExitCode;

use super::gateway::Outside;
use super::running::{Options, serve};

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{name} has no value"));
        match name.as_str() {
            "--directory" => options.directory = PathBuf::from(value()?),
            "--port" => options.ports.push(value()?.parse()?),
            "--subnet" => options.subnet = Some(value()?),
            "--stream" | "--tap" if options.gateway.is_some() => {
                return Err("there is one gateway".to_owned());
            }
            "--stream" => options.gateway = Some(Outside::Stream(PathBuf::from(value()?))),
            "--tap" => options.gateway = Some(Outside::Tap(value()?)),
            _ => {
                return Err(format!(
                    "{name}: --directory, --port, --stream, --tap and --subnet are understood"
                ));
            }
        }
    }
    if options.directory.as_os_str().is_empty() {
        return Err("--directory says where the sockets are to be".to_owned());
    }
    Ok(options)
}

/// Is that process. What a subnet has made is gone with it.
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let done = options(arguments).and_then(|options| {
        let served = serve(&options).map_err(|error| error.to_string());
        if options.subnet.is_some() {
            let _ = std::fs::remove_dir_all(&options.directory);
        }
        served
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("comb-vm-switch: {error}");
            ExitCode::FAILURE
        }
    }
}
