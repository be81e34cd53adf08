//! Calls between two cells that both look for them all the time (Hive, section 6), beside the bare cache line and a socket.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use comb_cell::calls::{Desk, Served};
use comb_cell::links::Links;
use comb_cell::procedures::{self, NULL, NULL_QUEUED};
use comb_cell::shown::{Others, Shown, reopened_to_read};
use comb_cell::supervision::process_name;
use comb_net::Agent;
use comb_net::agent::{Limits, SameUser, Server};
use comb_types::CellId;

use super::measured::Measured;
use super::role;
use crate::bare::Bare;
use crate::room::Room;
use crate::side::pin;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const BLOCKS: u64 = 20;
const ROUNDS: u64 = 2000;
/// One sample is the mean of so many.
const BATCH: u64 = 50;
/// What sleeps is measured less often.
const ROUNDS_ASLEEP: u64 = 200;
const BATCH_ASLEEP: u64 = 10;
const LIMIT: Duration = Duration::from_secs(20);
/// Procedures of this benchmark: the block's calls are over, and all are.
const BLOCK_OVER: u16 = 100;
const ALL_OVER: u16 = 101;
const ASKER_CPU: usize = 0;
const ANSWERER_CPU: usize = 1;

/// What is called, and with how many bytes of arguments.
const CALLED: [(&str, u16, usize); 5] = [
    ("null call", NULL, 0),
    ("queued call", NULL_QUEUED, 0),
    ("call with 40 B", NULL, 40),
    ("call with 1 KB", NULL, 1024),
    ("call with 16 KB", NULL, 16 << 10),
];

/// By samples with the names above, `bare`, `spinning socket`, `socket`, and `wake-up`, in nanoseconds.
pub(super) fn measure(measured: &mut Measured) -> Outcome<()> {
    for (name, value) in role::named(&role::command(role::CALLS)?.output()?)? {
        measured.add(name, value);
    }
    Ok(())
}

fn say(name: &str, each: &[f64]) {
    each.iter().for_each(|nanoseconds| println!("{name} {nanoseconds}"));
}

fn batches(rounds: u64, batch: u64, mut round: impl FnMut()) -> Vec<f64> {
    let one = |_| {
        let begun = Instant::now();
        (0..batch).for_each(|_| round());
        begun.elapsed().as_secs_f64() * 1e9 / batch as f64
    };
    (0..rounds / batch).map(one).collect()
}

/// One of two cells, without a supervisor.
struct Cell {
    links: Links,
    shown: Shown,
}

impl Cell {
    fn new(agent: &Agent, number: u32, others: Others, offer: impl FnOnce(&mut Desk)) -> Outcome<Self> {
        let shown = Shown::create(CellId(number), 1)?;
        let mut desk = Desk::new(Arc::clone(shown.published()), others)?;
        procedures::offer(&mut desk);
        offer(&mut desk);
        Ok(Self { links: Links::new(agent, CellId(number), desk)?, shown })
    }

    fn call(&mut self, procedure: u16, arguments: &[u8]) -> Outcome<()> {
        self.links.call(CellId(1), procedure, arguments, LIMIT)?;
        loop {
            self.links.poll();
            if let Some((_, answer)) = self.links.next_answer() {
                answer?;
                return Ok(());
            }
        }
    }
}

/// Kills what is not waited for.
struct Answerer(Child);

impl Drop for Answerer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The side that asks, which starts the other.
pub(super) fn call() -> Outcome<()> {
    let room = Room::create()?;
    let _server = Server::bind(&room.agent(), Box::new(SameUser), Limits::default())?;
    let (bare, memory) = Bare::create()?;
    let sockets = UnixListener::bind(room.join("socket"))?;
    let agent = Agent::connect(&room.agent(), &process_name(2))?;
    let mut cell = Cell::new(&agent, 2, Others::default(), |_| ())?;
    let own = std::process::id();
    let told = format!(
        "{} {} /proc/{own}/fd/{} {own} /proc/{own}/fd/{}",
        role::IS_CALLED,
        room.path().display(),
        memory.as_raw_fd(),
        cell.shown.file().as_raw_fd(),
    );
    let mut answerer = Answerer(role::command(&told)?.spawn()?);
    let (mut socket, _) = sockets.accept()?;
    cell.links.present = [1].into();
    let since = Instant::now();
    while cell.links.channel(CellId(1)).is_none() {
        cell.links.open_to_lower();
        cell.links.poll();
        if since.elapsed() > LIMIT {
            return Err("the other cell does not come".into());
        }
    }
    // Its pool's threads are there from now on.
    cell.call(NULL_QUEUED, &[])?;
    pin(ASKER_CPU)?;
    for block in 0..BLOCKS {
        let mut round = block * ROUNDS;
        say(
            "bare",
            &batches(ROUNDS, BATCH, || {
                round += 1;
                bare.ping(round);
            }),
        );
        for (name, procedure, bytes) in CALLED {
            let arguments = vec![7; bytes];
            let mut failure = None;
            let each = batches(ROUNDS, BATCH, || {
                if let Err(error) = cell.call(procedure, &arguments) {
                    failure = Some(error);
                }
            });
            if let Some(failure) = failure {
                return Err(format!("{name}: {failure}").into());
            }
            say(name, &each);
        }
        cell.call(BLOCK_OVER, &[])?;
        let mut word = [0; 8];
        socket.set_nonblocking(true)?;
        let mut failed = Ok(());
        say(
            "spinning socket",
            &batches(ROUNDS, BATCH, || {
                failed = socket.write_all(&[1; 8]).and_then(|()| read_spinning(&mut socket, &mut word));
            }),
        );
        failed?;
        socket.set_nonblocking(false)?;
        // The other side sleeps meanwhile.
        say("wake-up", &wake_ups());
        let mut failed = Ok(());
        say(
            "socket",
            &batches(ROUNDS_ASLEEP, BATCH_ASLEEP, || {
                failed = socket.write_all(&[1; 8]).and_then(|()| socket.read_exact(&mut word));
            }),
        );
        failed?;
    }
    cell.call(ALL_OVER, &[])?;
    let ended = answerer.0.wait()?;
    if ended.success() { Ok(()) } else { Err("the called process has failed".into()) }
}

