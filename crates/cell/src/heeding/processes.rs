//! The processes of one task in one cell: which cores they run on, whether they run, and what they have in memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use comb_memory::PAGE_BYTES;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::hints::Cores;

/// Memory that is paged out between two looks whether to go on.
const PAGED_AT_ONCE: usize = 8 << 20;

/// A task's cgroup within that of a cell.
pub fn cgroup_of(cell: &Path, task: u32) -> PathBuf {
    cell.join(format!("task-{task}"))
}

/// Lets all tasks of a cell run, whatever was hinted.
pub(crate) fn thaw_all(cell: &Path) {
    for entry in std::fs::read_dir(cell).into_iter().flatten().flatten() {
        let is_tasks = entry.file_name().to_str().is_some_and(|name| name.starts_with("task-"));
        if is_tasks {
            freeze(&entry.path(), false);
        }
    }
}

/// Has everything in a cgroup wait, or go on. `false`: it cannot be.
pub(super) fn freeze(cgroup: &Path, waits: bool) -> bool {
    std::fs::write(cgroup.join("cgroup.freeze"), if waits { "1" } else { "0" }).is_ok()
}

/// The processes in a cgroup.
pub(super) fn of_cgroup(cgroup: &Path) -> Option<Vec<u32>> {
    let text = std::fs::read_to_string(cgroup.join("cgroup.procs")).ok()?;
    Some(text.lines().filter_map(|line| line.parse().ok()).collect())
}

/// The cores that this process may use.
pub(super) fn allowed() -> Cores {
    sched_getaffinity(None).map(|set| cores_of(&set)).unwrap_or_default()
}

fn cores_of(set: &CpuSet) -> Cores {
    (0..Cores::MOST).filter(|&core| core < CpuSet::MAX_CPU && set.is_set(core)).collect()
}

fn set_of(cores: &Cores) -> CpuSet {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(core));
    set
}

fn pid(number: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(number).ok()?)
}

fn threads(process: u32) -> impl Iterator<Item = u32> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok())
}

/// Threads that were given cores, and where they may run now.
#[derive(Debug, Default)]
pub(super) struct Bound(BTreeMap<u32, Cores>);

impl Bound {
    /// Has all threads of some processes run on some cores. Who was bound by somebody else stays where it is. Whether any was changed.
    pub(super) fn bind(&mut self, processes: &[u32], cores: &Cores, allowed: &Cores) -> bool {
        let (mut known, mut is_changed) = (BTreeMap::new(), false);
        for thread in processes.iter().copied().flat_map(threads) {
            let Some(pid) = pid(thread) else { continue };
            let Ok(now) = sched_getaffinity(Some(pid)).map(|set| cores_of(&set)) else { continue };
            let is_ours = now == *allowed || self.0.get(&thread) == Some(&now);
            if !is_ours && now != *cores {
                continue;
            }
            if now != *cores {
                is_changed |= sched_setaffinity(Some(pid), &set_of(cores)).is_ok();
            }
            known.insert(thread, *cores);
        }
        self.0 = known;
        is_changed
    }

    /// Lets them run everywhere again.
    pub(super) fn release(&mut self, allowed: &Cores) {
        for (thread, cores) in std::mem::take(&mut self.0) {
            let Some(pid) = pid(thread) else { continue };
            if sched_getaffinity(Some(pid)).is_ok_and(|now| cores_of(&now) == cores) {
                let _ = sched_setaffinity(Some(pid), &set_of(allowed));
            }
        }
    }
}

