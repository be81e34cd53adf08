//! Where the library lies while programs are to load it.
#![expect(unsafe_code, reason = "whether a library can be loaded is known when it has been")]

use std::ffi::CString;
use std::fs::{self, DirBuilder};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The library keeps its own place in so many bytes.
const MOST_PATH_BYTES: usize = 255;

/// A folder that only this user may look into, with the library in it. Gone when dropped.
pub(super) struct Place {
    folder: PathBuf,
    library: PathBuf,
}

impl Place {
    /// Puts the library into the first folder from which programs may load it. Otherwise says of each why not.
    pub(super) fn new(library: &[u8]) -> Result<Self, String> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let mut complaints = Vec::new();
        for parent in runtime.into_iter().chain([std::env::temp_dir(), PathBuf::from("/tmp")]) {
            match Self::within(&parent, library) {
                Ok(place) => return Ok(place),
                Err(complaint) => complaints.push(format!("{}: {complaint}", parent.display())),
            }
        }
        Err(complaints.join("; "))
    }

    fn within(parent: &Path, content: &[u8]) -> Result<Self, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Another's folder of this name would be an error, and none is taken over: it is made here, or not at all.
        let clock = crate::machine::now().monotonic_ns;
        let folder = parent.join(format!("comb-trace-{}-{number}-{clock:x}", std::process::id()));
        let library = folder.join("libcomb_trace.so");
        let path = library.as_os_str().as_bytes();
        // The loader takes these for the end of a name.
        if path.len() > MOST_PATH_BYTES
            || path.iter().any(|byte| b": \t\n;".contains(byte))
            || path[0] != b'/'
        {
            return Err("its name cannot be told to the loader".to_owned());
        }
        DirBuilder::new().mode(0o700).create(&folder).map_err(|error| error.to_string())?;
        let place = Self { folder, library };
        fs::write(&place.library, content).map_err(|error| error.to_string())?;
        load(&place.library)?;
        Ok(place)
    }

    /// The library.
    pub(super) fn library(&self) -> &Path {
        &self.library
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Loads the library and forgets it again: programs would say aloud that they cannot, for instance where nothing may be executed, or if the
/// C library is older than the one that it was built with.
fn load(library: &Path) -> Result<(), String> {
    let name = CString::new(library.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: what runs when it is loaded is ours, and does nothing where no recording is in the environment. It has no threads.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        // SAFETY: the loader's text lives until its next call in this thread.
        let error = unsafe { std::ffi::CStr::from_ptr(libc::dlerror()) };
        return Err(error.to_string_lossy().into_owned());
    }
    // SAFETY: nothing of it was taken.
    unsafe { libc::dlclose(handle) };
    Ok(())
}
