//! Where libcomb is on this host: for programs that open it only when they are part of a task.

use std::path::{Path, PathBuf};

/// What components find it by. Whoever sets it decides.
pub const LIBRARY_VARIABLE: &str = "COMB_LIBRARY";

const NAME: &str = "libcomb.so";

/// As it belongs to the program that launches.
pub(super) fn find() -> Option<PathBuf> {
    beside(&std::env::current_exe().ok()?)
}

/// Where one was built, its library is in the same directory, and of tests also in the one above; where it was installed, in `lib`, or, as
/// Debian has it, in the part of that for this processor.
fn beside(program: &Path) -> Option<PathBuf> {
    let directory = program.parent()?;
    let of_processor = format!("../lib/{}-linux-gnu", std::env::consts::ARCH);
    let places =
        [directory.to_owned(), directory.join("../lib"), directory.join(of_processor), directory.join("..")];
    places.into_iter().map(|place| place.join(NAME)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_beside_the_program_or_in_lib() {
        let root = std::env::temp_dir().join(format!("comb-library-{}", std::process::id()));
        let of_processor = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
        for directory in ["bin", &of_processor] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        let program = root.join("bin/comb");
        let place = |path: &str| {
            std::fs::write(root.join(path), "").unwrap();
            beside(&program).map(|found| found.canonicalize().unwrap())
        };
        assert_eq!(beside(&program), None);
        let packaged = format!("{of_processor}/libcomb.so");
        assert_eq!(place(&packaged), root.join(&packaged).canonicalize().ok());
        assert_eq!(place("lib/libcomb.so"), root.join("lib/libcomb.so").canonicalize().ok());
        assert_eq!(place("bin/libcomb.so"), root.join("bin/libcomb.so").canonicalize().ok());
        std::fs::remove_dir_all(root).unwrap();
    }
}
