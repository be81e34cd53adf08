//! What a service manager is told: that the agent can be asked, that it ends, and how many cells are up meanwhile.
//!
//! A datagram to the socket that `NOTIFY_SOCKET` names, as sd_notify(3) has it. Nobody waits for an answer, and nothing depends on one having
//! been heard.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix};

/// Whoever started us put it there, if it wants to be told. Children do not get it: what they would say is not the agent's word.
pub(crate) const VARIABLE: &str = "NOTIFY_SOCKET";

/// How many cells are up, of how many.
type Count = (usize, usize);

fn manager_at(name: &OsStr) -> Option<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes() {
        [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name).ok(),
        [b'/', ..] => SocketAddr::from_pathname(name).ok(),
        _ => None,
    }?;
    let socket = UnixDatagram::unbound().ok()?;
    // A manager that does not read must not stop us.
    socket.set_nonblocking(true).ok()?;
    Some((socket, address))
}

/// What a service manager holds for the next agent, should this one be killed: it has a store for descriptors, which have names there.
#[derive(Debug, Default)]
pub(crate) struct Store {
    manager: Option<(UnixDatagram, SocketAddr)>,
    stored: BTreeSet<String>,
}

impl Store {
    /// Of whom the environment names; what it held for an agent before is among it.
    pub(crate) fn from_environment() -> Self {
        let manager = std::env::var_os(VARIABLE).and_then(|name| manager_at(&name));
        let is_ours = std::env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
        let names = std::env::var("LISTEN_FDNAMES").ok().filter(|_| is_ours).unwrap_or_default();
        Self {
            manager,
            stored: names.split(':').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        }
    }

    /// It is to hold these; `only`: and nothing else. What its queue has no room for is told the next time.
    pub(crate) fn hold(&mut self, all: &[(String, BorrowedFd<'_>)], only: bool) {
        let Some((socket, address)) = &self.manager else { return };
        let Ok(address) = sys_address(address) else { return };
        for (name, descriptor) in all {
            if self.stored.contains(name) {
                continue;
            }
            let text = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}");
            if !send(socket, &address, &text, Some(*descriptor)) {
                return;
            }
            self.stored.insert(name.clone());
        }
        let is_gone = |name: &&String| only && all.iter().all(|(kept, _)| kept != *name);
        let gone: Vec<String> = self.stored.iter().filter(is_gone).cloned().collect();
        for name in gone {
            if !send(socket, &address, &format!("FDSTOREREMOVE=1\nFDNAME={name}"), None) {
                return;
            }
            self.stored.remove(&name);
        }
    }
}

fn sys_address(address: &SocketAddr) -> Result<SocketAddrUnix, Errno> {
    match (address.as_pathname(), address.as_abstract_name()) {
        (Some(path), _) => SocketAddrUnix::new(path),
        (None, Some(name)) => SocketAddrUnix::new_abstract_name(name),
        (None, None) => Err(Errno::INVAL),
    }
}

fn send(socket: &UnixDatagram, to: &SocketAddrUnix, text: &str, descriptor: Option<BorrowedFd<'_>>) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let parts = [IoSlice::new(text.as_bytes())];
    rustix::net::sendmsg_addr(socket, to, &parts, &mut ancillary, SendFlags::NOSIGNAL).is_ok()
}

/// Tells a service manager, or nobody.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    manager: Option<(UnixDatagram, SocketAddr)>,
    told: Option<Count>,
}

impl Notify {
    /// Whom the environment names. An address of a kind that we do not know is nobody's.
    pub(crate) fn from_environment() -> Self {
        std::env::var_os(VARIABLE).map_or_else(Self::default, |name| Self::to(&name))
    }

    fn to(name: &OsStr) -> Self {
        let manager = manager_at(name);
        Self { manager, told: None }
    }

    /// Called whenever that may have changed, and first when the agent can be asked.
    pub(crate) fn tell_of_cells(&mut self, are_up: impl ExactSizeIterator<Item = bool>) {
        if self.manager.is_none() {
            return;
        }
        let all = are_up.len();
        let count = (are_up.filter(|is_up| *is_up).count(), all);
        let ready = if self.told.is_none() { "READY=1\n" } else { "" };
        // What its queue had no room for is told at the next turn.
        if self.told != Some(count)
            && self.tell(&format!("{ready}STATUS={} of {} cells are up", count.0, all))
        {
            self.told = Some(count);
        }
    }