/// What it takes until a thread that sleeps on a futex goes on, on the other core: half of a round trip of two that wake each other.
fn wake_ups() -> Vec<f64> {
    let asker = thread::current();
    let (asked, answered) = (AtomicBool::new(false), AtomicBool::new(false));
    let is_over = AtomicBool::new(false);
    let wait = |flag: &AtomicBool| {
        while !flag.swap(false, Ordering::AcqRel) {
            thread::park();
        }
    };
    thread::scope(|scope| {
        let answerer = scope.spawn(|| {
            let _ = pin(ANSWERER_CPU);
            loop {
                wait(&asked);
                if is_over.load(Ordering::Acquire) {
                    return;
                }
                answered.store(true, Ordering::Release);
                asker.unpark();
            }
        });
        let each = batches(ROUNDS_ASLEEP, BATCH_ASLEEP, || {
            asked.store(true, Ordering::Release);
            answerer.thread().unpark();
            wait(&answered);
        });
        is_over.store(true, Ordering::Release);
        asked.store(true, Ordering::Release);
        answerer.thread().unpark();
        each.iter().map(|round_trip| round_trip / 2.0).collect()
    })
}

fn read_spinning(socket: &mut UnixStream, word: &mut [u8; 8]) -> std::io::Result<()> {
    loop {
        match socket.read_exact(word) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            outcome => return outcome,
        }
    }
}

/// The side that is called.
pub(super) fn be_called(room: &Path, bare: &str, process: u32, shown: &str) -> Outcome<()> {
    let bare = Bare::map(std::fs::File::options().read(true).write(true).open(bare)?)?;
    let agent = Agent::connect(&room.join("agent"), &process_name(1))?;
    let others = Others::default();
    let shown = std::fs::File::open(shown)?.into();
    others.see(CellId(2), 1, process, &reopened_to_read(&shown)?)?;
    let (block_over, all_over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut cell = Cell::new(&agent, 1, others, |desk| {
        for (number, flag) in [(BLOCK_OVER, &block_over), (ALL_OVER, &all_over)] {
            let flag = Arc::clone(flag);
            desk.offer(
                number,
                Box::new(move |_, _| {
                    flag.store(true, Ordering::Relaxed);
                    Served::Done(Vec::new())
                }),
            );
        }
    })?;
    let mut socket = UnixStream::connect(room.join("socket"))?;
    let since = Instant::now();
    // Until the first call has been served, whose threads are bound to no core.
    while since.elapsed() < LIMIT && cell.links.linked().next().is_none() {
        cell.links.poll();
    }
    for _ in 0..1_000_000 {
        cell.links.poll();
    }
    pin(ANSWERER_CPU)?;
    for block in 0..BLOCKS {
        (1..=ROUNDS).for_each(|round| bare.pong(block * ROUNDS + round));
        while !block_over.swap(false, Ordering::Relaxed) {
            cell.links.poll();
        }
        let mut word = [0; 8];
        socket.set_nonblocking(true)?;
        for _ in 0..ROUNDS {
            read_spinning(&mut socket, &mut word)?;
            socket.write_all(&word)?;
        }
        socket.set_nonblocking(false)?;
        for _ in 0..ROUNDS_ASLEEP {
            socket.read_exact(&mut word)?;
            socket.write_all(&word)?;
        }
    }
    while !all_over.load(Ordering::Relaxed) {
        cell.links.poll();
    }
    // The answer is read before this end closes.
    std::thread::sleep(Duration::from_millis(50));
    Ok(())
}
