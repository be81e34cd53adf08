//! Sockets, passed through to the host: of the UNIX domain below the root, and of the internet to this very host only. Others are
//! refused.

use crate::descriptors::{Kind, OpenFile};
use crate::errno::{
    EACCES, EAFNOSUPPORT, EAGAIN, EINVAL, EMSGSIZE, ENOTSOCK, EOPNOTSUPP, EPIPE, EPROTONOSUPPORT, Errno,
};
use crate::host;
use crate::layouts::Message;
use crate::machine::{Access, Machine};
use crate::paths::Located;
use crate::unix::{Caller, Unix};
use crate::user_memory::Buffer;
use crate::waiting::{Outcome, Stop, Wait};
use std::cell::RefCell;
use std::os::fd::AsRawFd;
use std::rc::Rc;

const FLAGS: i32 = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
const SEND_FLAGS: i32 =
    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_OOB | libc::MSG_EOR | libc::MSG_MORE;
const RECEIVE_FLAGS: i32 = libc::MSG_DONTWAIT
    | libc::MSG_PEEK
    | libc::MSG_TRUNC
    | libc::MSG_OOB
    | libc::MSG_WAITALL
    | libc::MSG_CMSG_CLOEXEC;

/// An internet address that is this host's own, or the one that stands for all its own when bound.
fn is_own(address: &[u8], binds: bool) -> bool {
    match address.get(..2).map(|family| i32::from(u16::from_le_bytes([family[0], family[1]]))) {
        Some(libc::AF_INET) => address.get(4) == Some(&127) || address.get(4..8) == Some(&[0; 4]),
        Some(libc::AF_INET6) => {
            let Some(host) = address.get(8..24) else { return false };
            let mapped = host[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff] && host[12] == 127;
            host[..15] == [0; 15] && host[15] <= 1 || mapped || binds && host == [0; 16]
        }
        _ => false,
    }
}

/// What a program is shown of an address that the host tells. What was bound by way of a descriptor of the emulator's, or under a name
/// that is this emulator's own, would say nothing to it.
fn shown(address: &[u8]) -> &[u8] {
    let hidden = |path: &[u8]| path.starts_with(b"/proc/self/fd/") || path.first() == Some(&0);
    let local = address.starts_with(&(libc::AF_UNIX as u16).to_le_bytes());
    if local && address.get(2..).is_some_and(hidden) { &address[..2] } else { address }
}

impl<M: Machine> Unix<M> {
    fn socket_of(&self, who: Caller, descriptor: i32) -> Result<(Rc<OpenFile>, i32), Errno> {
        let file = self.file(who, descriptor)?;
        let Kind::Socket { host, .. } = &file.kind else { return Err(ENOTSOCK) };
        let host = host.as_raw_fd();
        Ok((file, host))
    }

    fn check_family(family: i32, kind: i32) -> Result<(), Errno> {
        match (family, kind & 0xf) {
            (libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_DGRAM | libc::SOCK_SEQPACKET) => Ok(()),
            (libc::AF_INET | libc::AF_INET6, libc::SOCK_STREAM | libc::SOCK_DGRAM) => Ok(()),
            (libc::AF_UNIX | libc::AF_INET | libc::AF_INET6, _) => Err(EPROTONOSUPPORT),
            _ => Err(EAFNOSUPPORT),
        }
    }

    fn add_socket(&mut self, host: std::os::fd::OwnedFd, kind: i32) -> Rc<OpenFile> {
        let never_waits = if kind & libc::SOCK_NONBLOCK != 0 { libc::O_NONBLOCK } else { 0 };
        self.new_file(
            Kind::Socket { host, own_name: RefCell::default(), peer_name: RefCell::default() },
            libc::O_RDWR | never_waits,
        )
    }

    pub(crate) fn call_socket(&mut self, who: Caller, family: i32, kind: i32, protocol: i32) -> Outcome {
        Self::check_family(family, kind)?;
        let host = host::socket(family, kind & !FLAGS, protocol)?;
        let file = self.add_socket(host, kind);
        self.install(who, file, kind & libc::SOCK_CLOEXEC != 0)
    }

    pub(crate) fn call_socket_pair(
        &mut self,
        who: Caller,
        family: i32,
        kind: i32,
        protocol: i32,
        into: u64,
    ) -> Outcome {
        if family != libc::AF_UNIX {
            return Err(EOPNOTSUPP.into());
        }
        Self::check_family(family, kind)?;
        let (one, other) = host::socket_pair(family, kind & !FLAGS, protocol)?;
        let files = [self.add_socket(one, kind), self.add_socket(other, kind)];
        self.install_pair(who, files, into, kind & libc::SOCK_CLOEXEC != 0)
    }

