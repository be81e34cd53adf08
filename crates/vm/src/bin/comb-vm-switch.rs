//! A virtual subnet: `comb-vm-switch --directory DIR [--port NAME=MAC]... [--stream PATH | --tap NAME]`.
//!
//! An engine reaches a port by `DIR/NAME.socket`. By `DIR/control` the switch is asked for `counters`, or for one more `port NAME=MAC`, a line each.

use std::path::PathBuf;
use std::process::ExitCode;

use comb_vm::devices::switch::gateway::Outside;
use comb_vm::devices::switch::running::{Options, serve};

fn options() -> Result<Options, String> {
    let mut options = Options::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{name} has no value"));
        match name.as_str() {
            "--directory" => options.directory = PathBuf::from(value()?),
            "--port" => options.ports.push(value()?.parse()?),
            "--stream" | "--tap" if options.gateway.is_some() => {
                return Err("there is one gateway".to_owned());
            }
            "--stream" => options.gateway = Some(Outside::Stream(PathBuf::from(value()?))),
            "--tap" => options.gateway = Some(Outside::Tap(value()?)),
            _ => return Err(format!("{name}: --directory, --port, --stream and --tap are understood")),
        }
    }
    if options.directory.as_os_str().is_empty() {
        return Err("--directory says where the sockets are to be".to_owned());
    }
    Ok(options)
}

fn main() -> ExitCode {
    let Err(error) = options().and_then(|options| match serve(&options) {
        Ok(never) => match never {},
        Err(error) => Err::<(), _>(error.to_string()),
    }) else {
        return ExitCode::SUCCESS;
    };
    eprintln!("comb-vm-switch: {error}");
    ExitCode::FAILURE
}
