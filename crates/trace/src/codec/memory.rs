//! What writer and reader both know, and what they guess from it.

use super::CorruptBlock;
use crate::Operation;
use crate::event::{Event, Identity};

/// What of an event is written if it is not as guessed. Each has a column of its own, and a bit that says whether it is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Field {
    Thread,
    Start,
    Duration,
    Descriptor,
    Result,
    Offset,
    Asked,
    Argument,
    Handle,
    File,
    Mode,
    Size,
    Pages,
    Flags,
    Texts,
}

/// Columns of what is written whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Whole {
    Operation = Field::Texts as u8 + 1,
    /// Which fields are there, the lower and the upper half.
    LowerBits,
    UpperBits,
    /// What a thread, a handle or a file that comes for the first time is.
    Introduction,
    /// The directory that a text starts from, and which text it is.
    Base,
    Text,
    TextBytes,
}

/// How many columns there are.
pub(super) const COLUMNS: usize = Whole::TextBytes as usize + 1;

/// Who walks along [`Memory::pass`]: writing what it is handed, or handing over what it reads.
pub(super) trait Side {
    /// An event begins.
    fn begin(&mut self) -> Result<(), CorruptBlock>;
    /// A field that is often what was guessed.
    fn field(&mut self, field: Field, value: &mut u64, guess: u64) -> Result<(), CorruptBlock>;
    /// A number that nobody can guess.
    fn whole(&mut self, column: Whole, value: &mut u64) -> Result<(), CorruptBlock>;
    /// An event has ended.
    fn end(&mut self);
    /// The index of something that is known, or `next`, which it has from now on. A reader does not know yet.
    fn thread_index(&mut self, thread: (u32, u32), next: usize) -> usize;
    /// The same for a handle.
    fn handle_index(&mut self, handle: u64, next: usize) -> usize;
    /// And for a file.
    fn file_index(&mut self, file: Identity, next: usize) -> usize;
    /// How many texts are behind the event.
    fn texts(&self) -> usize;
    /// The directory from which the text of this number starts.
    fn base(&self, number: usize) -> Identity;
    /// Takes the text of this number over to the other side.
    fn text(&mut self, number: usize, base: Identity) -> Result<(), CorruptBlock>;
    /// How many texts are known.
    fn known_texts(&self) -> usize;
}

struct Thread {
    number: u32,
    process: u32,
    end_ns: u64,
    /// The handle and the file that it last dealt with, as indices from 1.
    handle: u64,
    file: u64,
}

struct Handle {
    address: u64,
    file: u64,
    descriptor: u64,
    next_offset: u64,
}

struct File {
    identity: Identity,
    mode: u64,
    size: u64,
    next_offset: u64,
}

/// What the last event of an operation was like.
#[derive(Clone, Copy, Default)]
struct Habit {
    asked: u64,
    argument: u64,
    duration_ns: u64,
    has_handle: bool,
    flags: u64,
}

/// All that has been said so far, as far as it helps to guess.
pub(super) struct Memory {
    threads: Vec<Thread>,
    handles: Vec<Handle>,
    files: Vec<File>,
    habits: Box<[Habit; 256]>,
    last_thread: u64,
    end_ns: u64,
    known_texts: usize,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            threads: Vec::new(),
            handles: Vec::new(),
            files: Vec::new(),
            habits: Box::new([Habit::default(); 256]),
            last_thread: 0,
            end_ns: 0,
            known_texts: 0,
        }
    }
}

/// A number as it was, if it fits.
fn narrow<T: TryFrom<u64>>(value: u64) -> Result<T, CorruptBlock> {
    T::try_from(value).map_err(|_| CorruptBlock::Range)
}

impl Memory {
    /// How many things it knows.
    pub(super) fn known(&self) -> usize {
        self.files.len() + self.known_texts + self.handles.len() + self.threads.len()
    }

