//! What is handed over as published memory, and what can be done with it.

use std::os::fd::{AsFd, OwnedFd};

use comb_memory::{CarefulError, Peer};
use comb_types::{CellId, Incarnation};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::structures::{BYTES, CELL, INCARNATION, image, map_forged, published, put, sealed, word};

const ALL: SealFlags = SealFlags::GROW.union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

fn refusal(descriptor: impl AsFd) -> CarefulError {
    Peer::map(descriptor, CELL, INCARNATION).unwrap_err()
}

#[test]
fn readers_can_neither_store_nor_shorten() {
    let published = published();
    let reading = published.reading_descriptor().unwrap();
    let map = |descriptor: &OwnedFd, protection| {
        // SAFETY: a new mapping, which nobody uses.
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), 4096, protection, MapFlags::SHARED, descriptor, 0) }
    };
    assert!(map(&reading, ProtFlags::READ).is_ok());
    assert!(map(&reading, ProtFlags::READ | ProtFlags::WRITE).is_err());
    assert!(rustix::io::pwrite(&reading, &[1], 5000).is_err());
    assert!(rustix::fs::ftruncate(&reading, 0).is_err());
    assert!(rustix::fs::fcntl_add_seals(&reading, SealFlags::SHRINK).is_err());
    // Nor who has the owner's descriptor, but that the memory can be taken away, and does not come back.
    let own = published.descriptor().try_clone_to_owned().unwrap();
    assert_eq!(map(&own, ProtFlags::READ | ProtFlags::WRITE).unwrap_err(), Errno::PERM);
    assert_eq!(rustix::io::pwrite(&own, &[1], 5000), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&own, 2 * BYTES), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&own, 0), Ok(()));
    assert_eq!(rustix::fs::ftruncate(&own, BYTES), Err(Errno::PERM));
    assert_eq!(refusal(&reading), CarefulError::BusError { cell: CELL, offset: 0 });
}

#[test]
fn what_is_not_sealed_is_not_mapped() {
    let content = image(&published());
    assert!(Peer::map(sealed(&content, ALL), CELL, INCARNATION).is_ok());
    assert!(Peer::map(sealed(&content, ALL | SealFlags::SHRINK), CELL, INCARNATION).is_ok());
    for missing in [SealFlags::GROW, SealFlags::FUTURE_WRITE, SealFlags::SEAL] {
        let refused = refusal(sealed(&content, ALL - missing));
        assert!(matches!(refused, CarefulError::NotPublished { cell: CELL, .. }), "{missing:?}: {refused}");
    }
    let (pipe, _writer) = std::io::pipe().unwrap();
    assert!(matches!(refusal(pipe), CarefulError::NotPublished { .. }));
    let zeros = std::fs::File::open("/dev/zero").unwrap();
    assert!(matches!(refusal(zeros), CarefulError::NotPublished { .. }));
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    // Absent where the kernel has no huge pages: then nobody can hand one over either.
    if let Ok(huge) = rustix::fs::memfd_create("huge", flags) {
        rustix::fs::ftruncate(&huge, 2 << 20).unwrap();
        if rustix::fs::fcntl_add_seals(&huge, ALL).is_ok() {
            assert!(matches!(refusal(huge), CarefulError::NotPublished { .. }));
        }
    }
}

#[test]
fn what_has_a_wrong_length_is_not_mapped() {
    let content = image(&published());
    for length in [4096, 8191, 8193] {
        let refused = map_forged(&content[..length]).unwrap_err();
        let rule = "it is some pages long, and not too many";
        assert_eq!(refused, CarefulError::NotPublished { cell: CELL, rule }, "{length}");
    }
    // Whole pages, but not as many as the header says.
    let refused = map_forged(&content[..8192]).unwrap_err();
    assert!(matches!(refused, CarefulError::NotPublished { rule: "it is as long as it says", .. }));
    let vast = rustix::fs::memfd_create("vast", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&vast, 1 << 40).unwrap();
    rustix::io::pwrite(&vast, &content[..8192], 0).unwrap();
    rustix::fs::fcntl_add_seals(&vast, ALL).unwrap();
    let rule = "it is some pages long, and not too many";
    assert_eq!(refusal(vast), CarefulError::NotPublished { cell: CELL, rule });
}

#[test]
fn what_is_not_the_cells_is_not_taken() {
    let published = published();
    let content = image(&published);
    let reading = published.reading_descriptor().unwrap();
    let other = CellId(4);
    let refused = Peer::map(&reading, other, INCARNATION).unwrap_err();
    assert_eq!(refused, CarefulError::NotIts { cell: other, found: CELL.0.into() });
    assert_eq!(refused.cell(), other, "the guilty one is who handed it over");
    let (expected, found) = (Incarnation(8), INCARNATION);
    let refused = Peer::map(&reading, CELL, expected).unwrap_err();
    assert_eq!(refused, CarefulError::OtherIncarnation { cell: CELL, expected, found });
    let forge = |at, word| {
        let mut content = content.clone();
        put(&mut content, at, word);
        map_forged(&content).unwrap_err()
    };
    assert_eq!(forge(16, 2), CarefulError::Version { cell: CELL, found: 2 });
    assert!(matches!(forge(0, word(&content, 0) ^ 1), CarefulError::NotPublished { .. }));
    assert!(matches!(forge(40, 8191), CarefulError::NotPublished { .. }));
    assert!(matches!(forge(128, 0), CarefulError::WrongTag { .. }), "it has a tick");
    assert!(map_forged(&content).is_ok());
}
