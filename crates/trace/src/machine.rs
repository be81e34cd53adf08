//! What a recording finds on the machine when it begins: who is there, what they have open, and what is mounted.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::event::Identity;
use crate::trace_file::{Moment, Mount, Process};

/// This machine's name and its kernel's.
pub fn names() -> (String, String) {
    let name = rustix::system::uname();
    (name.nodename().to_string_lossy().into_owned(), name.release().to_string_lossy().into_owned())
}

/// What the clocks show.
pub fn now() -> Moment {
    let monotonic = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment {
        monotonic_ns: u64::try_from(monotonic.tv_sec).unwrap_or(0) * 1_000_000_000
            + u64::try_from(monotonic.tv_nsec).unwrap_or(0),
        wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
        ..Moment::default()
    }
}

/// What is mounted where, as this process sees it.
pub fn mounts() -> Vec<Mount> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    table.split(|&byte| byte == b'\n').filter_map(mount).collect()
}

/// A line of the kernel's table: number, parent, major:minor, root, place, options, - , type, …
fn mount(line: &[u8]) -> Option<Mount> {
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let device = std::str::from_utf8(words.get(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let kind = words.iter().position(|word| *word == b"-").and_then(|dash| words.get(dash + 1))?;
    Some(Mount {
        device: kernel_device(major.parse().ok()?, minor.parse().ok()?),
        kind: String::from_utf8_lossy(kind).into_owned(),
        place: unescaped(words.get(4)?),
    })
}

/// The kernel's own number of a device.
pub(crate) const fn kernel_device(major: u32, minor: u32) -> u32 {
    major << 20 | minor
}

/// The number of a device as programs see it, made the kernel's own.
pub(crate) fn device_of_status(device: u64) -> u32 {
    kernel_device(rustix::fs::major(device), rustix::fs::minor(device))
}

/// Spaces and their like stand as `\040`.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(code) if byte == b'\\' => {
                plain.push(code);
                rest = &after[3..];
            }
            _ => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    plain
}

/// The users that this machine knows by name.
pub fn users() -> Vec<(u32, String)> {
    let table = fs::read_to_string("/etc/passwd").unwrap_or_default();
    table
        .lines()
        .filter_map(|line| {
            let mut words = line.split(':');
            let name = words.next()?;
            Some((words.nth(1)?.parse().ok()?, name.to_owned()))
        })
        .collect()
}

/// The processes whose numbers are wanted, with what they have open. Who ends meanwhile, or may not be looked at, is left out or has
/// nothing open.
pub fn processes(is_wanted: impl Fn(u32) -> bool) -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|&number| is_wanted(number)).filter_map(process).collect()
}

/// One of them.
pub fn process(number: u32) -> Option<Process> {
    let place = Path::new("/proc").join(number.to_string());
    let status = fs::read(place.join("status")).ok()?;
    let field = |name: &str| {
        let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name.as_bytes()))?;
        std::str::from_utf8(line).ok()?.split_whitespace().next()?.parse::<u32>().ok()
    };
    let mut name = fs::read(place.join("comm")).ok()?;
    name.truncate(name.len().saturating_sub(1)); // the line's end
    Some(Process { number, parent: field("PPid:")?, user: field("Uid:")?, name, open: open_files(&place) })
}

fn open_files(place: &Path) -> Vec<(i32, Identity, Vec<u8>)> {
    let Ok(entries) = fs::read_dir(place.join("fd")) else { return Vec::new() };
    let open = entries.flatten().filter_map(|entry| {
        let descriptor = entry.file_name().to_str()?.parse().ok()?;
        let path = fs::read_link(entry.path()).ok()?;
        let status = fs::metadata(entry.path()).ok()?;
        let is_file = status.is_file() || status.is_dir();
        let identity =
            Identity { inode: status.ino(), device: device_of_status(status.dev()), generation: 0 };
        is_file.then(|| (descriptor, identity, path.as_os_str().as_bytes().to_vec()))
    });
    open.collect()
}

/// The numbers of a process's threads.
pub fn threads(process: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{process}/task"));
    entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// A process and all that it started, directly or not, and that still have it above them.
pub fn descendants(process: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = processes_and_parents();
    let mut found = vec![process];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        found.extend(parents.iter().filter(|(_, its)| *its == parent).map(|(number, _)| *number));
        at += 1;
    }
    found
}

fn processes_and_parents() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let with_parent = numbers.filter_map(|number: u32| {
        // Behind the last parenthesis: a program's name may hold any.
        let status = fs::read(format!("/proc/{number}/stat")).ok()?;
        let end = status.iter().rposition(|&byte| byte == b')')?;
        let rest = std::str::from_utf8(&status[end + 1..]).ok()?;
        Some((number, rest.split_whitespace().nth(1)?.parse().ok()?))
    });
    with_parent.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_mount_table_is_read_with_spaces_in_its_place() {
        let line = b"31 23 8:17 / /mnt/my\\040disk rw,relatime shared:5 - ext4 /dev/sdb1 rw";
        let mount = mount(line).unwrap();
        assert_eq!(
            mount,
            Mount { device: 8 << 20 | 17, kind: "ext4".to_owned(), place: b"/mnt/my disk".to_vec() }
        );
    }

    #[test]
    fn this_process_is_found_with_what_it_has_open() {
        let file = fs::File::open("/proc/self/exe").unwrap();
        let number = std::process::id();
        let found = processes(|process| process == number);
        let status = file.metadata().unwrap();
        assert_eq!(found.len(), 1);
        assert!(found[0].open.iter().any(|(_, identity, _)| identity.inode == status.ino()), "{found:?}");
        assert!(threads(number).contains(&number));
        assert!(descendants(found[0].parent).contains(&number));
    }
}
