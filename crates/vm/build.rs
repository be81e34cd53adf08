//! Compiles what goes in front of user-mode Linux's C library, if a C compiler here can. Where none can, all else is built: that engine then works on hosts alone whose
//! registers it knows.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

const SOURCE: &str = "src/user_mode/registers.c";
const FLAGS: [&str; 8] =
    ["-O2", "-fPIC", "-shared", "-D_GNU_SOURCE", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"];

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-env-changed=CC");
    let place = Path::new(&env::var_os("OUT_DIR").expect("cargo says where")).join("registers.so");
    let is_native = env::var("HOST") == env::var("TARGET")
        && env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut words = compiler.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("cc"));
    command.args(words).args(FLAGS).arg(SOURCE).arg("-o").arg(&place);
    if !is_native || !command.status().is_ok_and(|status| status.success()) {
        // What is included has to be there.
        fs::write(&place, []).expect("what is built can be written");
    }
}
