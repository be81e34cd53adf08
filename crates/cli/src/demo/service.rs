//! The replicated key-value service of the demonstration, and clients who write to it all the time.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// After which a client gives an answer up.
const PATIENCE: Duration = Duration::from_secs(2);
/// Who was refused is refused at once the next time.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(1);
/// From one write to the next: a load, beside which there is work for others.
const BETWEEN_WRITES: Duration = Duration::from_millis(2);

/// Where replicas serve. One that has come back serves elsewhere.
pub(super) type Addresses = Arc<Mutex<Vec<SocketAddr>>>;

/// What a client has seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Of writes that were acknowledged.
    pub(super) written: u64,
    /// When each was.
    acknowledged: Vec<Instant>,
}

impl Seen {
    /// The longest time between two acknowledged writes, of which the second was behind that moment.
    pub(super) fn longest_gap(&self, since: Instant) -> Duration {
        let pairs = self.acknowledged.windows(2).filter(|pair| pair[1] >= since);
        pairs.map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }

    /// Between two writes before that moment, as a rule.
    pub(super) fn usual(&self, until: Instant) -> Duration {
        let mut gaps: Vec<Duration> = self
            .acknowledged
            .windows(2)
            .filter(|pair| pair[1] < until)
            .map(|pair| pair[1] - pair[0])
            .collect();
        gaps.sort_unstable();
        gaps.get(gaps.len() / 2).copied().unwrap_or_default()
    }
}

/// A client that writes all the time: `NAME-1`, `NAME-2` …, each with its number as value.
pub(super) struct Client {
    name: &'static str,
    is_over: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    thread: JoinHandle<()>,
}

impl Client {
    /// Begins at one of the replicas, and goes to the next when that does not answer.
    pub(super) fn start(name: &'static str, addresses: &Addresses, at: usize) -> std::io::Result<Self> {
        let (is_over, seen) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Seen>>::default());
        let mut writer = Writer { name, addresses: Arc::clone(addresses), at, connection: None };
        let (ends, sees) = (Arc::clone(&is_over), Arc::clone(&seen));
        let thread = std::thread::Builder::new().name(format!("client-{name}")).spawn(move || {
            let mut number = 1;
            while !ends.load(Ordering::Relaxed) {
                if writer.write(number).is_ok() {
                    let mut seen = sees.lock().unwrap_or_else(PoisonError::into_inner);
                    (seen.written, number) = (number, number + 1);
                    seen.acknowledged.push(Instant::now());
                    drop(seen);
                    std::thread::sleep(BETWEEN_WRITES);
                } else {
                    writer.turn_away();
                    std::thread::sleep(BETWEEN_ATTEMPTS);
                }
            }
        })?;
        Ok(Self { name, is_over, seen, thread })
    }

    /// No more writes: its name, and what it has seen.
    pub(super) fn end(self) -> (&'static str, Seen) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (self.name, seen)
    }
}

struct Writer {
    name: &'static str,
    addresses: Addresses,
    at: usize,
    connection: Option<BufReader<TcpStream>>,
}

impl Writer {
    fn write(&mut self, number: u64) -> std::io::Result<()> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner).clone();
                none.insert(connect(addresses[self.at % addresses.len()])?)
            }
        };
        // With a number it is done once, however often it is asked for.
        let name = self.name;
        let answer = say(connection, &format!("{name}:{number} put {name}-{number} {number}"))?;
        if answer == "ok" { Ok(()) } else { Err(std::io::Error::other(answer)) }
    }

    fn turn_away(&mut self) {
        (self.connection, self.at) = (None, self.at + 1);
    }
}

fn connect(address: SocketAddr) -> std::io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(BufReader::new(stream))
}

fn say(connection: &mut BufReader<TcpStream>, line: &str) -> std::io::Result<String> {
    connection.get_mut().write_all(format!("{line}\n").as_bytes())?;
    let mut answer = String::new();
    if connection.read_line(&mut answer)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(answer.trim_end().to_owned())
}

/// How many of a client's acknowledged writes a replica lacks.
pub(super) fn lacking(replica: SocketAddr, name: &str, written: u64) -> std::io::Result<u64> {
    const AT_A_TIME: usize = 100;
    let mut connection = connect(replica)?;
    connection.get_mut().set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut lacking = 0;
    let numbers: Vec<u64> = (1..=written).collect();
    for some in numbers.chunks(AT_A_TIME) {
        let questions: String = some.iter().map(|number| format!("get {name}-{number}\n")).collect();
        connection.get_mut().write_all(questions.as_bytes())?;
        for number in some {
            let mut answer = String::new();
            connection.read_line(&mut answer)?;
            lacking += u64::from(answer.trim_end() != format!("is {number}"));
        }
    }
    Ok(lacking)
}
