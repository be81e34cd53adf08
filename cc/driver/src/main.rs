//! `combcc`, a C and C++ compiler for programs whose threads run on many cells: clang with Comb's pass, linker script and
//! runtime. Called by a name that ends in `++` it is the C++ compiler.

mod arguments;
mod clang;
mod library;
mod linking;
mod openmp;
mod options;

use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "\
combcc compiles C, and combc++ C++, as clang does, for threads that share memory across cells.
Everything that clang knows is passed on to it. Comb's own options:

  --access=check|hybrid|mmu|page  how a program notices that a block is not here (default: check)
  --block=BYTES                   size of a block: a power of two, 128 or more (default: 1024 by check, otherwise 4096)
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
    let (own, passed) = options::Options::parse(words)?;
    if own.asks_for_help {
        print!("{HELP}");
    }
    if own.asks_for_version {
        println!("combcc {}", env!("CARGO_PKG_VERSION"));
    }
    let job = arguments::Job::of(&passed);
    let library = library::Library::find()?;
    clang::Clang::find(is_cpp).run(&own, &job, &library, passed)
}
