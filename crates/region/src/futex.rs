//! `futex` on shared memory: who sleeps at which word, in whatever component.
//!
//! The kernel finds the sleepers of a word by its page frame. Components with copies have none in common. So each word has a keeper, a component
//! that all know without asking ([`crate::engine::Engine::keeper`]), and the keeper has the queue.
//!
//! Who is to sleep is put into the queue first, and then loads the word. A store that this load does not see comes after it, and so whoever
//! wakes after that store finds the sleeper there. Who sees another value, is late, or is interrupted, takes itself out again; if it
//! was woken meanwhile it says that instead, for whoever woke it has counted it.
//!
//! Named regions have no keepers: see [`region`].
//!
//! Loads and stores must be atomic among components for any of this to mean something: with protocols of many writers they are not.

mod region;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use comb_memory::syscalls::FutexCall;
use rustix::io::Errno;

use crate::driver::Core;
use crate::engine::Engine;
use crate::kept::{Kept, TooMuch};
use crate::named;
use crate::runtime::{self, Runtime};
use crate::waiting::Slot;
use crate::wire::{Head, Kind};

/// What is said about a word. The first word of a message is one of these, and bits that choose sleepers above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Word {
    /// To the keeper: somebody sleeps. Address, the sleeper's token, the token of who waits for the answer.
    Wait = 0,
    /// It does not any more: the same. The answer comes behind what the keeper has said before.
    Cancel,
    /// Wakes: address, token of who waits for the answer, how many.
    Wake,
    /// Of the keeper: token, how many.
    Answer,
    /// To a sleeper: token.
    Woken,
}

const WORDS: [Word; 5] = [Word::Wait, Word::Cancel, Word::Wake, Word::Answer, Word::Woken];

/// Why a message about words is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Mistake {
    #[error("word {0} about who sleeps")]
    Word(u64),
    #[error("more than {0} threads of one component that sleep")]
    Sleepers(u64),
}

/// More than a component has threads.
pub(crate) const MOST_SLEEPERS: u64 = 65_536;

/// One thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sleeper {
    rank: u32,
    token: u64,
    /// It is woken by who has one of these.
    bits: u32,
}

/// The queues of words that this component keeps.
#[derive(Debug)]
pub(crate) struct Futexes {
    queues: BTreeMap<u64, VecDeque<Sleeper>>,
    sleepers: Kept,
}

impl Futexes {
    pub(crate) fn new(own: u32) -> Self {
        Self { queues: BTreeMap::new(), sleepers: Kept::new(own, MOST_SLEEPERS) }
    }

    /// What another component says.
    pub(crate) fn take(&mut self, core: &mut Core, from: u32, head: &Head) -> Result<(), Mistake> {
        let [first, address, token, more] = *head;
        #[expect(clippy::cast_possible_truncation, reason = "parts of it")]
        let (word, bits) = (WORDS.get(usize::from(first as u8)), (first >> 32) as u32);
        let answer = match word.ok_or(Mistake::Word(first))? {
            Word::Wait => {
                let added = self.add(address, Sleeper { rank: from, token, bits });
                added.map_err(|TooMuch(most)| Mistake::Sleepers(most))?;
                (more, 0)
            }
            Word::Cancel => {
                self.cancel(address, from, token);
                (more, 0)
            }
            Word::Wake => (token, self.wake(core, address, more, bits)),
            Word::Answer => {
                return core.answered(from, token, [more, 0]).map_err(|_| Mistake::Word(first));
            }
            Word::Woken => {
                return core.answered(from, token, [0, 0]).map_err(|_| Mistake::Word(first));
            }
        };
        core.say(from, Kind::Futex, &[Word::Answer as u64, address, answer.0, answer.1], &[]);
        Ok(())
    }

    /// Whoever sleeps in that component never wakes.
    pub(crate) fn forget(&mut self, rank: u32) {
        let sleepers = &mut self.sleepers;
        self.queues.retain(|_, queue| {
            queue.retain(|sleeper| {
                let stays = sleeper.rank != rank;
                if !stays {
                    sleepers.remove(rank, 1);
                }
                stays
            });
            !queue.is_empty()
        });
    }

