//! What an operation of the trace becomes, and what it tells of the files that there were.

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{Action, Event, Identity, Kind, Left, NodeId, Operation, Planner, SlotId, Thing, flag, texts};
use crate::replay::namespace::ROOT;
use crate::replay::step::Where;

/// No call moves more, whatever it is asked.
const MOST_BYTES: u64 = 0x7fff_f000;

/// Of a mapped file, no more is touched at once.
const MOST_TOUCHED_BYTES: u64 = 16 << 20;

/// `unlinkat` is to remove a directory.
const REMOVE_DIRECTORY: u64 = 0x200;

/// A seek from where the position is.
const RELATIVE: u8 = 1;

const TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;

fn kind_of(event: &Event) -> Kind {
    if event.mode & TYPE == DIRECTORY { Kind::Directory } else { Kind::File }
}

fn failed_with(event: &Event, error: Errno) -> bool {
    event.result == -i64::from(error.raw_os_error())
}

type Text<'a> = (Identity, &'a [u8]);

impl Planner {
    /// Plans one operation, or says why not.
    pub(super) fn plan_one(
        &mut self,
        event: &Event,
        operation: Operation,
        behind: &[u8],
    ) -> Result<(), Left> {
        let given: Vec<Text<'_>> = texts(behind).filter(|(_, text)| !text.is_empty()).collect();
        match (operation, &given[..]) {
            (Operation::Open, _) if event.flags & flag::NO_FILE != 0 => Err(Left::NoFile),
            (Operation::Open, [path, ..]) => self.failed_open(event, *path),
            (Operation::Open, []) => self.open(event),
            (Operation::Close, _) => self.closed(event),
            (Operation::Read | Operation::Write | Operation::Transfer, _) => self.data(event, operation),
            (Operation::Map, _) => self.map(event),
            // One page was touched. What was mapped around it was in memory then, and is read ahead here if the kernel wants that.
            (Operation::PageIn, _) => self.page_in(event, operation, event.asked),
            (Operation::Execute, _) if event.result >= 0 => self.page_in(event, operation, 256),
            (Operation::Rename, [from, to]) => self.rename(event, *from, *to),
            (Operation::Link, [from, to]) => self.link(event, *from, *to),
            (
                Operation::Link
                | Operation::Make
                | Operation::MakeDirectory
                | Operation::RemoveDirectory
                | Operation::Delete
                | Operation::Truncate,
                [path, ..],
            ) => self.change_path(event, operation, *path),
            (_, [path, ..]) => self.ask_path(event, operation, *path),
            _ => self.use_open(event, operation),
        }
    }

    /// The open file that an event is about. One that was open before anybody looked is opened first.
    fn slot(&mut self, event: &Event) -> Result<SlotId, Left> {
        let file = event.file;
        if event.handle == 0 || !file.is_some() {
            return Err(Left::NoFile);
        }
        if self.is_file_of_kernel(file) {
            return Err(Left::OfKernel);
        }
        let content = self.content(file);
        let size = &mut self.plan.sizes[content as usize];
        *size = event.size.max(*size);
        if let Some(slot) = self.descriptors.find(event.handle)
            && self.plan.slot(slot).content == content
        {
            return Ok(slot);
        }
        let at = self.names.place(file);
        let kind = kind_of(event);
        self.is_there(event, at, Some(kind), Some(event.size));
        let (slot, closed) = self.descriptors.adopt(event.process, event.descriptor, event.handle);
        self.close(event, closed);
        let path = self.path(at);
        self.add_slot(slot, path, file);
        let uses =
            [(Thing::Name(path.0), false), (Thing::Open(slot.0), true), (Thing::Content(content), false)];
        self.push(event, Operation::Open, Action::Adopt { path, slot }, false, &uses);
        Ok(slot)
    }

