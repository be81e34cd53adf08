//! The programs of `apps`, by each compiler: built once a run, started alone, as components of a task, or on two hosts.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// All ten.
pub(crate) const ALL: [&str; 10] =
    ["appbt", "barnes", "mp3d", "ocean", "tomcatv", "water", "raytrace", "radix", "lu", "fft"];

/// Those of Blizzard's Table 4.
pub(crate) const BLIZZARDS: [&str; 6] = ["appbt", "barnes", "mp3d", "ocean", "tomcatv", "water"];

/// What compiles them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Compiler {
    /// clang alone, for threads of one process.
    Plain,
    /// Loads and stores look at the state of their block. (Blizzard-S)
    Check,
    /// The same by the smallest blocks, which are also those that Blizzard was measured with.
    Fine,
    /// The MMU stops loads, stores look. (Blizzard-ES)
    Hybrid,
    /// The MMU stops both, and small objects have a page of addresses each. (Blizzard-E)
    Mmu,
    /// The MMU stops both, page by page. (Blizzard-P)
    Page,
    /// As `Check`, and each look costs so much more.
    Lookup(u32),
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => f.write_str("plain"),
            Self::Check => f.write_str("check"),
            Self::Fine => f.write_str("check-128"),
            Self::Hybrid => f.write_str("hybrid"),
            Self::Mmu => f.write_str("mmu"),
            Self::Page => f.write_str("page"),
            Self::Lookup(cost) => write!(f, "check-{cost}"),
        }
    }
}

/// Where the programs' source is.
pub(crate) fn apps_folder() -> Result<PathBuf, &'static str> {
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apps");
    let apps =
        [PathBuf::from("apps"), built_from].into_iter().find(|folder| folder.join("Makefile").is_file());
    apps.ok_or("the programs' folder, apps, is not here: run from the repository")
}

/// Where everything is that is needed, and where the programs are built.
pub(crate) struct Workshop {
    apps: PathBuf,
    combcc: PathBuf,
    scratch: PathBuf,
}

impl Workshop {
    /// Or what is missing.
    pub(crate) fn open() -> Result<Self, String> {
        let apps = apps_folder()?.canonicalize().map_err(|error| error.to_string())?;
        let beside = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("combcc");
        let combcc =
            std::env::var_os("COMBCC").map(PathBuf::from).or_else(|| beside.is_file().then_some(beside));
        let combcc =
            combcc.ok_or("combcc is not beside comb: make -C cc builds it, COMBCC says where it is")?;
        let scratch = std::env::temp_dir().join(format!("comb-bench-cc-{}", std::process::id()));
        std::fs::create_dir_all(&scratch).map_err(|error| error.to_string())?;
        Ok(Self { apps, combcc, scratch })
    }

    pub(crate) fn scratch(&self) -> &Path {
        &self.scratch
    }

    fn folder(&self, compiler: Compiler) -> PathBuf {
        self.scratch.join(compiler.to_string())
    }

    pub(crate) fn program(&self, compiler: Compiler, name: &str) -> PathBuf {
        self.folder(compiler).join(name)
    }

    /// The compiler, and its options.
    fn words(&self, compiler: Compiler) -> (String, Vec<String>) {
        let options = match compiler {
            Compiler::Plain => {
                return (std::env::var("COMB_CLANG").unwrap_or_else(|_| "clang-19".to_owned()), Vec::new());
            }
            Compiler::Fine => vec!["--access=check".to_owned(), "--block=128".to_owned()],
            Compiler::Lookup(cost) => vec!["--access=check".to_owned(), format!("--lookup-cost={cost}")],
            other => vec![format!("--access={other}")],
        };
        (self.combcc.display().to_string(), options)
    }

    /// Compiles and links all of them anew. How long that took.
    pub(crate) fn build(&self, compiler: Compiler) -> Result<Duration, String> {
        let folder = self.folder(compiler);
        let _ = std::fs::remove_dir_all(&folder);
        let (cc, options) = self.words(compiler);
        let cc = [vec![cc], options].concat().join(" ");
        let started = Instant::now();
        let made = Command::new("make")
            .arg("-C")
            .arg(&self.apps)
            .args([format!("CC={cc}"), "CFLAGS=-O2".to_owned(), format!("BUILD={}", folder.display())])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("make: {error}"))?;
        if made.status.success() {
            return Ok(started.elapsed());
        }
        let said = String::from_utf8_lossy(&made.stderr);
        Err(format!(
            "{compiler}: {}",
            said.lines().find(|line| line.contains("error")).unwrap_or("make failed")
        ))
    }
}

/// Small programs that time one thing each: benches/cc.
impl Workshop {
    /// Compiles one, and runs it: what it printed, a name and a number a line.
    pub(crate) fn primitive(
        &self,
        compiler: Compiler,
        name: &str,
        launcher: &[&str],
        argument: &str,
    ) -> Result<BTreeMap<String, f64>, String> {
        let (source, program) =
            (self.apps.join(format!("../benches/cc/{name}.c")), self.program(compiler, name));
        let (cc, options) = self.words(compiler);
        let made = Command::new(cc)
            .args(options)
            .arg("-O2")
            .arg(source)
            .arg("-o")
            .arg(&program)
            .arg("-lpthread")
            .output()
            .map_err(|error| error.to_string())?;
        if !made.status.success() {
            return Err(format!("{name}, {compiler}: {}", last_line(&made)));
        }
        let mut command = if launcher.is_empty() {
            Command::new(&program)
        } else {
            let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
            command.args(["run", "--limit", &LIMIT_S.to_string()]).args(launcher).arg("--").arg(&program);
            command
        };
        command.args((!argument.is_empty()).then_some(argument)).stdin(Stdio::null());
        let output = command.output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(format!("{name}, {compiler}: {}: {}", output.status, last_line(&output)));
        }
        Ok(numbers(&output.stdout))
    }
}

