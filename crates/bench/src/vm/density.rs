//! How much memory machines take that have much in common.

use std::path::Path;
use std::time::{Duration, Instant};

use comb_vm::engine::Engine;
use comb_vm::hardware::{Backing, Hardware, Root, Under};

use super::{DATA_MB, LIMIT, Outcome, World, at_most, beside, memory_mb, row, within};
use crate::report::{Goal, Row};

const GUESTS: usize = 8;

/// What merges pages of the host's that are alike.
const MERGING: &str = "/sys/kernel/mm/ksm";

/// Merging has settled when so long nothing was found.
const SETTLED: Duration = Duration::from_secs(5);

/// The host's memory for so many guests, before they have read the data and after, in megabytes.
fn measured(
    count: usize,
    mut begin: impl FnMut(usize) -> Outcome<Engine>,
    mut settle: impl FnMut() -> Outcome<()>,
) -> Outcome<[f64; 2]> {
    let mut engines = (0..count).map(&mut begin).collect::<Outcome<Vec<_>>>()?;
    let before = memory_mb(&engines);
    for engine in &mut engines {
        within(engine, "cat /data > /dev/null")?;
    }
    settle()?;
    Ok([before, memory_mb(&engines)])
}

pub(super) fn rows(world: &World, say: &dyn Fn(&str)) -> Outcome<Vec<Row>> {
    let nothing = || Ok(());
    let plain = |hardware: Hardware| {
        move |number: usize| {
            say(&format!("plain QEMU with a disk of its own, {} of {GUESTS}", number + 1));
            let disk = world.place.0.join(format!("disk-{number}"));
            std::fs::copy(world.own_root(), &disk)?;
            let backing = Backing { ram: None, root: Root::Drive(disk), under: Under::Private };
            world.begin(&hardware, &backing, "plain")
        }
    };
    let [_, theirs] = measured(GUESTS, plain(world.hardware.clone()), nothing)?;
    let merged = merging(|settle| {
        measured(GUESTS, plain(Hardware { merges: true, ..world.hardware.clone() }), settle)
    })?;
    for number in 0..GUESTS {
        std::fs::remove_file(world.place.0.join(format!("disk-{number}")))?;
    }
    let booted = |number: usize| {
        say(&format!("machines with their root in memory, {}", number + 1));
        world.boot("boots")
    };
    let [_, by_memory] = measured(GUESTS, booted, nothing)?;
    let template = world.template(say)?;
    let cloned = |number: usize| {
        say(&format!("clones, {}", number + 1));
        world.clone_of(&template, "clone")
    };
    let [_, by_clones] = measured(GUESTS, cloned, nothing)?;
    let mut rows = vec![
        beside(
            &format!("{GUESTS} guests that read {DATA_MB} MB: clones"),
            by_clones,
            "MB",
            "plain QEMU",
            theirs,
            0.25,
        ),
        beside("… machines that booted, root in memory", by_memory, "MB", "plain QEMU", theirs, 0.65),
    ];
    rows.push(match merged {
        Some([_, merged]) => {
            beside("… plain QEMU, the host merges pages", merged, "MB", "plain QEMU", theirs, 0.45)
        }
        None => Row {
            goal: Goal::AtMost(0.45),
            note: format!("{MERGING} is not to be had here"),
            ..row("… plain QEMU, the host merges pages", None, "MB")
        },
    });
    for count in [1, 2, 4, GUESTS] {
        let [before, after] = measured(count, cloned, nothing)?;
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let copies = (after - before) / DATA_MB as f64;
        rows.push(at_most(&format!("copies of the data, {count} guests"), copies, "", 1.1));
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
