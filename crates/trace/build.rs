//! Compiles the library that programs load, for the machine that this is built for, if a C compiler here can.
//!
//! Where none can, all else is built: the crate then says why it cannot be used. A test fails if there is a compiler and no library.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

const PARTS: [&str; 7] = ["ring", "files", "processes", "programs", "data", "paths", "streams"];

/// Functions are defined as they are exported, not as headers rename or inline them; only what is marked is seen from outside. Each thread's
/// own memory is found without a call, which programs could not bear everywhere.
const FLAGS: [&str; 12] = [
    "-O2",
    "-fPIC",
    "-shared",
    "-U_FORTIFY_SOURCE",
    "-D_GNU_SOURCE",
    "-fvisibility=hidden",
    "-ftls-model=initial-exec",
    "-Wall",
    "-Wextra",
    "-Wno-nonnull-compare",
    "-Werror",
    "-Wl,-z,now,-z,defs,-soname,libcomb_trace.so",
];

fn main() {
    println!("cargo:rerun-if-changed=preload");
    println!("cargo:rerun-if-changed=bpf/record.h");
    println!("cargo:rerun-if-env-changed=CC");
    let place = Path::new(&env::var_os("OUT_DIR").expect("cargo says where")).join("preload.so");
    let why_not = compile(&place).err().unwrap_or_default();
    if !why_not.is_empty() {
        // What is included has to be there.
        fs::write(&place, []).expect("what is built can be written");
    }
    println!("cargo:rustc-env=COMB_TRACE_WITHOUT_PRELOAD={why_not}");
}

fn compile(place: &Path) -> Result<(), String> {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let target = ["ARCH", "OS", "ENV"].map(|part| variable(&format!("CARGO_CFG_TARGET_{part}"))).join("-");
    if target != "x86_64-linux-gnu" {
        return Err(format!("it was built for {target}, and the library is for x86_64-linux-gnu"));
    }
    if variable("HOST") != variable("TARGET") {
        return Err(format!("it was built on {} for {}", variable("HOST"), variable("TARGET")));
    }
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut words = compiler.split_whitespace();
    let program = words.next().unwrap_or("cc");
    let mut command = Command::new(program);
    command.args(words).args(FLAGS).arg("-o").arg(place);
    command.args(PARTS.map(|part| format!("preload/{part}.c")));
    let output = command.output().map_err(|error| format!("there was no C compiler ({program}: {error})"))?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    for line in complaint.lines() {
        println!("cargo:warning={line}");
    }
    Err(format!("{program} did not compile it: {}", complaint.lines().next().unwrap_or_default()))
}
