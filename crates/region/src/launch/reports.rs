//! The file into which a component writes what it has recorded. It has no name, so that nothing is left of it.

use std::os::fd::OwnedFd;

use rustix::fs::MemfdFlags;
use rustix::io::Errno;

/// Twice what full tables take. It goes to the launcher in one message.
const LONGEST_BYTES: u64 = 12 << 20;

pub(super) fn make() -> Result<OwnedFd, Errno> {
    rustix::fs::memfd_create("comb-report", MemfdFlags::CLOEXEC)
}

/// What is in it, when its component has ended. Nothing where it has never come to that.
pub(super) fn read(report: &OwnedFd) -> Option<Vec<u8>> {
    let length = u64::try_from(rustix::fs::fstat(report).ok()?.st_size).ok()?;
    if length == 0 || length > LONGEST_BYTES {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    let mut read = 0;
    while read < bytes.len() {
        match rustix::io::pread(report, &mut bytes[read..], read as u64) {
            Ok(0) | Err(_) => return None,
            Ok(more) => read += more,
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_written_nothing_or_too_much_has_handed_in_nothing() {
        let report = make().unwrap();
        assert_eq!(read(&report), None);
        rustix::io::pwrite(&report, b"a part", 0).unwrap();
        assert_eq!(read(&report).unwrap(), b"a part");
        rustix::fs::ftruncate(&report, LONGEST_BYTES + 1).unwrap();
        assert_eq!(read(&report), None);
    }
}
