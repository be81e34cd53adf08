//! What a client that writes all the time sees of a fault: the longest time between two acknowledged writes around it, beside
//! etcd.
//!
//! The client is the same for both but for the words it speaks: one thread, one connection, one write at a time; on an error, or
//! after a second without an answer, it goes to the next replica. Replicas are processes of this machine, of which one is
//! killed, or each has a host of its own ([`network`]), which dies or is cut off: then nobody is told of it, and both services
//! have to find it out by silence.
//!
//! After each fault all is made good again, and every replica must hold every write that was acknowledged.

mod client;
mod etcd;
mod host_agent;
mod network;
mod replica;
mod replicas;
#[cfg(test)]
mod tests;
#[path = "../../group/tests/kv_users/mod.rs"]
mod users;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::Serialize;

use client::{Client, Round, Words};
use etcd::{Etcd, Setting};
pub(crate) use host_agent::run as run_host_agent;
use network::Network;
pub(crate) use replica::run as run_replica;
pub use replica::run_plainly as run_kv;
use replicas::{Replicas, Times};

/// As many as can lose one.
const REPLICAS: usize = 3;
/// After which a client gives an answer up.
const PATIENCE: Duration = Duration::from_secs(1);
/// That of a client whose service knows of a fault within some milliseconds.
const LITTLE_PATIENCE: Duration = Duration::from_millis(50);
/// Before the fault, so that all is as always.
const BEFORE: Duration = Duration::from_millis(200);
/// What is looked at after it, at least: and until as many writes went well again.
const AFTER: Duration = Duration::from_millis(300);
const WRITES_AFTER: usize = 50;
/// A service that does not come back is none.
const LONGEST_GAP: Duration = Duration::from_secs(30);
/// For each gap. A machine that is busy with other work sends clients away without a fault.
const MOST_ATTEMPTS: usize = 10;
/// A replica that has come back takes what it missed.
const CATCHING_UP: Duration = Duration::from_secs(10);

/// Who use the service through a fault, for a judge. Besides them a reader stays at each replica, whatever becomes of it: one that was cut
/// off must not tell it what is no more.
const USERS: usize = 3;
const LEAST_REQUESTS: u64 = 400;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A row of the comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Gap {
    pub(crate) claim: String,
    pub(crate) ours_ms: Option<f64>,
    pub(crate) peer: &'static str,
    pub(crate) theirs_ms: Option<f64>,
    /// Why one of them is.
    pub(crate) missing: Option<String>,
}

/// Harms both, a few times, or often enough for the hundredth part.
pub(crate) fn compare(full: bool) -> Vec<Gap> {
    let faults: &[Fault] = if full { &Fault::OF_PROCESSES } else { &Fault::FEW_OF_PROCESSES };
    // With its usual times etcd needs some seconds for each.
    let (our_count, their_count) = if full { (100, 25) } else { (5, 2) };
    let ours = Replicas::start(Times::DEFAULT).and_then(|mut it| all_gaps(&mut it, faults, our_count));
    let mut rows = Vec::new();
    for setting in [Setting::Default, Setting::Shortest] {
        let theirs = Etcd::start(setting).and_then(|mut it| all_gaps(&mut it, faults, their_count));
        rows.extend(beside(faults, "", &ours, setting, &theirs));
    }
    rows
}

/// The same for hosts, each with one replica: few faults, or ten of each kind.
pub(crate) fn compare_hosts(full: bool) -> Vec<Gap> {
    let faults: &[Fault] = if full { &Fault::OF_HOSTS } else { &Fault::FEW_OF_HOSTS };
    let count = if full { 10 } else { 1 };
    let ours = |times| on_hosts(|network| all_gaps(&mut Replicas::start_on(network, times)?, faults, count));
    let theirs =
        |setting| on_hosts(|network| all_gaps(&mut Etcd::start_on(network, setting)?, faults, count));
    let default = theirs(Setting::Default);
    let mut rows = beside(faults, "", &ours(Times::DEFAULT), Setting::Default, &default);
    if full {
        let shortest = theirs(Setting::Shortest);
        for times in [Times::LITTLE_PATIENCE, Times::SHORT] {
            rows.extend(beside(faults, times.in_words(), &ours(times), Setting::Shortest, &shortest));
        }
    }
    rows
}

