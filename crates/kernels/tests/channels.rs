//! Channels and calls of objects: between kernels, with ends that do anything, and with a program in a space.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use comb_kernel::calls::{Calls, Direct};
use comb_kernel::client::Client;
use comb_kernel::frames::Frame;
use comb_kernel::objects::{
    Access, FRAMES_IN_GROUP, Groups, KernelDescriptor, KernelLoad, Locks, Mapping, Sizes, SpaceLoad, Tag,
    ThreadLoad,
};
use comb_kernel::programs;
use comb_kernel::server::Server;
use comb_kernel::shares::USUAL_PRIORITY;
use comb_kernel::space::TRANSLATIONS_ADDRESS;
use comb_kernel::supervisor::{State, Supervisor};
use comb_kernel::thread::{Area, Registers, Stop};
use comb_kernels::communication::objects::{CallError, Caller, Objects, Status};
use comb_kernels::communication::{
    Channel, ChannelError, Message, Pages, Place, SendError, Shape, map_end, open_end,
};
use proptest::prelude::*;

/// Nothing that goes well takes as long.
const LIMIT: Duration = Duration::from_secs(60);

comb_kernels::object! {
    /// Words that others leave, and a sum.
    pub trait Board, version 3, stub BoardStub, dispatch BoardDispatch {
        /// Adds, and says what it is then.
        0: fn add(&mut self, much: u64) -> u64;
        /// Leaves a word: how many there are.
        1: fn leave(&mut self, word: String, times: u32) -> u32;
        /// All that were left.
        4: fn words(&mut self) -> Vec<String>;
    }
}

#[derive(Default)]
struct Own {
    sum: u64,
    words: Vec<String>,
}

impl Board for &mut Own {
    fn add(&mut self, much: u64) -> u64 {
        self.sum += much;
        self.sum
    }

    fn leave(&mut self, word: String, times: u32) -> u32 {
        self.words.extend((0..times).map(|_| word.clone()));
        u32::try_from(self.words.len()).unwrap()
    }

    fn words(&mut self) -> Vec<String> {
        self.words.clone()
    }
}

fn shape() -> Shape {
    Shape::new(4, 128).unwrap()
}

/// A kernel, and pages for two ends.
fn own_pages() -> [Pages; 2] {
    let (supervisor, kernel) = Supervisor::new(Sizes::default(), 1).unwrap();
    let calls = Direct::new(supervisor, kernel);
    [0, 10].map(|first| Pages::new(&calls, first, shape().pages()).unwrap())
}

fn both() -> [Channel; 2] {
    let [a, b] = own_pages();
    [Channel::open(shape(), a.clone(), b.clone()), Channel::open(shape(), b, a)]
}

#[test]
fn messages_come_in_order_and_as_many_as_there_is_room_for() {
    let [mut a, mut b] = both();
    for round in 0..10_u32 {
        for number in 0..4 {
            a.send(round, &vec![7; number as usize * 10]).unwrap();
        }
        assert_eq!(a.send(round, b"one more"), Err(SendError::Full));
        for number in 0..4 {
            assert_eq!(b.receive(), Ok(Some(Message { kind: round, bytes: vec![7; number * 10] })));
        }
        assert_eq!(b.receive(), Ok(None));
    }
    assert_eq!(a.send(0, &[0; 113]), Err(SendError::TooLong(113, 112)));
    a.send(9, b"the last").unwrap();
    a.close();
    assert_eq!(b.receive().unwrap().unwrap().kind, 9);
    assert_eq!(b.receive(), Err(ChannelError::Closed));
    assert_eq!(b.send(1, b"no more"), Err(SendError::Channel(ChannelError::Closed)));
}