    /// Takes one event over to the other side, and learns from it.
    pub(super) fn pass(&mut self, event: &mut Event, side: &mut impl Side) -> Result<(), CorruptBlock> {
        side.begin()?;
        let mut operation = u64::from(event.operation);
        side.whole(Whole::Operation, &mut operation)?;
        event.operation = narrow(operation)?;
        let habit = self.habits[usize::from(event.operation)];

        let thread = self.pass_thread(event, side)?;
        let handle = self.pass_handle(event, thread, habit.has_handle, side)?;
        let file_guess = match handle {
            Some(handle) => self.handles[handle].file,
            None if event.operation == Operation::PageIn as u8 => self.threads[thread].file,
            None => 0,
        };
        let file = self.pass_file(&mut event.file, Field::File, file_guess, side)?;

        let begun_after =
            if self.threads[thread].end_ns == 0 { self.end_ns } else { self.threads[thread].end_ns };
        side.field(Field::Start, &mut event.start_ns, begun_after)?;
        side.field(Field::Duration, &mut event.duration_ns, habit.duration_ns)?;
        let mut flags = u64::from(event.flags);
        side.field(Field::Flags, &mut flags, habit.flags)?;
        event.flags = narrow(flags)?;
        side.field(Field::Asked, &mut event.asked, habit.asked)?;
        side.field(Field::Argument, &mut event.argument, habit.argument)?;

        let is_open = event.operation == Operation::Open as u8;
        let is_data = matches!(event.operation, 3..=5);
        let known = handle.filter(|_| !is_open).map(|handle| &self.handles[handle]);
        let descriptor_guess = known.map_or(u64::MAX, |known| known.descriptor);
        let mut descriptor = i64::from(event.descriptor) as u64;
        side.field(Field::Descriptor, &mut descriptor, descriptor_guess)?;
        event.descriptor = i32::try_from(descriptor as i64).map_err(|_| CorruptBlock::Range)?;
        let result_guess = match event.operation {
            _ if is_open => descriptor,
            _ if is_data => event.asked,
            operation if operation == Operation::PageIn as u8 => event.asked,
            _ => 0,
        };
        let mut result = event.result as u64;
        side.field(Field::Result, &mut result, result_guess)?;
        event.result = result as i64;

        let known = handle.filter(|_| !is_open).map(|handle| &self.handles[handle]);
        let offset_guess = match (known, file) {
            (Some(known), _) => known.next_offset,
            (None, Some(file)) if event.operation == Operation::PageIn as u8 => self.files[file].next_offset,
            _ => 0,
        };
        side.field(Field::Offset, &mut event.offset, offset_guess)?;
        let (mode_guess, size_guess) =
            file.map_or((0, 0), |file| (self.files[file].mode, self.files[file].size));
        let end = if event.result > 0 { event.offset.wrapping_add(result) } else { 0 };
        let grows = event.operation == Operation::Write as u8 && end > size_guess;
        let mut mode = u64::from(event.mode);
        side.field(Field::Mode, &mut mode, mode_guess)?;
        event.mode = narrow(mode)?;
        side.field(Field::Size, &mut event.size, if grows { end } else { size_guess })?;
        let mut pages = u64::from(event.pages);
        side.field(Field::Pages, &mut pages, 0)?;
        event.pages = narrow(pages)?;
        self.pass_texts(side)?;
        side.end();

        let ended_ns = event.start_ns.wrapping_add(event.duration_ns);
        self.end_ns = ended_ns;
        self.threads[thread].end_ns = ended_ns;
        // Times are never what they were; that there is none, often is.
        let duration_ns = 0;
        self.habits[usize::from(event.operation)] = Habit {
            asked: event.asked,
            argument: event.argument,
            duration_ns,
            has_handle: handle.is_some(),
            flags,
        };
        let next_offset = if is_data && event.result > 0 { end } else { event.offset };
        if let Some(file) = file {
            let learnt = &mut self.files[file];
            (learnt.mode, learnt.size) = (mode, event.size);
            learnt.next_offset = event.offset.wrapping_add(result);
        }
        if let Some(handle) = handle {
            let learnt = &mut self.handles[handle];
            learnt.file = file.map_or(0, |file| file as u64 + 1);
            learnt.descriptor = descriptor;
            learnt.next_offset = next_offset;
        }
        Ok(())
    }

