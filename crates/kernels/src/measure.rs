//! Programs whose data are larger than memory, under the host's paging and under kernels of their own: the same file, the same data, as many bytes of memory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use comb_kernel::objects::Sizes;
use rustix::fs::{Advice, fadvise};

use crate::file_kernel::{Policy, run};
use crate::limit::Limit;
use crate::memory::{File, Resources};
use crate::processing::End;
use crate::{database, mp3d, programs};

pub mod locality;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// What a kernel's process has beside its frames: its own code and tables, and those of its supervisor, which is in the same process.
pub const OWN_BYTES: u64 = 8 << 20;

/// Of a page group.
const GROUP_BYTES: u64 = 128 * 4096;

/// A program, with what it works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// A simulation: so many molecules, so many steps.
    Mp3d {
        /// 64 bytes each.
        molecules: u64,
        /// Each goes over all of them.
        steps: u64,
    },
    /// A database: so many leaves, so many scans of all, and a lookup every so many leaves.
    Database {
        /// A page each.
        leaves: u64,
        /// Each reads all of them.
        scans: u64,
        /// Between two lookups.
        leaves_a_lookup: u64,
    },
}

/// How long a program took, in seconds, round by round.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Measured {
    /// Under its kernel.
    pub ours: Vec<f64>,
    /// On the host, as it is.
    pub host: Vec<f64>,
    /// On the host, which it tells what it will do with its memory.
    pub advised: Vec<f64>,
    /// What it works on, in bytes.
    pub file_bytes: u64,
    /// Half of that, in page groups.
    pub memory_bytes: u64,
    /// The most that the kernel's process had at a time, with its frames, in any round.
    pub peak_bytes: Option<u64>,
}

impl Work {
    /// What is measured if nobody says otherwise: 122 MiB.
    pub const MP3D: Self = Self::Mp3d { molecules: 1_966_080, steps: 5 };
    /// The same of tables: 128 MiB.
    pub const DATABASE: Self = Self::Database { leaves: 32_768, scans: 6, leaves_a_lookup: 64 };

    fn program(self) -> (&'static str, &'static [u8], Policy) {
        match self {
            Self::Mp3d { .. } => ("mp3d", programs::MP3D, mp3d::policy()),
            Self::Database { .. } => ("database", programs::DATABASE, database::policy()),
        }
    }

    fn size(self) -> u64 {
        match self {
            Self::Mp3d { molecules, .. } => molecules,
            Self::Database { leaves, .. } => leaves,
        }
    }

    fn arguments(self, path: &str, is_advised: bool) -> Vec<String> {
        let advice = u64::from(is_advised);
        let numbers = match self {
            Self::Mp3d { steps, .. } => vec![steps, advice],
            Self::Database { scans, leaves_a_lookup, .. } => vec![scans, leaves_a_lookup, advice],
        };
        let numbers = numbers.into_iter().map(|number| number.to_string());
        ["run".to_owned(), path.to_owned()].into_iter().chain(numbers).collect()
    }
}

/// A directory of its own, gone at the end.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The programs and their data, in a directory.
struct Bench {
    place: Place,
    work: Work,
}

impl Bench {
    fn new(work: Work, directory: &Path) -> Outcome<Self> {
        let (name, file, _) = work.program();
        let place = Place(directory.join(format!("comb-paging-{name}-{}", std::process::id())));
        fs::create_dir(&place.0)?;
        let program = place.0.join("program");
        fs::write(&program, file)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700))?;
        Ok(Self { place, work })
    }

    fn program(&self) -> PathBuf {
        self.place.0.join("program")
    }

    fn data(&self) -> PathBuf {
        self.place.0.join("data")
    }

    /// Makes the data anew, on disk and nowhere else.
    fn prepare(&self) -> Outcome<()> {
        let _ = fs::remove_file(self.data());
        self.make(&[])?;
        let file = fs::File::open(self.data())?;
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
        Ok(())
    }

    /// Makes the data, with what the program takes beside their size.
    fn make(&self, more: &[u64]) -> Outcome<()> {
        let numbers = std::iter::once(self.work.size()).chain(more.iter().copied());
        let mut command = Command::new(self.program());
        let made =
            command.arg("make").arg(self.data()).args(numbers.map(|number| number.to_string())).status()?;
        if !made.success() {
            return Err(format!("the data cannot be made: {made}").into());
        }
        Ok(())
    }

    /// Seconds on the host, and what the program says.
    fn on_host(&self, limit: &Limit, is_advised: bool) -> Outcome<(f64, Vec<u8>)> {
        let arguments = self.work.arguments(&self.data().to_string_lossy(), is_advised);
        let since = Instant::now();
        // It is in the group before it is what it is to be.
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(limit.members());
        let output = command.arg(self.program()).args(arguments).output()?;
        let seconds = since.elapsed().as_secs_f64();
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("on the host: {}, {said}", output.status).into());
        }
        Ok((seconds, output.stdout))
    }

    /// Seconds under its kernel, and what the program says.
    fn under_kernel(&self, memory_bytes: u64) -> Outcome<(f64, Vec<u8>)> {
        let (name, program, policy) = self.work.program();
        let data = self.data();
        let arguments = self.work.arguments(&data.to_string_lossy(), false);
        let arguments: Vec<&str> =
            std::iter::once(name).chain(arguments.iter().map(String::as_str)).collect();
        let since = Instant::now();
        let resources = Resources::alone(Sizes::default(), u32::try_from(memory_bytes / GROUP_BYTES)?)?;
        let ran = run(program, &arguments, &data, policy, resources)?;
        let seconds = since.elapsed().as_secs_f64();
        match ran.end {
            End::Exit(0) => Ok((seconds, ran.output[0].clone())),
            end => Err(format!("under its kernel: {end}").into()),
        }
    }
}

/// Runs a program so many times in each way, with memory for half of its data. The directory is on a disk.
pub fn measure(work: Work, directory: &Path, rounds: usize, say: &dyn Fn(&str)) -> Outcome<Measured> {
    let bench = Bench::new(work, directory)?;
    let (name, ..) = work.program();
    bench.prepare()?;
    let file = File::open(&bench.data(), false)?;
    if !file.is_direct() {
        return Err(format!("{} is on no disk", directory.display()).into());
    }
    let memory_bytes = (file.bytes() / 2).next_multiple_of(GROUP_BYTES);
    let mut measured = Measured { file_bytes: file.bytes(), memory_bytes, ..Measured::default() };
    for round in 0..rounds {
        let say = |how: &str| say(&format!("{name} {how}, round {} of {rounds}", round + 1));
        say("on the host");
        let limit = Limit::new("host", memory_bytes)?;
        bench.prepare()?;
        let (host, expected) = bench.on_host(&limit, false)?;
        say("on the host, with advice");
        bench.prepare()?;
        let (advised, also) = bench.on_host(&limit, true)?;
        say("under its kernel");
        let limit = Limit::new("kernel", memory_bytes + OWN_BYTES)?;
        bench.prepare()?;
        let inside = limit.enter()?;
        let (ours, said) = bench.under_kernel(memory_bytes)?;
        drop(inside);
        if said != expected || also != expected {
            return Err(format!("{name} has another result under its kernel, or with advice").into());
        }
        measured.host.push(host);
        measured.advised.push(advised);
        measured.ours.push(ours);
        measured.peak_bytes = measured.peak_bytes.max(limit.peak_bytes());
    }
    Ok(measured)
}
