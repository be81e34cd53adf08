//! An agent and a collector by seed: connections that break at any byte, or fall silent; either side killed at any time, with what was not on
//! the disk cut off anywhere; a disk that is full for a while; files that somebody removes. Files and directory are real.
//!
//! What is checked: a recording's file is, byte for byte, what was recorded, from its beginning; as far as it was acknowledged, whatever
//! happened; all of it, if it was delivered; and when nothing fails any more, all is.

mod world;

use std::fs;
use std::path::Path;
use std::time::Duration;

use self::world::{Fate, World};
use super::Limits;
use super::folder::Folder;

/// `COMB_COLLECT_SEED` replays one; `COMB_COLLECT_SEEDS` says how many are tried.
fn seeds() -> std::ops::Range<u64> {
    let from = |variable: &str| std::env::var(variable).ok()?.parse::<u64>().ok();
    match from("COMB_COLLECT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..from("COMB_COLLECT_SEEDS").unwrap_or(400),
    }
}

struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("COMB_COLLECT_SEED={} fails", self.0);
        }
    }
}

/// A directory in memory, if there is such a thing here: what is written is brought to the disk after each second that is simulated.
fn directory() -> std::path::PathBuf {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    parent.join(format!("comb-collect-simulation-{}", std::process::id()))
}

#[test]
fn whatever_breaks_each_frame_that_was_acknowledged_is_there_once_and_in_order() {
    let directory = directory();
    let mut seen = Fate::default();
    for number in seeds() {
        let seed = Seed(number);
        fs::create_dir_all(&directory).unwrap();
        let mut world = World::new(seed.0, directory.clone());
        for _ in 0..world.lives() {
            let limits = world.limits();
            let folder = Folder::open(&directory, limits).unwrap();
            world.life(&folder);
            drop(folder);
            world.tear();
        }
        let folder = Folder::open(&directory, Limits::default()).unwrap();
        world.heal(&folder, Duration::from_secs(600));
        drop(folder);
        world.check();
        seen.add(&world.fate);
        fs::remove_dir_all(&directory).unwrap();
    }
    println!("{seen:?}");
    // A schedule in which nothing happens shows nothing.
    if std::env::var_os("COMB_COLLECT_SEED").is_none() {
        assert!(seen.are_all_seen(), "{seen:?}");
    }
}