    /// Called when everything is about to be taken down.
    pub(crate) fn tell_of_end(&self) {
        self.tell("STOPPING=1\nSTATUS=Cells are being ended");
    }

    fn tell(&self, what: &str) -> bool {
        let sent =
            self.manager.as_ref().map(|(socket, address)| socket.send_to_addr(what.as_bytes(), address));
        !matches!(sent, Some(Err(error)) if error.kind() == std::io::ErrorKind::WouldBlock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service manager's socket, and who tells it.
    fn manager(address: &SocketAddr, name: &[u8]) -> (UnixDatagram, Notify) {
        let socket = UnixDatagram::bind_addr(address).unwrap();
        socket.set_nonblocking(true).unwrap();
        (socket, Notify::to(OsStr::from_bytes(name)))
    }

    fn heard(socket: &UnixDatagram) -> Option<String> {
        let mut bytes = [0; 200];
        let length = socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8(bytes[..length].to_vec()).unwrap())
    }

    #[test]
    fn the_first_word_is_that_it_can_be_asked_and_only_changes_follow() {
        let path = std::env::temp_dir().join(format!("comb-notify-{}", std::process::id()));
        let (socket, mut notify) =
            manager(&SocketAddr::from_pathname(&path).unwrap(), path.as_os_str().as_bytes());
        notify.tell_of_cells([false, false].into_iter());
        assert_eq!(heard(&socket).as_deref(), Some("READY=1\nSTATUS=0 of 2 cells are up"));
        notify.tell_of_cells([false, false].into_iter());
        assert_eq!(heard(&socket), None);
        notify.tell_of_cells([false, true].into_iter());
        assert_eq!(heard(&socket).as_deref(), Some("STATUS=1 of 2 cells are up"));
        notify.tell_of_end();
        assert_eq!(heard(&socket).as_deref(), Some("STOPPING=1\nSTATUS=Cells are being ended"));
        // A manager that is gone is nobody.
        std::fs::remove_file(&path).unwrap();
        notify.tell_of_end();
    }

    #[test]
    fn what_is_kept_is_held_by_the_manager_and_what_is_not_any_more_is_given_back() {
        use std::os::fd::AsFd;
        let name = format!("comb-store-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let (socket, notify) = manager(&address, format!("@{name}").as_bytes());
        let mut store = Store { manager: notify.manager, stored: BTreeSet::from(["of-before".to_owned()]) };
        let memory = rustix::fs::memfd_create("comb-kept", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let kept = [("cell-1.frames".to_owned(), memory.as_fd())];
        store.hold(&kept, false);
        assert_eq!(heard(&socket).as_deref(), Some("FDSTORE=1\nFDPOLL=0\nFDNAME=cell-1.frames"));
        assert_eq!(heard(&socket), None, "who had it before may hand it over yet");
        store.hold(&kept, true);
        assert_eq!(heard(&socket).as_deref(), Some("FDSTOREREMOVE=1\nFDNAME=of-before"));
        store.hold(&kept, true);
        assert_eq!(heard(&socket), None, "it is there");
        store.hold(&[], true);
        assert_eq!(heard(&socket).as_deref(), Some("FDSTOREREMOVE=1\nFDNAME=cell-1.frames"));
    }

    #[test]
    fn an_abstract_name_begins_with_an_at() {
        let name = format!("comb-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let (socket, mut notify) = manager(&address, format!("@{name}").as_bytes());
        notify.tell_of_cells([true].into_iter());
        assert_eq!(heard(&socket).as_deref(), Some("READY=1\nSTATUS=1 of 1 cells are up"));
    }

    #[test]
    fn who_does_not_read_is_told_later_and_stops_nobody() {
        let name = format!("comb-notify-full-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let (socket, mut notify) = manager(&address, format!("@{name}").as_bytes());
        while notify.tell("filler") {}
        notify.tell_of_cells([true].into_iter());
        while heard(&socket).is_some_and(|word| word == "filler") {}
        notify.tell_of_cells([true].into_iter());
        assert_eq!(heard(&socket).as_deref(), Some("READY=1\nSTATUS=1 of 1 cells are up"));
    }

    #[test]
    fn nobody_is_told_where_nobody_asked_or_in_a_way_that_is_not_known() {
        assert!(Notify::to(OsStr::new("vsock:2:1234")).manager.is_none());
        Notify::default().tell_of_cells([true].into_iter());
    }
}
