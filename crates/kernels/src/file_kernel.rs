//! What kernels of programs that work on one file have in common: the few calls that such programs make. How the file's pages come and go, each says itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use comb_kernel::shares::USUAL_PRIORITY;
use rustix::io::Errno;
use thiserror::Error;

use crate::elf::{self, LoadError};
use crate::memory::{Backing, Counts, File, PAGE_BYTES, Paged, Replacement, Resources, Rights};
use crate::processing::{Answer, Driver, DriverError, End, Handler, Processors, RoundRobin, Stopped};

/// What is known of a file decides how its pages come and go.
pub type Policy = Box<dyn FnMut(&File) -> Result<Box<dyn Replacement>, Errno>>;

/// Handles the calls of one program.
pub struct FileKernel {
    path: PathBuf,
    policy: Policy,
    /// Frames for the file.
    most: u32,
    file: Option<Arc<File>>,
    /// What the program has said: on its output, and of its errors.
    pub output: [Vec<u8>; 2],
    /// What its segments had done when it ended.
    pub counts: Counts,
}

impl std::fmt::Debug for FileKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileKernel").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The one descriptor that a program can get.
const DESCRIPTOR: u64 = 3;
/// Where files are seen: their pages and their frames leave the same rests.
const FILES: u64 = 0x10_0000;
const ALIGNMENT: u64 = 128;
/// The longest name, and the most that is written at once.
const MOST_BYTES: u64 = 4096;

const PROT_WRITE: u64 = 2;
const PROT_EXECUTE: u64 = 4;

fn failed(error: Errno) -> u64 {
    i64::from(error.raw_os_error()).wrapping_neg().cast_unsigned()
}

impl FileKernel {
    /// For a program that may open this file, and no other. So many of the file's pages may be in frames.
    pub fn new(path: PathBuf, policy: Policy, most: u32) -> Self {
        Self { path, policy, most, file: None, output: [const { Vec::new() }; 2], counts: Counts::default() }
    }

    fn open(&mut self, stopped: &mut Stopped<'_>) -> Result<u64, Errno> {
        let mut name = Vec::new();
        let mut at = stopped.registers.rdi;
        loop {
            let mut byte = [0];
            stopped.segments.read(stopped.resources, at, &mut byte).map_err(|_| Errno::FAULT)?;
            match byte {
                [0] => break,
                _ if name.len() as u64 >= MOST_BYTES => return Err(Errno::NAMETOOLONG),
                [byte] => name.push(byte),
            }
            at = at.wrapping_add(1);
        }
        if name != self.path.as_os_str().as_encoded_bytes() {
            return Err(Errno::NOENT);
        }
        self.file = Some(Arc::new(File::open(&self.path, true)?));
        Ok(DESCRIPTOR)
    }

    fn file(&self, descriptor: u64) -> Result<&Arc<File>, Errno> {
        self.file.as_ref().filter(|_| descriptor == DESCRIPTOR).ok_or(Errno::BADF)
    }

    fn map(&mut self, stopped: &mut Stopped<'_>) -> Result<u64, Errno> {
        let registers = stopped.registers;
        let file = self.file(registers.r8)?.clone();
        let pages = registers.rsi.div_ceil(PAGE_BYTES as u64);
        let is_shared = registers.r10 & 3 == 1;
        if !is_shared || registers.r9 != 0 || pages != file.pages() || pages == 0 {
            return Err(Errno::INVAL);
        }
        let policy = (self.policy)(&file)?;
        let rights =
            Rights { write: registers.rdx & PROT_WRITE != 0, execute: registers.rdx & PROT_EXECUTE != 0 };
        let first = stopped.segments.find_room(FILES, pages, ALIGNMENT);
        let segment = Paged::new(file, policy, self.most);
        stopped.segments.add(first, rights, Box::new(segment)).map_err(|_| Errno::NOMEM)?;
        Ok(first * PAGE_BYTES as u64)
    }

    fn write(&mut self, stopped: &mut Stopped<'_>) -> Result<u64, Errno> {
        let registers = stopped.registers;
        let to = match registers.rdi {
            1 => &mut self.output[0],
            2 => &mut self.output[1],
            _ => return Err(Errno::BADF),
        };
        let mut bytes = vec![0; usize::try_from(registers.rdx.min(MOST_BYTES)).expect("it is small")];
        let read = stopped.segments.read(stopped.resources, registers.rsi, &mut bytes);
        read.map_err(|_| Errno::FAULT)?;
        to.extend_from_slice(&bytes);
        Ok(bytes.len() as u64)
    }
}

impl Handler for FileKernel {
    fn call(&mut self, stopped: &mut Stopped<'_>) -> Answer {
        let registers = stopped.registers;
        let result = match registers.rax {
            1 => self.write(stopped),
            2 => self.open(stopped),
            // To the end, to learn how long it is.
            8 if registers.rdx == 2 && registers.rsi == 0 => {
                self.file(registers.rdi).map(|file| file.bytes())
            }
            9 => self.map(stopped),
            26 => match stopped.segments.sync(stopped.resources, registers.rdi, registers.rsi) {
                Ok(()) => Ok(0),
                Err(error) => {
                    return Answer::Ends(End::Fault { at: registers.rip, error });
                }
            },
            // Advice: this kernel knows.
            28 => Ok(0),
            60 | 231 => {
                let status = i32::from(registers.rdi.to_le_bytes()[0]);
                self.counts = stopped.segments.counts();
                return Answer::Ends(End::Exit(status));
            }
            _ => Err(Errno::NOSYS),
        };
        Answer::Returns(result.unwrap_or_else(failed))
    }
}

/// What a program did.
#[derive(Debug)]
pub struct Ran {
    /// How it ended.
    pub end: End,
    /// What it said, on its output and of its errors.
    pub output: [Vec<u8>; 2],
    /// What its segments did, if it ended by itself.
    pub counts: Counts,
}

/// Why a program was not run to its end.
#[derive(Debug, Error)]
pub enum RunError {
    /// It is none that can be.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// There is less memory than the program's own pages take.
    #[error("the program has {own} pages before it asks for more, and there are {all} frames")]
    Small {
        /// The program's.
        own: u64,
        /// The kernel's.
        all: u32,
    },
    /// It does not go on.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// Runs a program that works on one file, with all memory that a kernel was granted.
pub fn run(
    program: &[u8],
    arguments: &[&str],
    path: &Path,
    policy: Policy,
    resources: Resources,
) -> Result<Ran, RunError> {
    let (own, all) = (elf::pages(program)?, resources.pool.free());
    let most = u32::try_from(own).ok().and_then(|own| all.checked_sub(own)).filter(|most| *most > 0);
    let most = most.ok_or(RunError::Small { own, all })?;
    let mut driver = Driver::new(resources, Box::new(RoundRobin::default()), Processors::Own);
    let space = driver.add_space();
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (segments, resources) = driver.space(space).expect("it was just added");
    let registers = elf::load(program, arguments, segments, resources, directory)?;
    driver.add_thread(space, registers, USUAL_PRIORITY);
    let mut handler = FileKernel::new(path.to_owned(), policy, most);
    let end = driver.run(&mut handler)?.remove(&space).expect("it has run to its end");
    Ok(Ran { end, output: handler.output, counts: handler.counts })
}
