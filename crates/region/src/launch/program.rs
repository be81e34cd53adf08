//! Which file a program's name means, asked before anything starts.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use super::LaunchError;

/// Looks as a shell does: a name with a slash is a path (from `directory`, if it is not absolute), any other is looked for in `search`.
pub(super) fn find(
    program: &OsStr,
    directory: &Path,
    search: Option<OsString>,
) -> Result<PathBuf, LaunchError> {
    if program.as_bytes().contains(&b'/') {
        let path = directory.join(program);
        return match std::fs::metadata(&path) {
            Err(source) => Err(LaunchError::NoProgram { program: path, source }),
            Ok(found) if !found.is_file() || !is_executable(&path) => Err(LaunchError::NotExecutable(path)),
            Ok(_) => Ok(path),
        };
    }
    let search = search.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let found = std::env::split_paths(&search)
        .map(|place| directory.join(place).join(program))
        .find(|path| path.is_file() && is_executable(path));
    found.ok_or_else(|| {
        let beside = directory.join(program);
        let here = beside.is_file() && is_executable(&beside);
        LaunchError::NotInPath { program: program.to_owned(), here }
    })
}

fn is_executable(path: &Path) -> bool {
    rustix::fs::access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_as_a_shell_finds_it_or_the_reason_is_said() {
        let find = |program: &str, search: &str| {
            find(OsStr::new(program), Path::new("/bin"), Some(search.into()))
                .map_err(|error| error.to_string())
        };
        assert_eq!(find("sh", "/nowhere:/bin"), Ok("/bin/sh".into()));
        assert_eq!(find("./sh", "/nowhere"), Ok("/bin/./sh".into()));
        assert_eq!(find("/bin/sh", ""), Ok("/bin/sh".into()));
        for (program, words) in [
            ("/no/such", "No such file"),
            ("/etc/passwd", "cannot be executed"),
            ("/etc/", "cannot be executed"),
            ("sh", "say ./sh"),
            ("no-such-program", "no program no-such-program in PATH"),
        ] {
            let error = find(program, "/nowhere").unwrap_err();
            assert!(error.contains(words), "{program}: {error}");
        }
    }
}