/// One fault of each kind, of processes and of hosts, to our service alone: what it must not lose, that every replica comes back, and that
/// what users saw meanwhile, who write, exchange and read everywhere, could have happened one after the other.
pub(crate) fn go_through_each() -> Outcome<()> {
    let each = |service: &mut dyn Service, faults: &[Fault]| {
        let mut numbered = faults.iter().zip(0..);
        numbered.try_for_each(|(fault, number)| judge_through(service, *fault, number))
    };
    each(&mut Replicas::start(Times::DEFAULT)?, &Fault::OF_PROCESSES)?;
    on_hosts(|network| each(&mut Replicas::start_on(network, Times::SHORT)?, &Fault::OF_HOSTS))
}

fn judge_through(service: &mut dyn Service, fault: Fault, fault_number: u64) -> Outcome<()> {
    let (over, histories, began) = (AtomicBool::new(false), Mutex::new(Vec::new()), Instant::now());
    let addresses = Arc::new(service.addresses());
    let gone_through = std::thread::scope(|scope| {
        for user in 0..USERS + REPLICAS {
            let stays_at = user.checked_sub(USERS).map(|at| Arc::new(vec![addresses[at]]));
            let (only_reads, least_requests) =
                (stays_at.is_some(), if user < USERS { LEAST_REQUESTS } else { 0 });
            let client = users::Client::new(&stays_at.unwrap_or(Arc::clone(&addresses)), user);
            let (over, histories, number) = (&over, &histories, u32::try_from(user).expect("few"));
            let prefix = format!("fault-{fault_number}-");
            let user = users::User {
                number,
                seed: fault_number,
                began,
                prefix,
                least_requests,
                only_reads,
                most_rest_us: 10_000,
            };
            scope.spawn(move || {
                let history = user.use_it(client, over);
                histories.lock().expect("no panic").push(history);
            });
        }
        let gone_through = all_gaps(service, &[fault], 1);
        over.store(true, Ordering::Relaxed);
        gone_through
    });
    gone_through?;
    users::judge(&histories.into_inner()?, 1, &fault.in_words());
    Ok(())
}

/// Does it on hosts of its own, at their switch.
fn on_hosts<T: Send>(work: impl FnOnce(&mut Network) -> Outcome<T> + Send) -> Outcome<T> {
    let mut network = Network::make(REPLICAS)?;
    let switch = network.switch();
    switch.within(|| work(&mut network))
}

/// The gaps of each fault.
type Gaps = Outcome<Vec<Vec<f64>>>;

/// At half and at 99 of 100 of the gaps, which are fewer than a hundred: then that is the longest.
fn beside(faults: &[Fault], way: &str, ours: &Gaps, setting: Setting, theirs: &Gaps) -> Vec<Gap> {
    let errors = [ours.as_ref().err(), theirs.as_ref().err()];
    let missing = errors.into_iter().flatten().next().map(|error| format!("not measured: {error}"));
    let mut rows = Vec::new();
    let is_one = ours.as_ref().is_ok_and(|gaps| gaps.iter().all(|gaps| gaps.len() == 1));
    let parts: &[usize] = if is_one { &[50] } else { &[50, 99] };
    for (number, fault) in faults.iter().enumerate() {
        for &part in parts {
            let of = |gaps: &Gaps| {
                let gaps = &gaps.as_ref().ok()?[number];
                gaps.get(gaps.len() * part / 100).copied()
            };
            rows.push(Gap {
                claim: format!("write gap, {}{way}: p{part}", fault.in_words()),
                ours_ms: of(ours),
                peer: setting.in_words(),
                theirs_ms: of(theirs),
                missing: missing.clone(),
            });
        }
    }
    rows
}

