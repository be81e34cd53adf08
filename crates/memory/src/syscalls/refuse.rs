//! What a program may not do with shared memory, for it would pull the ground from under this crate: it is told so, and the call
//! fails.

use super::bounce::BAD_ADDRESS;
use super::copy::load_words;
use super::filter::FORBIDDEN_ADVICE;
use super::meaning::is_address;
use super::perform::{Call, untold};
use super::report;
use super::table::{Piece, Row};
use super::{SHARED, is_shared};

const NOT_PERMITTED: isize = -(libc::EPERM as isize);
/// Of arrays that are looked at; the kernel takes no longer ones of buffers.
const MOST: usize = 1024;

/// Mappings, thread stacks, words that the kernel clears later.
pub(super) fn addresses(call: &Call, row: &Row) -> isize {
    let arguments = call.arguments;
    // A child of its own memory may have its number written wherever it likes.
    let is_allowed = |index: usize| {
        call.number as libc::c_long == libc::SYS_clone
            && index >= 2
            && arguments[0] & libc::CLONE_VM as usize == 0
    };
    let shared = row.pieces.iter().enumerate().find(|&(index, &piece)| {
        piece != Piece::Number && is_shared(arguments[index]) && is_address(call, index) && !is_allowed(index)
    });
    match shared {
        Some((index, _)) => refused(call, arguments[index]),
        None => call.again(),
    }
}

/// Also of what begins elsewhere and reaches into shared memory, if it is what that must not be told.
pub(super) fn advice(call: &Call, row: &Row) -> isize {
    let [address, bytes, advice, ..] = call.arguments;
    let is_forbidden = FORBIDDEN_ADVICE.iter().any(|&forbidden| forbidden as usize == advice & 0xffff_ffff);
    let reaches = address < SHARED.start && address.saturating_add(bytes) > SHARED.start;
    if is_forbidden && reaches { refused(call, SHARED.start) } else { addresses(call, row) }
}

/// Pages given away, or another process's way into them; or this one's, which would hold on to pages for a while.
pub(super) fn vector(call: &Call) -> isize {
    let [process, array, count, there, count_there, ..] = call.arguments;
    let is_by_process =
        [libc::SYS_process_vm_readv, libc::SYS_process_vm_writev].contains(&(call.number as libc::c_long));
    let arrays = [(array, count), (there, if is_by_process && is_ours(process) { count_there } else { 0 })];
    for (array, count) in arrays {
        for index in 0..count.min(MOST) {
            let mut pair = [0; 2];
            if load_words(array.wrapping_add(index * 16), &mut pair).is_none() {
                return BAD_ADDRESS;
            }
            if is_shared(pair[0]) {
                return refused(call, pair[0]);
            }
        }
    }
    if is_shared(array) { untold(call, call.arguments, 0b10) } else { call.again() }
}

fn is_ours(process: usize) -> bool {
    usize::try_from(std::process::id()).is_ok_and(|ours| ours == process & 0xffff_ffff)
}

/// Transfers that go on after the call: private memory would have to outlive it, and nobody says until when.
pub(super) fn transfers(call: &Call) -> isize {
    const BUFFER: usize = 3;
    const ONE_BUFFER_OR_ARRAY: [usize; 4] = [0, 1, 7, 8];
    let [_, count, array, ..] = call.arguments;
    for index in 0..count.min(MOST) {
        let mut block = [0; 1];
        let mut words = [0; BUFFER + 2];
        let is_loaded = load_words(array.wrapping_add(index * 8), &mut block)
            .and_then(|()| load_words(block[0], &mut words));
        // What cannot be read the kernel will say.
        if is_loaded.is_none() {
            break;
        }
        let operation = words[2] & 0xffff;
        if !ONE_BUFFER_OR_ARRAY.contains(&operation) {
            continue;
        }
        if is_shared(words[BUFFER]) {
            return refused(call, words[BUFFER]);
        }
        let buffers = if operation >= 7 { words[BUFFER + 1].min(MOST) } else { 0 };
        for buffer in 0..buffers {
            let mut pair = [0; 2];
            if load_words(words[BUFFER].wrapping_add(buffer * 16), &mut pair).is_some() && is_shared(pair[0])
            {
                return refused(call, pair[0]);
            }
        }
    }
    if is_shared(array) { untold(call, call.arguments, 0b100) } else { call.again() }
}

pub(super) fn userfaultfd(call: &Call) -> isize {
    say(call, "is refused in a process with shared memory, which has one of its own. The call fails (EPERM)");
    NOT_PERMITTED
}

pub(super) fn guard(call: &Call) -> isize {
    say(
        call,
        "asks something of a userfaultfd, which in a process with shared memory is its own alone. The call fails (EPERM)",
    );
    NOT_PERMITTED
}

pub(super) fn ring(call: &Call) -> isize {
    say(
        call,
        "is refused in a process with shared memory, for its transfers there would fail unseen. The call fails (ENOSYS); use read, write and their kin",
    );
    -(libc::ENOSYS as isize)
}

fn say(call: &Call, what: &str) {
    report::once(call.number, None, format_args!("{what}"));
}

fn refused(call: &Call, address: usize) -> isize {
    let what = "where that is not permitted: whoever made the region maps, unmaps and fills it. The call fails (EPERM)";
    report::once(call.number, Some(address), format_args!("{what}"));
    NOT_PERMITTED
}
