//! Calls whose addresses stand in memory: arrays of buffers, message headers.
//!
//! What the kernel gets is always our copy of the array, so that no other thread can change it between our look and the
//! kernel's.

use super::bounce::{BAD_ADDRESS, MOST_BYTES, Moved, NO_MEMORY};
use super::copy::{give, load_words};
use super::is_shared;
use super::perform::Call;
use super::scratch::Scratch;

/// The kernel takes no more buffers at once.
const MOST_BUFFERS: usize = 1024;
/// Messages at once. Who asks for more gets an answer for these, and asks again.
const MOST_MESSAGES: usize = 64;
/// Addresses of sockets are shorter.
const NAME_BYTES: usize = 128;
/// More control data than any kernel accepts by default.
const CONTROL_BYTES: usize = 1 << 20;

/// What of a message header stands where, in words.
const NAME: usize = 0;
const NAME_LENGTH: usize = 1;
const BUFFERS: usize = 2;
const BUFFER_COUNT: usize = 3;
const CONTROL: usize = 4;
const CONTROL_LENGTH: usize = 5;
const FLAGS: usize = 6;
const HEADER_WORDS: usize = 7;
/// Of an array of messages, each with the length of what came.
const MESSAGE_WORDS: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Towards {
    Kernel,
    /// As above, and the kernel may read again when the call is over.
    KernelLater,
    Program,
}

/// An array of buffers, moved.
struct Buffers {
    /// As the program gave it: address and length, address and length.
    given: &'static mut [usize],
    /// For the kernel.
    private: &'static mut [usize],
}

impl Buffers {
    /// None if there is nothing shared in it, or it is an array that the kernel will refuse.
    fn load(scratch: &mut Scratch, at: usize, count: usize, towards: Towards) -> Result<Option<Self>, isize> {
        if count > MOST_BUFFERS {
            return Ok(None);
        }
        let given = scratch.reserve_words(2 * count).ok_or(NO_MEMORY)?;
        load_words(at, given).ok_or(BAD_ADDRESS)?;
        let pairs = || given.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        if !is_shared(at) && !pairs().any(|(address, _)| is_shared(address)) {
            return Ok(None);
        }
        let total = pairs().try_fold(0_usize, |total, (_, bytes)| total.checked_add(bytes));
        if total.is_none_or(|total| total > isize::MAX.cast_unsigned()) {
            return Err(-(libc::EINVAL as isize));
        }
        let private = scratch.reserve_words(2 * count).ok_or(NO_MEMORY)?;
        let mut room = MOST_BYTES;
        let mut is_cut = false;
        for (index, (address, bytes)) in pairs().enumerate() {
            private[2 * index] = address;
            // After the place where it is cut nothing may follow.
            private[2 * index + 1] = if is_cut { 0 } else { bytes };
            if !is_shared(address) || is_cut {
                continue;
            }
            let bytes_here = bytes.min(room);
            is_cut = bytes_here < bytes;
            room -= bytes_here;
            let moved = match towards {
                Towards::Program => Moved::out(scratch, address, bytes_here, 1),
                _ => Moved::in_whole(scratch, address, bytes_here, towards == Towards::KernelLater),
            }?;
            private[2 * index] = moved.private_address();
            private[2 * index + 1] = bytes_here;
        }
        Ok(Some(Self { given, private }))
    }

    fn address(&self) -> usize {
        self.private.as_ptr() as usize
    }

    /// Copies what came to where it belongs.
    fn scatter(&self, received: isize) -> bool {
        let mut left = usize::try_from(received).unwrap_or(0);
        for (given, private) in self.given.chunks_exact(2).zip(self.private.chunks_exact(2)) {
            let bytes = private[1].min(left);
            left -= bytes;
            if private[0] != given[0] && bytes > 0 && !give(private_bytes(private[0], bytes), given[0]) {
                return false;
            }
        }
        true
    }
}