    /// An address of a program, as the host is to get it. With the descriptor that must stay open as long as it is used.
    fn address(
        &mut self,
        who: Caller,
        at: u64,
        bytes: u64,
        binds: bool,
    ) -> Result<(Vec<u8>, Option<std::os::fd::OwnedFd>), Errno> {
        if bytes as i32 <= 1 || bytes > size_of::<libc::sockaddr_storage>() as u64 {
            return Err(EINVAL);
        }
        let mut address = vec![0u8; bytes as usize];
        self.memory.read_bytes(who.space, at, &mut address)?;
        match i32::from(u16::from_le_bytes([address[0], address[1]])) {
            libc::AF_INET | libc::AF_INET6 if is_own(&address, binds) => Ok((address, None)),
            libc::AF_INET | libc::AF_INET6 => Err(EACCES),
            libc::AF_UNSPEC => Ok((address, None)),
            libc::AF_UNIX => {
                let name = address[2..].to_vec();
                if name.is_empty() && binds {
                    return Ok((address, None));
                }
                if name.is_empty() {
                    return Err(EINVAL);
                }
                if name[0] == 0 {
                    // Names that are no paths are known all over the host: these are made this emulator's own.
                    let mut address = (libc::AF_UNIX as u16).to_le_bytes().to_vec();
                    address.push(0);
                    address.extend_from_slice(&self.boot_id.as_bytes()[..8]);
                    address.extend_from_slice(&name[1..]);
                    return if address.len() > 110 {
                        Err(crate::errno::ENAMETOOLONG)
                    } else {
                        Ok((address, None))
                    };
                }
                let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
                let path = &name[..end];
                let (held, text) = if binds {
                    let (parent, name) = self.parent(who, libc::AT_FDCWD, path)?;
                    let text = [format!("/proc/self/fd/{}/", parent.as_raw_fd()).as_bytes(), &name].concat();
                    (parent, text)
                } else {
                    let Located::Host { root, path } = self.locate(who, libc::AT_FDCWD, path, true)? else {
                        return Err(EACCES);
                    };
                    let held = self.hold(root, &path, true)?;
                    let text = format!("/proc/self/fd/{}", held.as_raw_fd()).into_bytes();
                    (held, text)
                };
                if text.len() > 107 {
                    return Err(crate::errno::ENAMETOOLONG);
                }
                let mut address = (libc::AF_UNIX as u16).to_le_bytes().to_vec();
                address.extend_from_slice(&text);
                address.push(0);
                Ok((address, Some(held)))
            }
            _ => Err(EAFNOSUPPORT),
        }
    }

    /// An address of the UNIX domain as the program gave it; nothing for others, which are what the host says they are.
    fn given_name(&mut self, who: Caller, at: u64, bytes: u64) -> Result<Vec<u8>, Errno> {
        let mut name = vec![0u8; bytes.min(110) as usize];
        self.memory.read_bytes(who.space, at, &mut name)?;
        if !name.starts_with(&(libc::AF_UNIX as u16).to_le_bytes()) || name.len() <= 2 {
            return Ok(Vec::new());
        }
        if name[2] != 0 {
            // A path is shown with the zero that ends it, and nothing behind.
            let end = name[2..].iter().position(|&byte| byte == 0).map_or(name.len(), |end| end + 2);
            name.truncate(end);
            name.push(0);
        }
        Ok(name)
    }

    pub(crate) fn call_bind(&mut self, who: Caller, descriptor: i32, at: u64, bytes: u64) -> Outcome {
        let (file, host) = self.socket_of(who, descriptor)?;
        let (address, _held) = self.address(who, at, bytes, true)?;
        host::bind(host, &address)?;
        if let Kind::Socket { own_name, .. } = &file.kind {
            own_name.replace(self.given_name(who, at, bytes)?);
        }
        Ok(0)
    }

