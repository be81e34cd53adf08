//! Memory that programs share with those of other cells: files below `/dev/shm`, whose pages go to where they are touched.
//!
//! A program knows nothing of it: it maps the file. Each page is mapped with the rights that this cell has to all of it, and unmapped when another cell asks for it.
//! (The cache kernel, §2.1: consistency faults.)

use crate::contents;
use crate::errno::{EEXIST, EFBIG, EINVAL, EIO, ENOMEM, Errno};
use crate::futexes::FutexKey;
use crate::machine::{Frame, Machine, PAGE_BYTES, Rights};
use crate::objects::{Backed, FileName};
use crate::processes::State;
use crate::regions::Backing;
use crate::spaces::{Memory, Refusal, Space, SpaceNumber};
use crate::unix::Unix;
use crate::waiting::Id;
use comb_kernel::supervisor::CallError;
use comb_kernels::shared::{
    self, Arrival, Ground, HearError, Shape, ShapeError, SharedPages, Stream, Transport, Wake,
};
use comb_types::CellId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// How much moves at once. A page is mapped when all of its blocks are here, and those that are here already stay.
const BLOCK_BYTES: u32 = 256;

/// How long a page stays once it is here, so that whoever waited for it can touch it.
const HOLD: Duration = Duration::from_micros(100);

/// When a call's own page has not come by then, the call fails. (A thread's page may take as long as it takes: it can be killed.)
const PATIENCE: Duration = Duration::from_secs(10);

/// When a call's other pages have not come by then, those that are here are no longer kept for it.
const KEEPING: Duration = Duration::from_secs(2);

/// So many letters are heard before others have their turn.
const AT_ONCE: usize = 512;

/// The emulator itself, among those who wait.
const EMULATOR: Id = 0;

/// What programs share with those of other cells, and by which lines.
#[derive(Debug)]
pub struct Sharing {
    /// This cell.
    pub me: CellId,
    /// How many there are.
    pub cells: u32,
    /// The lines to the others.
    pub stream: Stream,
    /// The names of files below `/dev/shm`, and how many bytes each has: the same in all cells, in the same order.
    pub files: Vec<(String, u64)>,
}

/// A page that has to come from another cell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Wanted {
    page: u32,
    is_store: bool,
}

/// A file's part of all pages.
struct Window {
    first: u32,
    pages: u32,
    object: Backed,
}

/// The window that a page is in, and which of its pages it is.
fn window_of(windows: &[Window], page: u32) -> Option<(&Window, u64)> {
    let within = |window: &&Window| (window.first..window.first + window.pages).contains(&page);
    windows.iter().find(within).map(|window| (window, u64::from(page - window.first)))
}

/// Lines to other cells, and who is not there any more.
struct Lines {
    stream: Stream,
    dead: Vec<CellId>,
    /// Since that was looked at last.
    one_died: bool,
}

impl Lines {
    /// A cell has gone, or does not say what a cell says: it has nothing any more.
    fn lose(&mut self, cell: CellId, pages: &mut SharedPages<Id>, ground: &mut dyn Ground) {
        self.stream.close(cell);
        self.dead.push(cell);
        self.one_died = true;
        pages.peer_died(Instant::now(), ground, cell).expect(INFALLIBLE);
    }
}

/// Words, by their page and place: who waits for them is to be woken, how many and for which bits.
type Woken = BTreeMap<(u32, u32), (u32, u32)>;

/// This cell's part of what is shared.
pub(crate) struct Shared {
    pages: SharedPages<Id>,
    lines: Lines,
    windows: Vec<Window>,
    /// By page.
    frames: Vec<Frame>,
    /// Other cells say so.
    woken: Woken,
    /// What has become of threads that wait, and has not been told.
    arrivals: Vec<Arrival<Id>>,
    /// There was more to be heard than at once.
    has_more: bool,
}

impl Shared {
    /// What becomes ready when letters come.
    pub(crate) fn polled(&self) -> impl Iterator<Item = libc::pollfd> {
        self.lines.stream.descriptors().map(|(descriptor, is_full)| libc::pollfd {
            fd: descriptor.as_raw_fd(),
            events: libc::POLLIN | if is_full { libc::POLLOUT } else { 0 },
            revents: 0,
        })
    }

