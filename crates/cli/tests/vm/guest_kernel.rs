//! What machines are made of in tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where tests keep what they need of machines.
pub(crate) fn place() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/vm")
}

/// Whether a program is installed.
pub(crate) fn is_there(program: &str) -> bool {
    Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap().status.success()
}

/// A guest's kernel; nothing where machines cannot be run or made, which is said.
pub(crate) fn guest_kernel() -> Option<PathBuf> {
    let kernel = fs::read_dir(place()).into_iter().flatten().find_map(|entry| {
        let path = entry.ok()?.path();
        path.extension().is_some_and(|extension| extension == "deb").then_some(path)
    });
    let kernel = kernel.filter(|_| is_there("qemu-system-x86_64") && is_there("busybox"));
    if kernel.is_none() {
        eprintln!("QEMU, busybox or a guest's kernel is not here: `make setup-test` brings them");
    }
    kernel
}
