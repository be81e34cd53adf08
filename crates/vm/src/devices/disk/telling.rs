//! When a driver is told that it has answers, and whether it has to tell of requests: no ring, no clock.
//!
//! To be told costs a guest more than to ask, so it is told of as many answers at once as it was the last time, if their requests come soon: whoever asks for
//! one after the other does not wait. To tell costs it as much: while what it asks first comes soon after it was told, that is looked for.

use std::time::{Duration, Instant};

/// What comes within this time comes soon: a guest that is translated takes as long from an answer to its next request.
const SOON: Duration = Duration::from_micros(400);
/// Who looks again so late had no processor meanwhile, and does not look for so long then.
const CROWDED_AFTER: Duration = Duration::from_millis(1);
const RESTS_FOR: Duration = Duration::from_millis(100);

/// Of one ring.
#[derive(Clone, Copy, Default)]
pub(super) struct Telling {
    /// Answers of which it was not told.
    untold: usize,
    /// Of so many it was told the last time.
    told: usize,
    /// When it was told, or asked, last.
    since: Option<Instant>,
    /// What it asked first came soon.
    is_quick: bool,
    /// When it was looked last for what it asks first.
    looked: Option<Instant>,
    /// Until then that is not looked for.
    rests: Option<Instant>,
}

impl Telling {
    /// Some more were answered, or none: whether the driver is to be told now, and whether more is to be looked for without being told.
    pub(super) fn next(&mut self, answered: usize, now: Instant) -> (bool, bool) {
        // Who looks leaves the processor to others, and is not woken from that: where others have much to do, it is better to sleep.
        if self.looked.take().is_some_and(|looked| now.duration_since(looked) >= CROWDED_AFTER) {
            self.rests = Some(now + RESTS_FOR);
        }
        let is_soon = self.since.is_some_and(|since| now.duration_since(since) < SOON);
        if answered > 0 {
            if self.untold == 0 {
                self.is_quick = is_soon;
            }
            self.untold += answered;
            self.since = Some(now);
        }
        let looks_on = self.is_quick && self.rests.is_none_or(|until| now >= until);
        let (tells, looks) = match self.untold {
            0 => (false, looks_on && is_soon),
            untold if untold < self.told && (answered > 0 || is_soon) => return (false, true),
            untold => {
                (self.told, self.untold, self.since) = (untold, 0, Some(now));
                (true, looks_on)
            }
        };
        self.looked = looks.then_some(now);
        (tells, looks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of so many answers at these times, in microseconds.
    #[track_caller]
    fn goes(telling: &mut Telling, begin: Instant, steps: &[(usize, u64, (bool, bool))]) {
        for &(answered, at, (tells, looks)) in steps {
            assert_eq!(telling.next(answered, begin + Duration::from_micros(at)), (tells, looks), "at {at}");
        }
    }

    const REST: (bool, bool) = (false, false);
    const LOOK: (bool, bool) = (false, true);
    const TELL: (bool, bool) = (true, false);
    const TELL_AND_LOOK: (bool, bool) = (true, true);

    #[test]
    fn a_driver_is_told_of_as_many_at_once_as_the_last_time_if_they_come_soon() {
        let (mut telling, begin) = (Telling::default(), Instant::now());
        goes(&mut telling, begin, &[(0, 0, REST), (1, 0, TELL), (1, 1000, TELL), (3, 2000, TELL)]);
        // Three come again, one by one.
        goes(
            &mut telling,
            begin,
            &[(1, 3000, LOOK), (0, 3350, LOOK), (1, 3390, LOOK), (0, 3780, LOOK), (1, 3785, TELL)],
        );
        // Two come, and no third: the next time two are enough.
        goes(&mut telling, begin, &[(2, 5000, LOOK), (0, 5399, LOOK), (0, 5400, TELL)]);
        goes(&mut telling, begin, &[(1, 6000, LOOK), (1, 6100, TELL), (0, 6101, REST)]);
    }

    #[test]
    fn a_driver_that_asks_soon_has_not_to_tell() {
        let (mut telling, begin) = (Telling::default(), Instant::now());
        goes(&mut telling, begin, &[(1, 0, TELL), (0, 1, REST), (1, 350, TELL_AND_LOOK)]);
        goes(&mut telling, begin, &[(0, 740, LOOK), (1, 745, TELL_AND_LOOK)]);
        // It does not any more, and then it does again.
        goes(
            &mut telling,
            begin,
            &[(0, 1145, REST), (1, 1900, TELL), (0, 1901, REST), (1, 2200, TELL_AND_LOOK)],
        );
    }

    #[test]
    fn nobody_looks_where_others_want_the_processor() {
        let (mut telling, begin) = (Telling::default(), Instant::now());
        goes(&mut telling, begin, &[(1, 0, TELL), (1, 100, TELL_AND_LOOK), (0, 150, LOOK)]);
        goes(&mut telling, begin, &[(1, 1150, TELL), (1, 1250, TELL), (0, 1251, REST), (1, 101_149, TELL)]);
        goes(&mut telling, begin, &[(1, 101_150, TELL_AND_LOOK)]);
    }
}
