//! Disks against a plain array of sectors, through deaths of their process and of their host; and files that are no overlays.

use std::fs;

use comb_types::fuzz::Fuzz;
use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress};

use super::overlay::{Boot, SCRATCH, boot};
use super::*;
use crate::devices::backend::Memory;

const SECTOR: usize = 512;
/// Two leaves of a map, of which the second is not full.
const SECTORS: usize = 4064 + 100;
const BASE: u8 = 1;
/// Where the maps of such a disk end.
const MAPS_END: usize = 8192 + 4 * 512;

/// A disk with an overlay, in a directory that goes with it.
struct Place {
    directory: PathBuf,
    memory: Memory,
}

impl Place {
    fn new(test: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("comb-vm-disk-{test}-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        fs::write(directory.join("base"), vec![BASE; SECTORS * SECTOR]).expect("a base");
        let memory = Memory::from_ranges(&[(GuestAddress(0), SECTORS * SECTOR)]).expect("memory");
        Self { directory, memory }
    }

    fn overlay(&self) -> PathBuf {
        self.directory.join("overlay")
    }

    fn open(&self) -> Result<Disk, OpenError> {
        Disk::open(&self.directory.join("base"), &Writes::Overlay(self.overlay()))
    }

    /// As if the host had started with this name.
    fn open_in(&self, boot: &Boot) -> Result<Disk, Flaw> {
        let base = self.directory.join("base");
        let mut disk = Disk::open(&base, &Writes::Refused).expect("a base");
        let file = OpenOptions::new().read(true).write(true).open(self.overlay()).expect("an overlay");
        disk.overlay = Some(Overlay::of_file(file, disk.identity, boot, false)?);
        disk.is_read_only = false;
        Ok(disk)
    }

    fn write(&self, disk: &mut Disk, sectors: &Range<usize>, value: u8) {
        let content = vec![value; sectors.len() * SECTOR];
        self.memory.write_slice(&content, GuestAddress(0)).expect("memory");
        let mut pieces = self.pieces(sectors.len());
        disk.write(sectors.start as u64, &mut pieces).expect("it is written");
    }

    fn pieces(&self, sectors: usize) -> Pieces<'_> {
        let mut pieces = Pieces::default();
        let bytes = u32::try_from(sectors * SECTOR).expect("a small number");
        let first = bytes.min(700);
        assert!(pieces.push(&self.memory, GuestAddress(0), first));
        assert!(pieces.push(&self.memory, GuestAddress(first.into()), bytes - first));
        pieces
    }