/// Resident memory of a process, and how much of it is its own, in bytes.
pub(super) fn resident(process: u32) -> (u64, u64) {
    let statm = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let field = |at: usize| statm.split(' ').nth(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    let page = rustix::param::page_size() as u64;
    (field(1) * page, field(1).saturating_sub(field(2)) * page)
}

/// Pages out what a process has in memory, as long as `goes_on`: how many bytes it has less.
///
/// What others have mapped as well stays, and so does what belongs to regions: that is their homes' to give.
pub(super) fn page_out(process: u32, goes_on: impl Fn() -> bool) -> u64 {
    let Some(descriptor) = pid(process).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return 0;
    };
    let smaps = std::fs::read_to_string(format!("/proc/{process}/smaps")).unwrap_or_default();
    let (before, _) = resident(process);
    for Private { range, resident_bytes } in privates(&smaps) {
        // Reservations of terabytes have few pages.
        let pages = PAGED_AT_ONCE.saturating_mul(range.len() / resident_bytes) / PAGE_BYTES;
        for at in range.clone().step_by(pages * PAGE_BYTES) {
            if !goes_on() {
                break;
            }
            let piece = at..range.end.min(at.saturating_add(pages * PAGE_BYTES));
            let _ = comb_memory::paging::page_out(descriptor.as_fd(), piece);
        }
    }
    before.saturating_sub(resident(process).0)
}

/// Something that a process has for itself, and of which it has something in memory.
#[derive(PartialEq, Eq, Debug)]
struct Private {
    range: Range<usize>,
    resident_bytes: usize,
}

/// What `/proc/PID/smaps` says that a process has for itself.
fn privates(smaps: &str) -> Vec<Private> {
    let (mut found, mut range) = (Vec::new(), None);
    for line in smaps.lines() {
        if let Some(mapping) = mapping(line) {
            range = mapping;
        } else if let Some(kilobytes) =
            line.strip_prefix("Rss:").and_then(|rest| rest.trim().strip_suffix(" kB"))
        {
            let resident_bytes = kilobytes.parse::<usize>().unwrap_or(0).saturating_mul(1024);
            let range =
                range.take().filter(|range: &Range<usize>| (1..=range.len()).contains(&resident_bytes));
            found.extend(range.map(|range| Private { range, resident_bytes }));
        }
    }
    found
}

/// If a line is a mapping's first: where that is, if it is the process's own.
fn mapping(line: &str) -> Option<Option<Range<usize>>> {
    let mut words = line.split(' ');
    let (start, end) = words.next()?.split_once('-')?;
    let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
    let is_private = words.next()?.ends_with('p');
    // The kernel's own page lies above all.
    Some(Some(range).filter(|range| is_private && range.end <= 1 << 47))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_a_process_has_alone_in_memory_is_read_from_its_map() {
        let smaps = "1000-9000 rw-p 00000000 00:00 0 [heap]\nSize: 32 kB\nRss:        8 kB\nPss: 8 kB\n\
                     a000-b000 rw-s 00000000 00:05 9 /memfd:comb\nRss:        4 kB\n\
                     c000-d000 ---p 00000000 00:00 0\nRss:        0 kB\n\
                     d000-e000 r--p 00000000 00:00 0\nRss:        8 kB\n\
                     ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\nRss: 4 kB\n\
                     x-y rw-p 0\nRss: 4 kB\n";
        assert_eq!(privates(smaps), [Private { range: 0x1000..0x9000, resident_bytes: 8192 }]);
        assert!(privates("").is_empty());
    }

    #[test]
    fn threads_are_bound_and_released_unless_somebody_else_has_bound_them() {
        let allowed = allowed();
        let Some(last) = allowed.iter().next_back().filter(|_| allowed.len() > 1) else { return };
        let one: Cores = [last].into_iter().collect();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let now = || cores_of(&sched_getaffinity(pid(child.id())).unwrap());
        let mut bound = Bound::default();
        assert!(bound.bind(&[child.id()], &one, &allowed) && now() == one);
        assert!(!bound.bind(&[child.id()], &one, &allowed), "it is so already");
        bound.release(&allowed);
        assert!(now() == allowed && bound.0.is_empty());
        // By its own will.
        sched_setaffinity(pid(child.id()), &set_of(&one)).unwrap();
        assert!(!bound.bind(&[child.id()], &allowed.without(&one), &allowed) && now() == one);
        bound.release(&allowed);
        assert_eq!(now(), one);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
