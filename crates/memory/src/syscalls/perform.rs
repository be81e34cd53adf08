//! One stopped call: what is shared among its arguments is moved, and the call is made again.
#![expect(unsafe_code, reason = "makes system calls in the program's stead")]

use super::bounce::{self, BAD_ADDRESS, Moved, NO_MEMORY};
use super::copy::{give, load_u32, load_words, touch_load, touch_store};
use super::meaning::is_address;
use super::scratch::Scratch;
use super::signal::{self, Context};
use super::stub::raw;
use super::table::{self, Length, Piece, Row, Way};
use super::{filter, futex, is_shared, refuse, report, vectored};

/// How often a call is made that finds no right although it was just there: others may take it away each time.
const TRIES: usize = 8;
const PAGE_BYTES: usize = 4096;
/// No address of a program lies behind.
const ADDRESSES_END: usize = 1 << 47;

/// A call as it was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) number: usize,
    pub(super) arguments: [usize; 6],
}

impl Call {
    /// Makes it as it stands.
    pub(super) fn again(&self) -> isize {
        self.with(self.arguments)
    }

    /// Makes it with other arguments.
    pub(super) fn with(&self, arguments: [usize; 6]) -> isize {
        // SAFETY: the program's own call; what we changed in it are addresses of private memory as large as it says.
        unsafe { raw(self.number as libc::c_long, arguments) }
    }
}

/// Deals with a stopped call. Gives back what the program is to get for it.
// Not part of the signal's entry, whose stack may be short.
#[inline(never)]
pub(super) fn perform(scratch: &mut Scratch, call: &Call, context: &mut Context) -> isize {
    let Some(row) = table::find(call.number) else {
        return untold(call, call.arguments, 0x3f);
    };
    match row.way {
        Way::Pieces => pieces(scratch, call, row),
        Way::Read => transfer(scratch, call, true),
        Way::Write => transfer(scratch, call, false),
        Way::ReadVector => vectored::read(scratch, call),
        Way::WriteVector => vectored::write(scratch, call),
        Way::ReceiveMessage => vectored::receive(scratch, call),
        Way::SendMessage => vectored::send(scratch, call),
        Way::ReceiveMessages => vectored::receive_many(scratch, call),
        Way::SendMessages => vectored::send_many(scratch, call),
        Way::Futex => futex::futex(scratch, call),
        Way::SignalMask => set_mask(call, context),
        Way::SignalStack => set_stack(scratch, call, row, context),
        Way::SignalAction => signal::set_action(call),
        Way::Refused => refuse::addresses(call, row),
        Way::Clone => clone(call, row, context),
        Way::RefusedVector | Way::AdviceVector => refuse::vector(call),
        Way::Advice => refuse::advice(call, row),
        Way::Moved => refuse::addresses(call, row),
        Way::Control if filter::is_userfaultfds(call.arguments[1]) => refuse::guard(call),
        Way::Control => pieces(scratch, call, row),
        Way::RefusedTransfers => refuse::transfers(call),
        Way::Userfaultfd => refuse::userfaultfd(call),
        Way::Ring => refuse::ring(call),
    }
}

