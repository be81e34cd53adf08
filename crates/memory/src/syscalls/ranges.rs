//! Where this process's code is.

use std::ops::Range;

/// A stretch of addresses whose system calls are covered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Code {
    pub(super) range: Range<usize>,
    /// Whether a program that this one starts has something else there, all but surely. A program that is not position
    /// independent lies where others of its kind do.
    pub(super) is_own: bool,
}

impl Code {
    /// Whether the other's code is in here. Its stretch may begin lower, in room for what is not loaded yet.
    pub(super) fn contains_code_of(&self, other: &Self) -> bool {
        let code_start = if other.is_own { other.range.start + ROOM_BYTES } else { other.range.start };
        self.range.contains(&code_start) && other.range.end <= self.range.end
    }
}

/// What lies closer than this is one stretch.
const GAP_BYTES: usize = 64 << 20;
/// Libraries loaded later come below those that are there. A started program's libraries lie anywhere within 1 TiB: one in
/// several thousand times in here.
const ROOM_BYTES: usize = 256 << 20;
/// Nothing that is placed by chance lies lower.
const LOWEST_BY_CHANCE: usize = 0x5500_0000_0000;

/// The code in the text of `/proc/self/maps`, in few stretches.
pub(super) fn covered(maps: &str, is_random: bool) -> Vec<Code> {
    let mut found: Vec<Code> = Vec::new();
    for mapping in maps.lines().filter_map(executable) {
        let is_own = is_random && mapping.start >= LOWEST_BY_CHANCE;
        let start = if is_own { mapping.start - ROOM_BYTES } else { mapping.start };
        match found.last_mut() {
            Some(last) if last.is_own == is_own && start <= last.range.end + GAP_BYTES => {
                last.range.end = mapping.end;
            }
            _ => found.push(Code { range: start..mapping.end, is_own }),
        }
    }
    found
}

/// Of a line that describes code. Not the page of the old `vsyscall`, whose calls the kernel makes, and not our stub.
fn executable(line: &str) -> Option<Range<usize>> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let is_code = words.next()?.as_bytes().get(2) == Some(&b'x');
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    (is_code && start < 1 << 47 && !super::stub::is_at(start)).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
00400000-00500000 r-xp 00000000 00:00 1 /usr/bin/old
310000000000-310000001000 r-xp 00000000 00:00 0
555555554000-555555560000 r--p 00000000 00:00 2 /usr/bin/new
555555560000-555555570000 r-xp 0000c000 00:00 2 /usr/bin/new
7f1000000000-7f1000100000 r-xp 00000000 00:00 3 /lib/a.so
7f1000200000-7f1000300000 r-xp 00000000 00:00 4 /lib/b.so
7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0 [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
";

    #[test]
    fn neighbours_are_one_and_what_started_programs_may_have_is_told_apart() {
        let found = covered(MAPS, true);
        let code = |start, end, is_own| Code { range: start..end, is_own };
        let expected = [
            code(0x40_0000, 0x50_0000, false),
            code(0x5555_5556_0000 - ROOM_BYTES, 0x5555_5557_0000, true),
            code(0x7f10_0000_0000 - ROOM_BYTES, 0x7f10_0030_0000, true),
            code(0x7ffc_0000_0000 - ROOM_BYTES, 0x7ffc_0000_2000, true),
        ];
        assert_eq!(found, expected);
        assert!(covered(MAPS, false).iter().all(|code| !code.is_own));
    }
}