pub(super) fn read(scratch: &mut Scratch, call: &Call) -> isize {
    buffers(scratch, call, Towards::Program)
}

pub(super) fn write(scratch: &mut Scratch, call: &Call) -> isize {
    buffers(scratch, call, Towards::Kernel)
}

fn buffers(scratch: &mut Scratch, call: &Call, towards: Towards) -> isize {
    let mut arguments = call.arguments;
    match Buffers::load(scratch, arguments[1], arguments[2], towards) {
        Err(error) => error,
        Ok(None) => call.again(),
        Ok(Some(buffers)) => {
            arguments[1] = buffers.address();
            let result = call.with(arguments);
            if towards == Towards::Program && !buffers.scatter(result) { BAD_ADDRESS } else { result }
        }
    }
}

/// A message header, with all that it names.
struct Message {
    /// Where the program has it.
    given: usize,
    /// For the kernel, who writes to it.
    header: [usize; HEADER_WORDS],
    is_moved: bool,
    buffers: Option<Buffers>,
    name: Option<Moved>,
    control: Option<Moved>,
}

impl Message {
    fn load(scratch: &mut Scratch, at: usize, towards: Towards) -> Result<Self, isize> {
        let mut header = [0; HEADER_WORDS];
        load_words(at, &mut header).ok_or(BAD_ADDRESS)?;
        let mut message =
            Self { given: at, header, is_moved: is_shared(at), buffers: None, name: None, control: None };
        let name_bytes = message.name_bytes();
        let move_in = |scratch: &mut Scratch, address, bytes| match towards {
            Towards::Program => Moved::in_out(scratch, address, bytes),
            _ => Moved::in_whole(scratch, address, bytes, false),
        };
        if is_shared(header[NAME]) {
            message.name = Some(move_in(scratch, header[NAME], name_bytes)?);
        }
        if is_shared(header[CONTROL]) && header[CONTROL_LENGTH] > 0 {
            if header[CONTROL_LENGTH] > CONTROL_BYTES {
                return Err(-(libc::ENOBUFS as isize));
            }
            message.control = Some(move_in(scratch, header[CONTROL], header[CONTROL_LENGTH])?);
        }
        message.buffers = Buffers::load(scratch, header[BUFFERS], header[BUFFER_COUNT], towards)?;
        for (word, moved) in [(NAME, &message.name), (CONTROL, &message.control)] {
            if let Some(moved) = moved {
                message.header[word] = moved.private_address();
                message.is_moved = true;
            }
        }
        if let Some(buffers) = &message.buffers {
            message.header[BUFFERS] = buffers.address();
            message.is_moved = true;
        }
        Ok(message)
    }

    fn name_bytes(&self) -> usize {
        // A negative one is an error that the kernel finds.
        let bytes = low(self.header[NAME_LENGTH]).cast_signed().max(0).cast_unsigned() as usize;
        bytes.min(NAME_BYTES)
    }

    /// After the kernel wrote to `header`: copies what came, and says how much of what.
    fn give(&self, received: isize) -> bool {
        let small = |word: usize| self.given + word * 8;
        self.buffers.as_ref().is_none_or(|buffers| buffers.scatter(received))
            && self.name.as_ref().is_none_or(|name| name.give(self.name_bytes()))
            && self.control.as_ref().is_none_or(|control| control.give(self.header[CONTROL_LENGTH]))
            && give(&low(self.header[NAME_LENGTH]).to_ne_bytes(), small(NAME_LENGTH))
            && give(&self.header[CONTROL_LENGTH].to_ne_bytes(), small(CONTROL_LENGTH))
            && give(&low(self.header[FLAGS]).to_ne_bytes(), small(FLAGS))
    }
}

pub(super) fn receive(scratch: &mut Scratch, call: &Call) -> isize {
    let mut arguments = call.arguments;
    let message = Message::load(scratch, arguments[1], Towards::Program);
    match message {
        Err(error) => error,
        Ok(message) if !message.is_moved => call.again(),
        Ok(mut message) => {
            arguments[1] = message.header.as_mut_ptr() as usize;
            let result = call.with(arguments);
            if result >= 0 && !message.give(result) { BAD_ADDRESS } else { result }
        }
    }
}