    pub(crate) fn call_connect(&mut self, who: Caller, descriptor: i32, at: u64, bytes: u64) -> Outcome {
        let (file, host) = self.socket_of(who, descriptor)?;
        if self.thread(who.thread).progress.begun && self.thread(who.thread).progress.given.is_some() {
            // It was begun before, and is ready now: with or without success.
            let code = host::socket_option(host, libc::SOL_SOCKET, libc::SO_ERROR, 4)?;
            return match i32::from_le_bytes(code.try_into().map_err(|_| EINVAL)?) {
                0 => Ok(0),
                code => Err(Errno(code).into()),
            };
        }
        let (address, _held) = self.address(who, at, bytes, false)?;
        let name = self.given_name(who, at, bytes)?;
        if let Kind::Socket { peer_name, .. } = &file.kind {
            peer_name.replace(name);
        }
        match host::connect(host, &address) {
            Err(Errno(libc::EINPROGRESS)) if !file.never_waits() => {
                self.thread_mut(who.thread).progress.given = Some(0);
                Err(Wait::descriptor(host, libc::POLLOUT).into())
            }
            // A listener of the UNIX domain whose queue is full: the host has no way to wait for room but to wait.
            Err(EAGAIN) if !file.never_waits() => {
                let soon = std::time::Instant::now() + std::time::Duration::from_millis(5);
                let mut wait = Wait::until(Some(soon));
                wait.interruption = crate::waiting::Interruption::Restart;
                Err(wait.into())
            }
            result => Ok(result.map(|()| 0)?),
        }
    }

    pub(crate) fn call_listen(&mut self, who: Caller, descriptor: i32, waiting: i32) -> Outcome {
        let (_, host) = self.socket_of(who, descriptor)?;
        host::listen(host, waiting)?;
        Ok(0)
    }

    /// Shows an address to a program, as far as it has room.
    fn show_address(&mut self, who: Caller, address: &[u8], at: u64, bytes_at: u64) -> Result<(), Errno> {
        if at == 0 || bytes_at == 0 {
            return Ok(());
        }
        let room: u32 = self.memory.read(who.space, bytes_at)?;
        if (room as i32) < 0 {
            return Err(EINVAL);
        }
        self.memory.write_bytes(who.space, at, &address[..address.len().min(room as usize)])?;
        self.memory.write(who.space, bytes_at, &(address.len() as u32))
    }

    pub(crate) fn call_accept(
        &mut self,
        who: Caller,
        descriptor: i32,
        at: u64,
        bytes_at: u64,
        flags: i32,
    ) -> Outcome {
        let (file, host) = self.socket_of(who, descriptor)?;
        if flags & !FLAGS != 0 {
            return Err(EINVAL.into());
        }
        file.used.set(file.used.get() + 1);
        let (accepted, address) = match host::accept(host) {
            Err(EAGAIN) if file.never_waits() => return Err(EAGAIN.into()),
            Err(EAGAIN) => return Err(Wait::descriptor(host, libc::POLLIN).into()),
            result => result?,
        };
        self.show_address(who, shown(&address), at, bytes_at)?;
        let listener = file;
        let file = self.add_socket(accepted, flags);
        if let (Kind::Socket { own_name, .. }, Kind::Socket { own_name: listening, .. }) =
            (&file.kind, &listener.kind)
        {
            own_name.replace(listening.borrow().clone());
        }
        self.install(who, file, flags & libc::SOCK_CLOEXEC != 0)
    }

    pub(crate) fn call_socket_name(
        &mut self,
        who: Caller,
        descriptor: i32,
        at: u64,
        bytes_at: u64,
        peer: bool,
    ) -> Outcome {
        let (file, host) = self.socket_of(who, descriptor)?;
        let address = if peer { host::peer_address(host)? } else { host::own_address(host)? };
        let mut address = shown(&address).to_vec();
        if let Kind::Socket { own_name, peer_name, .. } = &file.kind {
            let name = if peer { peer_name.borrow() } else { own_name.borrow() };
            if !name.is_empty() {
                address.clone_from(&name);
            }
        }
        self.show_address(who, &address, at, bytes_at)?;
        Ok(0)
    }

