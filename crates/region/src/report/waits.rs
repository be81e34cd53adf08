//! How long threads have waited, in powers of two.

/// The last is of 4 s and longer.
const CLASSES: usize = 33;

pub(super) struct Waits([u64; CLASSES]);

impl Default for Waits {
    fn default() -> Self {
        Self([0; CLASSES])
    }
}

impl Waits {
    pub(super) fn add(&mut self, waited_ns: u64) {
        self.0[(waited_ns.max(1).ilog2() as usize).min(CLASSES - 1)] += 1;
    }

    /// How many waits took from 2^n up to 2^(n+1) nanoseconds.
    pub(super) fn counts(&self) -> Vec<u64> {
        self.0.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_counted_where_its_length_belongs() {
        let mut waits = Waits::default();
        [0, 1, 1023, 1024, u64::MAX].into_iter().for_each(|waited| waits.add(waited));
        let counts = waits.counts();
        assert_eq!((counts[0], counts[9], counts[10], counts[CLASSES - 1]), (2, 1, 1, 1));
    }
}
