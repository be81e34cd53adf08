//! `combcc`, a C and C++ compiler for programs whose threads run on many cells: clang with Comb's pass, linker script and
//! runtime. Called by a name that ends in `++` it is the C++ compiler.

mod arguments;
mod clang;
mod library;
mod linking;
mod openmp;
mod options;
mod refused;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "\
combcc compiles C, and combc++ C++, as clang does, for threads that share memory across cells.
Everything that clang knows is passed on to it. Comb's own options:

  --access=check|hybrid|mmu|page  how a program notices that a block is not here (default: check)
  --block=BYTES                   size of a block: a power of two from 128 (4096 unless by check) to 65536 (default: 1024 by
                                  check, 128 for few variables, otherwise 4096)
  --explain                       say for each function what was checked
  --stores=rseq|pinned            how a store and its check are one (default: rseq)
  --no-poll                       loops do not look whether others have asked for something
  --lookup-cost=N                 N more instructions for each check
  --invocation-cost=N             N more turns of a loop for each miss
  --allow-uncovered=FUNCTION,…    link although FUNCTION may touch shared memory unseen; Tcl_* allows all that begin so

COMB_CLANG names another clang, COMB_CC_LIBRARY the directory of Comb's pass and runtime.
";

fn main() -> ExitCode {
    let mut words = std::env::args();
    let own_name = words.next().unwrap_or_default();
    let is_cpp = Path::new(&own_name).file_name().is_some_and(|name| name.to_string_lossy().ends_with("++"));
    let words: Vec<String> = words.collect();
    match linking::link(&words).unwrap_or_else(|| run(is_cpp, words)) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("combcc: error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(is_cpp: bool, words: Vec<String>) -> Result<ExitCode, String> {
    let words = arguments::expand_response_files(words)?;
    let (mut own, passed) = options::Options::parse(words)?;
    if own.asks_for_help {
        print!("{HELP}");
    }
    if let Some(why) = refused::refused(&passed) {
        return Err(why);
    }
    let job = arguments::Job::of(&passed);
    let objects = if job.links { linking::objects(&job, &passed) } else { Vec::new() };
    // What cannot be read is the linker's to complain of.
    if let Ok(Some((file, access))) = comb_cc_library::first_access(&objects)
        && let (Some(mode), Some(block_bytes)) = (access.mode(), access.block_bytes())
    {
        own.agree_with(&file, mode, block_bytes)?;
    }
    let library = library::Library::find()?;
    let openmp = openmp::Openmp::of(&passed, &objects);
    let done = clang::Clang::find(is_cpp).run(&own, &job, &library, (passed, &openmp));
    // Behind clang's own: whoever looks for the version of a compiler like clang finds that one.
    if own.asks_for_version {
        // Whoever reads the first line may not wait for this one.
        let _ = writeln!(std::io::stdout(), "combcc {}", env!("CARGO_PKG_VERSION"));
    }
    done
}