#[test]
fn nothing_is_sent_to_who_is_not_there_yet_and_frames_of_others_are_no_pages() {
    let (supervisor, kernel) = Supervisor::new(Sizes::default(), 1).unwrap();
    let calls = Direct::new(supervisor, kernel);
    assert_eq!(Pages::new(&calls, 127, 2).unwrap_err().0, 128);
    let [a, b] = [0, 10].map(|first| Pages::new(&calls, first, shape().pages()).unwrap());
    let mut first = Channel::open(shape(), a.clone(), b.clone());
    assert_eq!(first.send(1, b"hello"), Err(SendError::Channel(ChannelError::NotOpen)));
    assert_eq!(first.receive(), Ok(None));
    // One that has another shape is none.
    let mut other = Channel::open(Shape::new(8, 64).unwrap(), b, a);
    for channel in [&mut first, &mut other] {
        assert!(matches!(channel.receive(), Err(ChannelError::Broken(_))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Whatever the other end writes, this one takes messages or says that it is broken, and then stays so.
    #[test]
    fn an_end_that_writes_anything_harms_nobody(
        writes in proptest::collection::vec((0_usize..640, any::<u32>(), 0_u8..4), 1..40),
    ) {
        let [a, b] = own_pages();
        let mut own = Channel::open(shape(), a.clone(), b.clone());
        let mut other = Channel::open(shape(), b.clone(), a);
        let mut broken = None;
        for (at, value, act) in writes {
            // Headers and counts more often than the rest.
            let offset = if at < 64 { at * 4 } else { (at - 64) * 4 + 4096 };
            let offset = offset.min(shape().pages() as usize * 4096 - 4);
            match act {
                0 => b.word(offset).store(value, SeqCst),
                1 => b.word(offset).store(value % 8, SeqCst),
                2 => drop(other.send(value, &value.to_le_bytes())),
                _ => drop(own.send(value, &value.to_le_bytes())),
            }
            match own.receive() {
                Ok(Some(message)) => {
                    prop_assert_eq!(broken, None);
                    prop_assert!(message.bytes.len() <= shape().message_bytes());
                }
                Ok(None) => prop_assert_eq!(broken, None),
                Err(error @ ChannelError::Broken(_)) => {
                    prop_assert!(broken.is_none() || broken == Some(error));
                    broken = Some(error);
                }
                Err(error) => prop_assert!(error == ChannelError::Closed && broken.is_none()),
            }
        }
    }
}

#[test]
fn what_cannot_be_called_says_why() {
    let [a, mut b] = both();
    let mut caller = Caller::new(a, LIMIT);
    let mut own = Own::default();
    let mut objects = Objects::new();
    objects.put(5, BoardDispatch(&mut own));
    let mut ask = |object: u32, version: u16, method: u16, bytes: &[u8]| {
        let (call, _) = caller.begin(object, version, method, &bytes.to_vec()).unwrap();
        objects.serve(&mut b).unwrap();
        caller.look::<u64>(call).unwrap()
    };
    assert_eq!(ask(6, 3, 0, &[]), Err(CallError::Refused(Status::NoObject)));
    assert_eq!(ask(5, 2, 0, &[]), Err(CallError::OtherVersion(3)));
    assert_eq!(ask(5, 3, 2, &[]), Err(CallError::Refused(Status::NoMethod)));
    assert_eq!(ask(5, 3, 0, &[1]), Err(CallError::Refused(Status::BadArguments)));
    // A vector of four bytes is eight bytes with its length, and so a number.
    assert_eq!(ask(5, 3, 0, &[1, 0, 0, 0]), Ok(0x1_0000_0004));
    // A result that is none of the method's, and one for which there is no room.
    let (call, _) = caller.begin(5, 3, 1, &(String::from("word"), 2_u32)).unwrap();
    objects.serve(&mut b).unwrap();
    assert_eq!(caller.look::<u64>(call), Some(Err(CallError::NotUnderstood)));
    let (call, _) = caller.begin(5, 3, 1, &(String::from("word"), 20_u32)).unwrap();
    objects.serve(&mut b).unwrap();
    assert_eq!(caller.look(call), Some(Ok(22_u32)));
    let (call, _) = caller.begin(5, 3, 4, &()).unwrap();
    objects.serve(&mut b).unwrap();
    assert_eq!(caller.look::<Vec<String>>(call), Some(Err(CallError::Refused(Status::TooLong))));
    // A call whose other end goes.
    let (call, _) = caller.begin(5, 3, 0, &1_u64).unwrap();
    drop(b);
    assert_eq!(caller.look::<u64>(call), Some(Err(CallError::NoReply(ChannelError::Closed))));
}

/// A supervisor with three kernels, of which the first has nothing to do, and the others have a group each and one together.
fn two_kernels() -> [Client; 2] {
    let (told, tells) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (supervisor, first) = Supervisor::new(Sizes::default(), 4).unwrap();
        let mut server = Server::new(supervisor);
        let sockets = [1, 2].map(|own| {
            let mut groups = Groups::new(4 * FRAMES_IN_GROUP, Access::None);
            groups.set(own..own + 1, Access::ReadWrite);
            groups.set(3..4, Access::ReadWrite);
            let locks = Locks { kernels: 0, spaces: 1, threads: 1, mappings: 8 };
            let descriptor =
                KernelDescriptor { groups, processor_shares: Vec::new(), maximum_priority: 30, locks };
            let load = KernelLoad { tag: Tag(own), descriptor, locked: false, waiting: VecDeque::new() };
            let kernel = server.supervisor().load_kernel(first, load).unwrap();
            server.open(kernel).unwrap()
        });
        told.send(sockets).unwrap();
        server.run(0);
    });
    tells.recv().unwrap().map(|socket| Client::new(socket, 0).unwrap())
}

#[test]
fn a_kernel_calls_anothers_object_in_memory_that_both_were_granted() {
    let [one, other] = two_kernels();
    let shared = u32::try_from(3 * FRAMES_IN_GROUP).unwrap();
    // What the other has alone is out of reach.
    assert!(Pages::new(&one, u32::try_from(2 * FRAMES_IN_GROUP).unwrap(), 1).is_err());
    let ends =
        move |calls: &Client| [0, 20].map(|at| Pages::new(calls, shared + at, shape().pages()).unwrap());
    let served = std::thread::spawn(move || {
        let [theirs, own] = ends(&other);
        let mut channel = Channel::open(shape(), own, theirs);
        let mut board = Own::default();
        let mut objects = Objects::new();
        objects.put(1, BoardDispatch(&mut board));
        let since = Instant::now();
        objects.run(&mut channel, Duration::from_secs(1), || since.elapsed() > LIMIT).unwrap();
        drop(objects);
        (board.sum, board.words)
    });
    let [own, theirs] = ends(&one);
    let mut caller = Caller::new(Channel::open(shape(), own, theirs), LIMIT);
    let mut sum = 0;
    for much in 0..2000 {
        sum += much;
        assert_eq!(BoardStub::new(&mut caller, 1).add(much), Ok(sum));
    }
    assert_eq!(BoardStub::new(&mut caller, 1).leave("both".into(), 2), Ok(2));
    assert_eq!(BoardStub::new(&mut caller, 1).words(), Ok(vec!["both".into(), "both".into()]));
    caller.channel().close();
    assert_eq!(served.join().unwrap(), (sum, vec!["both".into(), "both".into()]));
}

#[test]
fn a_program_in_a_space_is_an_object_that_its_kernel_calls() {
    const CODE_PAGE: u64 = 0x400;
    const STACK_PAGE: u64 = 0x500;
    let shape = Shape::new(16, 64).unwrap();
    let (supervisor, kernel) = Supervisor::new(Sizes::default(), 2).unwrap();
    supervisor.frames().write(Frame(0), 0, programs::doubles());
    let mut calls = Direct::new(supervisor, kernel);
    let space = calls.load_space(SpaceLoad { tag: Tag(1), locked: false }).unwrap();
    let code = Mapping { executable: true, ..Mapping::read(space, CODE_PAGE, 0) };
    calls.load_mappings(&code, 1).unwrap();
    calls.load_mappings(&Mapping { writable: true, ..Mapping::read(space, STACK_PAGE, 1) }, 1).unwrap();
    let own_page = 0x9000;
    let registers = Registers {
        rip: CODE_PAGE << 12,
        rsp: (STACK_PAGE + 1) << 12,
        rdi: Area::ring_address(0),
        rsi: own_page << 12,
        rdx: TRANSLATIONS_ADDRESS,
        r9: 15,
        ..Registers::default()
    };
    let load = ThreadLoad { tag: Tag(2), space, priority: USUAL_PRIORITY, locked: false };
    let thread = calls.load_thread(load, &State { registers, ..State::default() }, 0).unwrap();

    let [kernels, programs] = [128, 160].map(|first| Pages::new(&calls, first, shape.pages()).unwrap());
    let place = Place { space, thread, own: own_page, other: 0xa000 };
    open_end(shape, &programs);
    map_end(&mut calls, &place, &programs, &kernels).unwrap();
    let mut caller = Caller::new(Channel::open(shape, kernels, programs), LIMIT);
    calls.area(thread).unwrap().resume();

    let since = Instant::now();
    for number in 0..200_u64 {
        // Several at a time: there is room for so many.
        let begun: Vec<_> = (0..1 + number % 16)
            .map(|more| {
                let (call, at) = caller.begin(0, 0, 0, &(number + more)).unwrap();
                assert_eq!(place.signal(&mut calls, at), Ok(1));
                (call, number + more)
            })
            .collect();
        for (call, asked) in begun {
            let result = loop {
                if let Some(result) = caller.look::<u64>(call) {
                    break result;
                }
                calls.bell().listen(0, Some(Duration::from_millis(5)), |_| {});
                let area = calls.area(thread).unwrap();
                if area.is_stopped() {
                    assert_eq!(area.stop(), Some(Stop::Call { is_foreign: false }), "{:?}", area.registers());
                    assert_eq!(area.registers().unwrap().rax, programs::SIGNAL);
                    area.resume();
                }
                assert!(since.elapsed() < LIMIT, "no reply");
            };
            assert_eq!(result, Ok(2 * asked));
        }
    }
}