    fn pass_thread(&mut self, event: &mut Event, side: &mut impl Side) -> Result<usize, CorruptBlock> {
        let mut index = side.thread_index((event.thread, event.process), self.threads.len()) as u64;
        side.field(Field::Thread, &mut index, self.last_thread)?;
        let at: usize = narrow(index)?;
        if at == self.threads.len() {
            let (mut number, mut process) = (u64::from(event.thread), u64::from(event.process));
            side.whole(Whole::Introduction, &mut number)?;
            side.whole(Whole::Introduction, &mut process)?;
            let (number, process) = (narrow(number)?, narrow(process)?);
            self.threads.push(Thread { number, process, end_ns: 0, handle: 0, file: 0 });
        }
        let thread = self.threads.get(at).ok_or(CorruptBlock::Unknown)?;
        (event.thread, event.process) = (thread.number, thread.process);
        self.last_thread = index;
        Ok(at)
    }

    fn pass_handle(
        &mut self,
        event: &mut Event,
        thread: usize,
        is_usual: bool,
        side: &mut impl Side,
    ) -> Result<Option<usize>, CorruptBlock> {
        let mut index = match event.handle {
            0 => 0,
            address => side.handle_index(address, self.handles.len()) as u64 + 1,
        };
        let guess = if is_usual { self.threads[thread].handle } else { 0 };
        side.field(Field::Handle, &mut index, guess)?;
        let Some(at) = index.checked_sub(1) else {
            event.handle = 0;
            return Ok(None);
        };
        let at: usize = narrow(at)?;
        if at == self.handles.len() {
            side.whole(Whole::Introduction, &mut event.handle)?;
            self.handles.push(Handle { address: event.handle, file: 0, descriptor: 0, next_offset: 0 });
        }
        event.handle = self.handles.get(at).ok_or(CorruptBlock::Unknown)?.address;
        self.threads[thread].handle = index;
        Ok(Some(at))
    }

    fn pass_file(
        &mut self,
        identity: &mut Identity,
        field: Field,
        guess: u64,
        side: &mut impl Side,
    ) -> Result<Option<usize>, CorruptBlock> {
        let mut index = self.file_number(*identity, side);
        side.field(field, &mut index, guess)?;
        let found = self.introduce_file(identity, index, side)?;
        if found.is_some()
            && let Some(thread) = self.threads.get_mut(narrow::<usize>(self.last_thread)?)
        {
            thread.file = index;
        }
        Ok(found)
    }

    fn file_number(&self, identity: Identity, side: &mut impl Side) -> u64 {
        if identity == Identity::default() {
            0
        } else {
            side.file_index(identity, self.files.len()) as u64 + 1
        }
    }

    fn introduce_file(
        &mut self,
        identity: &mut Identity,
        index: u64,
        side: &mut impl Side,
    ) -> Result<Option<usize>, CorruptBlock> {
        let Some(at) = index.checked_sub(1) else {
            *identity = Identity::default();
            return Ok(None);
        };
        let at: usize = narrow(at)?;
        if at == self.files.len() {
            let (mut device, mut generation) = (u64::from(identity.device), u64::from(identity.generation));
            side.whole(Whole::Introduction, &mut identity.inode)?;
            side.whole(Whole::Introduction, &mut device)?;
            side.whole(Whole::Introduction, &mut generation)?;
            let identity =
                Identity { inode: identity.inode, device: narrow(device)?, generation: narrow(generation)? };
            self.files.push(File { identity, mode: 0, size: 0, next_offset: 0 });
        }
        *identity = self.files.get(at).ok_or(CorruptBlock::Unknown)?.identity;
        Ok(Some(at))
    }

    fn pass_texts(&mut self, side: &mut impl Side) -> Result<(), CorruptBlock> {
        let mut texts = side.texts() as u64;
        side.field(Field::Texts, &mut texts, 0)?;
        if texts > 2 {
            return Err(CorruptBlock::Range);
        }
        for number in 0..narrow(texts)? {
            let mut base = side.base(number);
            let mut index = self.file_number(base, side);
            side.whole(Whole::Base, &mut index)?;
            self.introduce_file(&mut base, index, side)?;
            side.text(number, base)?;
        }
        self.known_texts = side.known_texts();
        Ok(())
    }
}
