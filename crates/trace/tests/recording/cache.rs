//! What was in the page cache and what was not.

use comb_trace::Operation;
use comb_trace::event::flag;
use comb_trace::kernel::Options;

use crate::scene::{Scene, Seen, attach, command, run};

/// As many pages as the program's file has.
const PAGES: u64 = 256;

#[test]
fn what_is_missing_in_the_cache_is_counted_page_by_page() {
    let Some(mut kernel) = attach(Options::default()) else { return };
    let scene = Scene::new();
    let program = scene.compile("cache.c");
    let place = scene.place("place");
    let (recording, _) = run(&mut kernel, command(program, &[&place]));
    let is_missed = |seen: &&Seen| seen.event.flags & flag::MISS != 0;
    let pages =
        |seen: &mut dyn Iterator<Item = &Seen>| seen.map(|seen| u64::from(seen.event.pages)).sum::<u64>();
    let of_file = |operation: Operation| {
        recording.of(operation).filter(|seen| seen.path.ends_with(b"place/data")).collect::<Vec<_>>()
    };
    if pages(&mut of_file(Operation::Write).into_iter()) == 0 {
        println!("did not run: the file system at hand has no pages in the cache");
        return;
    }
    let written = of_file(Operation::Write);
    assert_eq!(pages(&mut written.iter().copied()), PAGES, "a page comes for each that is written");
    assert_eq!(written.iter().copied().filter(|seen| is_missed(seen)).count(), 0, "and none was missed");

    let read = of_file(Operation::Read);
    let (at_once, one_by_one) = read.split_last().unwrap();
    assert_eq!(one_by_one.len() as u64, PAGES);
    assert_eq!(pages(&mut one_by_one.iter().copied()), PAGES, "each page comes once");
    let missed = one_by_one.iter().copied().filter(|seen| is_missed(seen)).count();
    assert!(is_missed(&one_by_one[0]) && missed < 256, "what is read ahead is there: {missed}");
    assert!(one_by_one.iter().all(|seen| (seen.event.flags & flag::MISS != 0) == (seen.event.pages > 0)));
    assert_eq!((at_once.event.pages, is_missed(at_once)), (0, false));

    // Of a file on another one's file system, pages are that one's.
    let paged: Vec<&Seen> =
        recording.of(Operation::PageIn).filter(|seen| seen.event.size == PAGES << 12).collect();
    assert_eq!(pages(&mut paged.iter().copied()), PAGES, "each page comes once, by being touched");
    assert!(paged.iter().copied().any(|seen| is_missed(&seen)) && paged.iter().any(|seen| !is_missed(seen)));
}