/// A replicated service that can be harmed.
trait Service {
    fn words(&self) -> Words;
    /// How long a client waits for an answer before it asks another replica.
    fn patience(&self) -> Duration;
    /// How long it needs after a fault until it is as it always is.
    fn calm(&self) -> Duration {
        Duration::ZERO
    }
    fn addresses(&self) -> Vec<SocketAddr>;
    /// Which replica orders the writes now.
    fn leader(&mut self) -> Outcome<usize>;
    /// Does it to a replica, at once.
    fn harm(&mut self, number: usize, harm: Harm) -> Outcome<()>;
    /// Makes it good, and waits until the service is whole.
    fn heal(&mut self, number: usize, harm: Harm) -> Outcome<()>;
}

/// What happens to a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Harm {
    /// It is killed, and the kernel knows.
    ProcessEnds,
    /// Its host is heard no more, and all processes there have ended.
    HostEnds,
    /// Its host and the others do not hear each other. Clients reach all.
    CutOff,
}

/// What is done to which replica, and where the client is. Without harm: what a machine with other work to do does to a client
/// that writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Fault {
    harm: Option<Harm>,
    /// The replica that orders the writes, and not one that only follows.
    of_leader: bool,
    /// Whether the client is at that one.
    of_client: bool,
}

impl Fault {
    const NONE: Self = Self { harm: None, of_leader: true, of_client: true };
    const OF_PROCESSES: [Self; 4] = [
        Self::NONE,
        Self::leader_of_client(Harm::ProcessEnds),
        Self::leader_elsewhere(Harm::ProcessEnds),
        Self::follower_of_client(Harm::ProcessEnds),
    ];
    const FEW_OF_PROCESSES: [Self; 3] =
        [Self::NONE, Self::leader_of_client(Harm::ProcessEnds), Self::follower_of_client(Harm::ProcessEnds)];
    const OF_HOSTS: [Self; 6] = [
        Self::NONE,
        Self::leader_of_client(Harm::HostEnds),
        Self::leader_elsewhere(Harm::HostEnds),
        Self::follower_of_client(Harm::HostEnds),
        Self::leader_of_client(Harm::CutOff),
        Self::follower_of_client(Harm::CutOff),
    ];
    const FEW_OF_HOSTS: [Self; 2] =
        [Self::leader_of_client(Harm::HostEnds), Self::leader_of_client(Harm::CutOff)];

    const fn leader_of_client(harm: Harm) -> Self {
        Self { harm: Some(harm), of_leader: true, of_client: true }
    }

    const fn leader_elsewhere(harm: Harm) -> Self {
        Self { harm: Some(harm), of_leader: true, of_client: false }
    }

    const fn follower_of_client(harm: Harm) -> Self {
        Self { harm: Some(harm), of_leader: false, of_client: true }
    }

    fn in_words(self) -> String {
        let whose = if self.of_leader { "the leader" } else { "a follower" };
        let client = if self.of_client { "client there" } else { "client at a follower" };
        match self.harm {
            None => "no fault".to_owned(),
            Some(Harm::ProcessEnds) => format!("kill -9 of {whose}, {client}"),
            Some(Harm::HostEnds) => format!("host of {whose} dies, {client}"),
            Some(Harm::CutOff) => format!("{whose} cut off, {client}"),
        }
    }
}