    /// When something is to be done, if no letter comes before.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        if self.has_more { Some(Instant::now()) } else { self.pages.next_timeout() }
    }
}

/// Frames of the emulator, and the spaces that see them.
struct Below<'a, M: Machine> {
    machine: &'a mut M,
    spaces: &'a BTreeMap<SpaceNumber, Space<M>>,
    windows: &'a [Window],
    frames: &'a [Frame],
}

impl<M: Machine> Below<'_, M> {
    fn at(&self, offset: usize) -> (Frame, u64) {
        (self.frames[offset / PAGE_BYTES as usize], offset as u64 % PAGE_BYTES)
    }
}

impl<M: Machine> Ground for Below<'_, M> {
    fn restrict(&mut self, page: u32, left: shared::Access) -> Result<(), CallError> {
        let (window, index) = window_of(self.windows, page).expect("all pages are of a file");
        for space in self.spaces.values() {
            for (start, region) in space.regions.iter() {
                let Some((object, first)) = &region.backing else { continue };
                let pages = (region.end - start) / PAGE_BYTES;
                if !Backing::same(object, &window.object) || !(*first..first + pages).contains(&index) {
                    continue;
                }
                let there = start / PAGE_BYTES + index - first;
                if space.private.contains_key(&there) {
                    continue;
                }
                if left == shared::Access::ReadOnly {
                    self.machine.forbid_writes(space.machine, there, 1, region.rights.without_write());
                } else {
                    self.machine.unmap(space.machine, there, 1);
                }
            }
        }
        Ok(())
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) {
        let (frame, offset) = self.at(offset);
        contents::read(self.machine, frame, offset, into);
    }

    fn copy_in(&mut self, offset: usize, from: &[u8]) {
        let (frame, offset) = self.at(offset);
        contents::write(self.machine, frame, offset, from);
    }
}

impl<M: Machine> Memory<M> {
    /// Shares memory with other cells from now on: the files, which are made in a directory of the host's, are empty.
    pub(crate) fn begin_sharing(
        &mut self,
        sharing: Sharing,
        mut make: impl FnMut(&[u8], u64) -> Result<OwnedFd, Errno>,
    ) -> Result<(), Errno> {
        let too_much = |_| ENOMEM;
        let (mut frames, mut windows) = (Vec::new(), Vec::new());
        for (name, bytes) in &sharing.files {
            let first = u32::try_from(frames.len()).map_err(too_much)?;
            let pages = u32::try_from(bytes.div_ceil(PAGE_BYTES)).map_err(too_much)?;
            for _ in 0..pages {
                let (frame, _) = self.frames.take(&mut self.machine, 1).ok_or(ENOMEM)?;
                contents::clear(&self.machine, frame, 1);
                frames.push(frame);
            }
            let host = make(name.as_bytes(), *bytes)?;
            let object = self.objects.shared(host, first, frames[first as usize..].iter().copied())?;
            windows.push(Window { first, pages, object });
        }
        sharing.stream.descriptors().for_each(|(descriptor, _)| self.machine.watch(descriptor));
        let shape = Shape {
            pages: u32::try_from(frames.len()).map_err(too_much)?,
            block_bytes: BLOCK_BYTES,
            cells: sharing.cells,
            hold: HOLD,
        };
        let pages = SharedPages::new(sharing.me, shape).map_err(|error: ShapeError| match error {
            ShapeError::Cell(..) => EEXIST,
            _ => EINVAL,
        })?;
        self.shared = Some(Shared {
            pages,
            lines: Lines { stream: sharing.stream, dead: Vec::new(), one_died: false },
            windows,
            frames,
            woken: BTreeMap::new(),
            arrivals: Vec::new(),
            has_more: false,
        });
        Ok(())
    }

