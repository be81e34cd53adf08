//! Where the pass, the linker script, the runtime and the lists are.

use std::env;
use std::path::{Path, PathBuf};

/// The directory that has them all.
pub(crate) struct Library {
    directory: PathBuf,
}

impl Library {
    /// COMB_CC_LIBRARY; else beside the installed binary; else where the build puts it.
    pub(crate) fn find() -> Result<Self, String> {
        if let Some(directory) = env::var_os("COMB_CC_LIBRARY") {
            return Self::at(Path::new(&directory))
                .map_err(|missing| format!("COMB_CC_LIBRARY: {missing} is not there"));
        }
        let installed = env::current_exe()
            .ok()
            .and_then(|binary| Some(binary.canonicalize().ok()?.parent()?.join("../lib/comb")));
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../build/comb");
        let places = installed.into_iter().chain([built]);
        places.into_iter().find_map(|place| Self::at(&place).ok()).ok_or_else(|| {
            "its pass (libcombpass.so) is not found; `make -C cc` builds it, COMB_CC_LIBRARY names its directory".to_owned()
        })
    }

    fn at(directory: &Path) -> Result<Self, String> {
        let directory = directory.canonicalize().map_err(|_| directory.display().to_string())?;
        let library = Self { directory };
        if library.pass().exists() { Ok(library) } else { Err(library.pass().display().to_string()) }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Our OpenMP: a header, and sources that are compiled as the program is.
    pub(crate) fn openmp(&self) -> PathBuf {
        self.directory.join("openmp")
    }

    /// What C++ programs include before all else.
    pub(crate) fn instances(&self) -> PathBuf {
        self.directory.join("instantiate.hpp")
    }

    pub(crate) fn pass(&self) -> PathBuf {
        self.directory.join("libcombpass.so")
    }

    pub(crate) fn runtime(&self) -> PathBuf {
        self.directory.join("libcombrt.a")
    }

    /// What C++ programs use of libstdc++'s classes; a program that uses none links none of it.
    pub(crate) fn classes(&self) -> PathBuf {
        self.directory.join("libcombcxx.a")
    }

    pub(crate) fn linker_script(&self) -> PathBuf {
        self.directory.join("comb.ld")
    }

    pub(crate) fn covered(&self) -> PathBuf {
        self.directory.join("covered.txt")
    }
}