/// As the table says.
fn pieces(scratch: &mut Scratch, call: &Call, row: &Row) -> isize {
    let mut arguments = call.arguments;
    let mut moved: [Option<Moved>; 6] = [const { None }; 6];
    let mut opaque = 0_u8;
    // Lengths that tell how large another argument's place is: they move with it, for another thread could change them.
    let mut lengths = 0_u8;
    for (index, piece) in row.pieces.iter().enumerate() {
        let address = call.arguments[index];
        let is_moved = is_shared(address) && is_address(call, index);
        if !is_moved && lengths >> index & 1 == 0 {
            continue;
        }
        let made = match *piece {
            Piece::Number => continue,
            Piece::Opaque => {
                opaque |= 1 << index;
                continue;
            }
            Piece::Text => Moved::text(scratch, address),
            Piece::In(length) => {
                bytes(call, length).and_then(|bytes| Moved::in_whole(scratch, address, bytes, false))
            }
            Piece::Taken(length) => bytes(call, length).and_then(|bytes| {
                let most = bytes.min(bounce::MOST_BYTES);
                if let Length::Argument(by) = length {
                    arguments[usize::from(by)] = most;
                }
                Moved::in_whole(scratch, address, most, is_zero_copy(call))
            }),
            Piece::Filled(length, unit) => bytes(call, length).and_then(|bytes| {
                let most = bytes.min(bounce::MOST_BYTES);
                match length {
                    Length::Argument(by) => arguments[usize::from(by)] = most,
                    _ if most < bytes => return Err(NO_MEMORY),
                    _ => {}
                }
                Moved::out(scratch, address, most, unit)
            }),
            Piece::InOut(length) => {
                if let Length::At(by) = length {
                    lengths |= 1 << by;
                }
                bytes(call, length).and_then(|bytes| Moved::in_out(scratch, address, bytes))
            }
        };
        match made {
            Ok(made) => {
                arguments[index] = made.private_address();
                moved[index] = Some(made);
            }
            Err(error) => return error,
        }
    }
    let result = if opaque == 0 { call.with(arguments) } else { untold(call, arguments, opaque) };
    for (index, piece) in row.pieces.iter().enumerate() {
        let Some(moved) = &moved[index] else {
            continue;
        };
        let done = match *piece {
            Piece::Filled(..) => moved.give_filled(result),
            Piece::InOut(length) if result >= 0 || result == -(libc::EINTR as isize) => {
                // Of a place whose length is a result, as much as that says.
                let most = match length {
                    Length::At(by) => load_u32(arguments[usize::from(by)]).unwrap_or(0) as usize,
                    _ => usize::MAX,
                };
                moved.give(most)
            }
            _ => true,
        };
        if !done {
            return BAD_ADDRESS;
        }
    }
    result
}

/// How long a piece is, by the call's arguments.
fn bytes(call: &Call, length: Length) -> Result<usize, isize> {
    let value = |index: u8| call.arguments[usize::from(index)];
    let bytes = match length {
        Length::Fixed(bytes) => usize::from(bytes),
        Length::Argument(by) => value(by),
        // Counts are 32 bits in every call that has them.
        Length::Times(by, unit) => (value(by) & 0xffff_ffff) * usize::from(unit),
        Length::Bits(by) => (value(by) & 0xffff_ffff).div_ceil(64) * 8,
        // A negative one is an error that the kernel finds before it writes.
        Length::At(by) => {
            load_u32(value(by)).ok_or(BAD_ADDRESS)?.cast_signed().max(0).cast_unsigned() as usize
        }
    };
    if bytes > ADDRESSES_END { Err(BAD_ADDRESS) } else { Ok(bytes) }
}

/// Whether the kernel sends from these pages after the call.
fn is_zero_copy(call: &Call) -> bool {
    call.number as libc::c_long == libc::SYS_sendto && call.arguments[3] & libc::MSG_ZEROCOPY as usize != 0
}

/// Makes a call whose addresses in `mask` are of something unknown: touched, so that there is a right when the kernel comes.
/// Says so if that does not help.
pub(super) fn untold(call: &Call, arguments: [usize; 6], mask: u8) -> isize {
    let addresses = || {
        (0..6)
            .filter(|&index| mask >> index & 1 == 1 && is_address(call, index))
            .map(|index| arguments[index])
            .filter(|&address| is_shared(address))
    };
    for attempt in 0..TRIES {
        for address in addresses() {
            let end = address + PAGE_BYTES - 1;
            // Least first: rights that are not needed are somebody else's loss.
            let _ = match attempt {
                0 => touch_load(address),
                1 => touch_load(address) && touch_load(end),
                2 => touch_store(address),
                _ => touch_store(address) && touch_store(end),
            };
        }
        let result = call.with(arguments);
        if result != BAD_ADDRESS {
            return result;
        }
    }
    if let Some(address) = addresses().next() {
        report::once(
            call.number,
            Some(address),
            format_args!("which is not covered; copy to private memory first. The call fails (EFAULT)"),
        );
    }
    BAD_ADDRESS
}

