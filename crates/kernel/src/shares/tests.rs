use std::time::Duration;

use proptest::prelude::*;

use super::*;

const TICK: Duration = Duration::from_millis(10);

fn kernel(slot: u64) -> KernelId {
    KernelId::from_word(1 << 48 | 1 << 16 | slot)
}

/// One processor, as a host would share it out: who is not demoted by weight, who is demoted what is left.
struct Host {
    meter: Meter,
    /// The kernels' priorities and whether they want to run.
    kernels: Vec<(KernelId, u8, bool)>,
    used: Vec<Duration>,
}

impl Host {
    fn new(shares: &[u8], priority: u8) -> Self {
        let mut meter = Meter::new(1, 16);
        let kernels: Vec<_> = (0..shares.len() as u64).map(|slot| (kernel(slot), priority, true)).collect();
        for ((kernel, _, _), share) in kernels.iter().zip(shares) {
            meter.set(*kernel, &[*share]);
        }
        Self { meter, used: vec![Duration::ZERO; kernels.len()], kernels }
    }

    fn run(&mut self, ticks: u32) {
        for _ in 0..ticks {
            let wanting: Vec<usize> = (0..self.kernels.len()).filter(|at| self.kernels[*at].2).collect();
            let is_preferred = |at: &usize| !self.meter.is_demoted(self.kernels[*at].0, 0);
            let preferred: Vec<usize> = wanting.iter().copied().filter(is_preferred).collect();
            let runs = if preferred.is_empty() { wanting } else { preferred };
            for at in &runs {
                let used = TICK / u32::try_from(runs.len()).unwrap();
                self.used[*at] += used;
                let (kernel, priority, _) = self.kernels[*at];
                self.meter.charge(kernel, 0, priority, used);
            }
            self.meter.pass(TICK);
        }
    }

    fn part(&self, at: usize) -> f64 {
        self.used[at].as_secs_f64() / self.used.iter().sum::<Duration>().as_secs_f64()
    }
}

#[test]
fn who_has_used_its_share_has_only_what_nobody_wants() {
    let mut host = Host::new(&[20, 100], USUAL_PRIORITY);
    host.run(10_000);
    assert!((0.18..0.22).contains(&host.part(0)), "{}", host.part(0));
    // Alone, it has all.
    host.kernels[1].2 = false;
    let before = host.used[0];
    host.run(1000);
    assert_eq!(host.used[0] - before, TICK * 1000);
    // And what it had then is soon forgotten.
    host.kernels[1].2 = true;
    host.used.fill(Duration::ZERO);
    host.run(10_000);
    assert!((0.18..0.22).contains(&host.part(0)), "{}", host.part(0));
}

#[test]
fn high_priority_costs_more_and_low_priority_less() {
    let part = |priority: u8| {
        let mut host = Host::new(&[30, 100], priority);
        host.run(10_000);
        host.part(0)
    };
    let [low, usual, high, real_time] = [1, USUAL_PRIORITY, HIGHEST_USUAL_PRIORITY, u8::MAX].map(part);
    assert!((0.28..0.32).contains(&usual), "{usual}");
    assert!((0.18..0.22).contains(&high), "a premium of a half: {high}");
    assert!((0.13..0.17).contains(&real_time), "a premium of the same again: {real_time}");
    // At half the price it would be more than the half that it has by its weight.
    assert!(low > 0.45, "{low}");
}

#[test]
fn charges_rise_with_priority() {
    assert!((1..=u8::MAX).all(|priority| charge_percent(priority) >= charge_percent(priority - 1)));
    assert_eq!([0, USUAL_PRIORITY, HIGHEST_USUAL_PRIORITY, 255].map(charge_percent), [50, 100, 150, 200]);
}

#[test]
fn all_of_a_processor_and_none_of_it() {
    let mut host = Host::new(&[100, 0], USUAL_PRIORITY);
    assert!(host.meter.is_demoted(kernel(1), 0));
    host.run(1000);
    assert_eq!(host.used, [TICK * 1000, Duration::ZERO]);
    assert!(!host.meter.is_demoted(kernel(0), 0));
    host.meter.set(kernel(1), &[100]);
    assert!(!host.meter.is_demoted(kernel(1), 0) && !host.meter.has_limits());
}

#[test]
fn another_kernel_in_the_same_slot_begins_anew() {
    let mut meter = Meter::new(2, 4);
    meter.set(kernel(1), &[10, 10]);
    meter.charge(kernel(1), 0, USUAL_PRIORITY, Duration::from_secs(1));
    meter.pass(TICK);
    assert!(meter.is_demoted(kernel(1), 0) && !meter.is_demoted(kernel(1), 1));
    let next = KernelId::from_word(1 << 48 | 2 << 16 | 1);
    assert!(!meter.is_demoted(next, 0));
    meter.set(next, &[10]);
    assert!(!meter.is_demoted(next, 0) && !meter.is_demoted(kernel(1), 0));
    // What it is told of one that is gone is nobody's.
    meter.charge(kernel(1), 0, USUAL_PRIORITY, Duration::from_secs(1));
    meter.close(kernel(1));
    meter.pass(TICK);
    assert!(!meter.is_demoted(next, 0));
    meter.close(next);
    assert!(!meter.has_limits());
}

proptest! {
    /// Whatever kernels want when: none has more at its own priority than its share and a moment's worth, as long as others want to run.
    #[test]
    fn no_kernel_has_more_than_its_share_beside_one_that_always_wants(
        shares in prop::collection::vec(1_u8..60, 1..5),
        wants in prop::collection::vec(prop::collection::vec(any::<bool>(), 5), 1..200),
        priority in USUAL_PRIORITY..=u8::MAX,
    ) {
        let mut all = shares.clone();
        all.push(100);
        let mut host = Host::new(&all, priority);
        for wants in &wants {
            for (kernel, wants) in host.kernels.iter_mut().zip(wants).take(shares.len()) {
                kernel.2 = *wants;
            }
            host.run(10);
        }
        let passed = TICK * 10 * u32::try_from(wants.len()).unwrap();
        for (at, share) in shares.iter().enumerate() {
            let most = (passed + MOMENT) * u32::from(*share) / 100 + TICK;
            prop_assert!(host.used[at] <= most, "{} of {most:?}: {:?}", share, host.used[at]);
        }
    }
}
