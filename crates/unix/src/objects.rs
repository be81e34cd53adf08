//! What regions are backed by, other than zeroes of their own: files of the host, and memory that processes share.
//!
//! Pages of files are kept in frames by the number of the page, for all processes alike, and stay after the last region has gone
//! as long as memory is not short. A file's object holds the file open, so that its number is not given to another one.

use crate::contents;
use crate::errno::Errno;
use crate::frames::{BLOCK, Frames};
use crate::host;
use crate::machine::{Frame, Machine, PAGE_BYTES};
use crate::regions::Backing;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

/// Files that stay cached with no region on them: each holds a descriptor of the host.
const MOST_IDLE_FILES: usize = 128;

/// Names a file of the host: its device and its inode.
pub(crate) type FileName = (u64, u64);

/// Pages that more than one region may see.
pub(crate) struct Object {
    pub(crate) number: u64,
    file: Option<File>,
    pages: RefCell<BTreeMap<u64, Frame>>,
    /// Pages that a program may have stored to through a shared region, and which the file does not have yet.
    stored: RefCell<BTreeSet<u64>>,
    used: Cell<u64>,
    /// If other cells have the same pages: by which number they know the first.
    first_shared: Option<u32>,
}

struct File {
    name: FileName,
    host: RefCell<OwnedFd>,
    writable: Cell<bool>,
    stamp: Cell<(i64, i64, i64)>,
}

/// A region's hold on an object.
pub(crate) type Backed = Rc<Object>;

impl Backing for Backed {
    fn same(&self, other: &Self) -> bool {
        Rc::ptr_eq(self, other)
    }
}

/// Why a page cannot be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lack {
    /// The file does not reach so far, or the host could not read it.
    Content,
    /// No frame is free.
    Frames,
}

impl Object {
    /// The frame of a page, if it is there already.
    pub(crate) fn resident(&self, page: u64) -> Option<Frame> {
        self.pages.borrow().get(&page).copied()
    }

    /// By which number other cells know a page, if they have it, too.
    pub(crate) fn shared_page(&self, page: u64) -> Option<u32> {
        let first = self.first_shared?;
        self.resident(page).map(|_| first + page as u32)
    }

    /// Whether other cells have its pages, too.
    pub(crate) fn is_shared(&self) -> bool {
        self.first_shared.is_some()
    }

    /// Whether a page may be stored to by programs without the emulator being told.
    pub(crate) fn is_stored(&self, page: u64) -> bool {
        self.file.is_none() || self.stored.borrow().contains(&page)
    }

    /// The host's descriptor of the file, if it is one; it stays open as long as the object is held.
    pub(crate) fn descriptor(&self) -> Option<i32> {
        self.file.as_ref().map(|file| file.host.borrow().as_raw_fd())
    }

    /// Whether stores to its pages can come to the file at all.
    pub(crate) fn may_store(&self) -> bool {
        self.file.as_ref().is_none_or(|file| file.writable.get())
    }

    /// Notes that a program is going to store to a page.
    pub(crate) fn store(&self, page: u64) {
        if self.file.is_some() {
            self.stored.borrow_mut().insert(page);
        }
    }

    /// The frame of a page, read from the file or filled with zeroes, together with those around it that are not there either.
    pub(crate) fn page(
        &self,
        frames: &mut Frames,
        machine: &mut impl Machine,
        page: u64,
    ) -> Result<Frame, Lack> {
        if let Some(frame) = self.resident(page) {
            return Ok(frame);
        }
        if self.is_shared() {
            return Err(Lack::Content);
        }
        let Some(file) = &self.file else {
            let (frame, _) = frames.take(machine, 1).ok_or(Lack::Frames)?;
            contents::clear(machine, frame, 1);
            self.pages.borrow_mut().insert(page, frame);
            return Ok(frame);
        };
        let host = file.host.borrow();
        let size = host::stat(host.as_raw_fd()).map_err(|_| Lack::Content)?.st_size.max(0) as u64;
        let end = size.div_ceil(PAGE_BYTES);
        if page >= end {
            return Err(Lack::Content);
        }
        let mut pages = self.pages.borrow_mut();
        let block = page - page % BLOCK;
        let first = (block..page).rev().take_while(|other| !pages.contains_key(other)).last().unwrap_or(page);
        let last = (page..(block + BLOCK).min(end))
            .take_while(|other| !pages.contains_key(other))
            .last()
            .unwrap_or(page);
        let (mut frame, mut count) = frames.take(machine, last - first + 1).ok_or(Lack::Frames)?;
        let mut first = first;
        if page >= first + count {
            for extra in 1..count {
                frames.release(Frame(frame.0 + extra as u32));
            }
            (first, count) = (page, 1);
        }
        let piece = contents::piece(machine, frame, 0, PAGE_BYTES);
        let whole = libc::iovec { iov_base: piece.iov_base, iov_len: (count * PAGE_BYTES) as usize };
        let read = read_all(&host, whole, first * PAGE_BYTES);
        let Ok(read) = read else {
            for index in 0..count {
                frames.release(Frame(frame.0 + index as u32));
            }
            return Err(Lack::Content);
        };
        for index in 0..count {
            let from = read.saturating_sub(index * PAGE_BYTES).min(PAGE_BYTES);
            contents::clear_from(machine, Frame(frame.0 + index as u32), from);
            pages.insert(first + index, Frame(frame.0 + index as u32));
        }
        frame = Frame(frame.0 + (page - first) as u32);
        Ok(frame)
    }

