//! What is recorded to see what that costs.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use comb_trace::codec::Encoder;
use comb_trace::event::{Event, Identity, append_text};
use comb_trace::trace_file::{Frame, Head, Moment, framed, write_magic};
use comb_trace::{Operation, machine};
use comb_types::Dice;

use super::{Outcome, is_here};

/// Reads a page of a file so many times: as fast as it can, or so many in a second, a burst every 10 ms.
pub(super) const WRITER: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int count, char **arguments) {
  if (count < 3) return 2;
  long calls = atol(arguments[1]), rate = atol(arguments[2]);
  char page[4096];
  int file = open(arguments[0], O_RDONLY);
  struct timespec next;
  clock_gettime(CLOCK_MONOTONIC, &next);
  for (long call = 0; call < calls; call++) {
    if (pread(file, page, 512, 0) != 512) return 1;
    if (rate && call % (rate / 100) == 0) {
      next.tv_nsec += 10000000;
      if (next.tv_nsec >= 1000000000) next.tv_sec++, next.tv_nsec -= 1000000000;
      clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, 0);
    }
  }
  return 0;
}
"#;

/// A folder of its own, gone at the end.
pub(super) struct Place {
    scratch: PathBuf,
    folders: AtomicU64,
}

impl Place {
    pub(super) fn new() -> Outcome<Self> {
        let scratch = std::env::temp_dir().join(format!("comb-bench-trace-{}", std::process::id()));
        fs::create_dir(&scratch)?;
        Ok(Self { scratch, folders: AtomicU64::new(0) })
    }

    /// An empty folder.
    pub(super) fn fresh(&self) -> Outcome<PathBuf> {
        let folder = self.scratch.join(self.folders.fetch_add(1, Ordering::Relaxed).to_string());
        fs::create_dir(&folder)?;
        Ok(folder)
    }