    /// What each sector is full of.
    fn values(&self, disk: &Disk) -> Vec<u8> {
        self.memory.write_slice(&vec![0xee; SECTORS * SECTOR], GuestAddress(0)).expect("memory");
        disk.read(0, &mut self.pieces(SECTORS), None).expect("it is read");
        let mut content = vec![0; SECTORS * SECTOR];
        self.memory.read_slice(&mut content, GuestAddress(0)).expect("memory");
        let one = |sector: &[u8; SECTOR]| {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is of one kind");
            sector[0]
        };
        content.as_chunks().0.iter().map(one).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(Range<usize>, u8),
    Zero(Range<usize>),
    Discard(Range<usize>),
    Flush,
    /// The process dies.
    Killed,
    /// The host goes down, and writes of which nobody said that they stay do not stay.
    Down,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = || {
        (prop_oneof![0..40_usize, 4040..4090_usize, SECTORS - 40..SECTORS], 1..30_usize)
            .prop_map(|(first, count)| first..(first + count).min(SECTORS))
    };
    let step = prop_oneof![
        8 => (range(), 2..=255_u8).prop_map(|(range, value)| Step::Write(range, value)),
        2 => range().prop_map(Step::Zero),
        2 => range().prop_map(Step::Discard),
        2 => Just(Step::Flush),
        2 => Just(Step::Killed),
        2 => Just(Step::Down),
    ];
    proptest::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_disk_is_what_an_array_of_sectors_is(steps in steps()) {
        let place = Place::new("model");
        let mut boot = boot().expect("its name");
        let mut disk = place.open().expect("a new overlay");
        let mut model = vec![BASE; SECTORS];
        let (mut is_own, mut is_flushed) = (vec![false; SECTORS], vec![false; SECTORS]);
        for step in steps {
            match step {
                Step::Write(range, value) => {
                    place.write(&mut disk, &range, value);
                    model[range.clone()].fill(value);
                    is_own[range].fill(true);
                }
                Step::Zero(range) => {
                    disk.zero(range.start as u64, range.len() as u64).expect("zeroes");
                    model[range.clone()].fill(0);
                    is_own[range].fill(true);
                }
                Step::Discard(range) => {
                    disk.discard(range.start as u64, range.len() as u64).expect("a discard");
                    range.filter(|at| is_own[*at]).for_each(|at| model[at] = 0);
                }
                Step::Flush => {
                    disk.flush().expect("a flush");
                    is_flushed.clone_from(&is_own);
                }
                Step::Killed => {
                    drop(disk);
                    disk = place.open_in(&boot).expect("the overlay");
                }
                Step::Down => {
                    drop(disk);
                    boot[0] ^= 1;
                    disk = place.open_in(&boot).expect("the overlay");
                    (0..SECTORS).filter(|at| !is_flushed[*at]).for_each(|at| model[at] = BASE);
                    is_own.clone_from(&is_flushed);
                }
            }
        }
        prop_assert!(place.values(&disk) == model);
        let base = fs::read(place.directory.join("base")).expect("the base");
        prop_assert!(base.iter().all(|byte| *byte == BASE));
    }
}

/// An overlay of which some is flushed and some is not.
fn written(place: &Place) {
    let mut disk = place.open().expect("a new overlay");
    place.write(&mut disk, &(10..20), 2);
    place.write(&mut disk, &(4060..4070), 2);
    disk.flush().expect("a flush");
    place.write(&mut disk, &(SECTORS - 5..SECTORS), 3);
}

#[test]
fn a_damaged_overlay_is_refused() {
    let place = Place::new("damaged");
    written(&place);
    let good = fs::read(place.overlay()).expect("the overlay");
    let maps = (8192..MAPS_END).filter(|at| good[at / 512 * 512..][..512].iter().any(|byte| *byte != 0));
    let places: Vec<_> = (0..512).chain(maps).collect();
    assert_eq!(places.len(), 5 * 512, "the header, and two leaves in two maps");
    let file = OpenOptions::new().write(true).open(place.overlay()).expect("the overlay");
    for at in places {
        file.write_all_at(&[good[at] ^ 0x10], at as u64).expect("a byte");
        let refused = place.open().expect_err("it is damaged");
        assert!(
            matches!(&refused, OpenError::Damaged(path, _) if *path == place.overlay()),
            "{at}: {refused}"
        );
        file.write_all_at(&[good[at]], at as u64).expect("a byte");
    }
    let [first, second] = [8192, 8704].map(|at| &good[at..at + 512]);
    file.write_all_at(second, 8192).expect("a leaf");
    assert!(matches!(place.open(), Err(OpenError::Damaged(..))), "a leaf is where another was");
    file.write_all_at(first, 8192).expect("a leaf");
    // Who keeps it may write there.
    file.write_all_at(&[0xff; 4096], SCRATCH.start).expect("a page");
    drop(place.open().expect("it is as it was"));
    for length in [0, 100, 512, 8192, good.len() - 1, good.len() + 1] {
        file.set_len(length as u64).expect("a length");
        let refused = place.open().expect_err("it has another length");
        assert!(matches!(refused, OpenError::Damaged(..)), "{length}: {refused}");
        fs::write(place.overlay(), &good).expect("the overlay");
    }
    let mut other = vec![BASE; SECTORS * SECTOR];
    other[5] = 0;
    fs::write(place.directory.join("base"), &other).expect("another base");
    assert!(matches!(place.open(), Err(OpenError::OtherBase(_))));
    fs::write(place.directory.join("base"), vec![BASE; (SECTORS + 1) * SECTOR]).expect("a longer base");
    assert!(matches!(place.open(), Err(OpenError::OtherBase(_))));
}

#[test]
fn whatever_an_overlay_is_it_is_refused_or_served() {
    let place = Place::new("fuzz");
    written(&place);
    let good = fs::read(place.overlay()).expect("the overlay");
    let now = boot().expect("its name");
    let mut other = now;
    other[0] ^= 1;
    let (mut taken, mut refused) = (0, 0);
    let mut fuzz = Fuzz::start("whatever_an_overlay_is_it_is_refused_or_served", 3);
    while fuzz.goes_on() || taken == 0 || refused == 0 {
        let mut bytes = good[..MAPS_END].to_vec();
        fuzz.mutate(&mut bytes);
        if fuzz.dice.below(4) != 0 {
            bytes.resize(good.len(), 0);
            bytes[MAPS_END..].copy_from_slice(&good[MAPS_END..]);
        }
        if fuzz.dice.below(2) == 0 && bytes.len() >= MAPS_END {
            // As if whoever has damaged it had known the checksums.
            seal(&mut bytes[..512], &[]);
            for leaf in 0..4_u64 {
                let at = 8192 + usize::try_from(leaf).expect("a small number") * 512;
                seal(&mut bytes[at..at + 512], &(leaf % 2).to_le_bytes());
            }
        }
        fs::write(place.overlay(), &bytes).expect("a file");
        match place.open_in(if fuzz.dice.below(2) == 0 { &now } else { &other }) {
            Ok(mut disk) => {
                taken += 1;
                disk.read(0, &mut place.pieces(SECTORS), None).expect("all of it can be read");
                place.write(&mut disk, &(0..SECTORS), 7);
                disk.flush().expect("a flush");
                assert!(place.values(&disk).iter().all(|value| *value == 7));
            }
            Err(flaw) => {
                refused += 1;
                assert!(!matches!(flaw, Flaw::File(_)), "{flaw}");
            }
        }
    }

    fn seal(bytes: &mut [u8], prefix: &[u8]) {
        if bytes.iter().any(|byte| *byte != 0) {
            let checksum = crc32fast::hash(&[prefix, &bytes[..508]].concat());
            bytes[508..].copy_from_slice(&checksum.to_le_bytes());
        }
    }
}

#[test]
fn after_a_flush_that_failed_none_says_that_all_is_well() {
    let place = Place::new("failed");
    let mut disk = Disk::open(&place.directory.join("base"), &Writes::Exclusive).expect("a disk");
    disk.flush().expect("a flush");
    let never_flushed = File::open("/proc/version").expect("a file");
    let base = std::mem::replace(&mut disk.base, never_flushed);
    disk.flush().expect_err("it can not be flushed");
    disk.base = base;
    disk.flush().expect_err("what was lost meanwhile?");
}

#[test]
fn an_overlay_is_there_as_a_whole_or_not_at_all() {
    let place = Place::new("made");
    drop(place.open().expect("a new overlay"));
    let names: Vec<_> = fs::read_dir(&place.directory).expect("a directory").collect();
    assert_eq!(names.len(), 2, "the base and the overlay, and nothing that was not finished");
}
