//! Samples by name, and what is said of them: the one in the middle, and how far they scatter.

use std::collections::BTreeMap;

use super::Part;

/// What was measured.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    samples: BTreeMap<String, Vec<f64>>,
    missing: BTreeMap<Part, String>,
}

impl Measured {
    pub(crate) fn add(&mut self, name: impl Into<String>, value: f64) {
        self.samples.entry(name.into()).or_default().push(value);
    }

    pub(crate) fn extend(&mut self, name: impl Into<String>, values: impl IntoIterator<Item = f64>) {
        self.samples.entry(name.into()).or_default().extend(values);
    }

    /// A part that could not be measured, or not to its end.
    pub(super) fn lacks(&mut self, part: Part, why: String) {
        self.missing.insert(part, why);
    }

    /// Why something of a part may be missing.
    pub(crate) fn why_not(&self, part: Part) -> Option<&str> {
        self.missing.get(&part).map(String::as_str)
    }

    /// Parts that were not measured to their end, and why.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (Part, &str)> {
        self.missing.iter().map(|(&part, why)| (part, why.as_str()))
    }

    pub(crate) fn all(&self, name: &str) -> &[f64] {
        self.samples.get(name).map_or(&[], Vec::as_slice)
    }

    /// The sample that so large a share of them lies below; half of them lie below the median.
    pub(crate) fn quantile(&self, name: &str, share: f64) -> Option<f64> {
        let mut sorted = self.all(name).to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and last")]
        let place = (share.clamp(0.0, 1.0) * last as f64).round() as usize;
        sorted.get(place).copied()
    }

    pub(crate) fn median(&self, name: &str) -> Option<f64> {
        self.quantile(name, 0.5)
    }

    /// The largest.
    pub(crate) fn most(&self, name: &str) -> Option<f64> {
        self.quantile(name, 1.0)
    }

    /// The medians of two by each other.
    pub(crate) fn ratio(&self, ours: &str, theirs: &str) -> Option<f64> {
        Some(self.median(ours)? / self.median(theirs)?)
    }

    /// How far the samples scatter, in a few words; of one alone nothing is said.
    pub(super) fn scatter(&self, name: &str, scale: f64) -> String {
        let count = self.all(name).len();
        match (self.quantile(name, 0.1), self.quantile(name, 0.9)) {
            (Some(low), Some(high)) if count > 1 => {
                let digits = if high * scale < 100.0 { 2 } else { 0 };
                format!("10–90 %: {:.digits$}–{:.digits$}, {count} samples", low * scale, high * scale)
            }
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_the_most_and_the_scatter() {
        let mut measured = Measured::default();
        measured.extend("a", [5.0, 1.0, 3.0, 2.0, 4.0]);
        assert_eq!((measured.median("a"), measured.most("a")), (Some(3.0), Some(5.0)));
        assert_eq!(measured.median("b"), None);
        assert_eq!(measured.scatter("a", 1.0), "10–90 %: 1.00–5.00, 5 samples");
        assert_eq!(measured.scatter("b", 1.0), "");
        measured.add("b", 6.0);
        assert_eq!(measured.ratio("b", "a"), Some(2.0));
    }
}
