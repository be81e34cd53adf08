//! Two network namespaces and a cable between them. They have no names: they go with the last descriptor and socket in
//! them, even when a test is killed.

use std::os::fd::OwnedFd;
use std::process::Command;

/// The address at each end.
pub(crate) const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
pub(crate) const CABLE: &str = "v0";

pub(crate) struct Namespaces {
    ends: [OwnedFd; 2],
}

impl Namespaces {
    /// `Err`: this machine does not let us, and why.
    pub(crate) fn make() -> Result<Self, String> {
        let ends = [unshared()?, unshared()?];
        let made = Self { ends };
        let other = std::os::fd::AsRawFd::as_raw_fd(&made.ends[1]);
        let other = format!("/proc/{}/fd/{other}", std::process::id());
        let queues = ["numrxqueues", "1", "numtxqueues", "1"];
        made.ip(
            0,
            &[
                &["link", "add", CABLE],
                &queues[..],
                &["type", "veth", "peer", "name", CABLE],
                &queues,
                &["netns", &other],
            ]
            .concat(),
        )?;
        for (end, address) in ADDRESSES.iter().enumerate() {
            made.ip(end, &["address", "add", &format!("{address}/24"), "dev", CABLE])?;
            made.ip(end, &["link", "set", "lo", "up"])?;
            made.ip(end, &["link", "set", CABLE, "up"])?;
        }
        Ok(made)
    }

    /// Runs `work` on a thread in one of the two.
    pub(crate) fn within<T: Send>(&self, end: usize, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let inside = || {
                self.enter(end);
                work()
            };
            scope.spawn(inside).join().expect("the work inside a namespace")
        })
    }

    /// Moves this thread there for good.
    pub(crate) fn enter(&self, end: usize) {
        let kind = Some(rustix::thread::LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&self.ends[end]), kind)
            .expect("a namespace that we made");
    }

    pub(crate) fn ip(&self, end: usize, arguments: &[&str]) -> Result<String, String> {
        self.within(end, || {
            let output = Command::new("ip").args(arguments).output().map_err(|e| format!("ip: {e}"))?;
            if output.status.success() {
                Ok(String::from_utf8_lossy(&output.stdout).into_owned())
            } else {
                Err(format!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr)))
            }
        })
    }
}

/// A new namespace, made by a thread that is gone when this returns.
fn unshared() -> Result<OwnedFd, String> {
    let made = std::thread::spawn(|| {
        own_namespace().map_err(|error| format!("a network namespace: {error} (it takes root)"))?;
        std::fs::File::open("/proc/thread-self/ns/net").map(OwnedFd::from).map_err(|e| e.to_string())
    });
    made.join().expect("the thread only makes a namespace")
}

#[expect(unsafe_code, reason = "unshare has no safe wrapper: it can take away what other threads share")]
fn own_namespace() -> std::io::Result<()> {
    // SAFETY: the network namespace is this thread's own affair; memory and descriptors stay shared.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
