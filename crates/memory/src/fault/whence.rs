//! Which thread was stopped, at which of a program's instructions: as far as a process can tell that is about to die of it. No allocation, no lock.

use std::fmt;

use super::places;
use crate::space::PAGE_BYTES;

/// Where somebody was about to load or store.
pub(super) struct Where(pub(super) usize);

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((name, start)) = places::find(self.0) else { return Ok(()) };
        let at = self.0 - start;
        writeln!(f, "comb:   there is {name}, byte {at} (page {})", at / PAGE_BYTES)
    }
}

/// Who did it. 0: nobody knows by which instruction.
pub(super) struct Whence {
    pub(super) instruction: usize,
}

impl fmt::Display for Whence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut name = [0_u8; 16];
        // SAFETY: numbers, and sixteen bytes for a name.
        let (thread, process) = unsafe {
            libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
            (libc::gettid(), libc::getpid())
        };
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        let name = std::str::from_utf8(&name[..end]).unwrap_or("?");
        write!(f, "comb:   by thread {thread} ({name}) of process {process}")?;
        if self.instruction == 0 {
            return writeln!(f);
        }
        write!(f, ", at instruction {:#x}", self.instruction)?;
        if let Some(module) = Module::of(self.instruction) {
            // A name that is no text is told as far as it is one.
            let file = module.file().utf8_chunks().next().map_or("?", |chunk| chunk.valid());
            write!(f, " ({file}+{:#x})", module.at)?;
        }
        writeln!(f)
    }
}

/// The file that an instruction comes from.
struct Module {
    path: [u8; LONGEST_PATH],
    length: usize,
    /// Where it is in that file.
    at: usize,
}

/// Longer ones are cut.
const LONGEST_PATH: usize = 256;

impl Module {
    fn file(&self) -> &[u8] {
        &self.path[..self.length]
    }

    /// As the kernel lists mappings.
    fn of(instruction: usize) -> Option<Self> {
        // SAFETY: opens, reads and closes a file; the buffer is this function's.
        unsafe {
            let maps = libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            if maps < 0 {
                return None;
            }
            let mut search = Search::new(instruction);
            let mut buffer = [0_u8; 1024];
            let found = loop {
                let read = libc::read(maps, buffer.as_mut_ptr().cast(), buffer.len());
                let Ok(read @ 1..) = usize::try_from(read) else { break None };
                if let Some(found) = buffer[..read].iter().find_map(|&byte| search.take(byte)) {
                    break Some(found);
                }
            };
            libc::close(maps);
            found
        }
    }
}

/// Goes through lines such as `5581e3a0-5581e3f2 r-xp 00012000 fd:00 1234   /usr/bin/program`.
struct Search {
    instruction: usize,
    /// Start, end, and where in the file.
    numbers: [usize; 3],
    /// Which part of the line is being read: those three are 0, 1 and 3.
    part: usize,
    path: [u8; LONGEST_PATH],
    length: usize,
    was_space: bool,
}

impl Search {
    fn new(instruction: usize) -> Self {
        let (numbers, path) = ([0; 3], [0; LONGEST_PATH]);
        Self { instruction, numbers, part: 0, path, length: 0, was_space: false }
    }

    /// The next byte. What was found, at the end of its line.
    fn take(&mut self, byte: u8) -> Option<Module> {
        const PATH: usize = 6;
        match byte {
            b'\n' => {
                let Self { instruction, numbers: [start, end, offset], path, length, .. } = *self;
                let is_it = (start..end).contains(&instruction) && length > 0;
                *self = Self::new(instruction);
                return is_it.then(|| Module { path, length, at: instruction - start + offset });
            }
            b' ' if self.part < PATH || self.length == 0 => {
                self.part += usize::from(!self.was_space && self.part < PATH);
                self.was_space = true;
                return None;
            }
            b'-' if self.part == 0 => self.part = 1,
            _ if self.part < PATH => {
                let which = [Some(0), Some(1), None, Some(2), None, None][self.part];
                if let Some((which, digit)) = which.zip(char::from(byte).to_digit(16)) {
                    self.numbers[which] = self.numbers[which] << 4 | digit as usize;
                }
            }
            _ if self.length < LONGEST_PATH => {
                self.path[self.length] = byte;
                self.length += 1;
            }
            _ => {}
        }
        self.was_space = false;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_is_found_in_the_file_that_it_comes_from() {
        let maps = b"5581e3a0-5581e3f2 r-xp 00012000 fd:00 1234                  /usr/bin/a program\n\
            7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n\
            7f0000001000-7f0000002000 r-xp 00003000 fd:00 99 /lib/x.so\n";
        let find = |instruction| {
            let mut search = Search::new(instruction);
            let found = maps.iter().find_map(|&byte| search.take(byte));
            found.map(|module| (String::from_utf8(module.file().to_vec()).unwrap(), module.at))
        };
        assert_eq!(find(0x5581_e3a4), Some(("/usr/bin/a program".to_owned(), 0x12004)));
        assert_eq!(find(0x7f00_0000_1fff), Some(("/lib/x.so".to_owned(), 0x3fff)));
        assert_eq!([find(0x7f00_0000_0000), find(0x5581_e3f2), find(7)], [None, None, None]);
        let program = std::env::current_exe().unwrap();
        let here = Module::of(Module::of as *const () as usize).unwrap();
        assert_eq!(here.file(), program.as_os_str().as_encoded_bytes());
    }
}
