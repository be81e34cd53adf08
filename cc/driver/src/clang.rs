//! Runs clang with what Comb adds.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};

use crate::arguments::Job;
use crate::library::Library;
use crate::linking;
use crate::openmp::Openmp;
use crate::options::Options;

/// The compiler below.
pub(crate) struct Clang {
    program: OsString,
    is_cpp: bool,
}

impl Clang {
    /// The version that the pass was built for.
    pub(crate) fn find(is_cpp: bool) -> Self {
        Self { program: std::env::var_os("COMB_CLANG").unwrap_or_else(|| "clang-19".into()), is_cpp }
    }

    pub(crate) fn run(
        self,
        own: &Options,
        job: &Job,
        library: &Library,
        (passed, openmp): (Vec<String>, &Openmp),
    ) -> Result<ExitCode, String> {
        let mut command = Command::new(&self.program);
        if self.is_cpp {
            command.arg("--driver-mode=g++");
        }
        command.env("COMB_PASS", pass_options(own, library));
        if job.links {
            linking::stand_between(&mut command, own, library, &passed);
        }
        let names_language = passed.iter().any(|word| word.starts_with("-x"));
        command.args(passed.into_iter().filter(|word| !is_dropped(word) && !openmp.replaces(word)));
        // Not all of these are for every job, and no warning may disturb a configure script.
        command.arg("--start-no-unused-arguments");
        add_for_compilation(&mut command, job, library);
        if self.is_cpp && library.instances().is_file() {
            // libstdc++ keeps instances of its templates, which are plain code: the program makes its own.
            command.arg("-include").arg(library.instances());
        }
        openmp.add_for_compilation(&mut command, library);
        let built = match openmp.is_linked_by(job) {
            true => Some(openmp.build(&self.program, &pass_options(own, library), library)?),
            false => None,
        };
        if names_language && job.links && !job.makes_library {
            // What follows is what its name says, whatever the program's sources were said to be. Where nothing follows clang would warn.
            command.args(["-x", "none"]);
        }
        if let Some(built) = &built {
            command.args(built.objects());
        }
        if job.links {
            add_for_link(&mut command, own, job, library);
        }
        command.arg("--end-no-unused-arguments");
        let status =
            command.status().map_err(|error| format!("{}: {error}", self.program.to_string_lossy()))?;
        // A signal's number as a shell tells it.
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
        Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
    }
}

/// What would undo Comb's: optimisation behind the pass, and executables without fixed addresses.
fn is_dropped(word: &str) -> bool {
    matches!(word, "-pie" | "-fPIE" | "-fpie" | "-static-pie")
        || word.starts_with("-fuse-ld=")
        || word == "-flto"
        || word.starts_with("-flto=")
}

fn pass_options(own: &Options, library: &Library) -> OsString {
    let mut text = OsString::from(format!(
        "access={},block={},explain={},stores={},lookup-cost={},poll={}",
        own.access.name(),
        own.block_bytes,
        u8::from(own.explains),
        if own.pins_stores { "pinned" } else { "rseq" },
        own.lookup_cost,
        u8::from(!own.polls_not)
    ));
    if library.covered().exists() {
        text.push(",covered=");
        text.push(library.covered());
    }
    text
}

fn add_for_compilation(command: &mut Command, job: &Job, library: &Library) {
    command.arg(joined("-fpass-plugin=", library.pass().into()));
    if !job.is_position_independent {
        command.arg("-fno-pie");
    }
    // A copy of a library's variable in the executable would be outside its image. Fortified functions are other names of covered ones.
    command.args(["-fno-direct-access-external-data", "-U_FORTIFY_SOURCE"]);
}

fn add_for_link(command: &mut Command, own: &Options, job: &Job, library: &Library) {
    command.arg(joined("-Wl,-T,", library.linker_script().into()));
    if job.makes_library {
        // Comb's functions are in the executable.
        return;
    }
    command.args(["-no-pie", "-rdynamic"]);
    // What the runtime tells the task.
    command.arg(format!("-Wl,--defsym,comb_link_access={}", own.access as u32));
    command.arg(format!("-Wl,--defsym,comb_link_block_bytes={}", own.block_bytes));
    if !own.polls_not {
        command.arg("-Wl,--defsym,comb_link_polls=1");
    }
    if own.invocation_cost > 0 {
        command.arg(format!("-Wl,--defsym,comb_invocation_cost={}", own.invocation_cost));
    }
    if library.runtime().exists() && !job.skips_libraries {
        command.arg("-Wl,--whole-archive").arg(library.runtime()).arg("-Wl,--no-whole-archive");
        if library.classes().exists() {
            command.arg(library.classes());
        }
        command.args(["-lpthread", "-ldl", "-lm"]);
    }
}

fn joined(option: &str, value: OsString) -> OsString {
    let mut word = OsString::from(option);
    word.push(value);
    word
}