    fn send(
        &mut self,
        who: Caller,
        descriptor: i32,
        buffers: &[Buffer],
        (to, carried): ((u64, u64), Vec<Rc<OpenFile>>),
        flags: i32,
    ) -> Outcome {
        let (file, host) = self.socket_of(who, descriptor)?;
        if flags & !SEND_FLAGS != 0 {
            return Err(EOPNOTSUPP.into());
        }
        file.used.set(file.used.get() + 1);
        let (address, _held) =
            if to.0 == 0 { (Vec::new(), None) } else { self.address(who, to.0, to.1, false)? };
        let mut pieces = self.memory.pieces(who.space, buffers, Access::Read)?;
        let wanted: u64 = buffers.iter().map(|buffer| buffer.bytes).sum();
        let gathered: u64 = pieces.iter().map(|piece| piece.iov_len as u64).sum();
        if gathered < wanted && self.is_datagram(host) {
            return Err(EMSGSIZE.into());
        }
        let passed_flags = flags & (libc::MSG_OOB | libc::MSG_EOR | libc::MSG_MORE);
        let sent = if carried.is_empty() {
            host::send(host, &mut pieces, &address, passed_flags)
        } else if to.0 != 0 {
            // Only between sockets that are connected.
            Err(EOPNOTSUPP)
        } else {
            let tokens = self.send_off(carried)?;
            let sent = host::send_with(host, &mut pieces, &tokens, passed_flags);
            if sent.is_err() {
                self.call_back(&tokens);
            }
            sent
        };
        match sent {
            Err(EAGAIN) if file.never_waits() || flags & libc::MSG_DONTWAIT != 0 => Err(EAGAIN.into()),
            Err(EAGAIN) => Err(Wait::descriptor(host, libc::POLLOUT).into()),
            Err(EPIPE) if flags & libc::MSG_NOSIGNAL == 0 => {
                let information = crate::signals::information(libc::SIGPIPE, libc::SI_USER);
                // If the signal cannot be sent, the error alone tells it.
                let _ = self.post(who.process, Some(who.thread), information);
                Err(EPIPE.into())
            }
            result => Ok(result?),
        }
    }

    fn is_datagram(&self, host: i32) -> bool {
        let kind = host::socket_option(host, libc::SOL_SOCKET, libc::SO_TYPE, 4);
        kind.is_ok_and(|kind| kind != libc::SOCK_STREAM.to_le_bytes())
    }

    /// Receives without waiting, or says how to wait.
    fn receive(
        &mut self,
        who: Caller,
        descriptor: i32,
        buffers: &[Buffer],
        flags: i32,
    ) -> Result<host::Received, Stop> {
        let (file, host) = self.socket_of(who, descriptor)?;
        if flags & !RECEIVE_FLAGS != 0 {
            return Err(EOPNOTSUPP.into());
        }
        file.used.set(file.used.get() + 1);
        let mut pieces = self.memory.pieces(who.space, buffers, Access::Write)?;
        match host::receive_with(
            host,
            &mut pieces,
            flags & (libc::MSG_PEEK | libc::MSG_TRUNC | libc::MSG_OOB),
        ) {
            Err(EAGAIN) if file.never_waits() || flags & libc::MSG_DONTWAIT != 0 => Err(EAGAIN.into()),
            Err(EAGAIN) => Err(Wait::descriptor(host, libc::POLLIN).into()),
            result => Ok(result?),
        }
    }

    pub(crate) fn call_send_to(&mut self, who: Caller, arguments: [u64; 6]) -> Outcome {
        let [descriptor, at, bytes, flags, to, to_bytes] = arguments;
        let buffers = Self::one_buffer(at, bytes);
        self.send(who, descriptor as i32, &buffers, ((to, to_bytes), Vec::new()), flags as i32)
    }

    pub(crate) fn call_receive_from(&mut self, who: Caller, arguments: [u64; 6]) -> Outcome {
        let [descriptor, at, bytes, flags, from, from_bytes] = arguments;
        let buffers = Self::one_buffer(at, bytes);
        let received = self.receive(who, descriptor as i32, &buffers, flags as i32)?;
        for token in &received.passed {
            self.call_back(std::slice::from_ref(token));
        }
        self.show_address(who, shown(&received.address), from, from_bytes)?;
        Ok(received.bytes)
    }

    pub(crate) fn call_send_message(&mut self, who: Caller, descriptor: i32, at: u64, flags: i32) -> Outcome {
        let message: Message = self.memory.read(who.space, at)?;
        let carried = self.carried(who, &message)?;
        let buffers = self.buffers(who, message.vectors, message.vector_count)?;
        self.send(who, descriptor, &buffers, ((message.name, u64::from(message.name_bytes)), carried), flags)
    }

