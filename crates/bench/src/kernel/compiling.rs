//! A small compile on the UNIX emulator, beside the same on the host, and under strace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::{Outcome, limit, row};
use crate::net::median;
use crate::report::Row;

/// A folder of its own, gone at the end.
pub(super) struct Place(pub(super) PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) const FILES: usize = 8;

pub(super) fn prepare() -> Outcome<Place> {
    let place = Place(std::env::temp_dir().join(format!("comb-bench-kernel-{}", std::process::id())));
    fs::create_dir(&place.0)?;
    write_sources(&place.0)?;
    Ok(place)
}

/// What is compiled: some files of the usual headers and a few functions each, and a program of them.
pub(crate) fn write_sources(folder: &Path) -> Outcome<()> {
    for file in 0..FILES {
        let mut text =
            "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n".to_owned();
        for function in 0..12 {
            text += &format!(
                "long f{file}_{function}(long *a, long n) {{ long s = {function}; for (long i = 0; i < n; i++) {{ a[i] = a[i] * {file} + a[(i + 1) % n]; \
                 if (a[i] > 1) s += a[i] / (i + 1); else s -= a[i]; }} char b[64]; snprintf(b, sizeof b, \"%ld\", s); return s + (long)strlen(b); }}\n"
            );
        }
        fs::write(folder.join(format!("part{file}.c")), text)?;
    }
    fs::write(folder.join("main.c"), "int main(void) { return 0; }\n")?;
    Ok(())
}

fn seconds(command: &mut Command, at: &Path) -> Outcome<f64> {
    let script = format!(
        "for i in $(seq 0 {}); do cc -O2 -c part$i.c || exit; done; cc -o program main.c part*.o",
        FILES - 1
    );
    let since = Instant::now();
    let command =
        command.args(["sh", "-c", &script]).current_dir(at).stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.stderr(Stdio::null()).status()?;
    if !status.success() {
        return Err(format!("{}: {status}", command.get_program().display()).into());
    }
    Ok(since.elapsed().as_secs_f64())
}

pub(super) fn rows(count: usize, say: &dyn Fn(&str)) -> Outcome<Vec<Row>> {
    let place = prepare()?;
    let has_strace =
        Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success());
    let [mut native, mut ours, mut by_ptrace, mut strace] = [const { Vec::new() }; 4];
    // The first round warms the caches.
    for round in 0..=count {
        say(&format!("compiling, round {round} of {count}"));
        let alone = seconds(&mut Command::new("env"), &place.0)?;
        let emulated = seconds(Command::new("/proc/self/exe").args(["kernel", "run", "--"]), &place.0)?;
        let arguments = ["kernel", "run", "--ptrace", "--"];
        let stopped = seconds(Command::new("/proc/self/exe").args(arguments), &place.0)?;
        let traced = if has_strace {
            let arguments = ["-f", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=%file,%desc"];
            Some(seconds(Command::new("strace").args(arguments), &place.0)?)
        } else {
            None
        };
        if round > 0 {
            native.push(alone);
            ours.push(emulated / alone);
            by_ptrace.push(stopped / alone);
            strace.extend(traced.map(|traced| traced / alone));
        }
    }
    let mut times = limit("a small compile on the UNIX emulator, by the host's", median(&ours), "×", 2.5);
    let theirs = median(&strace)
        .map_or("strace is not here".to_owned(), |traced| format!("under strace: {traced:.2} ×"));
    times.note = format!("{theirs}; the host: {:.2} s", median(&native).unwrap_or(0.0));
    let by_ptrace = row("the same emulator over ptrace alone, by the host's", median(&by_ptrace), "×");
    Ok(vec![
        times,
        by_ptrace,
        row("the same under strace -f --seccomp-bpf, by the host's", median(&strace), "×"),
    ])
}
