//! `-fopenmp`: our own runtime over POSIX threads in the place of libomp, whose threads wait by spinning on words that they share.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::arguments::Job;
use crate::library::Library;

/// What the command line says of it.
pub(crate) struct Openmp {
    is_wanted: bool,
    /// Objects call it, or a library that is like it is named.
    is_called: bool,
}

impl Openmp {
    pub(crate) fn of(words: &[String], objects: &[PathBuf]) -> Self {
        let last = words.iter().rev().find_map(|word| match word.as_str() {
            "-fno-openmp" => Some(false),
            word if is_option(word) => Some(true),
            _ => None,
        });
        let begins = |symbol: &str| symbol.starts_with("__kmpc_") || symbol.starts_with("omp_");
        let are_called = || comb_cc_library::lack(objects, begins).unwrap_or(false);
        let is_called = words.iter().any(|word| is_its_library(word)) || are_called();
        Self { is_wanted: last == Some(true), is_called }
    }

    /// Clang would link libomp for it.
    pub(crate) fn replaces(&self, word: &str) -> bool {
        self.is_wanted && is_option(word) || is_its_library(word)
    }

    pub(crate) fn is_linked_by(&self, job: &Job) -> bool {
        (self.is_wanted || self.is_called) && job.links && !job.makes_library
    }

    /// What clang's front end does for the option. Thread-private variables are asked for by calls: their initial values are another thread's to copy.
    pub(crate) fn add_for_compilation(&self, command: &mut Command, library: &Library) {
        if self.is_wanted {
            command.args(["-Xclang", "-fopenmp", "-Xclang", "-fnoopenmp-use-tls"]);
            command.arg("-isystem").arg(library.openmp());
        }
    }

    /// Compiles the runtime as the program is compiled.
    pub(crate) fn build(
        &self,
        clang: &OsStr,
        pass_options: &OsStr,
        library: &Library,
    ) -> Result<Built, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", library.openmp().display());
        let directory = env::temp_dir().join(format!("combcc-openmp-{}", std::process::id()));
        fs::create_dir_all(&directory).map_err(failed)?;
        let mut built = Built { directory, objects: Vec::new() };
        for entry in fs::read_dir(library.openmp()).map_err(failed)? {
            let source = entry.map_err(failed)?.path();
            if source.extension() != Some(OsStr::new("c")) {
                continue;
            }
            let object = built.directory.join(source.file_name().unwrap_or_default()).with_extension("o");
            let mut pass = OsString::from("-fpass-plugin=");
            pass.push(library.pass());
            let compiled = Command::new(clang)
                .env("COMB_PASS", pass_options)
                .args([
                    "-std=gnu11",
                    "-O2",
                    "-fno-pie",
                    "-fno-direct-access-external-data",
                    "-U_FORTIFY_SOURCE",
                    "-c",
                ])
                .arg(pass)
                .arg(&source)
                .arg("-o")
                .arg(&object)
                .status()
                .map_err(failed)?;
            if !compiled.success() {
                return Err(format!("{} could not be compiled", source.display()));
            }
            built.objects.push(object);
        }
        Ok(built)
    }
}

fn is_option(word: &str) -> bool {
    word == "-fopenmp" || word.starts_with("-fopenmp=")
}

/// Other runtimes, which a build names beside the option, or in its place.
fn is_its_library(word: &str) -> bool {
    matches!(word, "-lomp" | "-lgomp" | "-liomp5")
}

/// The runtime's objects, as long as they are needed.
pub(crate) struct Built {
    directory: PathBuf,
    objects: Vec<PathBuf>,
}

impl Built {
    pub(crate) fn objects(&self) -> &[PathBuf] {
        &self.objects
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_counts() {
        let wanted =
            |line: &str| Openmp::of(&line.split(' ').map(str::to_owned).collect::<Vec<_>>(), &[]).is_wanted;
        assert!(wanted("-O2 -fopenmp a.c") && wanted("-fno-openmp -fopenmp=libomp"));
        assert!(!wanted("-fopenmp -fno-openmp") && !wanted("-fopenmp-simd a.c"));
    }
}
