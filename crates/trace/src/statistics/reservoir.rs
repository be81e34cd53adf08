//! A random part of values as they come by: the memory of a report does not grow with the recording, and a million values say what more
//! would.

use comb_types::Dice;

/// Of more values a random part is kept.
pub const MOST_KEPT: usize = 1 << 20;

/// All values that came by, or as many of them as are kept, each with the same chance.
pub struct Reservoir {
    kept: Vec<f64>,
    seen: u64,
    dice: Dice,
}

impl Default for Reservoir {
    fn default() -> Self {
        Self { kept: Vec::new(), seen: 0, dice: Dice::new(1) }
    }
}

impl Reservoir {
    /// One more.
    pub fn add(&mut self, value: f64) {
        self.seen += 1;
        if self.kept.len() < MOST_KEPT {
            self.kept.push(value);
            return;
        }
        let place = (u128::from(self.dice.roll()) * u128::from(self.seen)) >> 64;
        if let Some(slot) = usize::try_from(place).ok().and_then(|place| self.kept.get_mut(place)) {
            *slot = value;
        }
    }

    /// How many came by.
    pub const fn seen(&self) -> u64 {
        self.seen
    }

    /// What is kept, in no order.
    pub fn kept(&self) -> &[f64] {
        &self.kept
    }

    /// The same, for those who need nothing else.
    pub fn into_kept(self) -> Vec<f64> {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_values_each_is_kept_with_the_same_chance() {
        let mut reservoir = Reservoir::default();
        let all = 4 * MOST_KEPT;
        (0..all).for_each(|value| reservoir.add(value as f64));
        assert_eq!((reservoir.seen(), reservoir.kept().len()), (all as u64, MOST_KEPT));
        // Of each quarter a quarter, to one in a hundred.
        for quarter in 0..4 {
            let (low, high) = ((quarter * MOST_KEPT) as f64, ((quarter + 1) * MOST_KEPT) as f64);
            let kept = reservoir.kept().iter().filter(|value| (low..high).contains(*value)).count();
            assert!(kept.abs_diff(MOST_KEPT / 4) < MOST_KEPT / 400, "{kept} of quarter {quarter}");
        }
    }
}