    /// The pages, what they lie on, the lines to others, and whom these wake.
    fn split(&mut self) -> Option<(&mut SharedPages<Id>, Below<'_, M>, &mut Lines, &mut Woken)> {
        let shared = self.shared.as_mut()?;
        let ground = Below {
            machine: &mut self.machine,
            spaces: &self.spaces,
            windows: &shared.windows,
            frames: &shared.frames,
        };
        Some((&mut shared.pages, ground, &mut shared.lines, &mut shared.woken))
    }

    /// With which rights a page can be mapped now, which is to be used so; it is going to be.
    pub(crate) fn share(&mut self, page: u32, is_store: bool, rights: Rights) -> Result<Rights, Refusal> {
        let pages = &mut self.shared.as_mut().ok_or(Refusal::NoContent)?.pages;
        if !pages.has(page, is_store) {
            return Err(Refusal::Elsewhere(Wanted { page, is_store }));
        }
        let writable = pages.map(page, rights.write) == Some(true);
        Ok(if writable { rights } else { rights.without_write() })
    }

    fn wait_for(&mut self, who: Id, wanted: Wanted) {
        let Some((pages, mut ground, ..)) = self.split() else { return };
        pages.wait(Instant::now(), &mut ground, who, wanted.page, wanted.is_store).expect(INFALLIBLE);
        self.exchange();
    }

    /// Hears what has come from other cells, and says what is to be said.
    fn exchange(&mut self) {
        let Some((pages, mut ground, lines, woken)) = self.split() else { return };
        let mut heard = 0;
        while heard < AT_ONCE {
            heard += 1;
            match lines.stream.receive() {
                Ok(None) => break,
                Ok(Some((from, letter))) if letter.kind == Wake::KIND => match Wake::from_letter(&letter) {
                    Ok(wake) if wake.page < pages.shape().pages => {
                        let (most, bits) = woken.entry((wake.page, wake.offset)).or_default();
                        *most = most.saturating_add(wake.most);
                        *bits |= wake.bits;
                    }
                    _ => lines.lose(from, pages, &mut ground),
                },
                Ok(Some((from, letter))) => match pages.hear(Instant::now(), &mut ground, from, letter) {
                    Ok(()) => {}
                    Err(HearError::Calls(error)) => panic!("{INFALLIBLE}: {error}"),
                    Err(HearError::Peer(_) | HearError::TooMuch(_)) => {
                        lines.lose(from, pages, &mut ground);
                    }
                },
                Err((from, _)) => lines.lose(from, pages, &mut ground),
            }
        }
        while let Err((from, _)) = pages.turn(Instant::now(), &mut ground) {
            lines.lose(from, pages, &mut ground);
        }
        while let Some((to, letter)) = pages.poll_transmit() {
            // Whoever is gone is told of where letters are taken.
            let _ = lines.stream.send(to, &letter);
        }
        lines.stream.flush();
        let Some(shared) = &mut self.shared else { return };
        shared.has_more = heard == AT_ONCE;
        while let Some(arrival) = shared.pages.poll_arrival() {
            shared.arrivals.push(arrival);
        }
    }

    /// Waits itself until a page is here, and serves other cells meanwhile.
    pub(crate) fn fetch(&mut self, wanted: Wanted) -> Result<(), Refusal> {
        let until = Instant::now() + PATIENCE;
        loop {
            self.wait_for(EMULATOR, wanted);
            let shared = self.shared.as_mut().ok_or(Refusal::NoContent)?;
            let (mut has_come, mut is_lost) = (false, false);
            for arrival in &mut shared.arrivals {
                let (what, waiters) = match arrival {
                    Arrival::Here { waiters, .. } => (&mut has_come, waiters),
                    Arrival::Lost { waiters, .. } => (&mut is_lost, waiters),
                };
                let before = waiters.len();
                waiters.retain(|waiter| *waiter != EMULATOR);
                *what |= waiters.len() < before;
            }
            if shared.pages.has(wanted.page, wanted.is_store) {
                return Ok(());
            }
            let now = Instant::now();
            if is_lost || now >= until {
                return Err(Refusal::NoContent);
            }
            if has_come {
                // And has gone again, because others had waited long enough for it.
                continue;
            }
            let mut polled: Vec<libc::pollfd> = shared.polled().collect();
            let until = shared.next_timeout().map_or(until, |timeout| timeout.min(until));
            crate::polled::wait(&mut polled, until.saturating_duration_since(now));
        }
    }

