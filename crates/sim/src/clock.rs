//! A node's clock, which runs too fast or too slow and jumps.

use std::time::Duration;

use comb_types::Time;

/// What a node takes for the time: it drifts away from the world's by a constant rate, and jumps when a fault says so.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Where the two were when the rate or the time changed last.
    world: Time,
    local: Time,
    /// Parts in a million that it runs too fast.
    drift_ppm: i32,
}

/// How far off a clock may run. Beyond half of the true speed it would be no clock.
const MOST_DRIFT_PPM: i32 = 500_000;

impl Clock {
    /// A clock that shows `local` at the world's start.
    pub(crate) fn starting_at(local: Time) -> Self {
        Self { world: Time::ZERO, local, drift_ppm: 0 }
    }

    /// What it shows at a time of the world.
    pub(crate) fn shows(&self, world: Time) -> Time {
        let passed = i128::from(world.as_nanos()) - i128::from(self.world.as_nanos());
        let local = i128::from(self.local.as_nanos()) + passed * self.rate() / 1_000_000;
        time(local)
    }

    /// When it will show at least `local`; never before `now`.
    pub(crate) fn reaches(&self, local: Time, now: Time) -> Time {
        let left = i128::from(local.as_nanos()) - i128::from(self.local.as_nanos());
        let rate = self.rate();
        let passed = (left * 1_000_000 + rate - 1).div_euclid(rate);
        time(i128::from(self.world.as_nanos()) + passed).max(now)
    }

    /// From now on it runs so much too fast, or too slow.
    pub(crate) fn drift(&mut self, now: Time, drift_ppm: i32) {
        let local = self.shows(now);
        *self = Self { world: now, local, drift_ppm: drift_ppm.clamp(-MOST_DRIFT_PPM, MOST_DRIFT_PPM) };
    }

    /// It jumps, forwards or back.
    pub(crate) fn jump(&mut self, now: Time, forwards: bool, by: Duration) {
        let local = i128::from(self.shows(now).as_nanos());
        let by = i128::try_from(by.as_nanos()).unwrap_or(i128::MAX / 4);
        self.local = time(if forwards { local + by } else { local - by });
        self.world = now;
    }

    fn rate(&self) -> i128 {
        1_000_000 + i128::from(self.drift_ppm)
    }
}

/// The nearest time that can be represented.
fn time(nanos: i128) -> Time {
    Time::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_fast_clock_reaches_its_deadline_early() {
        let mut clock = Clock::starting_at(Time::from_millis(5));
        clock.drift(Time::ZERO, 100_000);
        assert_eq!(clock.shows(Time::from_millis(10)), Time::from_millis(16));
        assert_eq!(clock.reaches(Time::from_millis(16), Time::ZERO), Time::from_millis(10));
    }

    #[test]
    fn a_jump_forwards_makes_deadlines_due_and_a_jump_back_puts_them_off() {
        let mut clock = Clock::starting_at(Time::ZERO);
        let (now, hour) = (Time::from_millis(1000), Duration::from_secs(3600));
        clock.jump(now, true, hour);
        assert_eq!(clock.reaches(Time::from_millis(2000), now), now);
        clock.jump(now, false, hour);
        assert_eq!(clock.reaches(Time::from_millis(2000), now), Time::from_millis(2000));
        clock.jump(now, false, hour);
        assert_eq!(clock.shows(now), Time::ZERO);
    }

    proptest! {
        /// A timeout is never handed over before it is due by the node's own clock, and not a nanosecond later than it
        /// must be.
        #[test]
        fn a_deadline_is_reached_when_the_clock_shows_it(
            drift in -400_000_i32..400_000,
            now in 0_u64..1 << 40,
            ahead in 0_u64..1 << 40,
        ) {
            let mut clock = Clock::starting_at(Time::from_nanos(77));
            clock.drift(Time::from_nanos(now / 3), drift);
            let now = Time::from_nanos(now);
            let deadline = Time::from_nanos(clock.shows(now).as_nanos() + ahead);
            let due = clock.reaches(deadline, now);
            prop_assert!(clock.shows(due) >= deadline);
            if due > now {
                prop_assert!(clock.shows(Time::from_nanos(due.as_nanos() - 1)) < deadline);
            }
        }
    }
}