/// Lines of a name and a number.
fn numbers(printed: &[u8]) -> BTreeMap<String, f64> {
    let printed = String::from_utf8_lossy(printed);
    let line = |line: &str| {
        let (name, number) = line.rsplit_once(' ')?;
        Some((name.to_owned(), number.parse().ok()?))
    };
    printed.lines().filter_map(line).collect()
}

fn last_line(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or("no word").to_owned()
}

impl Drop for Workshop {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

/// How a program is started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Way {
    /// Options of `comb run`; none, where it is started alone.
    pub(crate) launcher: Vec<String>,
    pub(crate) threads: u32,
    pub(crate) size: &'static str,
    pub(crate) checks: bool,
    /// Set in the environment.
    pub(crate) variables: Vec<(&'static str, String)>,
    /// It is ended after so many seconds.
    pub(crate) limit_s: u32,
}

/// What came of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Ran {
    /// Its parallel part took so many seconds.
    Seconds(f64),
    /// It was ended after so many.
    Unfinished(f64),
}

impl Ran {
    /// The seconds; of what was ended, the fewest that it would have taken.
    pub(crate) fn at_least(self) -> f64 {
        let (Self::Seconds(seconds) | Self::Unfinished(seconds)) = self;
        seconds
    }
}

/// What is measured may take no longer, if nothing else is said.
pub(crate) const LIMIT_S: u32 = 60;

impl Way {
    pub(crate) fn alone(threads: u32, size: &'static str) -> Self {
        Self { threads, size, limit_s: LIMIT_S, ..Self::default() }
    }

    /// As a task of this host, whose components share as the options say.
    pub(crate) fn task(components: u32, threads: u32, size: &'static str, options: &[&str]) -> Self {
        let mut launcher = vec!["-n".to_owned(), components.to_string()];
        launcher.extend(options.iter().map(|&option| option.to_owned()));
        Self { launcher, threads, size, limit_s: LIMIT_S, ..Self::default() }
    }

    pub(crate) fn run(&self, program: &Path) -> Result<Ran, String> {
        let mut command = if self.launcher.is_empty() {
            let mut command = Command::new("timeout");
            command.args(["-s", "KILL", &self.limit_s.to_string()]);
            command
        } else {
            let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
            command.args(["run", "--limit", &self.limit_s.to_string()]).args(&self.launcher).arg("--");
            command
        };
        command.arg(program).args(["-p", &self.threads.to_string(), "-s", self.size, "--time"]);
        if self.checks {
            command.arg("--check");
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value))).stdin(Stdio::null());
        let output = command.output().map_err(|error| error.to_string())?;
        read(&output, self.limit_s).map_err(|reason| format!("{}: {reason}", program.display()))
    }
}

fn read(output: &Output, limit_s: u32) -> Result<Ran, String> {
    // 124 is what `comb run` says of its limit; a signal, and 137, what `timeout` leaves.
    if matches!(output.status.code(), Some(124 | 137) | None) {
        return Ok(Ran::Unfinished(f64::from(limit_s)));
    }
    if !output.status.success() {
        return Err(format!("{}: {}", output.status, last_line(output)));
    }
    let seconds = numbers(&output.stdout).get("seconds").copied();
    seconds.map(Ran::Seconds).ok_or_else(|| "it told no time".to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn output(status: i32, printed: &str) -> Output {
        Output {
            status: ExitStatus::from_raw(status),
            stdout: printed.as_bytes().to_vec(),
            stderr: b"first\nlast".to_vec(),
        }
    }

    #[test]
    fn a_programs_time_is_read_its_failure_told_and_its_limit_taken_for_one() {
        assert_eq!(read(&output(0, "fft: ok\nseconds 0.25\n"), 60), Ok(Ran::Seconds(0.25)));
        assert_eq!(read(&output(124 << 8, ""), 60), Ok(Ran::Unfinished(60.0)));
        assert_eq!(read(&output(9, ""), 30), Ok(Ran::Unfinished(30.0)));
        assert!(read(&output(1 << 8, "seconds 0.25"), 60).unwrap_err().ends_with("last"));
        assert!(read(&output(0, "seconds soon"), 60).is_err());
    }

    #[test]
    fn compilers_have_folders_of_their_own() {
        let all = [
            Compiler::Plain,
            Compiler::Check,
            Compiler::Hybrid,
            Compiler::Mmu,
            Compiler::Page,
            Compiler::Lookup(5),
        ];
        let names: std::collections::BTreeSet<String> = all.iter().map(Compiler::to_string).collect();
        assert_eq!(names.len(), all.len());
    }
}