    /// Fetches one more page for a call, which needs all of them at once. An error: it cannot have it so.
    pub(crate) fn fetch_also(&mut self, kept: &mut BTreeSet<Wanted>, wanted: Wanted) -> Result<(), Refusal> {
        self.release(kept.range(wanted..));
        if !kept.insert(wanted) {
            // It was kept as long as can be.
            return Err(Refusal::NoContent);
        }
        for each in kept.range(wanted..) {
            self.fetch(*each)?;
            let shared = self.shared.as_mut().ok_or(Refusal::NoContent)?;
            shared.pages.keep(each.page, Instant::now() + KEEPING);
        }
        Ok(())
    }

    /// A call does not need these any more, once it has done what it does next.
    pub(crate) fn release<'a>(&mut self, kept: impl IntoIterator<Item = &'a Wanted>) {
        let Some(shared) = &mut self.shared else { return };
        for each in kept {
            shared.pages.release(Instant::now(), each.page);
        }
    }

    /// Before a part of a file is read by a call: brings to it what programs have stored through regions, here or in other cells.
    pub(crate) fn before_read(&mut self, name: FileName, part: impl FnOnce() -> Range<u64>) {
        let Some(object) = self.objects.by_name(name).cloned() else { return };
        // What cannot be brought to the file is not seen by the reader, who is not to blame.
        if !object.is_shared() {
            let _ = object.flush(&self.machine, false);
            return;
        }
        let part = part();
        for page in part.start / PAGE_BYTES..part.end.div_ceil(PAGE_BYTES) {
            let Some(shared) = object.shared_page(page) else { return };
            if self.fetch(Wanted { page: shared, is_store: false }).is_ok() {
                object.store(page);
                let _ = object.flush(&self.machine, true);
            }
        }
    }

    /// Before a part of a file is written to by a call: fails if other cells have the file, too, and what is to be written cannot come to them.
    pub(crate) fn before_write(
        &mut self,
        name: FileName,
        part: impl FnOnce() -> Range<u64>,
    ) -> Result<(), Errno> {
        let Some(object) = self.objects.by_name(name).filter(|object| object.is_shared()).cloned() else {
            return Ok(());
        };
        let part = part();
        for page in part.start / PAGE_BYTES..part.end.div_ceil(PAGE_BYTES) {
            let page = object.shared_page(page).ok_or(EFBIG)?;
            self.fetch(Wanted { page, is_store: true }).map_err(|_| EIO)?;
        }
        Ok(())
    }

    /// After a file was written to by a call: its pages in frames get the same contents, in all cells that have them.
    pub(crate) fn after_write(&mut self, name: FileName, from: u64, to: u64) -> Result<(), Errno> {
        let Some(object) = self.objects.by_name(name).cloned() else { return Ok(()) };
        if !object.is_shared() {
            object.reread(&self.machine, from, to);
            return Ok(());
        }
        for page in from / PAGE_BYTES..to.div_ceil(PAGE_BYTES) {
            let Some(shared) = object.shared_page(page) else { return Ok(()) };
            self.fetch(Wanted { page: shared, is_store: true }).map_err(|_| EIO)?;
            let at = page * PAGE_BYTES;
            object.reread(&self.machine, from.max(at), to.min(at + PAGE_BYTES));
        }
        Ok(())
    }
}

const INFALLIBLE: &str = "the emulator's machine does what it is told";

impl<M: Machine> Unix<M> {
    /// A thread's page has to come from another cell: it goes on when it is here.
    pub(crate) fn wait_for_page(
        &mut self,
        id: Id,
        wanted: Wanted,
        (address, access): (u64, crate::machine::Access),
    ) {
        self.thread_mut(id).state = State::Faulted { address, access };
        self.memory.wait_for(id, wanted);
    }

