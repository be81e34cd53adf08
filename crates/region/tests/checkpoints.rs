//! Checkpoints of whole tasks: what is written, what comes back, and what happens when something goes wrong meanwhile.

mod conditions;
mod hosts;

use std::path::{Path, PathBuf};
use std::time::Duration;

use comb_memory::software::with_right;
use comb_region::launch::{Launch, Outcome, Output};
use comb_region::task::Share;
use comb_region::{Array, Combine, Guard, Placement, Sharing, Task, Terms};
use conditions::wait_until;

/// Which case a component is to run.
const CASE: &str = "COMB_TEST_CASE";
/// Elements of each array: some pages for each of three components, and not the same number of extents.
const LENGTH: usize = 40_000;

type Case = (&'static str, fn(&Task));
const CASES: &[Case] =
    &[("goes_on", goes_on), ("stays_in_the_second", stays_in_the_second), ("has_moved", has_moved)];

#[test]
fn part() {
    hosts::serve();
}

#[test]
fn component() {
    let Ok(case) = std::env::var(CASE) else { return };
    let (_, run) = CASES.iter().find(|(name, _)| *name == case).expect("a case");
    let task = Task::join().unwrap_or_else(|error| panic!("not joined: {error}"));
    run(&task);
}

/// A directory that goes with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("comb-checkpoints-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn current(&self) -> u64 {
        std::fs::read_to_string(self.file("current")).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn launch(case: &str, components: u32, share: Share, directory: &Path, restores: bool) -> Launch {
    Launch::new(std::env::current_exe().unwrap())
        .arguments(["--exact", "component", "--nocapture", "--test-threads=1"])
        .environment(CASE, case)
        .environment("RUST_BACKTRACE", "0")
        .environment("DIRECTORY", directory)
        .environment("BEFORE", "0")
        .components(components)
        .share(share)
        .checkpoint(directory, restores)
        .output(Output::Collected)
        .without_input()
        .limit(Duration::from_secs(300))
}

fn said(outcome: &Outcome) -> String {
    let of = |printed: &comb_region::launch::Printed| {
        [&printed.output[..], &printed.error].map(String::from_utf8_lossy).concat()
    };
    outcome.printed.iter().map(of).collect()
}

#[track_caller]
fn succeeds(launch: &Launch) {
    let outcome = launch.start().unwrap().wait();
    assert!(outcome.is_success(), "{}", said(&outcome));
}

#[track_caller]
fn fails_with(launch: &Launch, words: &str) {
    let outcome = launch.start().unwrap().wait();
    assert!(!outcome.is_success());
    assert!(said(&outcome).contains(words), "{}", said(&outcome));
}

fn all_terms(count: u32) -> Vec<Terms> {
    let mut all = Vec::new();
    for sharing in [Sharing::Stache, Sharing::Migratory, Sharing::Release, Sharing::Update] {
        for placement in [Placement::FirstTouch, Placement::RoundRobin, Placement::At(count - 1)] {
            for (guard, block_bytes) in [
                (Guard::Page, 4096),
                (Guard::Page, 65536),
                (Guard::Mmu, 512),
                (Guard::Check, 256),
                (Guard::Hybrid, 4096),
            ] {
                let is_checked = matches!(guard, Guard::Check | Guard::Hybrid);
                // Objects are for those who store alone, and so is what code checks itself.
                let stores_alone = matches!(sharing, Sharing::Stache | Sharing::Migratory);
                if guard == Guard::Page || stores_alone && (!is_checked || placement == Placement::RoundRobin)
                {
                    all.push(Terms { sharing, placement, guard, block_bytes, ..Terms::default() });
                }
            }
        }
    }
    all
}

/// Numbers in memory of any guard.
struct Numbers(Vec<*mut u64>);

#[expect(unsafe_code, reason = "plain loads and stores, as programs make them")]
impl Numbers {
    fn together(task: &Task, terms: &Terms) -> Self {
        let memory = task.allocate_together(LENGTH as u64 * 8, terms).expect("allocated");
        let in_object = if terms.guard == Guard::Mmu { terms.block_bytes as usize / 8 } else { LENGTH };
        let place = |index: usize| {
            let object = if terms.guard == Guard::Mmu {
                task.object(memory, index / in_object).unwrap()
            } else {
                memory
            };
            object.wrapping_add(index % in_object * 8).cast::<u64>()
        };
        Self((0..LENGTH).map(place).collect())
    }

    fn get(&self, index: usize) -> u64 {
        let place = self.0[index];
        // SAFETY: within the allocation, and aligned.
        with_right(place.cast(), 8, false, || unsafe { place.read_volatile() }).expect("allocated")
    }

    fn set(&self, index: usize, value: u64) {
        let place = self.0[index];
        // SAFETY: as above.
        with_right(place.cast(), 8, true, || unsafe { place.write_volatile(value) }).expect("allocated");
    }
}

fn content(life: u64, index: usize) -> u64 {
    // One element in the middle tells lives apart; the others are the first's.
    if index == LENGTH / 2 { life * 1_000_000 } else { index as u64 * 3 + 1 }
}

/// How many pages all have written: none if they have written all, as they do every eighth time.
fn written_by_all(task: &Task) -> Option<u64> {
    let pages = task.checkpoint().expect("written");
    let number = |text: String| text.trim().parse::<u64>().expect("a number");
    let directory = PathBuf::from(std::env::var_os("DIRECTORY").expect("of the test"));
    let current = number(std::fs::read_to_string(directory.join("current")).expect("named"));
    let pages = task.reduce(Combine::Sum, &[pages])[0];
    let before = number(std::env::var("BEFORE").expect("of the test"));
    (!(current - before - 1).is_multiple_of(8)).then_some(pages)
}

/// The first life fills; each one finds what the one before has left, and changes a little of it.
fn goes_on(task: &Task) {
    let (rank, count) = (task.rank() as usize, task.count() as usize);
    let life = Array::<u64>::together(task, 1, &Terms::default()).expect("allocated");
    // Where something is that one component has allocated alone.
    let place = Array::<u64>::together(task, 1, &Terms::default()).expect("allocated");
    let terms = all_terms(task.count());
    let all: Vec<Numbers> = terms.iter().map(|terms| Numbers::together(task, terms)).collect();
    let before = life.get(0);
    assert_eq!(before > 0, task.restored());
    task.barrier();
    if task.restored() {
        for (numbers, terms) in all.iter().zip(&terms) {
            for index in 0..LENGTH {
                assert_eq!(numbers.get(index), content(before, index), "{terms:?}, element {index}");
            }
        }
        assert_eq!(alone(place.get(0)), 4711);
        task.barrier();
    } else {
        if rank == 0 {
            // With content, which must not come back in what is allocated there next.
            let freed = task.allocate(100_000, &Terms::default()).expect("allocated");
            set_alone(freed as u64, 1);
            task.free(freed).expect("ours");
        }
        if rank == count - 1 {
            let memory = task.allocate(5000, &Terms::default()).expect("allocated");
            set_alone(memory as u64, 4711);
            place.set(0, memory as u64);
        }
        for numbers in &all {
            for index in 0..LENGTH {
                // Not who is home to it.
                if (index / 512 + 1) % count == rank {
                    numbers.set(index, content(0, index));
                }
            }
            // The writers of one page are not more than one at a time.
            task.barrier();
        }
        assert_eq!(written_by_all(task), None);
    }
    let now = before + 1;
    if rank == 0 {
        life.set(0, now);
        for numbers in &all {
            numbers.set(LENGTH / 2, content(now, LENGTH / 2));
        }
    }
    // One page of each, and the one with the number of the life.
    if let Some(pages) = written_by_all(task) {
        assert_eq!(pages, all.len() as u64 + 1, "only what has changed is written");
    }
    if let Some(pages) = written_by_all(task) {
        assert_eq!(pages, 0, "nothing has changed");
    }
}

#[expect(unsafe_code, reason = "memory by its address alone")]
fn alone(address: u64) -> u64 {
    // SAFETY: allocated in another component, and not freed.
    unsafe { comb_memory::pointer(address).cast::<u64>().read_volatile() }
}

#[expect(unsafe_code, reason = "memory by its address alone")]
fn set_alone(address: u64, value: u64) {
    // SAFETY: just allocated.
    unsafe { comb_memory::pointer(address).cast::<u64>().write_volatile(value) }
}

#[test]
fn what_was_stored_is_there_in_the_next_life() {
    for components in [1, 3] {
        let directory = Directory::new(&format!("lives-{components}"));
        // A task may go on with the other way to come to memory.
        let lives = [Share::Auto, Share::Auto, Share::Copy, Share::Copy, Share::Auto, Share::Auto];
        for (life, share) in lives.into_iter().enumerate() {
            let mut launch = launch("goes_on", components, share, &directory.0, life > 0);
            if life == 3 {
                // And by the other way to stop threads.
                launch = launch.environment("COMB_WITHOUT", "userfaultfd");
            }
            let outcome = launch.start().unwrap().wait();
            assert!(outcome.is_success(), "{components}, life {life}, {share:?}:\n{}", said(&outcome));
        }
        // One that begins anew does not take what is valid away before it has written its own.
        let before = directory.current();
        let again = |restores| {
            launch("goes_on", components, Share::Copy, &directory.0, restores)
                .environment("BEFORE", before.to_string())
        };
        succeeds(&again(false));
        assert_eq!(directory.current(), before + 3);
        succeeds(&again(true));
    }
}

/// On one host or two, and more components on the one or on the other: pages live elsewhere than before.
#[test]
fn the_next_life_may_be_on_other_hosts() {
    let directory = Directory::new("hosts");
    let here = |share| launch("goes_on", 3, share, &directory.0, true);
    let there = |hosts: &[u32]| hosts::on(here(Share::Auto), hosts);
    succeeds(&launch("goes_on", 3, Share::Auto, &directory.0, false));
    let lives = [
        there(&[2, 1]),
        there(&[1, 2]),
        here(Share::Copy),
        there(&[1, 2]),
        here(Share::Auto),
        // Its neighbours are no more one than those of the life before.
        there(&[1, 1, 1]),
    ];
    for life in lives {
        // Each writes all, for its parts are others.
        succeeds(&life.environment("BEFORE", directory.current().to_string()));
    }
    let before = directory.current();
    succeeds(&there(&[2, 1]).environment("BEFORE", before.to_string()));
    // The same again: only what has changed.
    succeeds(&there(&[2, 1]).environment("BEFORE", before.to_string()));
}

#[test]
fn what_cannot_be_restored_is_refused_with_the_reason() {
    let directory = Directory::new("refused");
    let restored = |components| launch("goes_on", components, Share::Auto, &directory.0, true);
    fails_with(&restored(2), "there is no checkpoint in");
    succeeds(&launch("goes_on", 2, Share::Auto, &directory.0, false));
    for other in [1, 3] {
        fails_with(&restored(other), &format!("is of 2 components, and this task has {other}"));
    }
    // A part of the chain, not only the last file: the first has nearly all pages.
    let first = directory.file(&format!("1.{}.pages", directory.current() - 2));
    let whole = std::fs::read(&first).unwrap();
    let mut flipped = whole.clone();
    let middle = whole.len() / 2;
    flipped[middle] ^= 1;
    std::fs::write(&first, flipped).unwrap();
    fails_with(&restored(2), "its sum is wrong");
    std::fs::write(&first, &whole[..middle]).unwrap();
    fails_with(&restored(2), "it ends too early");
    std::fs::write(&first, b"something else").unwrap();
    fails_with(&restored(2), "it is no part of a checkpoint");
    std::fs::copy(directory.file(&format!("0.{}.pages", directory.current() - 2)), &first).unwrap();
    fails_with(&restored(2), "it is another component's");
    std::fs::write(&first, &whole).unwrap();
    let number = std::fs::read(directory.file("current")).unwrap();
    std::fs::write(directory.file("current"), "x").unwrap();
    fails_with(&restored(2), "it holds no number");
    std::fs::write(directory.file("current"), number).unwrap();
    succeeds(&restored(2));
}

/// Comes to a second checkpoint, of which the test sees to it that it does not end.
fn stays_in_the_second(task: &Task) {
    let numbers = Array::<u64>::together(task, 100_000, &Terms::default()).expect("allocated");
    let own = (0..numbers.len()).filter(|index| index / 512 % task.count() as usize == task.rank() as usize);
    if task.restored() {
        (0..numbers.len()).for_each(|index| assert_eq!(numbers.get(index), 1));
        task.barrier();
        own.for_each(|index| numbers.set(index, 3));
        task.checkpoint().expect("written");
        return;
    }
    own.clone().for_each(|index| numbers.set(index, 1));
    task.checkpoint().expect("written");
    own.for_each(|index| numbers.set(index, 2));
    let directory = PathBuf::from(std::env::var_os("DIRECTORY").expect("of the test"));
    std::fs::write(directory.join(format!("process.{}", task.rank())), std::process::id().to_string())
        .unwrap();
    while !directory.join("go").exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    task.checkpoint().expect("written");
}

/// A component dies while it writes, when the others have written already. A file that nobody reads from, a pipe with a name, holds it there.
#[test]
fn a_kill_in_the_middle_leaves_the_checkpoint_before() {
    for share in [Share::Auto, Share::Copy] {
        let directory = Directory::new(&format!("killed-{share:?}"));
        let case = |restores| launch("stays_in_the_second", 2, share, &directory.0, restores);
        let running = case(false).start().unwrap();
        let process = |rank: u32| {
            let text = std::fs::read_to_string(directory.file(&format!("process.{rank}"))).ok()?;
            text.parse::<i32>().ok()
        };
        wait_until("the first checkpoint", || process(0).is_some() && process(1).is_some());
        let pipe = directory.file("1.2.pages");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        std::fs::write(directory.file("go"), "").unwrap();
        let whole = std::fs::metadata(directory.file("0.1.pages")).unwrap().len();
        let other = directory.file("0.2.pages");
        wait_until("the other part", || {
            std::fs::metadata(&other).is_ok_and(|file| file.len() + 8192 > whole)
        });
        let pid = rustix::process::Pid::from_raw(process(1).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        let outcome = running.wait();
        assert_eq!(outcome.failed.as_ref().map(|end| end.rank), Some(1), "{}", said(&outcome));
        assert_eq!(directory.current(), 1);
        // And as much as may have got to the disk.
        std::fs::remove_file(&pipe).unwrap();
        let former = std::fs::read(directory.file("1.1.pages")).unwrap();
        std::fs::write(&pipe, &former[..former.len() / 2]).unwrap();
        succeeds(&case(true));
        assert_eq!(directory.current(), 2);
    }
}

/// Memory whose blocks live elsewhere than they were born: each life moves them on, and stores something there.
fn has_moved(task: &Task) {
    const WORDS: usize = 512;
    let (rank, count) = (task.rank(), task.count());
    let life = Array::<u64>::together(task, 1, &Terms::default()).expect("allocated");
    let placements = [Placement::FirstTouch, Placement::RoundRobin, Placement::At(count - 1)];
    let terms = placements.map(|placement| Terms { placement, moves: true, ..Terms::default() });
    let all = terms.map(|terms| Array::<u64>::together(task, LENGTH, &terms).expect("allocated"));
    let pages = LENGTH.div_ceil(WORDS);
    let place = |numbers: &Array<u64>, page: usize| numbers.as_ptr().wrapping_add(page * WORDS).cast::<u8>();
    let before = life.get(0);
    task.barrier();
    let born: Vec<Vec<Option<u32>>> =
        all.iter().map(|numbers| (0..pages).map(|page| task.home(place(numbers, page))).collect()).collect();
    if task.restored() {
        for (numbers, terms) in all.iter().zip(&terms) {
            for index in 0..LENGTH {
                assert_eq!(
                    numbers.get(index),
                    before * 1_000_000 + index as u64,
                    "{terms:?}, element {index}"
                );
            }
        }
    }
    task.barrier();
    for (numbers, terms) in all.iter().zip(&terms) {
        for round in 0..2 {
            // To the next, and to the one behind it; who has a block then stores into it.
            let turn = ((rank + round) % count) as usize;
            for page in (0..pages).filter(|page| page % count as usize == turn) {
                for index in page * WORDS..((page + 1) * WORDS).min(LENGTH) {
                    numbers.set(index, (before + 1) * 1_000_000 + index as u64);
                }
            }
            task.barrier();
            task.move_home(place(numbers, 0), LENGTH * 8, (rank + 1) % count);
            task.barrier();
        }
        // Whoever reads a block on its way waits until it is there.
        (0..pages).for_each(|page| assert!(numbers.get(page * WORDS) >= 1_000_000));
        task.barrier();
        let here = (0..pages).filter(|&page| task.home(place(numbers, page)) == Some(rank)).count();
        assert_eq!(task.reduce(Combine::Sum, &[here as u64]), [pages as u64], "{terms:?}: each lives once");
    }
    let moved = task.reduce(Combine::Sum, &[task.counts().moved_here])[0];
    assert!(moved > pages as u64, "{moved}");
    if rank == 0 {
        life.set(0, before + 1);
    }
    task.checkpoint().expect("written");
    // What a component knows of homes at the beginning of a life is where blocks were born.
    if task.restored() {
        for (known, placement) in born.iter().zip(placements) {
            for (page, home) in known.iter().enumerate() {
                let extent = u32::try_from(page / 16).expect("few");
                match placement {
                    Placement::At(at) => assert_eq!(*home, Some(at)),
                    Placement::RoundRobin => assert_eq!(*home, Some(extent % count)),
                    Placement::FirstTouch => {}
                }
            }
        }
    }
}

#[test]
fn what_has_moved_is_written_once_and_lives_where_it_was_born() {
    let directory = Directory::new("moved");
    for life in 0..4 {
        let outcome = launch("has_moved", 3, Share::Copy, &directory.0, life > 0).start().unwrap().wait();
        assert!(outcome.is_success(), "life {life}:\n{}", said(&outcome));
    }
}