    /// Brings to the file what programs have stored to its pages. `forget` says that no region can store any more.
    pub(crate) fn flush(&self, machine: &impl Machine, forget: bool) -> Result<(), Errno> {
        let Some(file) = &self.file else { return Ok(()) };
        if self.stored.borrow().is_empty() || !file.writable.get() {
            return Ok(());
        }
        let host = file.host.borrow();
        let size = host::stat(host.as_raw_fd())?.st_size.max(0) as u64;
        for &page in self.stored.borrow().iter() {
            let Some(frame) = self.resident(page) else { continue };
            let at = page * PAGE_BYTES;
            let bytes = size.saturating_sub(at).min(PAGE_BYTES);
            if bytes > 0 {
                host::write_at(host.as_raw_fd(), &[contents::piece(machine, frame, 0, bytes)], at)?;
            }
        }
        if forget {
            self.stored.borrow_mut().clear();
        }
        Ok(())
    }

    /// Reads pages again that were written to through the host, within `from..to` bytes.
    pub(crate) fn reread(&self, machine: &impl Machine, from: u64, to: u64) {
        let Some(file) = &self.file else { return };
        let host = file.host.borrow();
        let pages = self.pages.borrow();
        for (&page, &frame) in pages.range(from / PAGE_BYTES..to.div_ceil(PAGE_BYTES)) {
            let at = page * PAGE_BYTES;
            let start = from.max(at) - at;
            let bytes = to.min(at + PAGE_BYTES) - at - start;
            let piece = contents::piece(machine, frame, start, bytes);
            // A page that cannot be read again keeps what it had.
            let _ = read_all(&host, piece, at + start);
        }
    }

    fn release_pages(&self, frames: &mut Frames) {
        for (_, frame) in std::mem::take(&mut *self.pages.borrow_mut()) {
            frames.release(frame);
        }
        self.stored.borrow_mut().clear();
    }
}

fn read_all(host: &OwnedFd, into: libc::iovec, at: u64) -> Result<u64, Errno> {
    let mut done = 0;
    while done < into.iov_len {
        let rest = libc::iovec {
            iov_base: into.iov_base.cast::<u8>().wrapping_add(done).cast(),
            iov_len: into.iov_len - done,
        };
        match host::read_at(host.as_raw_fd(), &[rest], at + done as u64)? {
            0 => break,
            read => done += read as usize,
        }
    }
    Ok(done as u64)
}

/// All objects that there are.
#[derive(Default)]
pub(crate) struct Objects {
    all: BTreeMap<u64, Backed>,
    files: BTreeMap<FileName, u64>,
    last_number: u64,
    clock: u64,
}

impl Objects {
    /// Memory for regions that share it and belong to no file.
    pub(crate) fn memory(&mut self) -> Backed {
        self.add(None, None)
    }

    /// Memory that other cells have, too, in these frames: what maps this file of the host maps that. The first page is known by this number.
    pub(crate) fn shared(
        &mut self,
        host: OwnedFd,
        first: u32,
        frames: impl Iterator<Item = Frame>,
    ) -> Result<Backed, Errno> {
        let stat = host::stat(host.as_raw_fd())?;
        let name = (stat.st_dev, stat.st_ino);
        let (writable, stamp) = (Cell::new(true), Cell::default());
        let object = self.add(Some(File { name, host: RefCell::new(host), writable, stamp }), Some(first));
        object.pages.borrow_mut().extend((0..).zip(frames));
        self.files.insert(name, object.number);
        Ok(object)
    }

