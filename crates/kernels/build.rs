//! Compiles the programs that have kernels of their own: they need no C library, and run on the host as well.

use std::env;
use std::path::Path;
use std::process::Command;

const PROGRAMS: [&str; 2] = ["mp3d", "database"];

/// Nothing but what stands in the file: no library, no start-up code, one address.
const FLAGS: [&str; 14] = [
    "-std=gnu17",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffreestanding",
    "-fno-stack-protector",
    "-fcf-protection=none",
    "-fno-asynchronous-unwind-tables",
    "-fno-pie",
    "-no-pie",
    "-nostdlib",
    "-static",
    "-Wl,--build-id=none",
];

fn main() {
    println!("cargo:rerun-if-changed=programs");
    println!("cargo:rerun-if-env-changed=CC");
    let directory = env::var_os("OUT_DIR").expect("cargo says where");
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    for program in PROGRAMS {
        let mut command = Command::new(&compiler);
        command.args(FLAGS).arg("-o").arg(Path::new(&directory).join(program));
        let status = command.arg(format!("programs/{program}.c")).status();
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => panic!("{} does not compile {program}: {status}", compiler.display()),
            Err(error) => panic!("{} cannot be run: {error}", compiler.display()),
        }
    }
}
