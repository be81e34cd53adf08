//! What kernels do here: one runs a program that counts, the other takes all that it gets.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use comb_kernel::calls::{Calls, First};
use comb_kernel::client::Client;
use comb_kernel::client::line::hand_over;
use comb_kernel::objects::{
    FRAMES_IN_GROUP, Mapping, Refused, Sizes, SpaceId, SpaceLoad, Tag, ThreadId, ThreadLoad, Writeback,
};
use comb_kernel::server::Server;
use comb_kernel::shares::USUAL_PRIORITY;
use comb_kernel::supervisor::{CallError, State, Supervisor};
use comb_kernel::thread::{Registers, Stop};

// Words by which kernels tell how they are.
pub(crate) const COUNT: usize = 0;
pub(crate) const RELOADS: usize = 1;
pub(crate) const GROUPS: usize = 2;
pub(crate) const DISPLACED: usize = 3;

const CODE_PAGE: u64 = 0x400;
const DATA_PAGE: u64 = 0x70000;
/// 1: inc rbx; mov [rdi], rbx; mov eax, 39; syscall; jmp 1b
const COUNTS: &[u8] = &[0x48, 0xff, 0xc3, 0x48, 0x89, 0x1f, 0xb8, 39, 0, 0, 0, 0x0f, 5, 0xeb, 0xf1];
/// 1: jmp 1b
const SPINS: &[u8] = &[0xeb, 0xfe];

/// The frame in which a kernel tells, if this is its first group.
pub(crate) fn told(group: u32) -> u64 {
    u64::from(group) * FRAMES_IN_GROUP + FRAMES_IN_GROUP - 1
}

fn groups(client: &Client) -> Vec<u32> {
    (0..client.groups()).filter(|group| client.may_write(*group)).collect()
}

/// The supervisor of a cell, until all kernels are gone: its first kernel is who has the other end of the line.
pub(crate) fn supervise(line: &UnixStream, sizes: Sizes, groups: u32) {
    let (supervisor, first) = Supervisor::new(sizes, groups).unwrap();
    let mut server = Server::new(supervisor);
    let counter = OwnedFd::from(server.open(first).unwrap());
    hand_over(line, &counter, &[]).unwrap();
    drop(counter);
    server.run(0);
}

/// A kernel with one program, which it checks at each step.
struct Counting {
    client: Client,
    /// Its first group, by its own number: code, data, and what it tells.
    group: u32,
    state: State,
    loaded: Option<(SpaceId, ThreadId)>,
    count: u64,
    reloads: u64,
    is_locked: bool,
}

