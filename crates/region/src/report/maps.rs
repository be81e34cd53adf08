//! Where code is in this process, and who has called.
#![expect(unsafe_code, reason = "the unwinder that the standard library links, which no crate of ours wraps")]

use std::ffi::c_void;

use super::Program;

/// Enough to come out of Comb's own functions into the program's.
const MOST_CALLERS: usize = 24;

/// The first call loads the library that unwinds, and allocates.
pub(super) fn prepare() {
    let _ = callers();
}

/// Return addresses, the innermost first. Not to be called where nothing may be allocated.
pub(super) fn callers() -> Vec<u64> {
    let mut addresses = Vec::with_capacity(MOST_CALLERS);
    // SAFETY: `note` is what the unwinder calls for each frame, with the list, which outlives the call and is nobody else's meanwhile.
    unsafe { _Unwind_Backtrace(note, (&raw mut addresses).cast()) };
    addresses
}

/// Goes on while there is room, and callers. What is beyond the outermost has no address.
extern "C" fn note(frame: *mut c_void, addresses: *mut c_void) -> libc::c_int {
    // SAFETY: the list is the one that `callers` has handed over.
    let addresses = unsafe { &mut *addresses.cast::<Vec<u64>>() };
    // SAFETY: the frame is the one that the unwinder is at.
    let address = unsafe { _Unwind_GetIP(frame) };
    if address != 0 {
        addresses.push(address as u64);
    }
    if address == 0 || addresses.len() == MOST_CALLERS { STOP } else { GO_ON }
}

/// `_URC_NO_REASON` and `_URC_END_OF_STACK`.
const GO_ON: libc::c_int = 0;
const STOP: libc::c_int = 5;

// Not `backtrace()`: that is glibc's alone, and has these two do the work.
unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: extern "C" fn(frame: *mut c_void, argument: *mut c_void) -> libc::c_int,
        argument: *mut c_void,
    ) -> libc::c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

/// The files whose code is mapped, each once, where its code begins.
pub(super) fn programs() -> Vec<Program> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut programs: Vec<Program> = Vec::new();
    for program in maps.lines().filter_map(parse) {
        match programs.iter_mut().find(|known| known.path == program.path) {
            Some(known) => known.end = known.end.max(program.end),
            None => programs.push(program),
        }
    }
    programs
}

/// A line of `maps`, if it is of a file's code.
fn parse(line: &str) -> Option<Program> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let offset = number(words.next()?)?;
    let path = words.nth(2)?.trim_start();
    if !rights.contains('x') || !path.starts_with('/') {
        return None;
    }
    Some(Program { path: path.to_owned(), start: number(start)?, end: number(end)?, offset })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn deep(more: u32) -> Vec<u64> {
        let found = if more == 0 { callers() } else { deep(more - 1) };
        std::hint::black_box(found)
    }

    #[test]
    fn callers_are_of_this_program_and_not_too_many() {
        let programs = programs();
        let is_code = |address: &u64| programs.iter().any(|one| (one.start..one.end).contains(address));
        let few = deep(3);
        assert!(few.len() > 4 && few.len() <= MOST_CALLERS, "{few:x?}");
        assert!(few.iter().all(is_code), "{few:x?}");
        assert!(few.windows(2).any(|pair| pair[0] == pair[1]), "it calls itself: {few:x?}");
        assert_eq!(deep(100).len(), MOST_CALLERS);
    }

    #[test]
    fn a_line_of_a_files_code_is_understood() {
        let line = "55d0c8a2c000-55d0c8a31000 r-xp 00002000 fe:01 1835017                    /usr/bin/a b";
        let expected = Program {
            path: "/usr/bin/a b".to_owned(),
            start: 0x55d0_c8a2_c000,
            end: 0x55d0_c8a3_1000,
            offset: 0x2000,
        };
        assert_eq!(parse(line), Some(expected));
        for other in [
            "55d0c8a2c000-55d0c8a31000 rw-p 00002000 fe:01 1835017                    /usr/bin/a",
            "7ffd1f9e2000-7ffd1f9e4000 r-xp 00000000 00:00 0                          [vdso]",
            "7f0000000000-7f0000001000 rwxp 00000000 00:00 0",
            "",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
