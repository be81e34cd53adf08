//! What places of the heap are called, for the last words of who was stopped there. Handlers of signals read it: it is never locked for them, and
//! what it is made of stays for ever.

use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// A name that is there, or was. Few places have ever had one, and most have it again.
struct Entry {
    name: Box<str>,
    start: AtomicUsize,
    /// Zero: nothing is called so now.
    end: AtomicUsize,
    next: AtomicPtr<Entry>,
}

static FIRST: AtomicPtr<Entry> = AtomicPtr::new(std::ptr::null_mut());
/// Held by who changes it.
static CHANGES: Mutex<()> = Mutex::new(());

/// A place has its name as long as this is there.
pub struct Place(&'static Entry);

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::Release);
    }
}

/// Says what memory at these addresses is called: a thread that dies of touching it says so.
pub fn name_place(addresses: Range<usize>, name: &str) -> Place {
    let _one_at_a_time = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    let is_free = |entry: &&Entry| *entry.name == *name && entry.end.load(Ordering::Acquire) == 0;
    let entry = entries().find(is_free).unwrap_or_else(|| {
        let (start, end) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let next = AtomicPtr::new(FIRST.load(Ordering::Acquire));
        let entry: &'static mut Entry = Box::leak(Box::new(Entry { name: name.into(), start, end, next }));
        FIRST.store(entry, Ordering::Release);
        entry
    });
    entry.start.store(addresses.start, Ordering::Release);
    entry.end.store(addresses.end, Ordering::Release);
    Place(entry)
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    let entry = |from: &AtomicPtr<Entry>| {
        // SAFETY: null, or leaked by `name_place`, which has filled it before.
        unsafe { from.load(Ordering::Acquire).as_ref() }
    };
    std::iter::successors(entry(&FIRST), move |one| entry(&one.next))
}

/// What a place is called, and where it begins.
pub(super) fn find(address: usize) -> Option<(&'static str, usize)> {
    let is_there = |entry: &&Entry| {
        let (start, end) = (entry.start.load(Ordering::Acquire), entry.end.load(Ordering::Acquire));
        (start..end).contains(&address)
    };
    entries().find(is_there).map(|entry| (&*entry.name, entry.start.load(Ordering::Acquire)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_its_name_as_long_as_it_is_meant_to() {
        let (one, other) = (name_place(100..200, "one"), name_place(200..300, "other"));
        assert_eq!([find(99), find(100), find(199)], [None, Some(("one", 100)), Some(("one", 100))]);
        assert_eq!([find(200), find(300)], [Some(("other", 200)), None]);
        drop(one);
        assert_eq!(find(150), None);
        let first = entries().count();
        let again = name_place(700..800, "one");
        assert_eq!((find(750), entries().count()), (Some(("one", 700)), first), "nothing new is needed");
        drop((other, again));
        assert_eq!([find(250), find(750)], [None, None]);
    }
}
