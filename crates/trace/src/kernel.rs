//! Seeing what programs do from within the kernel: `bpf/record.bpf.c`, loaded and attached.
//!
//! The program is compiled once and for all; where fields are in this kernel's structures, the loader learns from the kernel's own type
//! information, and where a tracepoint is missing, all but what it tells is recorded, and the trace says so.
//!
//! What no kernel shows in this way: reads and writes by `io_submit`, and `msync`; of io_uring, requests that are refused when they are
//! asked or that were made to end silently, paths of 512 bytes and more, and which of a worker's reads were in the page cache; a thread that
//! leaves its process's descriptors by `unshare`; and paths that programs in another root directory give from the root: they are as given.

mod marking;
mod types;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::process::{Child, Command};
use std::time::Duration;

use aya::maps::{Map, MapData, PerCpuArray, RingBuf};
use aya::programs::{BtfTracePoint, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader};
use aya_obj::btf::BtfKind;
use comb_types::Mechanism;
use thiserror::Error;
use zerocopy::FromBytes;

use crate::event::Event;
use crate::machine;
use crate::source::{Counters, Source};

/// The program, as a compiler made it of `bpf/record.bpf.c`. A check compiles it anew and compares.
static OBJECT: &[u8] = include_bytes!("../bpf/record.bpf.o");

/// The number that stands in the program for the kernel's function that tells its checker a pointer's type.
const CAST: u32 = 0x434f_4d42;
const CAST_NAME: &str = "bpf_rdonly_cast";

/// A function that every kernel has: it stands where the other one is never called.
const HARMLESS: u32 = 5;

/// A program, the tracepoint that it hangs on, and what is not seen if it cannot be attached. Without a word the rest is worth nothing.
struct Attachment {
    /// Of several, the first that this kernel takes: what a tracepoint hands over is not the same in all of them.
    programs: &'static [&'static str],
    tracepoint: &'static str,
    what_is_missed: Option<&'static str>,
}

const fn needed(program: &'static [&'static str], tracepoint: &'static str) -> Attachment {
    Attachment { programs: program, tracepoint, what_is_missed: None }
}

const fn useful(
    programs: &'static [&'static str],
    tracepoint: &'static str,
    what_is_missed: &'static str,
) -> Attachment {
    Attachment { programs, tracepoint, what_is_missed: Some(what_is_missed) }
}

const ATTACHMENTS: &[Attachment] = &[
    needed(&["call_begins"], "sys_enter"),
    needed(&["call_ends"], "sys_exit"),
    needed(&["process_begins"], "sched_process_fork"),
    needed(&["process_ends"], "sched_process_exit"),
    needed(&["program_begins"], "sched_process_exec"),
    useful(&["page_comes"], "mm_filemap_add_to_page_cache", "whether what was read was in the page cache"),
    useful(&["page_faults"], "mm_filemap_fault", "which pages of mapped files were missing"),
    useful(&["pages_are_mapped"], "mm_filemap_map_pages", "which pages of mapped files were used"),
    useful(&["inode_written"], "writeback_single_inode", "when changed pages were written back"),
    useful(&["request_begins"], "io_uring_submit_req", "what was asked of io_uring"),
    useful(&["request_ends", "request_ends_in_numbers"], "io_uring_complete", "what was done by io_uring"),
];

/// How much waits in memory to be fetched, unless something else is wanted: half a million events.
const RING_BYTES: u32 = 64 << 20;

/// Whom the recorder looks at, and how much it keeps until somebody fetches it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Everybody but this process; otherwise those that it is told.
    pub everybody: bool,
    /// What is more than this is lost. A power of two, and at least a page.
    pub ring_bytes: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { everybody: false, ring_bytes: RING_BYTES }
    }
}

/// Why nothing can be seen from within the kernel here.
#[derive(Debug, Error)]
pub enum KernelError {
    /// Not this user.
    #[error("it needs root, or the capabilities CAP_BPF and CAP_PERFMON")]
    NotPermitted,
    /// The kernel was built without what tells where its fields are.
    #[error("this kernel has no type information (/sys/kernel/btf/vmlinux; CONFIG_DEBUG_INFO_BTF)")]
    NoTypes,
    /// It was told to do without.
    #[error("COMB_WITHOUT says that it is not to be used")]
    SwitchedOff,
    /// A tracepoint without which there is nothing to record is not there.
    #[error("this kernel has no tracepoint {tracepoint}: {reason}")]
    NoTracepoint {
        /// Which.
        tracepoint: &'static str,
        /// What the kernel said.
        reason: String,
    },
    /// The kernel does not take the program.
    #[error("the kernel does not take the recorder: {0}")]
    Refused(String),
}