    /// Ends so many waits, and says how many there were.
    fn wake(&mut self, core: &mut Core, address: u64, most: u64, bits: u32) -> u64 {
        let woken = self.remove(address, most, bits);
        for sleeper in &woken {
            if sleeper.rank == core.me.0 {
                let woken = core.answered(sleeper.rank, sleeper.token, [0, 0]);
                debug_assert!(woken.is_ok(), "one of our threads sleeps there");
            } else {
                core.say(sleeper.rank, Kind::Futex, &[Word::Woken as u64, address, sleeper.token, 0], &[]);
            }
        }
        woken.len() as u64
    }

    fn add(&mut self, address: u64, sleeper: Sleeper) -> Result<(), TooMuch> {
        self.sleepers.add(sleeper.rank, 1)?;
        self.queues.entry(address).or_default().push_back(sleeper);
        Ok(())
    }

    fn cancel(&mut self, address: u64, rank: u32, token: u64) {
        self.take_out(address, |sleeper| (sleeper.rank, sleeper.token) == (rank, token));
    }

    /// Takes the first ones out that have one of the bits.
    fn remove(&mut self, address: u64, most: u64, bits: u32) -> Vec<Sleeper> {
        let mut left = most;
        self.take_out(address, |sleeper| {
            let is_chosen = sleeper.bits & bits != 0 && left > 0;
            left -= u64::from(is_chosen);
            is_chosen
        })
    }

    fn take_out(&mut self, address: u64, mut is_meant: impl FnMut(&Sleeper) -> bool) -> Vec<Sleeper> {
        let mut out = Vec::new();
        let Some(queue) = self.queues.get_mut(&address) else { return out };
        queue.retain(|sleeper| {
            let goes = is_meant(sleeper);
            if goes {
                out.push(*sleeper);
            }
            !goes
        });
        if queue.is_empty() {
            self.queues.remove(&address);
        }
        out.iter().for_each(|sleeper| self.sleepers.remove(sleeper.rank, 1));
        out
    }
}

/// Does what a thread of this component has asked the kernel for, on that thread. A negative number is an error's.
pub(crate) fn on_futex(call: FutexCall) -> isize {
    let done = if named::is_named(call.address) {
        region::perform(&call)
    } else {
        runtime::of_this_process().ok_or(Errno::FAULT).and_then(|runtime| perform(runtime, &call))
    };
    done.unwrap_or_else(|error| -(error.raw_os_error() as isize))
}

/// The same where all components share the word's page frame: the kernel itself knows who sleeps there.
pub(crate) fn of_kernel(word: *const u32, operation: i32, value: u32, timeout: Option<(i64, i64)>) -> isize {
    let done = (|| {
        let until = timeout.map(time).transpose()?.map(region::monotonic);
        let waits = operation == libc::FUTEX_WAIT;
        let operation = if waits { libc::FUTEX_WAIT_BITSET } else { libc::FUTEX_WAKE_BITSET };
        region::native(word as usize, operation, value, until, ANY)
    })();
    done.unwrap_or_else(|error| -(error.raw_os_error() as isize))
}

/// Not to be woken by bits: all of them.
const ANY: u32 = u32::MAX;

fn perform(runtime: &Runtime, call: &FutexCall) -> Result<isize, Errno> {
    let FutexCall { address, operation, value, timeout, value3, .. } = *call;
    if !address.is_multiple_of(4) {
        return Err(Errno::INVAL);
    }
    let is_wall_clock = operation & libc::FUTEX_CLOCK_REALTIME != 0;
    match operation & libc::FUTEX_CMD_MASK {
        libc::FUTEX_WAIT => wait(runtime, address, (value, ANY), after(timeout)?),
        libc::FUTEX_WAIT_BITSET => wait(runtime, address, (value, value3), at(timeout, is_wall_clock)?),
        libc::FUTEX_WAKE => wake(runtime, address, value, ANY),
        libc::FUTEX_WAKE_BITSET => wake(runtime, address, value, value3),
        other => {
            refuse(other, NOT_COVERED, address);
            Err(Errno::NOSYS)
        }
    }
}

