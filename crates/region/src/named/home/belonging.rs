//! Which cell a process runs in, by the kernel's word: the cgroups of an agent's cells lie side by side, and all that a cell has ever started is in its own.

/// The cell that a process runs in; none if it runs in no cell of this agent.
pub(super) fn cell_of(process: u32) -> Option<u32> {
    let of = |who: &str| std::fs::read_to_string(format!("/proc/{who}/cgroup")).ok();
    cell_beside(&of("self")?, &of(&process.to_string())?)
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
        // A home that is in no cell knows of none.
        assert_eq!(cell_beside("0::/user", "0::/user"), None);
        assert_eq!(cell_beside("0::/", "0::/cell-4"), None);
    }
}