/// Sees what programs do, from within the kernel.
pub struct Kernel {
    // Detached when dropped.
    programs: Ebpf,
    ring: RingBuf<MapData>,
    counters: PerCpuArray<MapData, [u64; 3]>,
    threads: MapData,
    lacks: Vec<String>,
}

impl Kernel {
    /// Attaches the recorder. It looks at `everybody` but this process, or at those that it is told.
    pub fn attach(everybody: bool) -> Result<Self, KernelError> {
        Self::attach_with(Options { everybody, ..Options::default() })
    }

    /// Attaches the recorder in the way that is wanted.
    pub fn attach_with(options: Options) -> Result<Self, KernelError> {
        Self::attach_to(options, ATTACHMENTS)
    }

    fn attach_to(options: Options, attachments: &[Attachment]) -> Result<Self, KernelError> {
        if Mechanism::Bpf.is_switched_off() {
            return Err(KernelError::SwitchedOff);
        }
        let types = types::known_to(OBJECT, &[CAST_NAME]).map_err(|_| KernelError::NoTypes)?;
        let mut object = OBJECT.to_vec();
        let cast = if Mechanism::BpfCast.is_switched_off() { None } else { cast_of(&types) };
        set_cast(&mut object, cast);
        let [everybody, has_cast] = [options.everybody, cast.is_some()].map(u32::from);
        let own_process = std::process::id();
        let mut programs = EbpfLoader::new()
            .btf(Some(&types))
            .allow_unsupported_maps()
            .map_max_entries("ring", options.ring_bytes)
            .override_global("everybody", &everybody, true)
            .override_global("has_cast", &has_cast, true)
            .override_global("own_process", &own_process, true)
            .load(&object)
            .map_err(refused)?;
        let mut lacks = Vec::new();
        for attachment in attachments {
            let tracepoint = attachment.tracepoint;
            let Err(error) = attach_first(&mut programs, attachment, &types) else { continue };
            match attachment.what_is_missed {
                Some(what) => lacks.push(format!("{what} (this kernel has no tracepoint {tracepoint})")),
                None if is_not_permitted(&error) => return Err(KernelError::NotPermitted),
                None => return Err(KernelError::NoTracepoint { tracepoint, reason: told(&error) }),
            }
        }
        let mut map = |name: &str| programs.take_map(name).expect("the recorder has this map");
        let ring = RingBuf::try_from(map("ring")).map_err(refused)?;
        let counters = PerCpuArray::try_from(map("counts")).map_err(refused)?;
        let Map::Unsupported(threads) = map("threads") else {
            unreachable!("aya has no type for maps of threads")
        };
        let value_bytes = threads.info().map_err(refused)?.value_size() as usize;
        assert!(value_bytes <= marking::MOST_THREAD_BYTES, "{value_bytes} bytes of a thread");
        Ok(Self { programs, ring, counters, threads, lacks })
    }

    /// The descriptor through which threads are marked.
    fn marks(&self) -> RawFd {
        self.threads.fd().as_fd().as_raw_fd()
    }
}

/// Whether the recorder can be attached here, by this user: tried, and taken away again.
pub fn is_permitted() -> bool {
    Kernel::attach(false).is_ok()
}

/// From now on, and as long as this is kept, the kernel counts how long programs in it take, and [`Source::time_taken`] tells. To count is itself
/// part of what they take.
pub fn count_time_taken() -> io::Result<OwnedFd> {
    aya::sys::enable_stats(aya::sys::Stats::RunTime).map_err(|error| error.io_error)
}

/// Whether this kernel lets programs tell a pointer's type.
pub fn has_cast() -> bool {
    types::known_to(OBJECT, &[CAST_NAME]).is_ok_and(|types| cast_of(&types).is_some()) && is_permitted()
}

fn cast_of(types: &Btf) -> Option<u32> {
    types.id_by_type_name_kind(CAST_NAME, BtfKind::Func).ok()
}

