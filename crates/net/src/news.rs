//! "Look here": what a watcher raises for an endpoint after it left something for it.
//!
//! The watcher leaves it, then raises. The endpoint lowers, then takes what is there: what is left in between is taken
//! now and looked for once more. The other way round it would lie there until the next news.

use crate::sync::{AtomicBool, Ordering};

/// Whether there are news.
#[derive(Debug)]
pub(crate) struct News(AtomicBool);

impl News {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// The watcher's part, after it left something. Wake the endpoint afterwards.
    pub(crate) fn raise(&self) {
        // A swap, because the endpoint swaps too, and loom does not know that a store cannot slip into the midst of that.
        self.0.swap(true, Ordering::Release);
    }

    /// The endpoint's part: look at everything that may have been left after this, not before.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }

    /// Whether they are raised. [`Ordering::Relaxed`] will do for a look that is repeated.
    #[inline]
    pub(crate) fn are_raised(&self, ordering: Ordering) -> bool {
        self.0.load(ordering)
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sync::plain::PlainWords;
    use crate::sync::{AtomicU64, Mutex, Words, fence};
    use crate::{attention, ending::Ending};
    use std::sync::Arc;

    const ATTENTION: usize = 0;
    const FUTEX: usize = 1;
    const ASLEEP: u64 = 1;

    /// What a watcher leaves: a new channel and the end of another.
    struct Left {
        news: News,
        incoming: Mutex<Vec<u32>>,
        ending: Ending<u32>,
        words: PlainWords,
    }

    type Look = fn(&Left, &mut Vec<u32>);

    type Tell = fn(&News, &AtomicU64);

    /// As `EndpointShared::raise_news` does.
    fn tell(news: &News, futex: &AtomicU64) {
        news.raise();
        futex.fetch_add(1, Ordering::SeqCst);
    }

    fn look(left: &Left, arrived: &mut Vec<u32>) {
        if left.news.take() {
            arrived.append(&mut left.incoming.lock().unwrap());
        }
    }

    /// A watcher leaves two things while the endpoint looks, goes to sleep, and looks again when it is woken.
    fn look_while_something_is_left(look: Look, tell: Tell) {
        loom::model(move || {
            let left = Arc::new(Left {
                news: News::new(),
                incoming: Mutex::new(Vec::new()),
                ending: Ending::new(),
                words: PlainWords::new(2),
            });
            let watched = Arc::clone(&left);
            let watcher = loom::thread::spawn(move || {
                let raise = || tell(&watched.news, watched.words.word(FUTEX));
                watched.ending.end(9);
                raise();
                watched.incoming.lock().unwrap().push(7);
                raise();
            });
            let mut arrived = Vec::new();
            look(&left, &mut arrived);
            let before = left.words.word(FUTEX).load(Ordering::SeqCst);
            attention::announce(left.words.word(ATTENTION), ASLEEP, || fence(Ordering::SeqCst));
            let idle = !left.news.are_raised(Ordering::Acquire);
            let sleeps = idle && left.words.word(FUTEX).load(Ordering::SeqCst) == before;
            watcher.join().unwrap();
            // One who sleeps before the word changes is woken by the change.
            let woken = left.words.word(FUTEX).load(Ordering::SeqCst) != before;
            let unseen = left.news.are_raised(Ordering::Acquire);
            assert!(!sleeps || woken || !unseen, "asleep over news, and nobody comes");
            look(&left, &mut arrived);
            assert_eq!(arrived, [7], "a channel that nobody looks for");
            assert_eq!(left.ending.cause(), Some(9));
        });
    }

    #[test]
    fn loom_what_a_watcher_leaves_is_found_and_a_wrong_order_is_too() {
        look_while_something_is_left(look, tell);
        let broken = |look: Look, tell: Tell| {
            std::panic::catch_unwind(|| look_while_something_is_left(look, tell)).is_err()
        };
        let take_then_lower: Look = |left, arrived| {
            if left.news.are_raised(Ordering::Acquire) {
                arrived.append(&mut left.incoming.lock().unwrap());
                left.news.take();
            }
        };
        assert!(broken(take_then_lower, tell), "news that came after the look are lowered unread");
        let wake_then_raise: Tell = |news, futex| {
            futex.fetch_add(1, Ordering::SeqCst);
            news.raise();
        };
        assert!(broken(look, wake_then_raise), "who is woken before the news are raised sleeps again");
    }
}