fn wait(
    runtime: &Runtime,
    address: usize,
    (expected, bits): (u32, u32),
    deadline: Option<Instant>,
) -> Result<isize, Errno> {
    if bits == 0 {
        return Err(Errno::INVAL);
    }
    let (place, _) = runtime.call(|engine, added| add(engine, address, bits, added));
    let (place, keeper, token) = place.ok_or(Errno::FAULT)?;
    let waited = match load(address) {
        Ok(value) if value == expected => runtime.wait_as_told(&place, deadline),
        Ok(_) => Err(Errno::AGAIN),
        Err(error) => Err(error),
    };
    if waited.is_err() {
        runtime.call(|engine, canceled| cancel(engine, address, token, canceled));
    }
    let mut engine = runtime.lock();
    let is_woken = place.is_done();
    // Who was not woken is not waited for any more.
    let _ = engine.core.answered(keeper, token, [0, 0]);
    engine.slots.push(place);
    drop(engine);
    if is_woken { Ok(0) } else { waited.map(|()| 0) }
}

/// Puts a thread into the queue: the slot that ends when it is woken, who keeps the queue, and its token.
fn add(engine: &mut Engine, address: usize, bits: u32, added: &Arc<Slot>) -> Option<(Arc<Slot>, u32, u64)> {
    added.begin(0);
    let keeper = engine.keeper(address)?;
    let place = engine.slot();
    place.begin(1);
    let token = engine.core.token(keeper, &place);
    let rank = engine.core.me.0;
    if keeper == rank {
        engine.futexes.add(address as u64, Sleeper { rank, token, bits }).expect("as many as we like");
    } else {
        added.begin(1);
        let answer = engine.core.token(keeper, added);
        say(&mut engine.core, keeper, (Word::Wait, bits), [address as u64, token, answer]);
    }
    Some((place, keeper, token))
}

fn cancel(engine: &mut Engine, address: usize, token: u64, canceled: &Arc<Slot>) {
    canceled.begin(0);
    // Memory that was freed meanwhile: whoever frees it says that nobody uses it.
    let Some(keeper) = engine.keeper(address) else { return };
    if keeper == engine.core.me.0 {
        engine.futexes.cancel(address as u64, keeper, token);
    } else {
        canceled.begin(1);
        let answer = engine.core.token(keeper, canceled);
        say(&mut engine.core, keeper, (Word::Cancel, 0), [address as u64, token, answer]);
    }
}

fn wake(runtime: &Runtime, address: usize, most: u32, bits: u32) -> Result<isize, Errno> {
    if bits == 0 {
        return Err(Errno::INVAL);
    }
    // The kernel counts after it has woken one.
    let most = u64::from(most.cast_signed().max(1).cast_unsigned());
    let (known, [elsewhere, _]) = runtime.call(|engine, slot| {
        slot.begin(0);
        let keeper = engine.keeper(address)?;
        let Engine { futexes, core, .. } = engine;
        if keeper == core.me.0 {
            return Some(Some(futexes.wake(core, address as u64, most, bits)));
        }
        slot.begin(1);
        let token = core.token(keeper, slot);
        say(core, keeper, (Word::Wake, bits), [address as u64, token, most]);
        Some(None)
    });
    let woken = known.ok_or(Errno::FAULT)?.unwrap_or(elsewhere);
    Ok(isize::try_from(woken).unwrap_or(isize::MAX))
}

fn say(core: &mut Core, to: u32, (word, bits): (Word, u32), [address, token, more]: [u64; 3]) {
    let head = [word as u64 | u64::from(bits) << 32, address, token, more];
    core.say(to, Kind::Futex, &head, &[]);
}

/// The word, as all components see it now. Not in parts: with its neighbour, in one load.
fn load(address: usize) -> Result<u32, Errno> {
    let mut pair = [0; 8];
    let start = comb_memory::pointer((address & !7) as u64).cast_const();
    comb_memory::careful_copy_from(start, &mut pair).map_err(|_| Errno::FAULT)?;
    let [one, other] = pair.as_chunks::<4>().0 else { return Err(Errno::FAULT) };
    Ok(u32::from_ne_bytes(if address & 4 == 0 { *one } else { *other }))
}

/// A time as the kernel takes it.
fn time((seconds, nanoseconds): (i64, i64)) -> Result<Duration, Errno> {
    let nanoseconds = u32::try_from(nanoseconds).ok().filter(|&nanoseconds| nanoseconds < 1_000_000_000);
    match (u64::try_from(seconds), nanoseconds) {
        (Ok(seconds), Some(nanoseconds)) => Ok(Duration::new(seconds, nanoseconds)),
        _ => Err(Errno::INVAL),
    }
}

/// So long from now. What lies too far ahead for a clock is never.
fn after(timeout: Option<(i64, i64)>) -> Result<Option<Instant>, Errno> {
    Ok(timeout.map(time).transpose()?.and_then(|time| Instant::now().checked_add(time)))
}

