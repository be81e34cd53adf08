//! Descriptors in messages. What travels through the host is a token, an empty file without a name; the open file itself waits in the
//! emulator until its token comes out at the other end.

use crate::descriptors::OpenFile;
use crate::errno::{EINVAL, EOPNOTSUPP, Errno};
use crate::host;
use crate::layouts::Message;
use crate::machine::Machine;
use crate::objects::FileName;
use crate::unix::{Caller, Unix};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

/// Open files on their way at most. Those whose message is never received stay until the end.
const MOST_ON_THE_WAY: usize = 1024;
/// A header in a control message: its length with the header, its level and its kind.
const HEADER_BYTES: usize = 16;

/// Open files on their way, by their tokens.
pub(crate) type OnTheWay = BTreeMap<FileName, Rc<OpenFile>>;

fn token_name(token: &OwnedFd) -> Result<FileName, Errno> {
    let stat = host::stat(token.as_raw_fd())?;
    Ok((stat.st_dev, stat.st_ino))
}

impl<M: Machine> Unix<M> {
    /// The open files that a message of a program carries.
    pub(crate) fn carried(&mut self, who: Caller, message: &Message) -> Result<Vec<Rc<OpenFile>>, Errno> {
        if message.control == 0 || message.control_bytes == 0 {
            return Ok(Vec::new());
        }
        if message.control_bytes > 4096 {
            return Err(EINVAL);
        }
        let mut control = vec![0u8; message.control_bytes as usize];
        self.memory.read_bytes(who.space, message.control, &mut control)?;
        let mut files = Vec::new();
        let mut rest = control.as_slice();
        while let Some((header, _)) = rest.split_at_checked(HEADER_BYTES) {
            let word =
                |at: usize| i32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
            let bytes =
                usize::try_from(word(0)).ok().filter(|&bytes| bytes >= HEADER_BYTES && bytes <= rest.len());
            let bytes = bytes.ok_or(EINVAL)?;
            if (word(8), word(12)) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                return Err(EOPNOTSUPP);
            }
            for descriptor in rest[HEADER_BYTES..bytes].chunks_exact(4) {
                let descriptor =
                    i32::from_le_bytes([descriptor[0], descriptor[1], descriptor[2], descriptor[3]]);
                files.push(self.file(who, descriptor)?);
            }
            rest = &rest[bytes.next_multiple_of(8).min(rest.len())..];
        }
        if files.len() > host::MOST_PASSED { Err(EINVAL) } else { Ok(files) }
    }

    /// Tokens for open files that are about to go on their way.
    pub(crate) fn send_off(&mut self, files: Vec<Rc<OpenFile>>) -> Result<Vec<OwnedFd>, Errno> {
        if self.on_the_way.len() + files.len() > MOST_ON_THE_WAY {
            return Err(Errno(libc::ETOOMANYREFS));
        }
        let mut tokens = Vec::new();
        for file in files {
            let token = host::memory_file()?;
            self.on_the_way.insert(token_name(&token)?, file);
            tokens.push(token);
        }
        Ok(tokens)
    }

    /// The message was not sent after all.
    pub(crate) fn call_back(&mut self, tokens: &[OwnedFd]) {
        for token in tokens {
            if let Ok(name) = token_name(token) {
                self.on_the_way.remove(&name);
            }
        }
    }

    /// Gives the receiver descriptors for what came, as many as it has room for, and says how many bytes of control that are.
    pub(crate) fn hand_over(
        &mut self,
        who: Caller,
        message: &Message,
        tokens: &[OwnedFd],
        closes_on_exec: bool,
        keeps: bool,
    ) -> Result<(u64, bool), Errno> {
        let mut files = Vec::new();
        for token in tokens {
            let name = token_name(token)?;
            let file =
                if keeps { self.on_the_way.get(&name).cloned() } else { self.on_the_way.remove(&name) };
            files.extend(file);
        }
        let room = (message.control_bytes as usize).saturating_sub(HEADER_BYTES) / 4;
        let cut = files.len() > room;
        let mut control = vec![0u8; HEADER_BYTES];
        for file in files.into_iter().take(room) {
            // A receiver with no descriptors left gets fewer.
            let Ok(descriptor) = self.install(who, file, closes_on_exec) else { break };
            control.extend_from_slice(&(descriptor as i32).to_le_bytes());
        }
        if control.len() == HEADER_BYTES {
            return Ok((0, cut));
        }
        let bytes = control.len() as u64;
        control[..8].copy_from_slice(&bytes.to_le_bytes());
        control[8..12].copy_from_slice(&libc::SOL_SOCKET.to_le_bytes());
        control[12..16].copy_from_slice(&libc::SCM_RIGHTS.to_le_bytes());
        self.memory.write_bytes(who.space, message.control, &control)?;
        Ok((bytes.next_multiple_of(8).min(message.control_bytes), cut))
    }
}
