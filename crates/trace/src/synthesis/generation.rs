//! What happens when: sources that are active and silent in turn, and the sessions that they begin.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use comb_types::Dice;

use super::files::{Fate, FileId, Files};
use super::model::Model;
use super::session::{Data, Kind, Request, Room, Work, below};
use crate::Operation;
use crate::event::{Event, Identity, append_text, flag};
use crate::history::Access;
use crate::statistics::distributions::{Sampler, uniform};

/// How much is to be made up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Amount {
    /// So many sessions; those that overwrite new files come on top.
    Sessions(u64),
    /// What happens in such a time.
    Time(Duration),
}

/// Something that happened to nobody, as a recorder would have handed it over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Synthesized {
    /// What was done.
    pub event: Event,
    /// Its texts, as [`texts`](crate::event::texts) reads them.
    pub texts: Vec<u8>,
}

/// A trace ends so long after its last session began: long enough for most that was begun, and what is open for days is open at its end.
const LINGER_NS: u64 = 1_000_000_000;

/// After thirty years all is over: times have to be dates.
const MOST_TIME_NS: u64 = 1_000_000_000_000_000_000;

/// The numbers of processes begin here.
pub(super) const FIRST_PROCESS: u32 = 1;

/// Threads of a process that are told apart: of a source with more open files, several are one thread's.
const MOST_THREADS: u32 = 4096;

/// Where the numbers of threads leave room for those of processes.
const THREAD_SHIFT: u32 = 20;

/// The first descriptor that is not there from the beginning.
const FIRST_DESCRIPTOR: u32 = 3;

const READ_ONLY: u64 = 0;
const WRITE_ONLY: u64 = 0o1;
const READ_WRITE: u64 = 0o2;
const CREATE: u64 = 0o100;
const EXCLUSIVE: u64 = 0o200;
const TRUNCATE: u64 = 0o1000;

const NOT_FOUND: i64 = -2;
const REGULAR: u32 = 0o100_644;

/// Of what is held open, the part that passes before the first request.
const BEFORE_FIRST: u64 = 10;

/// What is to be done next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    /// A source opens a file.
    Arrive(u32),
    /// A session goes on.
    GoOn(usize),
    /// A new file ends.
    End { file: FileId, source: u32, duration_ns: u64 },
}

struct Source {
    dice: Dice,
    /// Opens left in this period of activity.
    left: u64,
    /// Which of its descriptors are in use.
    descriptors: Vec<bool>,
}

#[derive(Clone, Copy)]
struct Session {
    source: u32,
    slot: u32,
    handle: u64,
    file: FileId,
    is_new: bool,
    work: Work,
    close_ns: u64,
}

/// Events without end, or up to their amount; in the order in which they begin.
pub struct Generation {
    model: Model,
    files: Files,
    sources: Vec<Source>,
    sessions: Vec<Session>,
    /// Places of sessions that are over.
    free: Vec<usize>,
    tasks: BinaryHeap<Reverse<(u64, u64, Task)>>,
    ready: VecDeque<Synthesized>,
    tasks_made: u64,
    handles: u64,
    missing: u64,
    sessions_left: u64,
    end_ns: u64,
    /// What half of the requests are for at most, read and written.
    usual_bytes: [f64; 2],
}

