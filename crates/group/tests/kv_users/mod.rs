//! Users of the key-value service of `examples/kv.rs` who note what they did and saw, and a judge of all their notes.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use comb_sim::linearizable::{Action, Operation, is_linearizable};
use comb_types::{Dice, Time};

const KEYS: u32 = 4;
/// What a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// By then somebody has answered.
const SOON: Duration = Duration::from_secs(60);

/// A client: one connection, to the next replica when one fails.
pub(crate) struct Client {
    addresses: Arc<Vec<SocketAddr>>,
    pub(crate) turn: usize,
    pub(crate) connection: Option<BufReader<TcpStream>>,
}

impl Client {
    pub(crate) fn new(addresses: &Arc<Vec<SocketAddr>>, turn: usize) -> Self {
        Self { addresses: Arc::clone(addresses), turn, connection: None }
    }

    /// Asks one replica once. An error means that the request may have been done.
    pub(crate) fn ask(&mut self, request: &str) -> std::io::Result<String> {
        let answer = self.try_to_ask(request);
        let is_served = answer.as_ref().is_ok_and(|answer| !answer.starts_with("sorry"));
        if !is_served {
            self.connection = None;
            self.turn += 1;
            std::thread::sleep(Duration::from_millis(2));
        }
        answer
    }

    fn try_to_ask(&mut self, request: &str) -> std::io::Result<String> {
        let address = self.addresses[self.turn % self.addresses.len()];
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                none.insert(BufReader::new(stream))
            }
        };
        connection.get_mut().write_all(format!("{request}\n").as_bytes())?;
        let mut answer = String::new();
        connection.read_line(&mut answer)?;
        match answer.trim_end() {
            lost if lost.is_empty() || lost.starts_with("lost") => {
                Err(std::io::ErrorKind::ConnectionAborted.into())
            }
            answer => Ok(answer.to_owned()),
        }
    }

    /// Asks until it is answered.
    pub(crate) fn insist(&mut self, request: &str) -> String {
        let deadline = Instant::now() + SOON;
        loop {
            match self.ask(request) {
                Ok(answer) if !answer.starts_with("sorry") => return answer,
                other => assert!(Instant::now() < deadline, "{request}: {other:?}"),
            }
        }
    }
}

/// What was done to each key.
pub(crate) type History = Vec<Vec<Operation<u64>>>;

/// One that writes, exchanges and reads.
pub(crate) struct User {
    pub(crate) number: u32,
    pub(crate) seed: u64,
    /// All users of a service count their time from the same moment.
    pub(crate) began: Instant,
    /// What its keys begin with, and its name: whoever comes later is another.
    pub(crate) prefix: String,
    /// A slow machine has its faults with fewer requests, and would have nothing to judge.
    pub(crate) least_requests: u64,
    /// It asks each question once, and only reads.
    pub(crate) only_reads: bool,
    /// Between requests it rests, so long at most.
    pub(crate) most_rest_us: u32,
}

impl Default for User {
    fn default() -> Self {
        let (number, seed, prefix, only_reads) = (0, 1, String::new(), false);
        Self {
            number,
            seed,
            began: Instant::now(),
            prefix,
            least_requests: 300,
            only_reads,
            most_rest_us: 2000,
        }
    }
}

/// What the client knows to have been there after its operation.
fn last_seen(operation: &Operation<u64>) -> Option<u64> {
    match operation.action {
        Action::Write(value) | Action::Exchange { new: value, done: Some(true), .. } => Some(value),
        Action::Read(seen) => seen,
        Action::Exchange { .. } => None,
    }
}

impl User {
    /// Uses it until it is told to stop.
    pub(crate) fn use_it(&self, mut client: Client, over: &AtomicBool) -> History {
        let &Self { number, seed, began, least_requests, only_reads, most_rest_us, .. } = self;
        let prefix = &self.prefix;
        let now = || Time::ZERO.saturating_add(began.elapsed());
        let mut dice = Dice::new(seed.wrapping_add(u64::from(number)));
        let mut history = vec![Vec::new(); KEYS as usize];
        let mut request = 0_u64;
        while !over.load(Ordering::Relaxed) || request < least_requests {
            request += 1;
            let key = dice.below(KEYS);
            // No value is written twice.
            let value = u64::from(number) << 32 | request;
            let (writes, exchanges) = (dice.happens(400_000) && !only_reads, dice.happens(400_000));
            // Of what this client saw there last, which may still be there.
            let old = history[key as usize].iter().rev().find_map(last_seen).filter(|_| exchanges);
            // Some are asked again until they are answered, and are done once all the same; others are asked once.
            let is_numbered = dice.happens(900_000) && !only_reads;
            let text = match old {
                _ if !writes => format!("get {prefix}{key}"),
                None => format!("put {prefix}{key} {value}"),
                Some(old) => format!("cas {prefix}{key} {old} {value}"),
            };
            let asked = now();
            let answer = if is_numbered {
                Some(client.insist(&format!("{prefix}client-{number}:{request} {text}")))
            } else {
                client.ask(&text).ok()
            };
            let answered = now();
            let ended = answer.is_some().then_some(answered);
            let exchange = |done| old.map(|old| Action::Exchange { old, new: value, done });
            let action = match (writes, answer.as_deref()) {
                (_, Some(refused)) if refused.starts_with("sorry") => continue,
                (true, None) => exchange(None).unwrap_or(Action::Write(value)),
                (true, Some("ok")) => exchange(Some(true)).unwrap_or(Action::Write(value)),
                (true, Some("not")) => exchange(Some(false)).expect("a put is always done"),
                (false, None) => continue,
                (false, Some("none")) => Action::Read(None),
                (false, Some(read)) => {
                    let value = read.strip_prefix("is ").and_then(|value| value.parse().ok());
                    Action::Read(Some(value.expect("a value that was written")))
                }
                (true, Some(other)) => panic!("{text}: {other}"),
            };
            history[key as usize].push(Operation { action, began: asked, ended });
            std::thread::sleep(Duration::from_micros(u64::from(dice.below(most_rest_us))));
        }
        history
    }
}

/// Whether what all users saw of each key could have happened one after the other; of each kind of request there must have been more
/// than `least`.
pub(crate) fn judge(histories: &[History], least: usize, which: &str) {
    for key in 0..KEYS as usize {
        let operations: Vec<_> = histories.iter().flat_map(|history| history[key].clone()).collect();
        let count = |what: fn(&Action<u64>) -> bool| operations.iter().filter(|o| what(&o.action)).count();
        let writes = count(|action| matches!(action, Action::Write(_)));
        let [exchanged, not] = [
            count(|action| matches!(action, Action::Exchange { done: Some(true), .. })),
            count(|action| matches!(action, Action::Exchange { done: Some(false), .. })),
        ];
        let all = operations.len();
        eprintln!("key {key}: {all} operations, {writes} writes, {exchanged} exchanges, {not} in vain");
        assert!(writes.min(exchanged).min(not) > least, "too little was done for a judgement");
        assert!(is_linearizable(&operations), "{which}: key {key} has no order");
    }
}
