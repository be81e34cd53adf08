//! All that is outside of the two: time, wires, disks, and what is recorded.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use comb_types::Dice;

use crate::codec::Encoder;
use crate::collect::agent::{Agent, Event as Told, Put};
use crate::collect::folder::Folder;
use crate::collect::refusal::{PeerFault, Refusal};
use crate::collect::serving::Desk;
use crate::collect::session::Session;
use crate::collect::wire::{Incoming, Message};
use crate::collect::{AgentLimits, Limits};
use crate::event::{Event, Identity};
use crate::trace_file::{FORMAT, Frame, Head, Moment, SuspensionCause, framed};

const MOST_FRAME_BYTES: usize = 8192;
const LIMITS: AgentLimits =
    AgentLimits { buffer_bytes: 20_000, patience: Duration::from_secs(5), farewell: Duration::ZERO };

/// A wire holds so much; who sends more waits.
const WIRE_BYTES: usize = 4000;

/// What was recorded under one number.
#[derive(Default)]
struct Recording {
    frames: Vec<Vec<u8>>,
    /// The collector said of so many that they are on its disk.
    synced: u64,
    is_delivered: bool,
    /// Somebody removed its file.
    is_removed: bool,
}

/// How often what happened.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Fate {
    resumed: u32,
    cut: u32,
    silent: u32,
    torn: u32,
    agents_killed: u32,
    delivered: u32,
    abandoned: u32,
    full: u32,
    unreachable: u32,
    slow: u32,
    taken_over: u32,
}

impl Fate {
    pub(super) const fn add(&mut self, other: &Self) {
        self.resumed += other.resumed;
        self.cut += other.cut;
        self.silent += other.silent;
        self.torn += other.torn;
        self.agents_killed += other.agents_killed;
        self.delivered += other.delivered;
        self.abandoned += other.abandoned;
        self.full += other.full;
        self.unreachable += other.unreachable;
        self.slow += other.slow;
        self.taken_over += other.taken_over;
    }

    pub(super) const fn are_all_seen(&self) -> bool {
        self.resumed > 0
            && self.cut > 0
            && self.silent > 0
            && self.torn > 0
            && self.agents_killed > 0
            && self.delivered > 0
            && self.abandoned > 0
            && self.full > 0
            && self.unreachable > 0
            && self.slow > 0
            && self.taken_over > 0
    }
}

/// One end at the collector, and the wires to it. The agent has at most one; those that it has lost go on here until they are noticed.
struct Connection<'a> {
    session: Session,
    desk: Desk<'a>,
    to_collector: VecDeque<u8>,
    to_agent: VecDeque<u8>,
    /// Reads what the collector says, as the agent does.
    overheard: Incoming,
    /// The agent still holds its end.
    is_held: bool,
    /// Nothing passes any more.
    is_silent: bool,
    is_ended: bool,
}

pub(super) struct World {
    dice: Dice,
    now: Duration,
    directory: PathBuf,
    agent: Agent,
    encoder: Encoder,
    /// The recording that goes on, if one does.
    current: Option<u64>,
    events: u64,
    recordings: BTreeMap<u64, Recording>,
    faults: bool,
    pub(super) fate: Fate,
}

impl World {
    pub(super) fn new(seed: u64, directory: PathBuf) -> Self {
        let mut dice = Dice::new(seed);
        let agent = Agent::new("one", LIMITS, dice.fork());
        Self {
            dice,
            now: Duration::ZERO,
            directory,
            agent,
            encoder: Encoder::default(),
            current: None,
            events: 0,
            recordings: BTreeMap::new(),
            faults: true,
            fate: Fate::default(),
        }
    }

    pub(super) fn lives(&mut self) -> u32 {
        1 + self.dice.below(4)
    }

    pub(super) fn limits(&mut self) -> Limits {
        let room = u64::from(20_000 + self.dice.below(60_000));
        let most_bytes = if self.dice.below(3) == 0 { room } else { u64::MAX };
        Limits { most_bytes, ..Limits::default() }
    }

    /// A life of the collector, until it is killed.
    pub(super) fn life(&mut self, folder: &Folder) {
        let mut connections = Vec::new();
        for _ in 0..50 + self.dice.below(300) {
            self.step(folder, &mut connections);
            self.harm(&mut connections);
        }
        if let Some(held) = connections.iter().find(|connection| connection.is_held)
            && !held.is_silent
        {
            self.agent.disconnected(self.now);
        }
    }

    /// Nothing fails any more: all is delivered, within a time.
    pub(super) fn heal(&mut self, folder: &Folder, most: Duration) {
        self.faults = false;
        self.agent.stop();
        self.end();
        let until = self.now + most;
        let mut connections = Vec::new();
        while !self.agent.is_done() {
            assert!(self.now < until, "it is never delivered");
            self.step(folder, &mut connections);
        }
    }

