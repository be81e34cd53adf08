//! Where code is in this process, and who has called.
#![expect(unsafe_code, reason = "glibc's backtrace, which no crate of ours wraps")]

use std::ffi::c_void;

use super::Program;

/// Enough to come out of Comb's own functions into the program's.
const MOST_CALLERS: u8 = 24;

/// The first call loads the library that unwinds, and allocates.
pub(super) fn prepare() {
    let _ = callers();
}

/// Return addresses, the innermost first. Not to be called where nothing may be allocated.
pub(super) fn callers() -> Vec<u64> {
    let mut addresses = [std::ptr::null_mut::<c_void>(); MOST_CALLERS as usize];
    // SAFETY: an array of that length.
    let count = unsafe { libc::backtrace(addresses.as_mut_ptr(), MOST_CALLERS.into()) };
    addresses.iter().take(usize::try_from(count).unwrap_or(0)).map(|address| address.addr() as u64).collect()
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
