//! What each mechanism needs, what is lost without it, and how one comes to have it. docs/mechanisms.md is the same for readers.

use comb_net::mechanism::Mechanism;

/// Of one mechanism.
pub(super) struct Needs {
    /// The first Linux that has all of it.
    pub(super) kernel: (u32, u32),
    /// What a user needs besides.
    pub(super) privilege: &'static str,
    /// What becomes worse.
    pub(super) lost: &'static str,
    /// Where the kernel is new enough.
    pub(super) remedy: &'static str,
}

impl Needs {
    pub(super) const fn of(mechanism: Mechanism) -> Self {
        match mechanism {
            Mechanism::Membarrier => Self {
                kernel: (4, 16),
                privilege: "none",
                lost: "each message costs its sender a fence",
                remedy: "a kernel with CONFIG_MEMBARRIER, and a container whose filter lets membarrier(2) through",
            },
            Mechanism::AfXdp => Self {
                kernel: (5, 9),
                privilege: "CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, or root",
                lost: "messages between hosts take more processor time",
                remedy: "root, or setcap cap_net_raw,cap_net_admin,cap_bpf+ep on the comb program; a kernel with CONFIG_XDP_SOCKETS",
            },
            Mechanism::SocketPidfd => Self {
                kernel: (6, 5),
                privilege: "none",
                lost: "introductions take two more system calls",
                remedy: "a newer kernel",
            },
            Mechanism::Userfaultfd => Self {
                kernel: (5, 19),
                privilege: "none for what a program itself loads and stores",
                lost: "shared memory in many small pieces runs into vm.max_map_count",
                remedy: "a kernel with CONFIG_USERFAULTFD, and a container whose filter lets userfaultfd(2) through",
            },
            Mechanism::UserfaultfdContinueWp => Self {
                kernel: (6, 4),
                privilege: "as userfaultfd",
                lost: "userfaultfd is not used at all",
                remedy: "a newer kernel",
            },
            Mechanism::Landlock => Self {
                kernel: (6, 12),
                privilege: "none",
                lost: "a program that runs wild in a cell can signal processes of other cells",
                remedy: "a kernel with CONFIG_SECURITY_LANDLOCK, and landlock in lsm= at boot",
            },
            Mechanism::Cgroups => Self {
                kernel: (5, 14),
                privilege: "a cgroup of one's own: root, or a unit with Delegate=yes",
                lost: "a cell is killed process by process, and no program can be held still",
                remedy: "run Comb where cgroups are yours: as root, or in a unit with Delegate=yes \
                         (systemd-run --user --scope -p Delegate=yes comb up)",
            },
            Mechanism::Bpf => Self {
                kernel: (5, 11),
                privilege: "CAP_BPF and CAP_PERFMON, or root",
                lost: "comb trace records no process that runs already, no static program, no page fault and no write-back",
                remedy: "root, or setcap cap_bpf,cap_perfmon+ep on the comb program; a kernel with CONFIG_DEBUG_INFO_BTF",
            },
            Mechanism::PagemapScan => Self {
                kernel: (6, 7),
                privilege: "none",
                lost: "application kernels write pages back that have not changed",
                remedy: "a newer kernel",
            },
            Mechanism::BpfCast => Self {
                kernel: (6, 2),
                privilege: "as bpf",
                lost: "each recorded operation takes more processor time",
                remedy: "a newer kernel",
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table for readers says the same, of every mechanism.
    #[test]
    fn the_table_has_every_mechanism() {
        let table = include_str!("../../../../docs/mechanisms.md");
        for mechanism in Mechanism::ALL {
            let name = format!("| `{}` |", mechanism.name());
            let row = table.lines().find(|line| line.starts_with(&name));
            let row = row.unwrap_or_else(|| panic!("docs/mechanisms.md has no row for {mechanism}"));
            let Needs { kernel: (major, minor), privilege, lost, .. } = Needs::of(mechanism);
            for part in [&format!("| {major}.{minor} |"), privilege, mechanism.fallback(), lost] {
                assert!(row.contains(part), "{part:?} in\n{row}");
            }
        }
    }
}
