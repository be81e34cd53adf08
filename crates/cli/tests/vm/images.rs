//! Images whose root is a small Debian.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// In the place of debootstrap, which takes a minute and a network: a root that has busybox, and knows what was asked for.
const DEBOOTSTRAP: &str = r#"#!/bin/sh
for root; do :; done
cd "$root" 2>/dev/null || { mkdir "$root"; cd "$root"; }
mkdir -p bin sbin etc proc sys dev tmp run root var/cache/apt/archives var/lib/apt/lists
cp "$(command -v busybox)" bin/busybox
for name in sh cat; do ln -s busybox bin/$name; done
echo Debian > sbin/init
echo "$@" > etc/asked
"#;

#[test]
fn a_root_can_be_a_small_debian() {
    let Some(kernel) = guest_kernel() else { return };
    let state = std::env::temp_dir().join(format!("comb-vm-debian-state-{}", std::process::id()));
    let place = Place::new("debian", &state);
    let programs = place.directory.join("programs");
    fs::create_dir(&programs).unwrap();
    let program = programs.join("debootstrap");
    fs::write(&program, DEBOOTSTRAP).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let words = ["vm", "create", "build", "--from-debian", "--packages", "gcc,make", "--kernel"];
    let output = place.comb(&words).arg(kernel).env("PATH", path).output().unwrap();
    if !rustix::process::geteuid().is_root() {
        let said = String::from_utf8(output.stderr).unwrap();
        return assert!(said.contains("an image with packages is made by root"), "{said}");
    }
    assert!(output.status.success(), "{output:?}");
    place.says(&["vm", "run", "build"]);
    assert_eq!(
        place.within("build-1", "cat /etc/asked"),
        "--variant=minbase --include=busybox,gcc,make bookworm root"
    );
    place.says(&["vm", "kill", "--all"]);
    fs::remove_dir_all(state).unwrap();
}
