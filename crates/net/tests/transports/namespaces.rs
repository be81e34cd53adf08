//! Network namespaces, and two of them with a cable between. They have no names: they go with the last descriptor and socket in
//! them, even when a test is killed.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;

/// The address at each end.
pub(crate) const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
pub(crate) const CABLE: &str = "v0";

/// One of them, with nothing in it but its loopback.
pub(crate) struct Namespace(OwnedFd);

impl Namespace {
    /// Made by a thread that is gone when this returns. `Err`: this machine does not let us, and why.
    pub(crate) fn make() -> Result<Self, String> {
        let made = std::thread::spawn(|| {
            own_namespace().map_err(|error| format!("a network namespace: {error} (it takes root)"))?;
            std::fs::File::open("/proc/thread-self/ns/net").map(OwnedFd::from).map_err(|e| e.to_string())
        });
        let made = Self(made.join().expect("the thread only makes a namespace")?);
        made.ip(&["link", "set", "lo", "up"])?;
        Ok(made)
    }

    /// What programs of this machine find it by, as long as we have it.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Runs `work` on a thread in it.
    pub(crate) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let inside = || {
                self.enter();
                work()
            };
            scope.spawn(inside).join().expect("the work inside a namespace")
        })
    }

    /// Moves this thread there for good.
    pub(crate) fn enter(&self) {
        let kind = Some(rustix::thread::LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(self.0.as_fd(), kind).expect("a namespace that we made");
    }

    pub(crate) fn ip(&self, arguments: &[&str]) -> Result<String, String> {
        self.run("ip", arguments)
    }

    /// What a program there prints, if all went well.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        self.within(|| {
            let output = Command::new(program).args(arguments).output();
            let output = output.map_err(|error| format!("{program}: {error}"))?;
            if output.status.success() {
                Ok(String::from_utf8_lossy(&output.stdout).into_owned())
            } else {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(format!("{program} {}: {said}", arguments.join(" ")))
            }
        })
    }
}

pub(crate) struct Namespaces {
    ends: [Namespace; 2],
}

impl Namespaces {
    /// `Err`: this machine does not let us, and why.
    pub(crate) fn make() -> Result<Self, String> {
        let made = Self { ends: [Namespace::make()?, Namespace::make()?] };
        let other = made.ends[1].path();
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
            made.ip(end, &["link", "set", CABLE, "up"])?;
        }
        Ok(made)
    }

    /// Runs `work` on a thread in one of the two.
    pub(crate) fn within<T: Send>(&self, end: usize, work: impl FnOnce() -> T + Send) -> T {
        self.ends[end].within(work)
    }

    pub(crate) fn ip(&self, end: usize, arguments: &[&str]) -> Result<String, String> {
        self.ends[end].ip(arguments)
    }
}

#[expect(unsafe_code, reason = "unshare has no safe wrapper: it can take away what other threads share")]
fn own_namespace() -> std::io::Result<()> {
    // SAFETY: the network namespace is this thread's own affair; memory and descriptors stay shared.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