    /// Tells other cells to wake those who wait for a word, if they have it, too.
    pub(crate) fn wake_elsewhere(&mut self, key: FutexKey, most: u32, bits: u32) {
        let (FutexKey::Shared(number, at), Some(shared)) = (key, &mut self.memory.shared) else { return };
        let Some(window) = shared.windows.iter().find(|window| window.object.number == number) else {
            return;
        };
        let page = window.first + (at / PAGE_BYTES) as u32;
        let letter = Wake { page, offset: (at % PAGE_BYTES) as u32, most, bits }.to_letter();
        for cell in (0..shared.pages.shape().cells).map(CellId).filter(|cell| *cell != shared.pages.me()) {
            // Whoever is gone is told of where letters are taken.
            let _ = shared.lines.stream.send(cell, &letter);
        }
        shared.lines.stream.flush();
    }

    /// Does what letters of other cells have made possible or necessary.
    pub(crate) fn serve_shared(&mut self, has_news: bool) {
        let is_due = |shared: &Shared| shared.next_timeout().is_some_and(|due| due <= Instant::now());
        if has_news || self.memory.shared.as_ref().is_some_and(is_due) {
            self.memory.exchange();
        }
        while let Some(shared) = &mut self.memory.shared {
            let woken = std::mem::take(&mut shared.woken);
            let arrivals = std::mem::take(&mut shared.arrivals);
            let one_died = std::mem::take(&mut shared.lines.one_died);
            if woken.is_empty() && arrivals.is_empty() && !one_died {
                return;
            }
            let in_window = |(page, offset)| {
                let (window, index) = window_of(&shared.windows, page)?;
                Some((window.object.number, index * PAGE_BYTES + u64::from(offset)))
            };
            let woken: Vec<_> =
                woken.into_iter().filter_map(|(at, how)| Some((in_window(at)?, how))).collect();
            let shared: Vec<_> = shared.windows.iter().map(|window| window.object.number).collect();
            for ((object, at), (most, bits)) in woken {
                self.wake_here(FutexKey::Shared(object, at), most, bits);
            }
            // Whoever has died will wake nobody.
            for object in shared.into_iter().filter(|_| one_died) {
                for thread in self.futexes.take_all(object) {
                    self.complete(thread, 0);
                }
            }
            for arrival in arrivals {
                let (is_lost, waiters) = match arrival {
                    Arrival::Here { waiters, .. } => (false, waiters),
                    Arrival::Lost { waiters, .. } => (true, waiters),
                };
                for id in waiters {
                    let Some(thread) = self.threads.get_mut(&id) else { continue };
                    let State::Faulted { address, access } = thread.state else { continue };
                    thread.state = State::Stopped;
                    if is_lost {
                        self.refuse(id, Refusal::NoContent, address, access);
                        self.leave(id);
                    } else {
                        self.resolve_fault(id, address, access);
                    }
                }
            }
        }
    }

    /// After the first program has ended: serves other cells what their programs need, and no longer than this. Whether none needs anything any more,
    /// or the user has lost patience.
    pub fn serve_others(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        loop {
            self.memory.exchange();
            let Some(shared) = &mut self.memory.shared else { return true };
            if shared.lines.stream.have_others_ended() {
                return true;
            }
            let now = Instant::now();
            if now >= until {
                return false;
            }
            shared.woken.clear();
            let mut polled: Vec<libc::pollfd> = shared.polled().collect();
            let next = shared.next_timeout().map_or(until, |next| next.min(until));
            let signals = self.signals_to_poll();
            polled.extend(signals);
            crate::polled::wait(&mut polled, next.saturating_duration_since(now));
            if signals.is_some() && polled.last().is_some_and(|last| last.revents != 0) {
                return true;
            }
        }
    }

    /// The cells that have died while their programs were to go on: what only they had of shared memory is lost.
    pub fn dead_cells(&self) -> &[CellId] {
        self.memory.shared.as_ref().map_or(&[], |shared| &shared.lines.dead)
    }

    /// Tells the other cells that no program of this one will need them.
    pub(crate) fn tell_end(&mut self) {
        if let Some(shared) = &mut self.memory.shared {
            shared.lines.stream.tell_end();
            shared.lines.stream.flush();
        }
    }
}
