//! Memory that a guest has in common with others: by which mark it knows which is which, and where its programs find it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest name, in bytes: a segment's mark in a guest is its name.
pub const MOST_NAME_BYTES: usize = 16;

/// Where a guest's programs find segments, by name.
pub const PLACE: &str = "/dev/segments";

/// A guest's kernel takes less to find what was plugged in, on a host that does much else.
const FOUND_WITHIN: Duration = Duration::from_secs(30);

const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// The mark of a segment: its name, as the UUID of a device.
pub fn mark(name: &str) -> Option<[u8; MOST_NAME_BYTES]> {
    let mut mark = [0; MOST_NAME_BYTES];
    mark.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
    Some(mark)
}

/// As the guest's kernel writes it.
fn written(mark: [u8; MOST_NAME_BYTES]) -> String {
    let mut text = String::new();
    for (at, byte) in mark.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Makes each segment reachable by its name once its device is there; those are returned of which there is none.
pub(crate) fn find(names: Vec<String>) -> Vec<String> {
    let until = Instant::now() + FOUND_WITHIN;
    let is_missing = |name: &String| {
        loop {
            if let Some(device) = device_of(Path::new("/sys/bus/nd/devices"), name)
                && link(Path::new(PLACE), name, &Path::new("/dev").join(device)).is_ok()
            {
                return false;
            }
            if Instant::now() >= until {
                return true;
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
    };
    names.into_iter().filter(is_missing).collect()
}

/// The device that programs map of the one with that mark: below it, and called alike.
fn device_of(devices: &Path, name: &str) -> Option<String> {
    let mark = written(mark(name)?);
    let is_it =
        |device: &PathBuf| fs::read_to_string(device.join("uuid")).is_ok_and(|text| text.trim() == mark);
    let device = fs::read_dir(devices).ok()?.filter_map(|entry| Some(entry.ok()?.path())).find(is_it)?;
    let inside = fs::read_dir(device).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    inside
        .into_iter()
        .find(|name| name.starts_with("dax") && name[3..].starts_with(|c: char| c.is_ascii_digit()))
}

fn link(place: &Path, name: &str, device: &Path) -> io::Result<()> {
    // A name is one of a directory's.
    if name.is_empty() || name.contains('/') || name.starts_with('.') || !device.exists() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    fs::create_dir_all(place)?;
    let link = place.join(name);
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(device, link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_by_its_mark_and_linked_by_its_name() {
        let directory = std::env::temp_dir().join(format!("comb-guest-segment-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        for (device, name) in [("dax0.1", "one"), ("dax1.0", "both")] {
            fs::create_dir_all(directory.join(device).join("daxes")).unwrap();
            fs::create_dir_all(directory.join(device).join(device)).unwrap();
            fs::write(directory.join(device).join("uuid"), written(mark(name).unwrap()) + "\n").unwrap();
        }
        fs::create_dir_all(directory.join("region0")).unwrap();
        assert_eq!(
            fs::read_to_string(directory.join("dax1.0/uuid")).unwrap(),
            "626f7468-0000-0000-0000-000000000000\n"
        );
        assert_eq!(device_of(&directory, "both").as_deref(), Some("dax1.0"));
        assert_eq!(device_of(&directory, "bot"), None);
        assert_eq!(mark("seventeen-letters"), None);
        let place = directory.join("segments");
        // Twice: a guest that continues where another stood has its links.
        for _ in 0..2 {
            link(&place, "both", &directory.join("dax1.0")).unwrap();
        }
        assert_eq!(fs::read_link(place.join("both")).unwrap(), directory.join("dax1.0"));
        for name in ["..", "a/b", ""] {
            link(&place, name, &directory.join("dax1.0")).unwrap_err();
        }
        link(&place, "none", &directory.join("dax7.0")).unwrap_err();
        fs::remove_dir_all(directory).unwrap();
    }
}
