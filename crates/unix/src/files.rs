//! Calls that open files, ask about them and change the tree that they are in.

use crate::descriptors::{Kind, OpenFile};
use crate::errno::{EACCES, EBADF, EEXIST, EINVAL, EISDIR, ELOOP, ENOENT, ENOTDIR, ENXIO, EPERM, Errno};
use crate::host;
use crate::layouts::Timespec;
use crate::machine::Machine;
use crate::paths::Located;
use crate::pipes::{End, Pipe};
use crate::unix::{Caller, Unix};
use crate::virtual_files::{Device, Listing, Node};
use crate::waiting::Outcome;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

/// Flags that are passed to the host when a file is opened there. Whether a call waits is the emulator's business.
const HOST_FLAGS: i32 = libc::O_ACCMODE
    | libc::O_APPEND
    | libc::O_DIRECTORY
    | libc::O_NOATIME
    | libc::O_SYNC
    | libc::O_DSYNC
    | libc::O_TRUNC;
/// What `fcntl(F_GETFL)` shows of the flags.
const SHOWN_FLAGS: i32 = !(libc::O_CREAT | libc::O_EXCL | libc::O_NOCTTY | libc::O_TRUNC | libc::O_CLOEXEC);

/// What a path leads to, to be asked about or changed.
pub(crate) enum Held {
    Host(OwnedFd),
    Virtual(Node),
    Open(Rc<OpenFile>),
}

fn kind_of(stat: &libc::stat) -> u32 {
    stat.st_mode & libc::S_IFMT
}

/// What programs are told about something that the emulator made up.
fn virtual_stat(mode: u32, number: u64, size: u64, device: u64) -> libc::stat {
    let mut stat: libc::stat = host::zeroes();
    stat.st_dev = 0x1_0001;
    stat.st_ino = number;
    stat.st_mode = mode;
    stat.st_nlink = 1;
    stat.st_rdev = device;
    stat.st_size = size as i64;
    stat.st_blksize = 4096;
    stat
}

fn node_stat(node: &Node) -> libc::stat {
    match node {
        Node::Directory(entries) => virtual_stat(libc::S_IFDIR | 0o555, 2, entries.len() as u64, 0),
        Node::Text(text) => virtual_stat(libc::S_IFREG | 0o444, 3 + text.len() as u64, 0, 0),
        Node::Stat(process) => virtual_stat(libc::S_IFREG | 0o444, 3 + *process as u64, 0, 0),
        Node::Link(target) => virtual_stat(libc::S_IFLNK | 0o777, 4, target.len() as u64, 0),
        Node::Descriptor(_, number) => virtual_stat(libc::S_IFLNK | 0o700, 1000 + *number as u64, 64, 0),
        Node::Device(device) => virtual_stat(libc::S_IFCHR | 0o666, 5 + device.number(), 0, device.number()),
    }
}

impl<M: Machine> Unix<M> {
    fn open_node(
        &mut self,
        who: Caller,
        node: Node,
        path: Vec<u8>,
        flags: i32,
    ) -> Result<Rc<OpenFile>, Errno> {
        if flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL {
            return Err(EEXIST);
        }
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let kind = match node {
            Node::Directory(_) if writes => return Err(EISDIR),
            Node::Directory(entries) => Kind::Listing(Listing { path, entries: entries.into() }),
            _ if flags & libc::O_DIRECTORY != 0 => return Err(ENOTDIR),
            Node::Text(_) | Node::Stat(_) if writes => return Err(EACCES),
            Node::Text(text) => Kind::Text(text),
            Node::Stat(process) => Kind::Text(self.stat_text(process).ok_or(ENOENT)?),
            Node::Link(_) => return Err(ELOOP),
            Node::Device(device) => self.open_device(device)?,
            Node::Descriptor(process, descriptor) => {
                if process != who.process {
                    return Err(EACCES);
                }
                let file = self.file(who, descriptor)?;
                return match &file.kind {
                    Kind::Regular { host, .. } => {
                        let host = host::reopen(host.as_raw_fd(), flags & HOST_FLAGS)?;
                        self.open_host(host, flags)
                    }
                    // Another hold on the same open file is near enough for what has no offset.
                    _ => Ok(file),
                };
            }
        };
        Ok(self.new_file(kind, flags & SHOWN_FLAGS))
    }