    fn open(&mut self, event: &Event) -> Result<(), Left> {
        let file = event.file;
        if !file.is_some() || event.result < 0 {
            return Err(Left::NoFile);
        }
        if self.is_file_of_kernel(file) {
            return Err(Left::OfKernel);
        }
        let asked = OFlags::from_bits_retain(u32::try_from(event.argument & 0xffff_ffff).expect("32 bits"));
        let is_cut = asked.contains(OFlags::TRUNC);
        let is_made = event.flags & flag::CREATED != 0;
        let at = self.names.place(file);
        if is_made {
            self.make(event, at);
        } else {
            // Of one that is cut it is not known how long it was.
            let size = (!is_cut).then_some(event.size);
            self.is_there(event, at, Some(kind_of(event)), size);
        }
        let (path, content) = (self.path(at), self.content(file));
        let size = &mut self.plan.sizes[content as usize];
        *size = event.size.max(*size);
        let descriptor = i32::try_from(event.result).map_err(|_| Left::NoFile)?;
        let until_execution = asked.contains(OFlags::CLOEXEC);
        let (slot, closed) = self.descriptors.open(event.process, descriptor, event.handle, until_execution);
        self.close(event, closed);
        self.add_slot(slot, path, file);
        if is_cut {
            self.room.cut(file, 0);
        }
        let action =
            Action::Open { path, slot: Some(slot), flags: event_flags(asked), mode: event.mode & 0o7777 };
        let uses =
            [(Thing::Name(path.0), is_made), (Thing::Open(slot.0), true), (Thing::Content(content), is_cut)];
        self.push(event, Operation::Open, action, true, &uses);
        Ok(())
    }

    fn failed_open(&mut self, event: &Event, (base, text): Text<'_>) -> Result<(), Left> {
        let at = self.target(base, text)?;
        let asked = OFlags::from_bits_retain(u32::try_from(event.argument & 0xffff_ffff).expect("32 bits"));
        let is_there_already = failed_with(event, Errno::EXIST);
        if is_there_already {
            self.is_there(event, at, None, None);
        } else if failed_with(event, Errno::ISDIR) {
            self.is_there(event, at, Some(Kind::Directory), None);
        } else if failed_with(event, Errno::NOENT) && !asked.contains(OFlags::CREATE) {
            self.names.is_missing(at);
        }
        // Should it succeed here, it is to change nothing.
        let harmless =
            if is_there_already { asked } else { asked - OFlags::CREATE - OFlags::EXCL - OFlags::TRUNC };
        let path = self.path(at);
        let action = Action::Open { path, slot: None, flags: event_flags(harmless), mode: 0o600 };
        self.push(event, Operation::Open, action, true, &[(Thing::Name(path.0), false)]);
        Ok(())
    }

    fn closed(&mut self, event: &Event) -> Result<(), Left> {
        const CLOSE_RANGE_CLOEXEC: u64 = 4;
        if event.handle == 0 {
            let first = u64::from(u32::from_ne_bytes(event.descriptor.to_ne_bytes()));
            if event.asked & CLOSE_RANGE_CLOEXEC == 0 {
                let closed = self.descriptors.close_range(event.process, first, event.argument & 0xffff_ffff);
                self.close(event, closed);
            }
            return Ok(());
        }
        if self.is_file_of_kernel(event.file) {
            return Err(Left::OfKernel);
        }
        let slot = self.descriptors.find(event.handle).ok_or(Left::NoFile)?;
        match self.descriptors.close(event.process, event.descriptor) {
            Some(closed) => self.push_close(event, closed, true),
            None => {
                let uses = [(Thing::Open(slot.0), false)];
                self.push(event, Operation::Close, Action::KeepOpen, true, &uses);
            }
        }
        Ok(())
    }

    fn data(&mut self, event: &Event, operation: Operation) -> Result<(), Left> {
        if operation == Operation::Transfer && event.result < 0 {
            return Err(Left::NotRecorded); // between what, it failed
        }
        let slot = self.slot(event)?;
        let is_positional = event.flags & flag::POSITIONAL != 0;
        let at = if is_positional { Where::Given(event.offset) } else { Where::Position(event.offset) };
        let moved = u64::try_from(event.result).unwrap_or(0);
        let is_write = match operation {
            Operation::Transfer => event.flags & flag::SECOND != 0,
            _ => operation == Operation::Write,
        };
        // What was written in part only, because there was no room, is written in that part; of vectors the recorder may know too little.
        let is_short = event.result >= 0 && (is_write || operation == Operation::Transfer);
        let bytes = if is_short { moved } else { event.asked.max(moved) }.min(MOST_BYTES);
        let action =
            if is_write { Action::Write { slot, bytes, at } } else { Action::Read { slot, bytes, at } };
        if is_write {
            self.room.take(event.file, moved, event.size);
        }
        let content = Thing::Content(self.plan.slot(slot).content);
        let uses = [(Thing::Open(slot.0), !is_positional), (content, is_write)];
        self.push(event, operation, action, true, &uses);
        Ok(())
    }