pub(crate) fn count(client: Client, is_locked: bool) {
    let group = groups(&client)[0];
    let registers = Registers { rip: CODE_PAGE << 12, rdi: DATA_PAGE << 12, ..Registers::default() };
    let state = State { registers, ..State::default() };
    let mut kernel = Counting { client, group, state, loaded: None, count: 0, reloads: 0, is_locked };
    let code = kernel.frame(0);
    kernel.client.write(code, 0, COUNTS);
    // Something in all of its memory that is to stay there.
    for frame in kernel.marked() {
        kernel.client.write(frame, 8, &(frame * 7 + 1).to_le_bytes());
    }
    loop {
        match kernel.step() {
            Ok(()) => {}
            Err(CallError::Reloaded) => {}
            Err(CallError::Refused(Refused::StaleSpace(_) | Refused::StaleThread(_))) if !is_locked => {}
            Err(CallError::NoSupervisor) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

impl Counting {
    fn frame(&self, number: u64) -> u64 {
        u64::from(self.group) * FRAMES_IN_GROUP + number
    }

    fn marked(&self) -> Vec<u64> {
        groups(&self.client).into_iter().map(|group| u64::from(group) * FRAMES_IN_GROUP + 77).collect()
    }

    fn tell(&mut self, word: usize, value: u64) {
        self.client.write(told(self.group), word * 8, &value.to_le_bytes());
    }

    fn word(&self, frame: u64, offset: usize) -> u64 {
        let mut bytes = [0; 8];
        self.client.read(frame, offset, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// The program has stopped at its call: it has counted on by one, in its registers and in memory.
    fn counted(&mut self, rbx: u64) {
        assert_eq!(rbx, self.count + 1);
        assert_eq!(self.word(self.frame(1), 0), rbx);
        self.count = rbx;
        self.tell(COUNT, rbx);
        self.tell(GROUPS, groups(&self.client).len() as u64);
    }

    fn map(&mut self, space: SpaceId) -> Result<(), CallError> {
        let code = Mapping {
            executable: true,
            locked: self.is_locked,
            ..Mapping::read(space, CODE_PAGE, self.frame(0))
        };
        let data = Mapping {
            writable: true,
            locked: self.is_locked,
            ..Mapping::read(space, DATA_PAGE, self.frame(1))
        };
        self.client.load_mappings(&code, 1)?;
        self.client.load_mappings(&data, 1)
    }

    fn load(&mut self) -> Result<(SpaceId, ThreadId), CallError> {
        let locked = self.is_locked;
        let space = self.client.load_space(SpaceLoad { tag: Tag(1), locked })?;
        self.map(space)?;
        let load = ThreadLoad { tag: Tag(2), space, priority: USUAL_PRIORITY, locked };
        let thread = self.client.load_thread(load, &self.state, 0)?;
        self.client.area(thread)?.resume();
        Ok((space, thread))
    }

    /// Hears of what is not loaded any more.
    fn hear(&mut self) -> Result<(), CallError> {
        while let Some(writeback) = self.client.take_writeback()? {
            assert!(!self.is_locked, "what is locked stays: {writeback:?}");
            match writeback {
                Writeback::Thread { tag: Tag(2), state } => {
                    self.state = *state;
                    let rbx = self.state.registers.rbx;
                    if matches!(self.state.stop, Some(Stop::Call { .. })) && rbx != self.count {
                        self.counted(rbx);
                    }
                }
                Writeback::Space { tag: Tag(1) } => {
                    self.loaded = None;
                    self.reloads += 1;
                    for frame in self.marked() {
                        assert_eq!(self.word(frame, 8), frame * 7 + 1, "what was in its memory is there");
                    }
                    self.tell(RELOADS, self.reloads);
                }
                // By the numbers that it knows, whatever its groups are now.
                Writeback::Mapping { page, frame, .. } => {
                    assert_eq!(frame, self.frame(if page == CODE_PAGE { 0 } else { 1 }));
                }
                other => panic!("{other:?}"),
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), CallError> {
        self.hear()?;
        let (space, thread) = match self.loaded {
            Some(loaded) => loaded,
            None => {
                let loaded = self.load()?;
                *self.loaded.insert(loaded)
            }
        };
        let area = self.client.area(thread)?;
        if !area.is_stopped() {
            self.client.bell().listen(0, Some(Duration::from_millis(10)), |_| {});
            return Ok(());
        }
        match area.stop() {
            Some(Stop::Call { is_foreign: false }) => {
                let rbx = area.registers().expect("it is stopped").rbx;
                self.counted(rbx);
            }
            // Stopped from outside: what follows is heard of.
            Some(Stop::Interrupted) => return Ok(()),
            Some(Stop::Fault { .. }) => {
                assert!(!self.is_locked, "what is locked is mapped");
                self.map(space)?;
            }
            other => panic!("{other:?}"),
        }
        self.client.area(thread)?.resume();
        Ok(())
    }
}

/// Loads spaces, threads that spin, and mappings of all that it has, without end; signals, and hears of nothing before it must.
pub(crate) fn take_all(mut client: Client) {
    let own = groups(&client);
    let first = u64::from(own[0]) * FRAMES_IN_GROUP;
    client.write(first, 0, SPINS);
    let (mut spaces, mut count, mut displaced) = (Vec::new(), 0_u64, 0_u64);
    loop {
        count += 1;
        client.write(told(own[0]), COUNT * 8, &count.to_le_bytes());
        client.write(told(own[0]), DISPLACED * 8, &displaced.to_le_bytes());
        if spaces.len() < 40 || count.is_multiple_of(16) {
            spaces.extend(client.load_space(SpaceLoad { tag: Tag(count), locked: false }));
        }
        let keep = spaces.len().saturating_sub(40);
        spaces.drain(..keep);
        let Some(&space) = spaces.get(usize::try_from(count).unwrap() % spaces.len().max(1)) else {
            continue;
        };
        let code = Mapping { executable: true, ..Mapping::read(space, CODE_PAGE, first) };
        let registers = Registers { rip: CODE_PAGE << 12, ..Registers::default() };
        let load = ThreadLoad { tag: Tag(count), space, priority: USUAL_PRIORITY, locked: false };
        let state = State { registers, ..State::default() };
        let page = DATA_PAGE + count % 1000 * 128;
        let group = u64::from(own[usize::try_from(count).unwrap() % own.len()]);
        let data = Mapping {
            writable: true,
            message: true,
            ..Mapping::read(space, page, group * FRAMES_IN_GROUP + 1)
        };
        let all = [
            client.load_mappings(&code, 1),
            client.load_mappings(&data, 100),
            client
                .load_thread(load, &state, 0)
                .map(|thread| client.area(thread).map_or((), |area| area.resume())),
            client.signal(space, page << 12).map(drop),
            client.load_thread(ThreadLoad { locked: true, ..load }, &state, 0).map(drop),
        ];
        if all.contains(&Err(CallError::NoSupervisor)) {
            return;
        }
        let is_locked = all[4].is_ok();
        assert!(!is_locked, "it may lock nothing");
        if all.iter().any(|one| matches!(one, Err(CallError::Refused(Refused::Behind { .. })))) {
            while let Ok(Some(_)) = client.take_writeback() {
                displaced += 1;
            }
        }
    }
}