    fn add(&mut self, file: Option<File>, first_shared: Option<u32>) -> Backed {
        self.last_number += 1;
        let object = Rc::new(Object {
            number: self.last_number,
            file,
            pages: RefCell::default(),
            stored: RefCell::default(),
            used: Cell::new(0),
            first_shared,
        });
        self.all.insert(object.number, Rc::clone(&object));
        object
    }

    /// The object of a file of the host. `writable` says whether `descriptor` may write to it.
    pub(crate) fn file(
        &mut self,
        frames: &mut Frames,
        descriptor: i32,
        writable: bool,
    ) -> Result<Backed, Errno> {
        let stat = host::stat(descriptor)?;
        let name = (stat.st_dev, stat.st_ino);
        let stamp = (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        self.clock += 1;
        if let Some(object) = self.files.get(&name).and_then(|number| self.all.get(number)) {
            let file = object.file.as_ref().expect("an object that is found by a file's name has the file");
            if writable && !file.writable.get() {
                *file.host.borrow_mut() = host::duplicate(descriptor)?;
                file.writable.set(true);
            }
            // Somebody outside may have written to it while nobody looked.
            if Rc::strong_count(object) == 1 && file.stamp.get() != stamp {
                object.release_pages(frames);
            }
            file.stamp.set(stamp);
            object.used.set(self.clock);
            return Ok(Rc::clone(object));
        }
        let file = File {
            name,
            host: RefCell::new(host::duplicate(descriptor)?),
            writable: Cell::new(writable),
            stamp: Cell::new(stamp),
        };
        let object = self.add(Some(file), None);
        object.used.set(self.clock);
        self.files.insert(name, object.number);
        Ok(object)
    }

    pub(crate) fn by_name(&self, name: FileName) -> Option<&Backed> {
        if self.files.is_empty() {
            return None;
        }
        self.all.get(self.files.get(&name)?)
    }

    /// After a file was cut to `size` bytes: drops the pages behind, which nobody has mapped any more, and clears the rest of the last one.
    pub(crate) fn drop_pages(&self, frames: &mut Frames, machine: &impl Machine, object: &Object, size: u64) {
        let gone = object.pages.borrow_mut().split_off(&size.div_ceil(PAGE_BYTES));
        for (page, frame) in gone {
            object.stored.borrow_mut().remove(&page);
            frames.release(frame);
        }
        if !size.is_multiple_of(PAGE_BYTES)
            && let Some(frame) = object.resident(size / PAGE_BYTES)
        {
            contents::clear_from(machine, frame, size % PAGE_BYTES);
        }
    }

    /// Looks for objects that no region holds any more: memory is released, files stay as a cache.
    pub(crate) fn sweep(&mut self, frames: &mut Frames, machine: &impl Machine) {
        let mut idle: Vec<(u64, u64)> = Vec::new();
        let mut gone = Vec::new();
        for (&number, object) in &self.all {
            if Rc::strong_count(object) > 1 {
                continue;
            }
            if object.file.is_none() {
                gone.push(number);
            } else {
                // The host's disk may be full; the program that stored was to call msync to learn of it.
                let _ = object.flush(machine, true);
                idle.push((object.used.get(), number));
            }
        }
        if idle.len() > MOST_IDLE_FILES {
            idle.sort_unstable();
            gone.extend(idle[..idle.len() - MOST_IDLE_FILES].iter().map(|&(_, number)| number));
        }
        for number in gone {
            self.remove(frames, number);
        }
    }

    /// Gives back the frames of all files that no region holds, because memory is short. Whether there were any.
    pub(crate) fn shed(&mut self, frames: &mut Frames, machine: &impl Machine) -> bool {
        let before = frames.held();
        self.sweep(frames, machine);
        let idle: Vec<u64> = self
            .all
            .iter()
            .filter(|(_, object)| Rc::strong_count(object) == 1)
            .map(|(&number, _)| number)
            .collect();
        for number in idle {
            self.remove(frames, number);
        }
        frames.held() < before
    }

    fn remove(&mut self, frames: &mut Frames, number: u64) {
        let Some(object) = self.all.remove(&number) else { return };
        if let Some(file) = &object.file {
            self.files.remove(&file.name);
        }
        object.release_pages(frames);
    }
}