/// Attaches the first of its programs that the kernel takes. The error is that of the last.
fn attach_first(programs: &mut Ebpf, attachment: &Attachment, types: &Btf) -> Result<(), ProgramError> {
    let (last, others) = attachment.programs.split_last().expect("an attachment has a program");
    let is_taken = |program: &str| attach(programs, program, attachment.tracepoint, types).is_ok();
    if others.iter().copied().any(is_taken) {
        return Ok(());
    }
    attach(programs, last, attachment.tracepoint, types)
}

fn attach(programs: &mut Ebpf, program: &str, tracepoint: &str, types: &Btf) -> Result<(), ProgramError> {
    let program: &mut BtfTracePoint =
        programs.program_mut(program).expect("the recorder has this program").try_into()?;
    program.load(tracepoint, types)?;
    program.attach()?;
    Ok(())
}

/// Puts the number of the kernel's function in all places where it is called.
fn set_cast(object: &mut [u8], cast: Option<u32>) {
    const CALL: u8 = 0x85;
    const OF_KERNEL: u8 = 0x20;
    for instruction in object.chunks_exact_mut(8) {
        if instruction[..4] == [CALL, 0, 0, 0] && instruction[4..] == CAST.to_le_bytes() {
            if cast.is_some() {
                instruction[1] = OF_KERNEL;
            }
            instruction[4..].copy_from_slice(&cast.unwrap_or(HARMLESS).to_le_bytes());
        }
    }
}

fn is_not_permitted(error: &ProgramError) -> bool {
    matches!(error, ProgramError::LoadError { io_error, .. } if io_error.kind() == io::ErrorKind::PermissionDenied)
}

/// An error with its causes, in one line, without the pages that a checker may have written.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string().lines().next().unwrap_or_default().to_owned();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {}", error.to_string().lines().next().unwrap_or_default());
        cause = error.source();
    }
    text
}

fn refused(error: impl std::error::Error) -> KernelError {
    let text = told(&error);
    if text.contains("Operation not permitted") || text.contains("Permission denied") {
        KernelError::NotPermitted
    } else {
        KernelError::Refused(text)
    }
}

impl Source for Kernel {
    fn name(&self) -> &'static str {
        "kernel tracepoints"
    }

    fn lacks(&self) -> Vec<String> {
        self.lacks.clone()
    }

    fn start(&mut self, mut command: Command) -> io::Result<Child> {
        marking::mark_before_execution(&mut command, self.marks());
        command.spawn()
    }

    fn follow(&mut self, process: u32) -> io::Result<()> {
        // Who is started while the others are being marked is found the next time around.
        let mut marked = std::collections::BTreeSet::new();
        loop {
            let threads = machine::descendants(process).into_iter().flat_map(machine::threads);
            let new: Vec<u32> = threads.filter(|thread| !marked.contains(thread)).collect();
            if new.is_empty() {
                break;
            }
            for thread in new {
                match marking::mark(self.marks(), thread) {
                    // It has ended.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    result => result?,
                }
                marked.insert(thread);
            }
        }
        if marked.is_empty() { Err(io::Error::from_raw_os_error(libc::ESRCH)) } else { Ok(()) }
    }

    fn fetch(&mut self, most: usize, sink: &mut dyn FnMut(&Event, &[u8])) -> usize {
        let mut fetched = 0;
        while fetched < most
            && let Some(record) = self.ring.next()
        {
            let (event, texts) =
                Event::ref_from_prefix(&record).expect("the recorder writes whole events, aligned");
            sink(event, texts);
            fetched += 1;
        }
        fetched
    }

    fn counters(&self) -> Counters {
        let Ok(values) = self.counters.get(&0, 0) else { return Counters::default() };
        let sum = |index: usize| values.iter().map(|of_processor| of_processor[index]).sum();
        Counters { lost: sum(0), foreign: sum(1), recorded: sum(2) }
    }

    fn time_taken(&self) -> Option<Duration> {
        let infos = self.programs.programs().filter_map(|(_, program)| program.info().ok());
        let time: Duration = infos.map(|info| info.run_time()).sum();
        // Unless somebody wants it counted, it is not.
        (!time.is_zero()).then_some(time)
    }
}

#[cfg(test)]
mod tests;