/// When a clock says so. Who sets the wall clock meanwhile does not change how long is waited.
fn at(timeout: Option<(i64, i64)>, is_wall_clock: bool) -> Result<Option<Instant>, Errno> {
    let Some(time) = timeout.map(time).transpose()? else { return Ok(None) };
    let now = if is_wall_clock {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    } else {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        self::time((now.tv_sec, now.tv_nsec))?
    };
    Ok(Instant::now().checked_add(time.saturating_sub(now)))
}

const NOT_COVERED: &str = "is not covered: only to wait and to wake is";

/// Says once that an operation is not to be had.
fn refuse(operation: i32, why: &str, address: usize) {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if IS_SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    // At once and in one piece: whoever made the call may hold the lock of the standard stream.
    let text = format!(
        "comb: futex operation {operation} on shared memory at {address:#x}, which {why}. The call fails (ENOSYS); use mutexes without priority inheritance, of a task's memory \
         or of an imported region\n"
    );
    let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u64 = 0x1000_0000_0040;
    const B: u64 = 0x1000_0000_0044;

    fn sleeper(rank: u32, token: u64, bits: u32) -> Sleeper {
        Sleeper { rank, token, bits }
    }

    fn queues() -> Futexes {
        let mut futexes = Futexes::new(0);
        for (address, rank, token, bits) in
            [(A, 0, 1, ANY), (A, 1, 1, 0b01), (B, 1, 2, ANY), (A, 1, 3, 0b10), (A, 2, 1, 0b11)]
        {
            futexes.add(address, sleeper(rank, token, bits)).expect("room");
        }
        futexes
    }

    #[test]
    fn who_came_first_is_woken_first_and_only_at_that_word() {
        let mut futexes = queues();
        assert_eq!(futexes.remove(A, 2, ANY), [sleeper(0, 1, ANY), sleeper(1, 1, 0b01)]);
        assert_eq!(futexes.remove(A, u64::MAX, ANY), [sleeper(1, 3, 0b10), sleeper(2, 1, 0b11)]);
        assert_eq!(futexes.remove(A, 1, ANY), []);
        assert_eq!(futexes.remove(B, 1, ANY), [sleeper(1, 2, ANY)]);
        assert!(futexes.queues.is_empty());
    }

    #[test]
    fn bits_choose_and_the_others_keep_their_places() {
        let mut futexes = queues();
        assert_eq!(futexes.remove(A, 2, 0b10), [sleeper(0, 1, ANY), sleeper(1, 3, 0b10)]);
        assert_eq!(futexes.remove(A, 9, 0b100), []);
        assert_eq!(futexes.remove(A, 9, ANY), [sleeper(1, 1, 0b01), sleeper(2, 1, 0b11)]);
    }

    /// Tokens are each component's own: two may have the same.
    #[test]
    fn who_takes_itself_out_is_not_woken() {
        let mut futexes = queues();
        futexes.cancel(A, 1, 1);
        futexes.cancel(A, 1, 77);
        assert_eq!(futexes.remove(A, 2, ANY), [sleeper(0, 1, ANY), sleeper(1, 3, 0b10)]);
        futexes.cancel(B, 1, 2);
        assert_eq!(futexes.remove(B, 1, ANY), []);
    }

    #[test]
    fn a_component_that_is_gone_leaves_no_sleeper_behind() {
        let mut futexes = queues();
        futexes.forget(1);
        assert_eq!(futexes.remove(A, 9, ANY), [sleeper(0, 1, ANY), sleeper(2, 1, 0b11)]);
        assert!(futexes.queues.is_empty(), "that of the other word, too");
    }

    #[test]
    fn times_are_what_the_kernel_takes() {
        for bad in [(-1, 0), (0, -1), (0, 1_000_000_000)] {
            assert_eq!(after(Some(bad)), Err(Errno::INVAL));
            assert_eq!(at(Some(bad), true), Err(Errno::INVAL));
        }
        assert_eq!(after(None), Ok(None));
        assert_eq!(after(Some((i64::MAX, 0))), Ok(None), "never");
        let past = at(Some((1, 0)), true).unwrap().unwrap();
        assert!(past <= Instant::now());
        let long = after(Some((1000, 0))).unwrap().unwrap();
        assert!(long > Instant::now() + Duration::from_secs(900));
    }
}
