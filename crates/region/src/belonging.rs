//! Which cell a process runs in.
//!
//! By the kernel's word, where there are cgroups: those of an agent's cells lie side by side, and all that a cell has ever started is in its own. Elsewhere by a
//! mark: each component has the name of its cell in its environment, and so has whatever it starts, though it leave its process group, its session and its parent.
//! It is the way by which build servers find what a build has left. Who takes the mark out of its environment is not found.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The mark, among the variables of a process's environment.
pub const CELL_VARIABLE: &str = "COMB_CELL";

/// The mark of those that belong to a cell of the agent in that directory.
pub fn mark(runtime: &Path, cell: u32) -> OsString {
    runtime.join(format!("cell-{cell}")).into_os_string()
}

/// The cell of that agent whose mark a process has; none, too, of one whose environment is not ours to read.
pub fn marked(process: u32, runtime: &Path) -> Option<u32> {
    cell_in(&std::fs::read(format!("/proc/{process}/environ")).ok()?, runtime)
}

fn cell_in(environment: &[u8], runtime: &Path) -> Option<u32> {
    let variables = environment.split(|&byte| byte == 0);
    let value = |variable: &[u8]| {
        variable.strip_prefix(CELL_VARIABLE.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec)
    };
    let mark = variables.into_iter().find_map(value)?;
    let mark = Path::new(OsStr::from_bytes(&mark));
    number(mark.strip_prefix(runtime).ok()?.to_str()?)
}

/// The cell that a process runs in, as a cell of the agent in that directory sees it; none if it runs in no cell of that.
pub(crate) fn cell_of(process: u32, runtime: &Path) -> Option<u32> {
    let of = |who: &str| std::fs::read_to_string(format!("/proc/{who}/cgroup")).ok();
    let own = of("self")?;
    if is_in_cell(&own) { cell_beside(&own, &of(&process.to_string())?) } else { marked(process, runtime) }
}

/// Whether a process has its cell's cgroup.
fn is_in_cell(own: &str) -> bool {
    cell_beside(own, own).is_some()
}

/// By the cgroups of a supervisor and of the process.
fn cell_beside(own: &str, other: &str) -> Option<u32> {
    let path = |text: &str| text.lines().find_map(|line| line.strip_prefix("0::").map(str::to_owned));
    let own = path(own)?;
    let (parent, name) = own.rsplit_once('/')?;
    number(name)?;
    let other = path(other)?;
    let below = other.strip_prefix(parent)?.strip_prefix('/')?;
    number(below.split('/').next()?)
}

fn number(name: &str) -> Option<u32> {
    name.strip_prefix("cell-")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_cells_are_known_by_their_cgroups() {
        let own = "1:name=systemd:/\n0::/a/comb-1-2/cell-3\n";
        for (other, cell) in [
            ("0::/a/comb-1-2/cell-3", Some(3)),
            ("0::/a/comb-1-2/cell-12", Some(12)),
            ("0::/a/comb-1-2/cell-4/task-9", Some(4)),
            ("0::/a/comb-1-2", None),
            ("0::/a/comb-1-22/cell-4", None),
            ("0::/a/comb-1-2/else", None),
            ("0::/cell-4", None),
            ("1:name=systemd:/a/comb-1-2/cell-4", None),
        ] {
            assert_eq!(cell_beside(own, other), cell, "{other}");
        }
        assert!(is_in_cell(own) && !is_in_cell("0::/user.slice"));
        // A home that is in no cell knows of none.
        assert_eq!(cell_beside("0::/user", "0::/user"), None);
        assert_eq!(cell_beside("0::/", "0::/cell-4"), None);
    }

    #[test]
    fn elsewhere_they_are_known_by_their_mark() {
        let runtime = Path::new("/run/comb");
        let environment =
            |mark: &OsStr| [b"A=b\0COMB_CELLS=9\0COMB_CELL=", mark.as_bytes(), b"\0Z=\0"].concat();
        assert_eq!(cell_in(&environment(&mark(runtime, 12)), runtime), Some(12));
        for other in ["/run/comb", "/run/comb/cell-", "/run/comb2/cell-4", "/run/comb/cell-4/x", "cell-4", ""]
        {
            assert_eq!(cell_in(&environment(OsStr::new(other)), runtime), None, "{other}");
        }
        assert_eq!(cell_in(b"", runtime), None);
    }
}