    fn map(&mut self, event: &Event) -> Result<(), Left> {
        let of = self.slot(event)?;
        let content = self.plan.slot(of).content;
        let uses = |slot: SlotId| {
            [(Thing::Open(of.0), false), (Thing::Open(slot.0), true), (Thing::Content(content), false)]
        };
        if !self.has_page_ins {
            let action =
                Action::Touch { slot: of, bytes: event.asked.min(MOST_TOUCHED_BYTES), offset: event.offset };
            self.push(event, Operation::Map, action, true, &uses(of)[1..]);
            return Ok(());
        }
        match self.mapped.get(&event.file) {
            Some(_) => {
                self.push(
                    event,
                    Operation::Map,
                    Action::StatusOfOpen(of),
                    true,
                    &[(Thing::Open(of.0), false)],
                );
            }
            None => {
                let slot = self.descriptors.reserve();
                let path = self.plan.slot(of).path;
                self.add_slot(slot, path, event.file);
                let at = self.push(event, Operation::Map, Action::Map { slot, of }, true, &uses(slot));
                self.mapped.insert(event.file, (slot, at));
            }
        }
        Ok(())
    }

    /// Pages of a file that may be closed by now.
    fn page_in(&mut self, event: &Event, operation: Operation, bytes: u64) -> Result<(), Left> {
        let file = event.file;
        if !file.is_some() {
            return Err(Left::NoFile);
        }
        if self.is_file_of_kernel(file) {
            return Err(Left::OfKernel);
        }
        let content = self.content(file);
        let slot = match self.mapped.get(&file) {
            Some((slot, _)) => *slot,
            None => {
                let place = self.names.place(file);
                self.is_there(event, place, Some(kind_of(event)), Some(event.size));
                let (slot, path) = (self.descriptors.reserve(), self.path(place));
                self.add_slot(slot, path, file);
                let uses = [(Thing::Name(path.0), false), (Thing::Open(slot.0), true)];
                self.push(event, Operation::Open, Action::Adopt { path, slot }, false, &uses);
                slot
            }
        };
        let bytes = bytes.min(MOST_TOUCHED_BYTES);
        let uses = [(Thing::Open(slot.0), false), (Thing::Content(content), false)];
        let offset = event.offset;
        let at = self.push(event, operation, Action::Touch { slot, bytes, offset }, true, &uses);
        self.mapped.insert(file, (slot, at));
        Ok(())
    }

    fn rename(&mut self, event: &Event, from: Text<'_>, to: Text<'_>) -> Result<(), Left> {
        const NO_REPLACE: u64 = 1;
        const EXCHANGE: u64 = 2;
        let (from, to) = (self.target(from.0, from.1)?, self.target(to.0, to.1)?);
        // Older forms of the call have no flags, and whatever was there is recorded instead.
        let flags = if matches!(event.argument, NO_REPLACE | EXCHANGE) { event.argument } else { 0 };
        if failed_with(event, Errno::NOENT) {
            self.names.is_missing(from);
        } else if failed_with(event, Errno::EXIST) {
            self.is_there(event, from, None, None);
            self.is_there(event, to, None, None);
        } else if event.result >= 0 {
            self.is_there(event, from, None, None);
            let above = self.names.parent(to);
            self.is_there(event, above, Some(Kind::Directory), None);
            if flags == EXCHANGE {
                self.is_there(event, to, None, None);
            }
        }
        let paths = (self.path(from), self.path(to));
        let replaced = self.names.file(to).filter(|_| flags != EXCHANGE && event.result >= 0);
        let mut uses = vec![(Thing::Name(paths.0.0), true), (Thing::Name(paths.1.0), true)];
        let is_same = replaced.is_some() && replaced == self.names.file(from);
        if let Some(file) = replaced.filter(|_| !is_same) {
            uses.push((Thing::Content(self.content(file)), true));
            self.room.cut(file, 0);
        }
        let flags = u32::try_from(flags).expect("a small number");
        let action = Action::Rename { from: paths.0, to: paths.1, flags };
        self.push(event, Operation::Rename, action, true, &uses);
        match (event.result >= 0, u64::from(flags)) {
            (true, EXCHANGE) => self.names.exchange(from, to),
            // Two names of one file: nothing happens.
            (true, _) if is_same => {}
            (true, _) => self.names.rename(from, to),
            _ => {}
        }
        Ok(())
    }