/// The gaps of so many faults of each kind, in milliseconds, from the least.
fn all_gaps(service: &mut dyn Service, faults: &[Fault], count: usize) -> Gaps {
    std::thread::sleep(service.calm());
    let (mut all, mut number, is_long) = (Vec::new(), 0, count > 10);
    for fault in faults {
        let mut gaps = Vec::new();
        while gaps.len() < count {
            number += 1;
            if number as usize > faults.len() * count * MOST_ATTEMPTS {
                return Err("the client never stays where it is put".into());
            }
            if is_long {
                eprint!("\r{:70}\r{}: {} of {count}", "", fault.in_words(), gaps.len() + 1);
            }
            let found = gap(service, *fault, number).map_err(|why| format!("{}: {why}", fault.in_words()))?;
            gaps.extend(found.map(|gap| gap.as_secs_f64() * 1e3));
        }
        gaps.sort_by(f64::total_cmp);
        all.push(gaps);
    }
    if is_long {
        eprint!("\r{:70}\r", "");
    }
    Ok(all)
}

/// Of one fault; the number tells whose writes are whose. None if the client had gone elsewhere before: then nothing was done.
fn gap(service: &mut dyn Service, fault: Fault, number: u32) -> Outcome<Option<Duration>> {
    let leader = service.leader()?;
    let follower = (leader + 1) % REPLICAS;
    let victim = if fault.of_leader { leader } else { follower };
    let client_at = if fault.of_client { victim } else { follower };
    let (over, acknowledged) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let round = Round(number);
    let mut client = Client::new(service, client_at, round);
    let place = client.place();
    let is_there = || place.load(Ordering::Relaxed) == client_at;
    let at = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if let Some(key) = client.write() {
                    acknowledged.lock().expect("no panic").push((Instant::now(), key));
                }
            }
        });
        let watched = watch(service, fault.harm.map(|harm| (victim, harm)), &acknowledged, is_there);
        over.store(true, Ordering::Relaxed);
        watched
    })?;
    let (times, keys): (Vec<_>, Vec<_>) = acknowledged.into_inner()?.into_iter().unzip();
    if let (Some(harm), Some(_)) = (fault.harm, at) {
        service.heal(victim, harm)?;
    }
    await_all_kept(service, round, &keys)?;
    let Some(at) = at else { return Ok(None) };
    if fault.harm.is_some() {
        std::thread::sleep(service.calm());
    }
    let around = times.windows(2).filter(|pair| pair[1] > at);
    let longest = around.map(|pair| pair[1] - pair[0]).max();
    longest.map(Some).ok_or_else(|| "nothing was written".into())
}

/// Every replica must have what any of them has acknowledged: soon, for one that was away.
fn await_all_kept(service: &dyn Service, round: Round, keys: &[String]) -> Outcome<()> {
    let deadline = Instant::now() + CATCHING_UP;
    for (number, address) in service.addresses().into_iter().enumerate() {
        loop {
            let lacking = service.words().lacking(address, round, keys);
            match lacking {
                Ok(0) => break,
                _ if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
                Ok(lost) => {
                    let all = keys.len();
                    return Err(format!("replica {number} lost {lost} of {all} acknowledged writes").into());
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Does the harm while the client writes, and says when; none if the client is no longer there. Returns when all is as before.
fn watch(
    service: &mut dyn Service,
    harm: Option<(usize, Harm)>,
    acknowledged: &Mutex<Vec<(Instant, String)>>,
    is_there: impl Fn() -> bool,
) -> Outcome<Option<Instant>> {
    let writes_since = |at: Instant| {
        acknowledged.lock().map_or(0, |writes| writes.iter().rev().take_while(|write| write.0 > at).count())
    };
    let await_writes = |since: Instant, least: Duration| loop {
        std::thread::sleep(Duration::from_millis(5));
        if since.elapsed() >= least && writes_since(since) >= WRITES_AFTER {
            return Ok(());
        }
        if since.elapsed() > LONGEST_GAP {
            return Err("the service does not come back");
        }
    };
    await_writes(Instant::now(), BEFORE)?;
    if !is_there() {
        return Ok(None);
    }
    let at = Instant::now();
    if let Some((victim, harm)) = harm {
        service.harm(victim, harm)?;
    }
    // Writes that were acknowledged while the harm was being done are no sign that all is as before.
    await_writes(Instant::now(), AFTER)?;
    Ok(Some(at))
}