    /// An open file for what the host has just opened.
    fn open_host(&mut self, host: OwnedFd, flags: i32) -> Result<Rc<OpenFile>, Errno> {
        let stat = host::stat(host.as_raw_fd())?;
        let kind = match kind_of(&stat) {
            libc::S_IFDIR => Kind::Directory { host },
            libc::S_IFREG => Kind::Regular { host, name: (stat.st_dev, stat.st_ino) },
            _ => return Err(EACCES),
        };
        Ok(self.new_file(kind, flags & SHOWN_FLAGS))
    }

    /// An open FIFO. All who open it meet in one pipe of the emulator.
    fn open_fifo(&mut self, name: crate::objects::FileName, flags: i32) -> Result<Rc<OpenFile>, Errno> {
        let access = flags & libc::O_ACCMODE;
        let (reads, writes) = (access != libc::O_WRONLY, access != libc::O_RDONLY);
        let pipe = match self.fifos.get(&name).and_then(std::rc::Weak::upgrade) {
            Some(pipe) => pipe,
            None => {
                let pipe = Pipe::new(self.new_number(), &self.wakes);
                self.fifos.retain(|_, pipe| pipe.strong_count() > 0);
                self.fifos.insert(name, Rc::downgrade(&pipe));
                pipe
            }
        };
        if flags & libc::O_NONBLOCK != 0 && !reads && !pipe.is_read() {
            return Err(ENXIO);
        }
        Ok(self.new_file(Kind::Pipe(End::new(&pipe, reads, writes)), flags & SHOWN_FLAGS))
    }

    /// Opens a path.
    pub(crate) fn open(
        &mut self,
        who: Caller,
        directory: i32,
        path: &[u8],
        flags: i32,
        mode: u32,
    ) -> Result<Rc<OpenFile>, Errno> {
        let follow = flags & libc::O_NOFOLLOW == 0
            && flags & (libc::O_CREAT | libc::O_EXCL) != libc::O_CREAT | libc::O_EXCL;
        let (root, path) = match self.locate(who, directory, path, follow)? {
            Located::Virtual { node, path } => return self.open_node(who, node, path, flags),
            Located::Host { root, path } => (root, path),
        };
        if flags & libc::O_PATH != 0 {
            let host = self.hold(root, &path, follow)?;
            let directory = kind_of(&host::stat(host.as_raw_fd())?) == libc::S_IFDIR;
            if flags & libc::O_DIRECTORY != 0 && !directory {
                return Err(ENOTDIR);
            }
            return Ok(self.new_file(Kind::Path { host }, flags & SHOWN_FLAGS));
        }
        let mask = self.process(who.process).place.borrow().mask;
        // Nobody gains rights by a file that a program made.
        let mode = mode & 0o1777 & !mask;
        if flags & libc::O_TMPFILE == libc::O_TMPFILE {
            crate::paths::check_file_system(self.hold(root, &path, follow)?.as_raw_fd())?;
            let host =
                host::open_in_root(root, &path, flags & (HOST_FLAGS | libc::O_TMPFILE | libc::O_EXCL), mode)?;
            return self.open_host(host, flags);
        }
        match self.hold(root, &path, follow) {
            Ok(held) => self.open_held(who, &held, flags),
            Err(ENOENT) if flags & libc::O_CREAT != 0 => {
                let excluded = flags & (libc::O_EXCL | libc::O_NOFOLLOW);
                let created = flags & HOST_FLAGS & !libc::O_DIRECTORY | libc::O_CREAT | excluded;
                // So that what was swapped in meanwhile from outside cannot hold us up.
                let host =
                    host::open_in_root(root, &path, created | libc::O_NONBLOCK | libc::O_NOCTTY, mode)?;
                crate::paths::check_file_system(host.as_raw_fd())?;
                host::change_mode(host.as_raw_fd(), mode)?;
                self.open_host(host, flags)
            }
            Err(error) => Err(error),
        }
    }

    fn open_held(&mut self, who: Caller, held: &OwnedFd, flags: i32) -> Result<Rc<OpenFile>, Errno> {
        if flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL {
            return Err(EEXIST);
        }
        let stat = host::stat(held.as_raw_fd())?;
        match kind_of(&stat) {
            libc::S_IFLNK => return Err(ELOOP),
            libc::S_IFDIR if flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_CREAT != 0 => {
                return Err(EISDIR);
            }
            libc::S_IFDIR => {}
            _ if flags & libc::O_DIRECTORY != 0 => return Err(ENOTDIR),
            libc::S_IFREG => {}
            libc::S_IFIFO => return self.open_fifo((stat.st_dev, stat.st_ino), flags),
            libc::S_IFCHR => {
                let device = Device::known(stat.st_rdev).ok_or(EACCES)?;
                return self.open_node(who, Node::Device(device), Vec::new(), flags);
            }
            libc::S_IFSOCK => return Err(ENXIO),
            _ => return Err(EACCES),
        }
        let host = host::reopen(held.as_raw_fd(), flags & HOST_FLAGS | libc::O_NONBLOCK | libc::O_NOCTTY)?;
        if flags & libc::O_TRUNC != 0 {
            self.memory.file_was_cut((stat.st_dev, stat.st_ino), 0);
        }
        self.open_host(host, flags)
    }

