//! Whether virtual machines run here, and whether images for them can be made.

use std::path::Path;

use comb_vm::hardware::{Accelerator, QEMU};

use super::{Finding, State};

/// What makes images, and in which of Debian's packages it is. The last two are for images with packages, and for a kernel that has not been fetched.
const MAKERS: [(&str, &str); 6] = [
    ("busybox", "busybox-static"),
    ("mke2fs", "e2fsprogs"),
    ("dpkg-deb", "dpkg"),
    ("gzip", "gzip"),
    ("debootstrap", "debootstrap"),
    ("apt-get", "apt"),
];

/// Of these, those without which there are no images at all.
const NEEDED: usize = 4;

/// Whether a program is where a shell would find it, or a user's shell might not look.
fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin"].map(Path::new).map(Path::to_owned);
    std::env::split_paths(&path).chain(usual).any(|directory| directory.join(program).is_file())
}

/// The engine, and who runs its processors.
pub(super) fn engine() -> Finding {
    let what = "virtual machines";
    if !is_there(QEMU) {
        return Finding::new(what, State::Missing, format!("{QEMU} is not installed"))
            .lost("comb vm runs no machine")
            .advise("apt install qemu-system-x86");
    }
    match Accelerator::of_host() {
        Accelerator::Kvm => Finding::new(what, State::Good, "by KVM"),
        Accelerator::Tcg | Accelerator::Uml => {
            Finding::new(what, State::Good, "translated by QEMU, as KVM is not to be had: /dev/kvm")
                .lost("by KVM, machines are several times as fast")
        }
    }
}

/// What images are made with.
pub(super) fn images() -> Finding {
    let what = "images of machines";
    let missing = |some: &[(&'static str, &'static str)]| -> Vec<&'static str> {
        some.iter().filter(|(program, _)| !is_there(program)).map(|(_, package)| *package).collect()
    };
    let (needed, rest) = (missing(&MAKERS[..NEEDED]), missing(&MAKERS[NEEDED..]));
    let finding = match (&needed[..], &rest[..]) {
        ([], []) => return Finding::new(what, State::Good, "comb vm create makes them"),
        ([], rest) => {
            Finding::new(what, State::Good, format!("comb vm create makes them, without {}", rest.join(", ")))
        }
        (needed, _) => Finding::new(what, State::Missing, format!("without {}", needed.join(", ")))
            .lost("comb vm create makes no images"),
    };
    finding.advise(format!("apt install {}", [needed, rest].concat().join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_name_alone() {
        assert!(is_there("sh") && !is_there("no-such-program") && !is_there(""));
    }
}