    /// A program of a source.
    pub(super) fn compile(&self, name: &str, source: &str) -> Outcome<PathBuf> {
        let (program, text) = (self.scratch.join(name), self.scratch.join(format!("{name}.c")));
        fs::write(&text, source)?;
        let status = Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(&text).status()?;
        if status.success() { Ok(program) } else { Err(format!("cc of {name}: {status}").into()) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

/// A workload, in pieces that can be done one by one.
pub(super) struct Load {
    pub(super) name: &'static str,
    pub(super) pieces: Vec<Vec<String>>,
    pub(super) is_compile: bool,
}

impl Load {
    fn of_shell(name: &'static str, script: String) -> Self {
        let command = vec!["sh".to_owned(), "-c".to_owned(), script];
        Self { name, pieces: vec![command], is_compile: false }
    }

    /// Some C files with functions that take a compiler some time, and the usual headers.
    pub(super) fn compile(place: &Place) -> Outcome<Option<Self>> {
        const FILES: usize = 24;
        const FUNCTIONS: usize = 60;
        let folder = place.fresh()?;
        for file in 0..FILES {
            let mut text = "#include <math.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n".to_owned();
            for function in 0..FUNCTIONS {
                let _ = writeln!(
                    text,
                    "double f{function}(double *a, int n) {{ double s = 0; for (int i = 0; i < n; i++) {{ a[i] = sin(a[i] * {function}) + a[(i + {file}) % n]; \
                     if (a[i] > 1) s += a[i] / (i + 1); else s -= sqrt(fabs(a[i])); }} char b[64]; snprintf(b, sizeof b, \"%f\", s); return s + strlen(b); }}"
                );
            }
            fs::write(folder.join(format!("part{file}.c")), text)?;
        }
        let piece = |file: usize| {
            let path = folder.join(format!("part{file}")).display().to_string();
            ["cc", "-O2", "-c", &format!("{path}.c"), "-o", &format!("{path}.o")].map(str::to_owned).into()
        };
        Ok(Some(Self { name: "compile", pieces: (0..FILES).map(piece).collect(), is_compile: true }))
    }

    /// A repository with two thousand files.
    pub(super) fn git(place: &Place) -> Outcome<Option<Self>> {
        if !is_here("git") {
            return Ok(None);
        }
        let folder = place.fresh()?;
        for directory in 0..100 {
            let inside = folder.join(format!("directory-{directory}"));
            fs::create_dir(&inside)?;
            for file in 0..20 {
                fs::write(inside.join(format!("file-{file}.txt")), format!("{directory} {file}\n"))?;
            }
        }
        let made = format!(
            "cd {} && git init -q && git add -A && git -c user.name=a -c user.email=a@b commit -qm all",
            folder.display()
        );
        if !Command::new("sh").arg("-c").arg(made).status()?.success() {
            return Err("git cannot make a repository".into());
        }
        let script = format!(
            "cd {} && for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do git status >/dev/null; done",
            folder.display()
        );
        Ok(Some(Self::of_shell("git status", script)))
    }

    /// A walk that looks at every file.
    pub(super) fn find() -> Option<Self> {
        is_here("find").then(|| {
            Self::of_shell("find", "find /usr -xdev -type f -size +1k >/dev/null 2>&1; true".to_owned())
        })
    }
}

/// Writes a recording of so many events that nobody did: files of heavy-tailed sizes, opened, read or written, and closed.
pub(super) fn make_up(path: &Path, events: u64) -> Outcome<u64> {
    let mut out = std::io::BufWriter::new(fs::File::create(path)?);
    write_magic(&mut out)?;
    let mut put = |frame: &Frame| out.write_all(&framed(frame));
    put(&Frame::Head(Box::new(Head {
        machine: "nowhere".to_owned(),
        began: machine::now(),
        ..Head::default()
    })))?;
    let (mut encoder, mut dice, mut now_ns, mut made) =
        (Encoder::default(), Dice::new(1), machine::now().monotonic_ns, 0_u64);
    let mut session = 0_u64;
    while made < events {
        session += 1;
        let process = 1000 + dice.below(50);
        let number = u64::from(dice.below(100_000));
        let file = Identity { inode: 1000 + number, device: 8 << 20, generation: 1 };
        let size = u64::from(dice.below(1 << 16)) * (1 + u64::from(dice.below(1 << 10)) / 900);
        let base = Event {
            process,
            thread: process,
            descriptor: 3,
            file,
            size,
            handle: session % 4096 + 1,
            mode: 0o100_644,
            ..Event::default()
        };
        let mut add = |operation: Operation,
                       change: &dyn Fn(&mut Event),
                       texts: &[u8],
                       encoder: &mut Encoder,
                       dice: &mut Dice| {
            now_ns += 500 + u64::from(dice.below(3000));
            let duration_ns = 300 + u64::from(dice.below(900));
            let mut event = Event { operation: operation as u8, start_ns: now_ns, duration_ns, ..base };
            now_ns += duration_ns;
            change(&mut event);
            encoder.add(&event, texts);
            made += 1;
        };
        let mut name = Vec::new();
        append_text(
            &mut name,
            Identity::default(),
            format!("file-{number}.txt\0{}\0srv\0", number % 100).as_bytes(),
        );
        if session.is_multiple_of(4) {
            add(
                Operation::Name,
                &|event| (event.handle, event.descriptor) = (0, -1),
                &name,
                &mut encoder,
                &mut dice,
            );
        }
        add(Operation::Open, &|event| event.result = 3, &[], &mut encoder, &mut dice);
        let is_written = dice.below(4) == 0;
        let operation = if is_written { Operation::Write } else { Operation::Read };
        let (mut offset, piece) = (0, 4096 << dice.below(4));
        for _ in 0..1 + dice.below(6) {
            let moved = piece.min(size.saturating_sub(offset));
            add(
                operation,
                &|event| (event.asked, event.result, event.offset) = (piece, moved.cast_signed(), offset),
                &[],
                &mut encoder,
                &mut dice,
            );
            offset += moved;
        }
        add(Operation::Close, &|_| {}, &[], &mut encoder, &mut dice);
        if encoder.len() + 16 > comb_trace::codec::MOST_EVENTS
            && let Some(block) = encoder.take()
        {
            put(&Frame::Events(block))?;
        }
    }
    if let Some(block) = encoder.take() {
        put(&Frame::Events(block))?;
    }
    put(&Frame::End(Moment { recorded: made, ..machine::now() }))?;
    drop(out);
    Ok(fs::metadata(path)?.len())
}