/// A process or thread that comes to be where it can go on: what goes on here, with another stack or in the same memory, would
/// be lost. So the call is left to its own instruction, without the arguments that brought it here and that mean nothing.
fn clone(call: &Call, row: &Row, context: &mut Context) -> isize {
    let shared = |index: &usize| row.pieces[*index] != Piece::Number && is_shared(call.arguments[*index]);
    let indexes = 0..row.pieces.len();
    if indexes.clone().any(|index| shared(&index) && is_address(call, index)) {
        return refuse::addresses(call, row);
    }
    context.make_again_without(indexes.filter(shared))
}

/// One buffer of any length.
fn transfer(scratch: &mut Scratch, call: &Call, is_read: bool) -> isize {
    let [descriptor, address, count, ..] = call.arguments;
    if !is_shared(address) {
        return call.again();
    }
    if address.checked_add(count).is_none_or(|end| end > ADDRESSES_END) {
        return BAD_ADDRESS;
    }
    // A file takes and gives as much as is asked for, and programs rely on that; piece by piece, so that the pieces stay in the
    // cache. Whatever else it is may mean one message by one call.
    let piece_bytes = match count {
        0..=bounce::PIECE_BYTES => count,
        _ if is_regular(scratch, descriptor) => bounce::PIECE_BYTES,
        _ => count.min(bounce::MOST_BYTES),
    };
    let mut done = 0;
    loop {
        scratch.release();
        let here = address + done;
        let moved = if is_read {
            Moved::out(scratch, here, piece_bytes.min(count - done), 1)
        } else {
            Moved::in_some(scratch, here, piece_bytes.min(count - done))
        };
        let result = moved.map_or_else(
            |error| error,
            |moved| {
                let mut arguments = call.arguments;
                arguments[1] = moved.private_address();
                arguments[2] = moved.len();
                // An offset, or nothing.
                arguments[3] = arguments[3].wrapping_add(done);
                let result = call.with(arguments);
                if is_read && !moved.give_filled(result) { BAD_ADDRESS } else { result }
            },
        );
        if result < 0 {
            return if done > 0 { done.cast_signed() } else { result };
        }
        done += result.cast_unsigned();
        if result.cast_unsigned() < piece_bytes || done >= count {
            return done.cast_signed();
        }
    }
}

fn is_regular(scratch: &mut Scratch, descriptor: usize) -> bool {
    const STAT_BYTES: usize = 144;
    const MODE_AT: usize = 24;
    let Some(stat) = scratch.reserve(STAT_BYTES, 0, false) else {
        return false;
    };
    // SAFETY: room for what the kernel writes.
    let result = unsafe { raw(libc::SYS_fstat, [descriptor, stat.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    result == 0
        && load_u32(stat.as_ptr() as usize + MODE_AT).is_some_and(|mode| mode & libc::S_IFMT == libc::S_IFREG)
}

/// Signals that this thread blocks: those of its context, for what is blocked now ends with the handler. Many a program
/// blocks all there are in its threads, and then would be killed where it is to be served.
fn set_mask(call: &Call, context: &mut Context) -> isize {
    let [how, new, old, size, ..] = call.arguments;
    let before = context.mask();
    let mut set = |mask: u64| context.set_mask(mask & !signal::KEPT);
    let mut signals = [0];
    if size != 8 {
        return -(libc::EINVAL as isize);
    }
    if new != 0 {
        if load_words(new, &mut signals).is_none() {
            return BAD_ADDRESS;
        }
        let [signals] = signals.map(|word| word as u64);
        match i32::try_from(how) {
            Ok(libc::SIG_BLOCK) => set(before | signals),
            Ok(libc::SIG_UNBLOCK) => set(before & !signals),
            Ok(libc::SIG_SETMASK) => set(signals),
            _ => return -(libc::EINVAL as isize),
        }
    }
    if old != 0 && !give(&before.to_ne_bytes(), old) { BAD_ADDRESS } else { 0 }
}

/// A thread's signal stack: set now, and again by the context when the handler ends.
fn set_stack(scratch: &mut Scratch, call: &Call, row: &Row, context: &mut Context) -> isize {
    let mut stack = [0; 3];
    let new = call.arguments[0];
    let is_new = new != 0 && load_words(new, &mut stack).is_some();
    let result = pieces(scratch, call, row);
    if result == 0 && is_new {
        context.set_stack(stack);
    }
    result
}