    pub(crate) fn call_receive_message(
        &mut self,
        who: Caller,
        descriptor: i32,
        at: u64,
        flags: i32,
    ) -> Outcome {
        let mut message: Message = self.memory.read(who.space, at)?;
        let buffers = self.buffers(who, message.vectors, message.vector_count)?;
        let received = self.receive(who, descriptor, &buffers, flags)?;
        if message.name != 0 {
            let address = shown(&received.address);
            let shown = &address[..address.len().min(message.name_bytes as usize)];
            self.memory.write_bytes(who.space, message.name, shown)?;
            message.name_bytes = address.len() as u32;
        }
        let closes_on_exec = flags & libc::MSG_CMSG_CLOEXEC != 0;
        let keeps = flags & libc::MSG_PEEK != 0;
        let (control_bytes, cut) = self.hand_over(who, &message, &received.passed, closes_on_exec, keeps)?;
        message.control_bytes = control_bytes;
        let told = received.flags & !(libc::MSG_CTRUNC | libc::MSG_CMSG_CLOEXEC)
            | if cut { libc::MSG_CTRUNC } else { 0 };
        message.flags = told as u32;
        self.memory.write(who.space, at, &message)?;
        Ok(received.bytes)
    }

    pub(crate) fn call_shut_down(&mut self, who: Caller, descriptor: i32, how: i32) -> Outcome {
        let (_, host) = self.socket_of(who, descriptor)?;
        host::shut_down(host, how)?;
        Ok(0)
    }

    pub(crate) fn call_get_option(
        &mut self,
        who: Caller,
        descriptor: i32,
        level: i32,
        name: i32,
        into: [u64; 2],
    ) -> Outcome {
        let (_, host) = self.socket_of(who, descriptor)?;
        let room: u32 = self.memory.read(who.space, into[1])?;
        let value = host::socket_option(host, level, name, (room as usize).min(256))?;
        self.memory.write_bytes(who.space, into[0], &value)?;
        self.memory.write(who.space, into[1], &(value.len() as u32))?;
        Ok(0)
    }

    pub(crate) fn call_set_option(
        &mut self,
        who: Caller,
        descriptor: i32,
        level: i32,
        name: i32,
        from: (u64, u64),
    ) -> Outcome {
        let (_, host) = self.socket_of(who, descriptor)?;
        let harmless = match level {
            libc::SOL_SOCKET => matches!(
                name,
                libc::SO_REUSEADDR
                    | libc::SO_REUSEPORT
                    | libc::SO_KEEPALIVE
                    | libc::SO_SNDBUF
                    | libc::SO_RCVBUF
                    | libc::SO_LINGER
                    | libc::SO_BROADCAST
                    | libc::SO_OOBINLINE
            ),
            libc::IPPROTO_TCP => matches!(
                name,
                libc::TCP_NODELAY
                    | libc::TCP_KEEPIDLE
                    | libc::TCP_KEEPINTVL
                    | libc::TCP_KEEPCNT
                    | libc::TCP_CORK
            ),
            libc::IPPROTO_IPV6 => name == libc::IPV6_V6ONLY,
            _ => false,
        };
        if !harmless {
            self.note_unsupported(libc::SYS_setsockopt as u64, (level as u64) << 16 | name as u64 & 0xffff);
            return Err(crate::errno::EOPNOTSUPP.into());
        }
        let mut value = vec![0u8; from.1.min(64) as usize];
        self.memory.read_bytes(who.space, from.0, &mut value)?;
        host::set_socket_option(host, level, name, &value)?;
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn four(address: [u8; 4]) -> Vec<u8> {
        let mut bytes = (libc::AF_INET as u16).to_le_bytes().to_vec();
        bytes.extend_from_slice(&[0, 80]);
        bytes.extend_from_slice(&address);
        bytes.resize(16, 0);
        bytes
    }

    fn six(address: [u8; 16]) -> Vec<u8> {
        let mut bytes = (libc::AF_INET6 as u16).to_le_bytes().to_vec();
        bytes.extend_from_slice(&[0, 80, 0, 0, 0, 0]);
        bytes.extend_from_slice(&address);
        bytes.resize(28, 0);
        bytes
    }

    #[test]
    fn only_this_host_is_reached() {
        assert!(is_own(&four([127, 1, 2, 3]), false));
        assert!(is_own(&four([0, 0, 0, 0]), true));
        assert!(!is_own(&four([10, 0, 0, 1]), true));
        assert!(!is_own(&four([10, 0, 0, 1])[..5], false));
        let mut own = [0; 16];
        own[15] = 1;
        assert!(is_own(&six(own), false));
        let mut mapped = [0; 16];
        mapped[10..14].copy_from_slice(&[0xff, 0xff, 127, 0]);
        assert!(is_own(&six(mapped), false));
        mapped[12] = 10;
        assert!(!is_own(&six(mapped), false));
    }
}