pub(super) fn send(scratch: &mut Scratch, call: &Call) -> isize {
    let mut arguments = call.arguments;
    match Message::load(scratch, arguments[1], towards_kernel(arguments[2])) {
        Err(error) => error,
        Ok(message) if !message.is_moved => call.again(),
        Ok(mut message) => {
            arguments[1] = message.header.as_mut_ptr() as usize;
            call.with(arguments)
        }
    }
}

pub(super) fn receive_many(scratch: &mut Scratch, call: &Call) -> isize {
    let timeout = call.arguments[4];
    if !is_shared(timeout) {
        return many(scratch, call, Towards::Program);
    }
    let moved = match Moved::in_out(scratch, timeout, 16) {
        Ok(moved) => moved,
        Err(error) => return error,
    };
    let mut call = *call;
    call.arguments[4] = moved.private_address();
    let result = many(scratch, &call, Towards::Program);
    if result >= 0 && !moved.give(16) { BAD_ADDRESS } else { result }
}

pub(super) fn send_many(scratch: &mut Scratch, call: &Call) -> isize {
    many(scratch, call, towards_kernel(call.arguments[3]))
}

fn many(scratch: &mut Scratch, call: &Call, towards: Towards) -> isize {
    let mut arguments = call.arguments;
    let asked = (arguments[2] & 0xffff_ffff).min(MOST_MESSAGES);
    let Some(private) = scratch.reserve_words(MESSAGE_WORDS * asked) else {
        return NO_MEMORY;
    };
    let mut messages: [Option<Message>; MOST_MESSAGES] = [const { None }; MOST_MESSAGES];
    let mut count = 0;
    for index in 0..asked {
        let at = arguments[1].wrapping_add(index * MESSAGE_WORDS * 8);
        match Message::load(scratch, at, towards) {
            Ok(message) => {
                private[index * MESSAGE_WORDS..][..HEADER_WORDS].copy_from_slice(&message.header);
                messages[index] = Some(message);
                count += 1;
            }
            Err(error) if index == 0 => return error,
            Err(_) => break,
        }
    }
    if !messages.iter().flatten().any(|message| message.is_moved) {
        return call.again();
    }
    arguments[1] = private.as_ptr() as usize;
    arguments[2] = count;
    let result = call.with(arguments);
    // The kernel wrote there, which the compiler does not see.
    let written = private_bytes(arguments[1], private.len() * 8);
    let word =
        |index: usize| written[index * 8..].first_chunk().map_or(0, |bytes| usize::from_ne_bytes(*bytes));
    for (index, message) in
        messages.iter_mut().flatten().enumerate().take(usize::try_from(result).unwrap_or(0))
    {
        let first = index * MESSAGE_WORDS;
        let length = low(word(first + HEADER_WORDS));
        for (place, header) in message.header.iter_mut().enumerate() {
            *header = word(first + place);
        }
        let came = length as isize;
        let is_given = towards != Towards::Program || message.give(came);
        if !is_given || !give(&length.to_ne_bytes(), message.given + HEADER_WORDS * 8) {
            return if index == 0 { BAD_ADDRESS } else { index.cast_signed() };
        }
    }
    result
}

fn towards_kernel(flags: usize) -> Towards {
    if flags & libc::MSG_ZEROCOPY as usize == 0 { Towards::Kernel } else { Towards::KernelLater }
}

/// The half of a word that means something where a structure has 32 bits and a hole.
#[expect(clippy::cast_possible_truncation, reason = "it is what is wanted")]
fn low(word: usize) -> u32 {
    word as u32
}

/// What the kernel may have written to private memory of ours.
fn private_bytes(at: usize, bytes: usize) -> &'static [u8] {
    super::scratch::read_back(at, bytes)
}
