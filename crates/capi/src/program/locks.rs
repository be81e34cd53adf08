//! Locks, conditions and barriers by number. Each is held by a thread, which is known by its `pthread_self`.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint};
use std::sync::Mutex;

use comb_region::task::{Gathered, How};

use super::{deadline, locked, task};
use crate::this_thread;

/// What threads of this component hold: by lock and thread, with what it is given back.
static HELD: Mutex<BTreeMap<(u64, libc::pthread_t), Held>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
enum Held {
    Alone(u64),
    /// Once or several times; never empty.
    Shared(Vec<u64>),
}

/// A condition travels beside eight bits of something else.
const CONDITIONS: u64 = 1 << 56;

const SHARED: c_int = 1;
const SHARED_AT_ONCE: c_int = 2;

/// See `comb_program.h`.
///
/// # Safety
/// `until` is null or points to a time.
pub(super) unsafe extern "C" fn lock(
    number: u64,
    is_shared: c_int,
    until: *const libc::timespec,
    is_realtime: c_int,
) -> c_int {
    let how = match is_shared {
        0 => How::Alone,
        SHARED => How::Shared,
        SHARED_AT_ONCE => How::SharedAtOnce,
        _ => return libc::EINVAL,
    };
    let key = (number, this_thread());
    match locked(&HELD).get(&key) {
        Some(Held::Alone(_)) => return libc::EDEADLK,
        Some(Held::Shared(_)) if how == How::Alone => return libc::EDEADLK,
        _ => {}
    }
    // SAFETY: the caller's promise.
    let (is_try, until) = unsafe { (until.as_ref().is_some_and(is_at_once), deadline(until, is_realtime)) };
    let token = if is_try { task().lock_now(number, how) } else { task().lock_until(number, how, until) };
    let Some(token) = token else { return if is_try { libc::EBUSY } else { libc::ETIMEDOUT } };
    let mut held = locked(&HELD);
    if how == How::Alone {
        held.insert(key, Held::Alone(token));
    } else if let Held::Shared(tokens) = held.entry(key).or_insert_with(|| Held::Shared(Vec::new())) {
        tokens.push(token);
    }
    0
}

/// {0, 0}: not to wait at all.
fn is_at_once(until: &libc::timespec) -> bool {
    (until.tv_sec, until.tv_nsec) == (0, 0)
}

/// See `comb_program.h`.
pub(super) extern "C" fn unlock(number: u64) -> c_int {
    let key = (number, this_thread());
    let token = {
        let mut held = locked(&HELD);
        match held.get_mut(&key) {
            None => return libc::EPERM,
            Some(Held::Shared(tokens)) if tokens.len() > 1 => tokens.pop(),
            Some(_) => match held.remove(&key) {
                Some(Held::Alone(token)) => Some(token),
                Some(Held::Shared(mut tokens)) => tokens.pop(),
                None => None,
            },
        }
    };
    if let Some(token) = token {
        task().unlock_token(number, token);
    }
    0
}

/// See `comb_program.h`.
///
/// # Safety
/// `until` is null or points to a time.
pub(super) unsafe extern "C" fn wait(
    lock: u64,
    condition: u64,
    until: *const libc::timespec,
    is_realtime: c_int,
) -> c_int {
    if condition >= CONDITIONS {
        return libc::EINVAL;
    }
    let key = (lock, this_thread());
    let token = match locked(&HELD).get(&key) {
        Some(&Held::Alone(token)) => token,
        _ => return libc::EPERM,
    };
    // SAFETY: the caller's promise.
    let until = unsafe { deadline(until, is_realtime) };
    let (token, was_notified) = task().wait_until((lock, condition), token, until);
    locked(&HELD).insert(key, Held::Alone(token));
    if was_notified { 0 } else { libc::ETIMEDOUT }
}

/// See `comb_program.h`.
pub(super) extern "C" fn notify(lock: u64, condition: u64, how_many: u64) -> c_int {
    if condition >= CONDITIONS {
        return libc::EINVAL;
    }
    // Who only notifies may have stored without the lock.
    task().publish();
    task().notify(lock, condition, how_many);
    0
}

pub(super) fn barrier(number: u64, threads: c_uint) -> c_int {
    if threads == 0 {
        return -1;
    }
    match task().gather(number, threads) {
        Gathered::Others => 0,
        Gathered::Last => 1,
        Gathered::Misfit => -1,
    }
}
