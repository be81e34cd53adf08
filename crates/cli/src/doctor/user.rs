//! What this user may do, which is not the same as what the kernel can.

use std::fs::File;

use rustix::thread::CapabilitySet;

use super::{Finding, State};

/// Who runs this, and with which of the capabilities that matter here.
pub(super) fn user() -> Finding {
    let uid = rustix::process::geteuid();
    let known = [
        (CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN"),
        (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
        (CapabilitySet::NET_RAW, "CAP_NET_RAW"),
        (CapabilitySet::BPF, "CAP_BPF"),
        (CapabilitySet::SYS_PTRACE, "CAP_SYS_PTRACE"),
        (CapabilitySet::SYS_NICE, "CAP_SYS_NICE"),
    ];
    let own = capabilities();
    let own: Vec<&str> =
        known.into_iter().filter(|(one, _)| own.contains(*one)).map(|(_, name)| name).collect();
    let detail = match &own[..] {
        [] => format!("{}, with no privilege that Comb could use", uid.as_raw()),
        own => format!("{}, with {}", uid.as_raw(), own.join(", ")),
    };
    Finding::new("user", State::Good, detail)
}

fn capabilities() -> CapabilitySet {
    rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective)
}

fn may(one: CapabilitySet) -> bool {
    let own = capabilities();
    own.contains(one) || own.contains(CapabilitySet::SYS_ADMIN)
}

fn setting(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Whether faults are served that the kernel meets while it works for a program, such as read(2) into guarded memory.
pub(super) fn kernel_faults() -> Finding {
    let what = "userfaultfd of the kernel's faults";
    let allowed = setting("/proc/sys/vm/unprivileged_userfaultfd").is_some_and(|value| value == "1");
    let has_device = File::options().read(true).write(true).open("/dev/userfaultfd").is_ok();
    let how = match () {
        () if capabilities().contains(CapabilitySet::SYS_PTRACE) => "by CAP_SYS_PTRACE",
        () if has_device => "by /dev/userfaultfd",
        () if allowed => "by vm.unprivileged_userfaultfd",
        () => {
            return Finding::new(what, State::Missing, "not permitted; instead: a program's own faults only")
                .lost("nothing today: Comb asks for a program's own faults only")
                .advise("as root: sysctl -w vm.unprivileged_userfaultfd=1, or chmod o+rw /dev/userfaultfd");
        }
    };
    Finding::new(what, State::Good, format!("permitted {how}"))
}

/// Programs in the kernel: AF_XDP hands packets over by one.
pub(super) fn ebpf() -> Finding {
    let everybody = setting("/proc/sys/kernel/unprivileged_bpf_disabled").is_some_and(|value| value == "0");
    if may(CapabilitySet::BPF) {
        Finding::new("eBPF", State::Good, "programs can be loaded")
    } else if everybody {
        Finding::new("eBPF", State::Missing, "socket filters only; instead: UDP between hosts")
            .lost("AF_XDP, which loads a program of another kind")
            .advise("root, or setcap cap_net_raw,cap_net_admin,cap_bpf+ep on the comb program")
    } else {
        Finding::new("eBPF", State::Missing, "not permitted; instead: UDP between hosts")
            .lost("AF_XDP, which loads a program")
            .advise("root, or setcap cap_net_raw,cap_net_admin,cap_bpf+ep on the comb program")
    }
}

/// File systems of a program's own.
pub(super) fn fuse() -> Finding {
    let opened = File::options().read(true).write(true).open("/dev/fuse");
    let without = |why: String, advice: &str| {
        Finding::new("FUSE", State::Missing, format!("{why}; instead: files as they are on the host"))
            .lost("file systems that a program serves")
            .advise(advice)
    };
    match opened {
        Ok(_) if may(CapabilitySet::SYS_ADMIN) => {
            Finding::new("FUSE", State::Good, "/dev/fuse can be opened, and mounted")
        }
        Ok(_) if in_path("fusermount3") => {
            Finding::new("FUSE", State::Good, "/dev/fuse can be opened, and fusermount3 mounts")
        }
        Ok(_) => {
            without("/dev/fuse can be opened, but nobody mounts".into(), "install fuse3 for fusermount3")
        }
        Err(error) => without(
            format!("/dev/fuse cannot be opened ({error})"),
            "modprobe fuse, as root; a container needs --device /dev/fuse",
        ),
    }
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Hosts are played by network namespaces.
pub(super) fn network_namespaces() -> Finding {
    let what = "network namespaces";
    let without = |why: &str, advice: &str| {
        Finding::new(what, State::Missing, format!("{why}; instead: one host a machine"))
            .lost("several hosts on one machine, for trying")
            .advise(advice)
    };
    if !std::path::Path::new("/proc/self/ns/net").exists() {
        return without("not in this kernel", "a kernel with CONFIG_NET_NS");
    }
    if may(CapabilitySet::SYS_ADMIN) {
        return Finding::new(what, State::Good, "hosts can be played on this machine");
    }
    let most = setting("/proc/sys/user/max_user_namespaces").and_then(|most| most.parse::<u64>().ok());
    if most.unwrap_or(0) == 0 {
        return without("no user namespaces", "sysctl -w user.max_user_namespaces=1000, as root");
    }
    let restricted = [
        ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
    ];
    match restricted.iter().find(|(path, value)| setting(path).is_some_and(|found| found == *value)) {
        Some((path, _)) => {
            let setting = path.trim_start_matches("/proc/sys/").replace('/', ".");
            without(&format!("{setting} forbids them"), "root, or that setting changed")
        }
        None => Finding::new(what, State::Good, "hosts can be played, in a user namespace"),
    }
}