    pub(crate) fn call_open(
        &mut self,
        who: Caller,
        directory: i32,
        path: u64,
        flags: i32,
        mode: u32,
    ) -> Outcome {
        let path = self.path_argument(who, path)?;
        let file = self.open(who, directory, &path, flags, mode)?;
        self.install(who, file, flags & libc::O_CLOEXEC != 0)
    }

    /// What a path leads to; with `AT_EMPTY_PATH`, what a descriptor is open on.
    pub(crate) fn held(
        &mut self,
        who: Caller,
        directory: i32,
        path: &[u8],
        flags: i32,
    ) -> Result<Held, Errno> {
        if path.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
            if directory == libc::AT_FDCWD {
                return Ok(Held::Open(Rc::clone(&self.process(who.process).place.borrow().directory)));
            }
            return self.file(who, directory).map(Held::Open);
        }
        let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
        match self.locate(who, directory, path, follow)? {
            Located::Virtual { node: Node::Descriptor(process, descriptor), .. } if follow => {
                let file = self.processes.get(&process).ok_or(ENOENT)?.table.borrow().get(descriptor);
                file.map(Held::Open).map_err(|_| ENOENT)
            }
            Located::Virtual { node, .. } => Ok(Held::Virtual(node)),
            Located::Host { root, path } => self.hold(root, &path, follow).map(Held::Host),
        }
    }

    /// The host's descriptor behind it; only what is the host's can be changed.
    fn host_of(&mut self, held: &Held) -> Result<i32, Errno> {
        match held {
            Held::Host(host) => Ok(host.as_raw_fd()),
            Held::Open(file) => match &file.kind {
                Kind::Stream { .. } | Kind::Socket { .. } => Err(EPERM),
                _ => file.host().ok_or(EPERM),
            },
            Held::Virtual(_) => Err(EPERM),
        }
    }

    fn open_stat(&self, file: &OpenFile) -> Result<libc::stat, Errno> {
        match &file.kind {
            Kind::Device(device) => Ok(node_stat(&Node::Device(*device))),
            Kind::Text(text) => Ok(node_stat(&Node::Text(text.clone()))),
            Kind::Listing(_) => Ok(virtual_stat(libc::S_IFDIR | 0o555, 2, 0, 0)),
            Kind::Pipe(end) => Ok(virtual_stat(libc::S_IFIFO | 0o600, end.pipe.number, 0, 0)),
            Kind::Counter { .. } | Kind::Timer(_) | Kind::Epoll(_) => {
                Ok(virtual_stat(0o600, file.number, 0, 0))
            }
            _ => host::stat(file.host().ok_or(EBADF)?),
        }
    }

    fn held_stat(&self, held: &Held) -> Result<libc::stat, Errno> {
        match held {
            Held::Host(host) => host::stat(host.as_raw_fd()),
            Held::Virtual(node) => Ok(node_stat(node)),
            Held::Open(file) => self.open_stat(file),
        }
    }

    pub(crate) fn call_stat(
        &mut self,
        who: Caller,
        directory: i32,
        path: u64,
        into: u64,
        flags: i32,
    ) -> Outcome {
        let path = self.path_argument(who, path)?;
        let held = self.held(who, directory, &path, flags)?;
        let stat = self.held_stat(&held)?;
        self.memory.write_bytes(who.space, into, &host::bytes_of(&stat))?;
        Ok(0)
    }

    pub(crate) fn call_stat_open(&mut self, who: Caller, descriptor: i32, into: u64) -> Outcome {
        let file = self.file(who, descriptor)?;
        let stat = self.open_stat(&file)?;
        self.memory.write_bytes(who.space, into, &host::bytes_of(&stat))?;
        Ok(0)
    }

    pub(crate) fn call_statx(
        &mut self,
        who: Caller,
        directory: i32,
        path: u64,
        flags: i32,
        mask: u32,
        into: u64,
    ) -> Outcome {
        let path = self.path_argument(who, path)?;
        let held = self.held(who, directory, &path, flags)?;
        let host = match &held {
            Held::Host(host) => Some(host.as_raw_fd()),
            Held::Open(file) => file.host(),
            Held::Virtual(_) => None,
        };
        let told = match host {
            Some(host) => host::statx(host, mask)?,
            None => {
                let stat = self.held_stat(&held)?;
                let mut told: libc::statx = host::zeroes();
                told.stx_mask = libc::STATX_BASIC_STATS;
                told.stx_mode = stat.st_mode as u16;
                told.stx_nlink = 1;
                told.stx_ino = stat.st_ino;
                told.stx_size = stat.st_size as u64;
                told.stx_blksize = 4096;
                told.stx_rdev_major = libc::major(stat.st_rdev);
                told.stx_rdev_minor = libc::minor(stat.st_rdev);
                told.stx_dev_major = 1;
                told
            }
        };
        self.memory.write_bytes(who.space, into, &host::bytes_of(&told))?;
        Ok(0)
    }

    pub(crate) fn call_statfs(&mut self, who: Caller, held: &Held, into: u64) -> Outcome {
        let host = match held {
            Held::Host(host) => Some(host.as_raw_fd()),
            Held::Open(file) => file.host(),
            Held::Virtual(_) => None,
        };
        let told = match host {
            Some(host) => host::statfs(host)?,
            None => {
                let mut told: libc::statfs = host::zeroes();
                told.f_type = 0x9fa0;
                told.f_bsize = 4096;
                told.f_namelen = 255;
                told
            }
        };
        self.memory.write_bytes(who.space, into, &host::bytes_of(&told))?;
        Ok(0)
    }

    pub(crate) fn call_access(
        &mut self,
        who: Caller,
        directory: i32,
        path: u64,
        mode: i32,
        flags: i32,
    ) -> Outcome {
        let path = self.path_argument(who, path)?;
        match self.held(who, directory, &path, flags)? {
            Held::Host(host) => host::may_access(host.as_raw_fd(), mode)?,
            Held::Open(file) => {
                if let Some(host) = file.host() {
                    host::may_access(host, mode)?;
                }
            }
            Held::Virtual(node) => {
                let allowed = node_stat(&node).st_mode as i32 & 7;
                if mode & 7 & !allowed != 0 {
                    return Err(EACCES.into());
                }
            }
        }
        Ok(0)
    }

    pub(crate) fn call_read_link(
        &mut self,
        who: Caller,
        directory: i32,
        path: u64,
        into: u64,
        bytes: u64,
    ) -> Outcome {
        if bytes as i32 <= 0 {
            return Err(EINVAL.into());
        }
        let path = self.path_argument(who, path)?;
        let flags = libc::AT_SYMLINK_NOFOLLOW | if path.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
        let text = match self.held(who, directory, &path, flags)? {
            Held::Host(host) => {
                if kind_of(&host::stat(host.as_raw_fd())?) != libc::S_IFLNK {
                    return Err(EINVAL.into());
                }
                host::read_link(host.as_raw_fd())?
            }
            Held::Open(file) => host::read_link(file.host().ok_or(EINVAL)?)?,
            Held::Virtual(Node::Link(target)) => target,
            Held::Virtual(Node::Descriptor(process, descriptor)) => {
                self.descriptor_text(process, descriptor)?
            }
            Held::Virtual(_) => return Err(EINVAL.into()),
        };
        let shown = &text[..text.len().min(bytes as usize)];
        self.memory.write_bytes(who.space, into, shown)?;
        Ok(shown.len() as u64)
    }

    pub(crate) fn call_make_directory(
        &mut self,
        who: Caller,
        directory: i32,
        path: u64,
        mode: u32,
    ) -> Outcome {
        let path = self.path_argument(who, path)?;
        let mask = self.process(who.process).place.borrow().mask;
        let located = self.locate(who, directory, &path, false)?;
        if matches!(located, Located::Virtual { .. }) {
            return Err(EEXIST.into());
        }
        let (parent, name) = self
            .parent(who, directory, &path)
            .map_err(|error| if error == EINVAL { EEXIST } else { error })?;
        let name = name.strip_suffix(b"/").unwrap_or(&name);
        host::make_directory(parent.as_raw_fd(), name, mode & 0o1777 & !mask)?;
        Ok(0)
    }

    pub(crate) fn call_make_node(&mut self, who: Caller, directory: i32, path: u64, mode: u32) -> Outcome {
        let path = self.path_argument(who, path)?;
        let mask = self.process(who.process).place.borrow().mask;
        let kind = match mode & libc::S_IFMT {
            0 => libc::S_IFREG,
            kind @ (libc::S_IFREG | libc::S_IFIFO) => kind,
            _ => return Err(EPERM.into()),
        };
        let (parent, name) = self.parent(who, directory, &path)?;
        host::make_node(parent.as_raw_fd(), &name, kind | mode & 0o1777 & !mask)?;
        Ok(0)
    }

    pub(crate) fn call_unlink(&mut self, who: Caller, directory: i32, path: u64, flags: i32) -> Outcome {
        let path = self.path_argument(who, path)?;
        let (parent, name) = self.parent(who, directory, &path)?;
        let removes_directory = flags & libc::AT_REMOVEDIR != 0;
        host::unlink(parent.as_raw_fd(), &name, removes_directory)?;
        Ok(0)
    }

    pub(crate) fn call_rename(
        &mut self,
        who: Caller,
        from: (i32, u64),
        to: (i32, u64),
        flags: u32,
    ) -> Outcome {
        let (old, new) = (self.path_argument(who, from.1)?, self.path_argument(who, to.1)?);
        if flags & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) != 0 {
            return Err(EINVAL.into());
        }
        let (old_parent, old) = self.parent(who, from.0, &old)?;
        let (new_parent, new) = self.parent(who, to.0, &new)?;
        host::rename(old_parent.as_raw_fd(), &old, new_parent.as_raw_fd(), &new, flags)?;
        Ok(0)
    }

    pub(crate) fn call_symlink(&mut self, who: Caller, target: u64, directory: i32, path: u64) -> Outcome {
        let (target, path) = (self.path_argument(who, target)?, self.path_argument(who, path)?);
        let (parent, name) = self.parent(who, directory, &path)?;
        host::symlink(&target, parent.as_raw_fd(), &name)?;
        Ok(0)
    }

    pub(crate) fn call_link(&mut self, who: Caller, from: (i32, u64), to: (i32, u64), flags: i32) -> Outcome {
        let (old, new) = (self.path_argument(who, from.1)?, self.path_argument(who, to.1)?);
        let (new_parent, new) = self.parent(who, to.0, &new)?;
        if flags & libc::AT_SYMLINK_FOLLOW == 0 && !old.is_empty() {
            // A link to a descriptor is followed all the same: what it leads to has to get its name somehow.
            if let Located::Host { .. } = self.locate(who, from.0, &old, false)? {
                let (old_parent, old) = self.parent(who, from.0, &old)?;
                host::link_by_name(old_parent.as_raw_fd(), &old, new_parent.as_raw_fd(), &new)?;
                return Ok(0);
            }
        }
        let held = self.held(who, from.0, &old, flags & libc::AT_EMPTY_PATH)?;
        let host = self.host_of(&held)?;
        host::link(host, new_parent.as_raw_fd(), &new)?;
        Ok(0)
    }

    pub(crate) fn call_change_mode(&mut self, held: &Held, mode: u32) -> Outcome {
        // Nobody gains rights by a program that is not run by the host itself.
        let host = self.host_of(held)?;
        host::change_mode(host, mode & 0o1777)?;
        Ok(0)
    }

    pub(crate) fn call_change_owner(&mut self, held: &Held, user: u32, group: u32) -> Outcome {
        let host = self.host_of(held)?;
        host::change_owner(host, user, group)?;
        Ok(0)
    }

    /// `utimensat`; without a path, of the descriptor itself.
    pub(crate) fn call_set_times(
        &mut self,
        who: Caller,
        directory: i32,
        path: u64,
        times: u64,
        flags: i32,
    ) -> Outcome {
        let held = if path == 0 {
            Held::Open(self.file(who, directory)?)
        } else {
            let path = self.path_argument(who, path)?;
            self.held(who, directory, &path, flags)?
        };
        let times = if times == 0 {
            None
        } else {
            let times: [Timespec; 2] = self.memory.read(who.space, times)?;
            Some(times.map(|time| (time.seconds, time.nanoseconds)))
        };
        let host = self.host_of(&held)?;
        host::set_times(host, times)?;
        Ok(0)
    }

    pub(crate) fn call_truncate(&mut self, who: Caller, path: u64, size: i64) -> Outcome {
        let path = self.path_argument(who, path)?;
        let held = self.held(who, libc::AT_FDCWD, &path, 0)?;
        let host = self.host_of(&held)?;
        let stat = host::stat(host)?;
        match kind_of(&stat) {
            libc::S_IFREG => {}
            libc::S_IFDIR => return Err(EISDIR.into()),
            _ => return Err(EINVAL.into()),
        }
        host::truncate(host, size)?;
        self.memory.file_was_cut((stat.st_dev, stat.st_ino), size as u64);
        Ok(0)
    }

    pub(crate) fn call_truncate_open(&mut self, who: Caller, descriptor: i32, size: i64) -> Outcome {
        let file = self.file(who, descriptor)?;
        let Kind::Regular { host, name } = &file.kind else { return Err(EINVAL.into()) };
        if !file.may_write() || size < 0 {
            return Err(EINVAL.into());
        }
        host::truncate_open(host.as_raw_fd(), size)?;
        self.memory.file_was_cut(*name, size as u64);
        Ok(0)
    }

    pub(crate) fn call_change_directory(&mut self, who: Caller, path: u64) -> Outcome {
        let path = self.path_argument(who, path)?;
        let file = self.open(who, libc::AT_FDCWD, &path, libc::O_PATH | libc::O_DIRECTORY, 0);
        let file = match file {
            // What the emulator makes up has no path to hold.
            Err(EISDIR | EACCES) => {
                self.open(who, libc::AT_FDCWD, &path, libc::O_RDONLY | libc::O_DIRECTORY, 0)?
            }
            file => file?,
        };
        if let Some(host) = file.host() {
            host::may_access(host, libc::X_OK)?;
        }
        self.process(who.process).place.borrow_mut().directory = file;
        Ok(0)
    }

    pub(crate) fn call_change_directory_open(&mut self, who: Caller, descriptor: i32) -> Outcome {
        let file = self.file(who, descriptor)?;
        match &file.kind {
            Kind::Directory { .. } | Kind::Listing(_) => {}
            Kind::Path { host } if kind_of(&host::stat(host.as_raw_fd())?) == libc::S_IFDIR => {}
            _ => return Err(ENOTDIR.into()),
        }
        self.process(who.process).place.borrow_mut().directory = file;
        Ok(0)
    }

    pub(crate) fn call_working_directory(&mut self, who: Caller, into: u64, bytes: u64) -> Outcome {
        let mut name = self.working_directory(who)?;
        name.push(0);
        if name.len() as u64 > bytes {
            return Err(crate::errno::ERANGE.into());
        }
        self.memory.write_bytes(who.space, into, &name)?;
        Ok(name.len() as u64)
    }

    /// `getdents64`.
    pub(crate) fn call_entries(&mut self, who: Caller, descriptor: i32, into: u64, bytes: u64) -> Outcome {
        let file = self.file(who, descriptor)?;
        let bytes = bytes.min(1 << 16) as usize;
        let entries = match &file.kind {
            Kind::Directory { host } => host::directory_entries(host.as_raw_fd(), bytes)?,
            Kind::Listing(listing) => {
                if file.position.get() == 0
                    && let Ok(Located::Virtual { node: Node::Directory(entries), .. }) =
                        self.locate(who, libc::AT_FDCWD, &listing.path, true)
                {
                    // As it is now, with the descriptor that it is read by.
                    listing.entries.replace(entries);
                }
                let listed = listing.entries.borrow();
                let mut entries = Vec::new();
                let dots = [(b".".to_vec(), libc::DT_DIR), (b"..".to_vec(), libc::DT_DIR)];
                let all = dots.iter().chain(listed.iter());
                for (at, (name, kind)) in all.enumerate().skip(file.position.get() as usize) {
                    let record = (19 + name.len() + 1).next_multiple_of(8);
                    if entries.len() + record > bytes {
                        if entries.is_empty() {
                            return Err(EINVAL.into());
                        }
                        break;
                    }
                    let start = entries.len();
                    entries.extend_from_slice(&(at as u64 + 100).to_le_bytes());
                    entries.extend_from_slice(&(at as u64 + 1).to_le_bytes());
                    entries.extend_from_slice(&(record as u16).to_le_bytes());
                    entries.push(*kind);
                    entries.extend_from_slice(name);
                    entries.resize(start + record, 0);
                    file.position.set(at as u64 + 1);
                }
                entries
            }
            _ => return Err(ENOTDIR.into()),
        };
        self.memory.write_bytes(who.space, into, &entries)?;
        Ok(entries.len() as u64)
    }
}
