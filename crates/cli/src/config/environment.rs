//! The environment that this process and all that it starts go by.
#![expect(unsafe_code, reason = "the environment is changed, once, before there are threads")]

use comb_host::RuntimeDirectory;

use super::{Config, Source};
use crate::failure::Failure;

/// Puts into the environment what others look for there: libraries, the agent, cells, and the programs of tasks. Call it before anything
/// else: there may be no other thread.
pub(crate) fn adopt(config: &Config) -> Result<(), Failure> {
    let source = config.source("name");
    let says_where = std::env::var_os("COMB_RUNTIME_DIR").is_some_and(|value| !value.is_empty());
    // A flag is about this command; a directory in the environment is about all, and a name there or in the file is weaker.
    let counts = matches!(source, Source::Flag(_)) || !says_where;
    if let Some(name) = config.name.as_ref().filter(|_| counts) {
        let directory = RuntimeDirectory::of(Some(name))?;
        set("COMB_RUNTIME_DIR", directory.path().as_os_str());
        set("COMB_NAME", name.to_string().as_ref());
    }
    if matches!(config.source("without"), Source::File { .. }) {
        let names: Vec<&str> = config.without.iter().map(|mechanism| mechanism.name()).collect();
        set("COMB_WITHOUT", names.join(",").as_ref());
    }
    Ok(())
}

fn set(variable: &str, value: &std::ffi::OsStr) {
    // SAFETY: main calls `adopt` before it or any library has started a thread, and nobody else changes the environment.
    unsafe { std::env::set_var(variable, value) }
}