    fn link(&mut self, event: &Event, from: Text<'_>, to: Text<'_>) -> Result<(), Left> {
        let (from, to) = (self.target(from.0, from.1)?, self.target(to.0, to.1)?);
        if event.result >= 0 {
            self.is_there(event, from, None, None);
            self.make(event, to);
            if let Some(file) = self.names.file(from) {
                self.names.bind(to, file);
            }
        } else if failed_with(event, Errno::EXIST) {
            self.is_there(event, to, None, None);
        }
        let (from, to) = (self.path(from), self.path(to));
        let uses = [(Thing::Name(from.0), false), (Thing::Name(to.0), true)];
        self.push(event, Operation::Link, Action::Link { from, to }, true, &uses);
        Ok(())
    }

    /// Something is made, deleted or cut by its path.
    fn change_path(
        &mut self,
        event: &Event,
        operation: Operation,
        (base, text): Text<'_>,
    ) -> Result<(), Left> {
        let at = self.target(base, text)?;
        let is_directory = match operation {
            Operation::Delete => event.argument == REMOVE_DIRECTORY,
            _ => matches!(operation, Operation::MakeDirectory | Operation::RemoveDirectory),
        };
        let makes = matches!(operation, Operation::Link | Operation::Make | Operation::MakeDirectory);
        let kind = is_directory.then_some(Kind::Directory);
        let has_succeeded = event.result >= 0;
        if makes && has_succeeded {
            self.make(event, at);
        } else if has_succeeded || failed_with(event, Errno::EXIST) || failed_with(event, Errno::NOTEMPTY) {
            self.is_there(event, at, kind, None);
        } else if failed_with(event, Errno::NOENT) {
            let missing = if makes { self.names.parent(at) } else { at };
            self.names.is_missing(missing);
        }
        let path = self.path(at);
        let mut uses = vec![(Thing::Name(path.0), operation != Operation::Truncate)];
        if let Some(file) = self.names.file(at).filter(|_| !makes) {
            uses.push((Thing::Content(self.content(file)), true));
            if has_succeeded {
                self.room.cut(file, if operation == Operation::Truncate { event.asked } else { 0 });
            }
        }
        let action = match operation {
            Operation::Link => Action::SymbolicLink(path),
            Operation::Make => Action::Make(path),
            Operation::MakeDirectory => Action::MakeDirectory(path),
            Operation::Truncate => Action::Truncate { path, bytes: event.asked },
            _ if is_directory => Action::RemoveDirectory(path),
            _ => Action::Delete(path),
        };
        self.push(event, operation, action, true, &uses);
        if has_succeeded && matches!(operation, Operation::Delete | Operation::RemoveDirectory) {
            self.names.remove(at);
        }
        Ok(())
    }

    /// Something is asked of, or told to, what a path leads to.
    fn ask_path(&mut self, event: &Event, operation: Operation, (base, text): Text<'_>) -> Result<(), Left> {
        if operation == Operation::Extended {
            return Err(Left::NotRecorded);
        }
        let at: NodeId = self.target(base, text)?;
        let kind = match operation {
            Operation::ChangeDirectory => Some(Kind::Directory),
            Operation::ReadLink => {
                Some(Kind::Link(u16::try_from(event.result.clamp(1, 4095)).expect("it was clamped")))
            }
            _ => None,
        };
        if event.result >= 0 {
            self.is_there(event, at, kind, None);
        } else if failed_with(event, Errno::NOENT) {
            self.names.is_missing(at);
        }
        let path = self.path(at);
        let action = match operation {
            // What a file system is like is asked of another one here: what is the same is whether there is such a path.
            Operation::Status | Operation::ChangeDirectory | Operation::FileSystem => Action::Status(path),
            Operation::Access | Operation::Execute => Action::Access(path),
            Operation::ReadLink => Action::ReadLink(path),
            Operation::SetAttributes => Action::Touched(path),
            _ => return Err(Left::NotRecorded),
        };
        let changes = operation == Operation::SetAttributes && at != ROOT;
        self.push(event, operation, action, true, &[(Thing::Name(path.0), changes)]);
        Ok(())
    }