impl Generation {
    pub(super) fn new(model: &Model, seed: u64, amount: Amount) -> Self {
        let mut dice = Dice::new(seed);
        let (sessions_left, end_ns) = match amount {
            Amount::Sessions(sessions) => (sessions, MOST_TIME_NS),
            Amount::Time(time) => (u64::MAX, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
        };
        let files = Files::new(dice.fork());
        let mut it = Self {
            model: model.clone(),
            files,
            sources: Vec::new(),
            sessions: Vec::new(),
            free: Vec::new(),
            tasks: BinaryHeap::new(),
            ready: VecDeque::new(),
            tasks_made: 0,
            handles: 0,
            missing: 0,
            sessions_left,
            end_ns: end_ns.min(MOST_TIME_NS),
            usual_bytes: [&model.read_bytes, &model.write_bytes].map(|bytes| bytes.quantile(0.5)),
        };
        for source in 0..model.sources {
            let mut dice = dice.fork();
            // Somewhere in a silence: they are not to begin as one.
            let silent_ns = model.silent_ns.draw(&mut dice);
            let first_ns = below(&mut dice, silent_ns);
            let left = model.active_opens.draw(&mut dice).max(1);
            it.sources.push(Source { dice, left, descriptors: Vec::new() });
            it.schedule(first_ns, Task::Arrive(source));
        }
        it
    }

    fn schedule(&mut self, at_ns: u64, task: Task) {
        self.tasks_made += 1;
        self.tasks.push(Reverse((at_ns, self.tasks_made, task)));
    }

    fn dice(&mut self, source: u32) -> &mut Dice {
        &mut self.sources[source as usize].dice
    }

    /// How long an operation takes that is none of a read or a write; no longer than there is time for it.
    fn service_ns(&mut self, source: u32, most_ns: u64) -> u64 {
        let dice = &mut self.sources[source as usize].dice;
        self.model.other_service_ns.draw(dice).min(most_ns)
    }

    fn arrive(&mut self, source: u32, now_ns: u64) {
        if self.sessions_left == 0 {
            return;
        }
        self.sessions_left -= 1;
        if self.sessions_left == 0 {
            self.end_ns = self.end_ns.min(now_ns.saturating_add(LINGER_NS));
        }
        let model = &self.model;
        let Source { dice, left, .. } = &mut self.sources[source as usize];
        *left -= 1;
        let pause_ns = if *left > 0 {
            model.open_gap_ns.draw(dice).min(model.silence_ns)
        } else {
            *left = model.active_opens.draw(dice).max(1);
            model.silent_ns.draw(dice).max(model.silence_ns.saturating_add(1))
        };
        let kind = Kind::draw(&model.kinds, dice);
        let next = Task::Arrive(source);
        let (file, opened_ns) = if kind == Kind::WHOLE_WRITE {
            self.begin_birth(source, now_ns)
        } else {
            let is_read = matches!(kind.access, Access::ReadOnly);
            let usual_bytes = self.usual_bytes[usize::from(!is_read)];
            let room = Room::draw(kind, usual_bytes, model, dice);
            let file = self.files.pick(&self.model, kind.least_bytes(), room.bytes);
            (file, self.begin(source, now_ns, kind, file, room, 0))
        };
        self.schedule(now_ns.saturating_add(pause_ns), next);
        self.ask_by_path(source, opened_ns, file);
    }

    /// A file is made, or made anew.
    fn begin_birth(&mut self, source: u32, now_ns: u64) -> (FileId, u64) {
        let truncating = self.model.births.truncating;
        // One that nobody opened before: what is emptied that was new is what `End` is for.
        let file = self.files.add(&self.model, 0);
        let flags = if uniform(self.dice(source)) < truncating { TRUNCATE } else { CREATE | EXCLUSIVE };
        let opened_ns = self.begin(source, now_ns, Kind::WHOLE_WRITE, file, Room::default(), flags);
        (file, opened_ns)
    }

    /// What becomes of a new file: how it ends, and after how long.
    fn draw_fate(&mut self, source: u32) -> (Fate, u64) {
        let births = &self.model.births;
        let dice = &mut self.sources[source as usize].dice;
        let drawn = uniform(dice);
        if drawn < births.overwritten {
            (Fate::Overwritten, births.overwritten_ns.draw(dice))
        } else if drawn < births.overwritten + births.deleted {
            (Fate::Deleted, births.deleted_ns.draw(dice))
        } else {
            (Fate::Stays, u64::MAX)
        }
    }

    /// Its lifetime ends with the operation that ends it.
    fn plan_end(&mut self, source: u32, file: FileId, opened_ns: u64, fate: Fate, lifetime_ns: u64) {
        self.files.get_mut(file).fate = fate;
        if fate != Fate::Stays {
            let duration_ns = self.service_ns(source, lifetime_ns);
            let at_ns = opened_ns.saturating_add(lifetime_ns - duration_ns);
            self.schedule(at_ns, Task::End { file, source, duration_ns });
        }
    }

    fn end_file(&mut self, file: FileId, source: u32, now_ns: u64, duration_ns: u64) {
        if self.files.get(file).fate == Fate::Overwritten {
            self.begin(source, now_ns, Kind::WHOLE_WRITE, file, Room::default(), TRUNCATE);
            return;
        }
        let path = self.files.path(file);
        let event = Event { start_ns: now_ns, duration_ns, ..nothing() };
        self.emit(source, 0, Operation::Delete, event, path.as_bytes());
    }

    /// A session begins; returns when the file is open.
    fn begin(&mut self, source: u32, now_ns: u64, kind: Kind, file: FileId, room: Room, flags: u64) -> u64 {
        let duration_ns = self.service_ns(source, u64::MAX);
        let opened_ns = now_ns.saturating_add(duration_ns);
        let is_whole_write = kind == Kind::WHOLE_WRITE;
        self.tell_name(source, now_ns, file);
        if is_whole_write {
            self.files.get_mut(file).size_bytes = 0;
        }
        let (fate, lifetime_ns) =
            if is_whole_write { self.draw_fate(source) } else { (Fate::Stays, u64::MAX) };
        let size = self.files.get(file).size_bytes;
        let (model, dice) = (&self.model, &mut self.sources[source as usize].dice);
        let (work, first_ns) = if kind.access == Access::None {
            let open_ns = model.control_open_ns.draw(dice);
            let left = model.control_operations.draw(dice).min(u64::from(u32::MAX));
            let pause_ns = open_ns / (left + 1);
            (Work::Control { left, pause_ns }, pause_ns)
        } else {
            let written = if is_whole_write { model.births.bytes.draw(dice).clamp(1, 1 << 43) } else { size };
            let mut data = Data::new(kind, written, room, model, dice);
            // Who ends a new file has written and closed it, as a rule.
            let held_ns = model.held_ns.draw(dice).min(lifetime_ns / 2);
            let before_ns = held_ns / BEFORE_FIRST;
            data.held_ns = held_ns - before_ns;
            data.finds_end = kind.is_whole_read() && uniform(dice) < model.end_reads;
            data.is_synced = kind.access != Access::ReadOnly && uniform(dice) < model.synced_writes;
            (Work::Data(data), before_ns)
        };
        let slot = self.take_slot(source);
        self.handles += 1;
        let handle = self.handles;
        let access = match kind.access {
            Access::WriteOnly => WRITE_ONLY,
            Access::ReadWrite => READ_WRITE,
            _ => READ_ONLY,
        };
        let close_ns = self.service_ns(source, u64::MAX);
        let session = Session { source, slot, handle, file, is_new: is_whole_write, work, close_ns };
        let event = Event {
            start_ns: now_ns,
            duration_ns,
            result: session.descriptor().into(),
            argument: access | flags,
            size,
            flags: if flags & CREATE != 0 { flag::CREATED } else { 0 },
            ..nothing()
        };
        self.emit_on(&session, Operation::Open, event);
        let place = self.free.pop().unwrap_or(self.sessions.len());
        if place == self.sessions.len() {
            self.sessions.push(session);
        } else {
            self.sessions[place] = session;
        }
        if is_whole_write {
            self.plan_end(source, file, opened_ns, fate, lifetime_ns);
        }
        let first_ns = self.before_close(place, first_ns);
        self.schedule(opened_ns.saturating_add(first_ns), Task::GoOn(place));
        opened_ns
    }

    /// If all that is left is the close, it ends when the pause does.
    fn before_close(&mut self, place: usize, pause_ns: u64) -> u64 {
        let session = &mut self.sessions[place];
        let is_last = match &session.work {
            Work::Control { left, .. } => *left == 0,
            Work::Data(data) => !data.has_more(),
        };
        if is_last {
            session.close_ns = session.close_ns.min(pause_ns);
            pause_ns - session.close_ns
        } else {
            pause_ns
        }
    }

    fn go_on(&mut self, place: usize, now_ns: u64) {
        let mut session = self.sessions[place];
        match &mut session.work {
            Work::Control { left, pause_ns } if *left > 0 => {
                *left -= 1;
                let pause_ns = *pause_ns;
                self.sessions[place] = session;
                let duration_ns = self.service_ns(session.source, pause_ns);
                let size = self.files.get(session.file).size_bytes;
                let event = Event { start_ns: now_ns, duration_ns, size, ..nothing() };
                self.emit_on(&session, Operation::Status, event);
                let pause_ns = self.before_close(place, pause_ns);
                self.schedule(now_ns.saturating_add(pause_ns), Task::GoOn(place));
            }
            Work::Control { .. } => self.close(place, now_ns),
            Work::Data(data) => {
                let dice = &mut self.sources[session.source as usize].dice;
                match data.next(&self.model, dice) {
                    Some(request) => {
                        self.sessions[place] = session;
                        self.request(place, request, now_ns);
                    }
                    None => self.close(place, now_ns),
                }
            }
        }
    }

    fn request(&mut self, place: usize, request: Request, now_ns: u64) {
        let session = self.sessions[place];
        let Work::Data(data) = session.work else { return };
        let Request { is_write, offset, asked_bytes, moved_bytes } = request;
        let dice = &mut self.sources[session.source as usize].dice;
        let duration_ns = self.model.data_service_ns.draw(dice);
        let gap = if is_write { &self.model.write_gap_ns } else { &self.model.read_gap_ns }.draw(dice);
        let file = self.files.get_mut(session.file);
        if is_write {
            file.size_bytes = file.size_bytes.max(offset + moved_bytes);
        }
        let event = Event {
            start_ns: now_ns,
            duration_ns,
            result: moved_bytes.cast_signed(),
            asked: asked_bytes,
            offset,
            size: file.size_bytes,
            ..nothing()
        };
        let operation = if is_write { Operation::Write } else { Operation::Read };
        self.emit_on(&session, operation, event);
        let end_ns = now_ns.saturating_add(duration_ns);
        if data.has_more() {
            self.schedule(end_ns.saturating_add(gap), Task::GoOn(place));
            return;
        }
        let mut last_ns = 0;
        if data.is_synced || data.finds_end {
            last_ns = self.service_ns(session.source, data.held_ns);
            let event = Event { start_ns: end_ns, duration_ns: last_ns, size: event.size, ..nothing() };
            if data.is_synced {
                self.emit_on(&session, Operation::Sync, event);
            } else {
                let at_end = Event { asked: asked_bytes, offset: event.size, ..event };
                self.emit_on(&session, Operation::Read, at_end);
            }
        }
        let left_ns = self.before_close(place, data.held_ns - last_ns);
        self.schedule(end_ns.saturating_add(last_ns).saturating_add(left_ns), Task::GoOn(place));
    }

    fn close(&mut self, place: usize, now_ns: u64) {
        let session = self.sessions[place];
        let size = self.files.get(session.file).size_bytes;
        let event = Event { start_ns: now_ns, duration_ns: session.close_ns, size, ..nothing() };
        self.emit_on(&session, Operation::Close, event);
        self.sources[session.source as usize].descriptors[session.slot as usize] = false;
        self.free.push(place);
        if session.is_new && self.files.get(session.file).fate == Fate::Stays {
            self.files.may_be_opened_again(session.file);
        }
    }

    /// What is asked by paths, where there is something and where there is nothing.
    fn ask_by_path(&mut self, source: u32, mut now_ns: u64, file: FileId) {
        let (failed, questions) = (self.model.failed_opens, self.model.path_questions);
        for _ in 0..times(failed, self.dice(source)) {
            self.missing += 1;
            let path = format!("/missing-{}", self.missing);
            let duration_ns = self.service_ns(source, u64::MAX);
            let event =
                Event { start_ns: now_ns, duration_ns, result: NOT_FOUND, argument: READ_ONLY, ..nothing() };
            self.emit(source, 0, Operation::Open, event, path.as_bytes());
            now_ns = now_ns.saturating_add(duration_ns);
        }
        let asked = times(questions, self.dice(source));
        if asked == 0 {
            return;
        }
        let path = self.files.path(file);
        for _ in 0..asked {
            let duration_ns = self.service_ns(source, u64::MAX);
            let event = Event { start_ns: now_ns, duration_ns, ..nothing() };
            self.emit(source, 0, Operation::Status, event, path.as_bytes());
            now_ns = now_ns.saturating_add(duration_ns);
        }
    }

    fn tell_name(&mut self, source: u32, now_ns: u64, file: FileId) {
        if self.files.get(file).is_named {
            return;
        }
        self.files.get_mut(file).is_named = true;
        let (identity, name) = (self.files.identity(file), self.files.name(file));
        let event = Event { file: identity, mode: REGULAR, start_ns: now_ns, ..nothing() };
        self.emit(source, 0, Operation::Name, event, &name);
    }

    fn take_slot(&mut self, source: u32) -> u32 {
        let descriptors = &mut self.sources[source as usize].descriptors;
        let free = descriptors.iter().position(|is_used| !is_used).unwrap_or(descriptors.len());
        if free == descriptors.len() {
            descriptors.push(false);
        }
        descriptors[free] = true;
        u32::try_from(free).expect("open files are counted")
    }

    fn emit_on(&mut self, session: &Session, operation: Operation, event: Event) {
        let event = Event {
            handle: session.handle,
            file: self.files.identity(session.file),
            descriptor: session.descriptor(),
            mode: REGULAR,
            ..event
        };
        self.emit(session.source, session.slot, operation, event, &[]);
    }

    fn emit(&mut self, source: u32, slot: u32, operation: Operation, event: Event, text: &[u8]) {
        let mut texts = Vec::new();
        if !text.is_empty() {
            append_text(&mut texts, Identity::default(), text);
        }
        let process = FIRST_PROCESS + source;
        let event = Event {
            operation: operation as u8,
            text_bytes: u16::try_from(texts.len()).expect("paths are short"),
            process,
            thread: (slot % MOST_THREADS) << THREAD_SHIFT | process,
            ..event
        };
        self.ready.push_back(Synthesized { event, texts });
    }
}

impl Session {
    fn descriptor(&self) -> i32 {
        i32::try_from(FIRST_DESCRIPTOR + self.slot).unwrap_or(i32::MAX)
    }
}

impl Iterator for Generation {
    type Item = Synthesized;

    fn next(&mut self) -> Option<Synthesized> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(ready);
            }
            let Reverse((now_ns, _, task)) = self.tasks.pop()?;
            if now_ns > self.end_ns {
                self.tasks.clear();
                return None;
            }
            match task {
                Task::Arrive(source) => self.arrive(source, now_ns),
                Task::GoOn(place) => self.go_on(place, now_ns),
                Task::End { file, source, duration_ns } => self.end_file(file, source, now_ns, duration_ns),
            }
        }
    }
}

/// How often something is done that is done so often on average.
fn times(mean: f64, dice: &mut Dice) -> u64 {
    let more = if uniform(dice) < mean.fract() { 1 } else { 0 };
    super::variable::whole(mean.floor()) + more
}

fn nothing() -> Event {
    Event { descriptor: -1, ..Event::default() }
}
