//! One cgroup for each cell, where the system lets us: then everything a cell ever started dies with it, whatever it
//! did to get away.

use std::path::{Path, PathBuf};

/// Where the second version of cgroups is mounted, according to `/proc/self/mountinfo`. On a hybrid system that is
/// beside the first version.
pub fn mount_point(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        if after.split(' ').next()? != "cgroup2" {
            return None;
        }
        Some(PathBuf::from(before.split(' ').nth(4)?.replace("\\040", " ")))
    })
}

/// Our own place in it, according to `/proc/self/cgroup`.
pub fn own_path(own: &str) -> Option<&str> {
    own.lines().find_map(|line| line.strip_prefix("0::"))
}

/// Our own cgroup's directory, if there is the second version.
pub fn own() -> Option<PathBuf> {
    let mountinfo = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    Some(mount_point(&mountinfo)?.join(own_path(&own)?.trim_start_matches('/')))
}

/// A cgroup of our making.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Makes one below `parent`, or takes the one that is there, if something runs in it. What is left of an empty one is made anew: kernels kill who is
    /// born into one that was ever killed, when the parent's own was not.
    pub fn create(parent: &Path, name: &str) -> std::io::Result<Self> {
        let cgroup = Self { path: parent.join(name) };
        let make = || match std::fs::create_dir(&cgroup.path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
            made => Ok(made.is_ok()),
        };
        if !make()? && !cgroup.has_processes() && cgroup.remove() {
            make()?;
        }
        Ok(cgroup)
    }

    /// One that was made before.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Those right below it.
    pub fn children(&self) -> Vec<Self> {
        let entries = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories.map(|entry| Self::at(entry.path())).collect()
    }

    /// Whether anything runs in it.
    pub fn has_processes(&self) -> bool {
        std::fs::read_to_string(self.path.join("cgroup.events"))
            .is_ok_and(|events| events.contains("populated 1"))
    }

    /// Kills all processes in it, and in those below it, at once. `false`: this kernel cannot (before Linux 5.14).
    pub fn kill(&self) -> bool {
        std::fs::write(self.path.join("cgroup.kill"), "1").is_ok()
    }

    /// Removes it, and those below it. `false`: processes are still in one of them.
    pub fn remove(&self) -> bool {
        for child in self.children() {
            child.remove();
        }
        match std::fs::remove_dir(&self.path) {
            Ok(()) => true,
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_found_on_hybrid_and_on_plain_systems() {
        let hybrid = "33 24 0:28 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      42 24 0:37 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw";
        assert_eq!(mount_point(hybrid).unwrap(), Path::new("/sys/fs/cgroup/unified"));
        let plain = "35 25 0:30 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw,nsdelegate";
        assert_eq!(mount_point(plain).unwrap(), Path::new("/sys/fs/cgroup"));
        assert_eq!(mount_point("22 1 0:2 / / rw - ext4 /dev/vda rw"), None);
    }

    #[test]
    fn what_is_left_of_an_empty_one_is_made_anew() {
        use std::os::unix::fs::MetadataExt;
        let name = format!("comb-left-{}", std::process::id());
        let Some((parent, first)) =
            own().and_then(|own| Some((own.clone(), Cgroup::create(&own, &name).ok()?)))
        else {
            return println!("skipped: no cgroup can be made here");
        };
        let which = |cgroup: &Cgroup| std::fs::metadata(cgroup.path()).unwrap().ino();
        let before = which(&first);
        first.kill();
        assert_ne!(which(&Cgroup::create(&parent, &name).unwrap()), before);
        let before = which(&first);
        let mut inside = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        std::fs::write(first.path().join("cgroup.procs"), inside.id().to_string()).unwrap();
        assert_eq!(which(&Cgroup::create(&parent, &name).unwrap()), before, "something runs in it");
        inside.kill().unwrap();
        inside.wait().unwrap();
        assert!(first.remove());
    }

    #[test]
    fn our_own_place_is_the_line_without_controllers() {
        assert_eq!(own_path("4:memory:/a\n0::/user.slice/b.scope\n"), Some("/user.slice/b.scope"));
        assert_eq!(own_path("4:memory:/a\n"), None);
    }
}