    /// What is done with an open file, and neither reads nor writes.
    fn use_open(&mut self, event: &Event, operation: Operation) -> Result<(), Left> {
        match operation {
            Operation::WriteBack => return Err(Left::OfItself),
            Operation::Sync if event.descriptor == -1 => {
                self.push(event, operation, Action::SyncAll, true, &[]);
                return Ok(());
            }
            Operation::Duplicate => return self.duplicate(event),
            Operation::Control => {
                const SET_DESCRIPTOR_FLAGS: u64 = 2;
                if event.argument == SET_DESCRIPTOR_FLAGS {
                    self.descriptors.mark(event.process, event.descriptor, event.asked & 1 != 0);
                }
                return Err(Left::NotRecorded);
            }
            Operation::Extended => return Err(Left::NotRecorded),
            _ => {}
        }
        let slot = self.slot(event)?;
        let content = Thing::Content(self.plan.slot(slot).content);
        let open = Thing::Open(slot.0);
        let (offset, bytes) = (event.offset, event.asked);
        let low = |number: u64| u32::try_from(number & 0xffff_ffff).expect("32 bits");
        let (action, uses) = match operation {
            Operation::Seek => {
                let whence = u8::try_from(event.asked).map_err(|_| Left::NotRecorded)?;
                let before = u64::try_from(event.result.wrapping_sub(event.argument as i64)).ok();
                let from = before.filter(|_| whence == RELATIVE && event.result >= 0);
                (
                    Action::Seek { slot, whence, offset: event.argument as i64, from },
                    [(open, true), (content, false)],
                )
            }
            Operation::List => {
                (Action::List { slot, bytes: bytes.min(1 << 20) }, [(open, true), (content, false)])
            }
            Operation::Status | Operation::ChangeDirectory => {
                (Action::StatusOfOpen(slot), [(open, false), (content, false)])
            }
            Operation::SetAttributes => (Action::TouchedOpen(slot), [(open, false), (content, true)]),
            Operation::FileSystem => (Action::FileSystem, [(open, false), (content, false)]),
            Operation::Truncate => {
                if event.result >= 0 {
                    self.room.cut(event.file, bytes);
                }
                (Action::TruncateOpen { slot, bytes }, [(open, false), (content, true)])
            }
            Operation::Allocate => {
                if event.result >= 0 {
                    self.room.take(event.file, bytes, event.size);
                }
                let mode = low(event.argument);
                (Action::Allocate { slot, mode, offset, bytes }, [(open, false), (content, true)])
            }
            Operation::Lock => {
                let is_of_whole_file = matches!(event.argument, 1 | 2 | 8)
                    // The numbers of record locks, which come with an address.
                    || (matches!(event.argument, 5 | 6) && event.asked < 4096);
                if !is_of_whole_file {
                    return Err(Left::NotRecorded);
                }
                (Action::Lock { slot, operation: low(event.argument) }, [(open, true), (content, true)])
            }
            Operation::Sync => (Action::Sync(slot), [(open, false), (content, false)]),
            Operation::Advise => {
                let advice = low(event.argument);
                (Action::Advise { slot, advice, offset, bytes }, [(open, false), (content, false)])
            }
            _ => return Err(Left::NotRecorded),
        };
        self.push(event, operation, action, true, &uses);
        Ok(())
    }

    fn duplicate(&mut self, event: &Event) -> Result<(), Left> {
        const DUPLICATE_UNTIL_EXECUTION: u64 = 1030;
        let slot = self.slot(event)?;
        self.push(
            event,
            Operation::Duplicate,
            Action::Duplicate(slot),
            true,
            &[(Thing::Open(slot.0), false)],
        );
        if let Ok(new) = i32::try_from(event.result)
            && new >= 0
            && new != event.descriptor
        {
            let until_execution = event.argument == DUPLICATE_UNTIL_EXECUTION;
            let replaced = self.descriptors.put(event.process, new, slot, until_execution);
            self.close(event, replaced.into_iter().collect());
        }
        Ok(())
    }
}

/// Of an open's flags those that can be kept: a descriptor is never inherited, no link is followed, and buffers are not aligned as direct
/// access wants them. A file without a name is made with one, as the trace gives it one.
fn event_flags(asked: OFlags) -> u32 {
    if asked.contains(OFlags::PATH) {
        return ((asked & (OFlags::PATH | OFlags::DIRECTORY)) | OFlags::CLOEXEC | OFlags::NOFOLLOW).bits();
    }
    let of_access = OFlags::ACCMODE | OFlags::APPEND | OFlags::DSYNC | OFlags::SYNC | OFlags::DIRECTORY;
    let mut kept = asked & (of_access | OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC);
    if asked.contains(OFlags::TMPFILE) {
        kept = (kept - OFlags::DIRECTORY) | OFlags::CREATE;
    }
    (kept | OFlags::CLOEXEC | OFlags::NOFOLLOW).bits()
}