    fn step<'a>(&mut self, folder: &'a Folder, connections: &mut Vec<Connection<'a>>) {
        self.now += match self.dice.below(20) {
            0 => Duration::from_millis(u64::from(self.dice.below(3000))),
            _ => Duration::from_millis(u64::from(self.dice.below(200))),
        };
        self.record();
        self.agent.tick(self.now);
        self.follow();
        if !self.agent.is_linked() {
            connections.iter_mut().for_each(|connection| connection.is_held = false);
        }
        if self.agent.poll_connect(self.now) {
            if self.faults && self.dice.below(3) == 0 {
                self.agent.disconnected(self.now);
            } else {
                self.agent.connected(self.now);
                let session = Session::new(self.now, MOST_FRAME_BYTES, folder.has_room("the agent"));
                connections.push(Connection {
                    session,
                    desk: Desk::new(folder, "the agent"),
                    to_collector: VecDeque::new(),
                    to_agent: VecDeque::new(),
                    overheard: Incoming::default(),
                    is_held: true,
                    is_silent: false,
                    is_ended: false,
                });
            }
        }
        for connection in connections.iter_mut() {
            self.pass(connection);
        }
        connections.retain(|connection| {
            connection.is_held || (!connection.is_ended && !connection.to_collector.is_empty())
        });
    }

    /// Bytes move, as many as happen to.
    fn pass(&mut self, connection: &mut Connection<'_>) {
        while connection.is_held && connection.to_collector.len() < WIRE_BYTES {
            let Some(message) = self.agent.poll_transmit(self.now) else { break };
            connection.to_collector.extend(message);
        }
        // What is left in a wire whose other end is gone often comes after the next connection.
        let is_late = !connection.is_held && self.dice.below(10) > 0;
        if !connection.is_silent && !connection.is_ended && !is_late {
            let some = self.some(&connection.to_collector);
            let bytes: Vec<u8> = connection.to_collector.drain(..some).collect();
            let received = match bytes[..] {
                [] => Ok(()),
                _ => connection.session.received(self.now, &bytes),
            };
            let worked = received.and_then(|()| {
                connection
                    .desk
                    .work(&mut connection.session, self.now, &mut |_| {})
                    .map_err(|denied| denied.0)
            });
            if let Err(refusal) = worked {
                // An honest agent is never at fault, but for having been cut off.
                assert!(!matches!(refusal, Refusal::Fault(fault) if fault != PeerFault::Silent), "{refusal}");
                self.fate.taken_over += u32::from(refusal == Refusal::TakenOver);
                connection.is_ended = true;
            }
            while let Some(message) = connection.session.poll_transmit(self.now) {
                self.overhear(connection, &message);
                connection.to_agent.extend(message);
            }
        }
        if connection.is_held && !connection.is_silent {
            let some = self.some(&connection.to_agent);
            let bytes: Vec<u8> = connection.to_agent.drain(..some).collect();
            if !bytes.is_empty() {
                self.agent.received(self.now, &bytes);
            }
            if connection.is_ended && connection.to_agent.is_empty() {
                self.agent.disconnected(self.now);
            }
            connection.is_held = self.agent.is_linked();
        }
    }

    fn some(&mut self, wire: &VecDeque<u8>) -> usize {
        match self.dice.below(4) {
            0 => self.dice.index(wire.len() + 1),
            _ => wire.len(),
        }
    }

    /// What the collector promises must hold from then on.
    fn overhear(&mut self, connection: &mut Connection<'_>, message: &[u8]) {
        connection.overheard.add(message);
        while let Some(message) = connection.overheard.next().unwrap() {
            let (Message::Acknowledged { frames } | Message::Opened { frames }) = message else { continue };
            let path = connection.desk.path().expect("of a recording that is open");
            let recording = self.recordings.get_mut(&number_of(path)).expect("one that was begun");
            if let Message::Opened { .. } = message {
                assert!(frames >= recording.synced || recording.is_removed);
                self.fate.resumed += u32::from(frames > 0);
            }
            // A session that others have taken over from may still say less, and the truth.
            recording.synced = recording.synced.max(frames);
        }
    }

    fn harm(&mut self, connections: &mut [Connection<'_>]) {
        let held = connections.iter_mut().find(|connection| connection.is_held);
        match (self.dice.below(120), held) {
            (0..3, Some(connection)) => {
                // What was on its way still comes, or a part of it.
                let rest = self.dice.index(connection.to_collector.len() + 1);
                connection.to_collector.truncate(rest);
                connection.is_held = false;
                self.agent.disconnected(self.now);
                self.fate.cut += 1;
            }
            (3, Some(connection)) => {
                connection.is_silent = true;
                self.fate.silent += 1;
            }
            (4, held) if self.dice.below(3) == 0 => {
                if let Some(connection) = held {
                    connection.is_held = false;
                }
                self.agent = Agent::new("one", LIMITS, self.dice.fork());
                self.current = None;
                self.fate.agents_killed += 1;
            }
            (5, None) if self.dice.below(3) == 0 => self.remove_one(),
            _ => {}
        }
    }

    fn remove_one(&mut self) {
        let files: Vec<PathBuf> = self.files();
        if let Some(path) = files.get(self.dice.index(files.len() + 1)) {
            fs::remove_file(path).unwrap();
            self.recordings.get_mut(&number_of(path)).unwrap().is_removed = true;
        }
    }

    /// The recorder: what it has seen becomes frames.
    fn record(&mut self) {
        let Some(number) = self.current else { return };
        // Sometimes more than the wire takes.
        for _ in 0..if self.dice.below(30) == 0 { 1 + self.dice.below(30) } else { self.dice.below(3) } {
            for _ in 0..1 + self.dice.below(40) {
                let file = Identity { inode: self.dice.roll(), device: 1, generation: 1 };
                let event = Event { operation: 3, start_ns: self.events, file, ..Event::default() };
                self.encoder.add(&event, &[]);
                self.events += 1;
            }
            let block = self.encoder.take().unwrap();
            if !self.put(number, &Frame::Events(block)) {
                self.end();
                return;
            }
        }
        if self.dice.below(3) == 0 && !self.put(number, &Frame::Moment(Moment::default())) {
            self.end();
        }
    }

    fn put(&mut self, number: u64, frame: &Frame) -> bool {
        let frame = framed(frame);
        let is_taken = self.agent.put(number, &frame) == Put::Taken;
        if is_taken {
            self.recordings.get_mut(&number).unwrap().frames.push(frame);
        }
        is_taken
    }

    fn end(&mut self) {
        if let Some(number) = self.current.take() {
            self.put(number, &Frame::End(Moment::default()));
        }
    }

    fn follow(&mut self) {
        while let Some(event) = self.agent.poll_event() {
            match event {
                Told::Record => {
                    let number = self.dice.roll();
                    self.agent.begin(self.now, number, 0);
                    self.recordings.insert(number, Recording::default());
                    self.encoder = Encoder::default();
                    self.current = Some(number);
                    assert!(self.put(number, &Frame::Head(Box::<Head>::default())));
                }
                Told::Suspend(cause) => {
                    match cause {
                        SuspensionCause::Unreachable => self.fate.unreachable += 1,
                        SuspensionCause::Slow => self.fate.slow += 1,
                        SuspensionCause::Full => self.fate.full += 1,
                        SuspensionCause::Refused => {}
                    }
                    self.end();
                }
                Told::Abandon { .. } => {
                    self.current = None;
                    self.fate.abandoned += 1;
                }
                Told::Delivered { recording } => {
                    self.recordings.get_mut(&recording).unwrap().is_delivered = true;
                    self.fate.delivered += 1;
                }
                Told::Connected | Told::Disconnected(_) | Told::Refused(_) => {}
            }
        }
    }

    /// The collector's machine lost its power: what it had not brought to the disk is there, or a part of it, or something else.
    pub(super) fn tear(&mut self) {
        for path in self.files() {
            let recording = &self.recordings[&number_of(&path)];
            let synced = self.dice.below(2) == 0;
            let safe = bytes_of(&recording.frames[..usize::try_from(recording.synced).unwrap()]);
            let file = OpenOptions::new().append(true).open(&path).unwrap();
            let length = file.metadata().unwrap().len();
            if recording.is_removed || synced || length <= safe {
                continue;
            }
            let lost = u64::from(self.dice.below(u32::try_from(length - safe).unwrap() + 1));
            file.set_len(length - lost).unwrap();
            self.fate.torn += u32::from(lost > 0);
            if self.dice.below(3) == 0 {
                let garbage: Vec<u8> =
                    (0..self.dice.below(3000)).map(|_| self.dice.roll().to_le_bytes()[0]).collect();
                (&file).write_all(&garbage).unwrap();
            }
        }
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.directory).unwrap();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    pub(super) fn check(&self) {
        let mut found: BTreeMap<u64, Vec<u8>> =
            self.files().iter().map(|path| (number_of(path), fs::read(path).unwrap())).collect();
        for (number, recording) in &self.recordings {
            let file = found.remove(number);
            if recording.is_removed {
                continue;
            }
            let Some(file) = file else {
                assert_eq!((recording.synced, recording.is_delivered), (0, false), "no file of {number:x}");
                continue;
            };
            let safe = bytes_of(&recording.frames[..usize::try_from(recording.synced).unwrap()]);
            let whole = [FORMAT.magic, &recording.frames.concat()].concat();
            // Behind what is good there may be what a crash left: readers see the cut.
            let good = file.iter().zip(&whole).take_while(|(is, should)| is == should).count() as u64;
            assert!(
                good >= safe.min(whole.len() as u64),
                "{number:x}: {good} bytes are good, and {safe} were promised"
            );
            if recording.is_delivered {
                assert_eq!(file.len(), whole.len(), "{number:x}");
                assert_eq!(good, whole.len() as u64, "{number:x}");
            }
        }
        assert!(found.is_empty(), "files of nobody");
    }
}

fn bytes_of(frames: &[Vec<u8>]) -> u64 {
    FORMAT.magic.len() as u64 + frames.iter().map(|frame| frame.len() as u64).sum::<u64>()
}

fn number_of(path: &Path) -> u64 {
    let stem = path.file_stem().unwrap().to_str().unwrap();
    u64::from_str_radix(stem.rsplit('-').next().unwrap(), 16).unwrap()
}
