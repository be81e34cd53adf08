//! How much memory machines take that have much in common.

use std::path::Path;
use std::time::{Duration, Instant};

use comb_vm::attached::Devices;
use comb_vm::engine::Engine;
use comb_vm::hardware::{Backing, Hardware, Root, Under};

use super::{DATA_MB, LIMIT, Outcome, World, at_most, beside, memory_mb, row, within};
use crate::report::{Goal, Row};

const GUESTS: usize = 8;

/// What merges pages of the host's that are alike.
const MERGING: &str = "/sys/kernel/mm/ksm";

/// Merging has settled when so long nothing was found.
const SETTLED: Duration = Duration::from_secs(8);

/// The host's memory for so many guests that have read the data, in megabytes.
fn measured(
    count: usize,
    mut begin: impl FnMut(usize) -> Outcome<Engine>,
    mut settle: impl FnMut() -> Outcome<()>,
) -> Outcome<f64> {
    let mut engines = (0..count).map(&mut begin).collect::<Outcome<Vec<_>>>()?;
    for engine in &mut engines {
        within(engine, "cat /data > /dev/null")?;
    }
    settle()?;
    Ok(memory_mb(&engines))
}

/// What is under roots of these and in memory, each page once, and what guests have of files in memory of their own: in kilobytes.
fn file_kb(engines: &mut [Engine], root: &Path) -> Outcome<u64> {
    let mut sum = 0;
    for engine in &mut *engines {
        let maps = std::fs::read_to_string(format!("/proc/{}/smaps", engine.process()))?;
        let name = root.to_str().ok_or("the root's name is no text")?;
        let mut is_root = false;
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("Pss:") if is_root => sum += words.next().ok_or("smaps ends")?.parse::<u64>()?,
                Some(first) if first.contains('-') && !first.ends_with(':') => is_root = line.ends_with(name),
                _ => {}
            }
        }
        let cached = within(engine, "sed -n 's/^Cached: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo")?;
        sum += cached.parse::<u64>()?;
    }
    Ok(sum)
}

/// How often the host has the data when so many guests have read it.
fn copies(count: usize, root: &Path, begin: impl FnMut(usize) -> Outcome<Engine>) -> Outcome<f64> {
    let mut engines = (0..count).map(begin).collect::<Outcome<Vec<_>>>()?;
    let before = file_kb(&mut engines, root)?;
    for engine in &mut engines {
        within(engine, "cat /data > /dev/null")?;
    }
    let more = file_kb(&mut engines, root)?.saturating_sub(before);
    #[expect(clippy::cast_precision_loss, reason = "a number of kilobytes")]
    let copies = more as f64 / (DATA_MB << 10) as f64;
    Ok(copies)
}

pub(super) fn rows(world: &World, say: &dyn Fn(&str)) -> Outcome<Vec<Row>> {
    let nothing = || Ok(());
    let disk = |number: usize| world.place.0.join(format!("disk-{number}"));
    let plain = |hardware: Hardware| {
        move |number: usize| {
            say(&format!("plain QEMU with a disk of its own, {} of {GUESTS}", number + 1));
            std::fs::copy(world.own_root(), disk(number))?;
            let backing = Backing {
                ram: None,
                root: Root::Drive(disk(number)),
                under: Under::Private,
                devices: Devices::default(),
            };
            world.begin(&hardware, &backing, "plain")
        }
    };
    let booted = |hardware: Hardware| {
        move |number: usize| {
            say(&format!("machines with their root in memory, {} of {GUESTS}", number + 1));
            world.boot(&hardware, "boots")
        }
    };
    let (usual, merges) = (world.hardware.clone(), Hardware { merges: true, ..world.hardware.clone() });
    let theirs = measured(GUESTS, plain(usual.clone()), nothing)?;
    let by_memory = measured(GUESTS, booted(usual.clone()), nothing)?;
    let merged = merging(|settle| {
        let theirs = measured(GUESTS, plain(merges.clone()), &mut *settle)?;
        Ok((theirs, measured(GUESTS, booted(merges.clone()), settle)?))
    })?;
    let template = world.template(say)?;
    let cloned = |number: usize| {
        say(&format!("clones, {}", number + 1));
        world.clone_of(&template, "clone")
    };
    let by_clones = measured(GUESTS, cloned, nothing)?;
    let peer = "plain QEMU";
    let what = format!("{GUESTS} guests that read {DATA_MB} MB: clones");
    let mut rows = vec![
        beside(&what, by_clones, "MB", peer, theirs, 0.25),
        beside("… machines that booted, root in memory", by_memory, "MB", peer, theirs, 0.65),
    ];
    let claim = "… the same, and the host merges pages";
    if let Some((plainly, ours)) = merged {
        rows.push(beside(claim, ours, "MB", peer, theirs, 0.45));
        let row = beside("… plain QEMU, and the host merges pages", plainly, "MB", peer, theirs, 0.0);
        rows.push(Row { goal: Goal::None, ..row });
    } else {
        let note = format!("{MERGING} is not to be had here");
        rows.push(Row { goal: Goal::AtMost(0.45), note, ..row(claim, None, "MB") });
    }
    let Root::Memory(root) = template.backing().root else {
        return Err("a template's root is in memory".into());
    };
    for count in [1, 2, 4, GUESTS] {
        let claim = format!("copies of the data on the host, {count} clones that read it");
        rows.push(at_most(&claim, copies(count, &root, cloned)?, "", 1.1));
    }
    let in_plain = copies(2, Path::new("none"), plain(usual))?;
    rows.push(row("… two guests of plain QEMU, in their own memory alone", Some(in_plain), ""));
    for number in 0..GUESTS {
        std::fs::remove_file(disk(number))?;
    }
    Ok(rows)
}

/// Has the host merge pages while something is done, which is given a way to wait until it has merged all; nothing: this host does not, or not for this user.
fn merging<T>(what: impl FnOnce(&mut dyn FnMut() -> Outcome<()>) -> Outcome<T>) -> Outcome<Option<T>> {
    let settings = [("run", "1"), ("pages_to_scan", "20000"), ("sleep_millisecs", "10")];
    let path = |name: &str| Path::new(MERGING).join(name);
    let before: Vec<Option<String>> =
        settings.iter().map(|(name, _)| std::fs::read_to_string(path(name)).ok()).collect();
    if before.iter().any(Option::is_none) || std::fs::write(path("run"), "1").is_err() {
        return Ok(None);
    }
    for (name, value) in settings {
        std::fs::write(path(name), value)?;
    }
    let shared = || -> Outcome<u64> { Ok(std::fs::read_to_string(path("pages_sharing"))?.trim().parse()?) };
    let mut settle = || {
        let until = Instant::now() + LIMIT;
        let (mut last, mut since) = (shared()?, Instant::now());
        while since.elapsed() < SETTLED && Instant::now() < until {
            std::thread::sleep(SETTLED / 10);
            let now = shared()?;
            // What guests change all the time is found again and again.
            if now > last + last / 100 {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(())
    };
    let done = what(&mut settle);
    for ((name, _), value) in settings.iter().zip(&before) {
        std::fs::write(path(name), value.as_deref().unwrap_or("0").trim())?;
    }
    done.map(Some)
}
