//! Whether a program's memory lets it scale, in a sentence with numbers.

use comb_region::report::Part;
use serde::Serialize;

use super::lines::Line;
use super::sharing::{Pattern, Shared};

/// Who waits for less than this share of its time is not held back.
const HARMLESS: f64 = 0.05;
/// Twice as many threads as there were are to be of some use, or it is said that the program will not scale.
const ROOM: f64 = 2.0;

/// Shares are of all threads' time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) threads: u64,
    pub(crate) elapsed_ns: u64,
    pub(crate) waited: f64,
    pub(crate) synchronised: f64,
    pub(crate) worked: f64,
    /// As fast as one thread that waits for nothing, times this.
    pub(crate) speed: f64,
    /// The same with any number of threads, if what is shared stays as it is: each change of a block that all want is made after the one before.
    pub(crate) most_speed: Option<f64>,
    /// A quarter of all misses took less than this.
    pub(crate) transfer_ns: u64,
    pub(crate) scales: bool,
    pub(crate) sentence: String,
}

#[expect(clippy::cast_precision_loss, reason = "shares and speeds are told by two digits")]
pub(crate) fn verdict(parts: &[&Part], lines: &[Line], shared: &[Shared]) -> Verdict {
    let threads: u64 = parts.iter().map(|part| u64::from(part.threads)).sum();
    let elapsed_ns = parts.iter().map(|part| part.elapsed_ns).max().unwrap_or(0).max(1);
    let all: f64 =
        parts.iter().map(|part| part.elapsed_ns as f64 * f64::from(part.threads)).sum::<f64>().max(1.0);
    let waited_ns: f64 = parts.iter().flat_map(|part| &part.sites).map(|site| site.waited_ns as f64).sum();
    let waited = (waited_ns / all).min(1.0);
    let synchronised_ns: f64 = parts.iter().map(|part| part.synchronised_ns as f64).sum();
    let synchronised = (synchronised_ns / all).min(1.0 - waited);
    let worked = 1.0 - waited - synchronised;
    let transfer_ns = quarter(parts);
    // The block that is wanted most, of those that change hands because somebody stores to them.
    let worst = shared.iter().max_by_key(|shared| shared.most_misses);
    let bound = |shared: &Shared| {
        // Each miss of it is a transfer, and there is one at a time.
        let serial_ns = shared.most_misses as f64 * transfer_ns as f64;
        (serial_ns > 0.0).then(|| (worked * all / serial_ns).max(0.0))
    };
    let most_speed = worst.and_then(bound);
    let is_harmless = waited < HARMLESS;
    let scales = is_harmless || most_speed.is_none_or(|most| most >= threads as f64 * ROOM);
    let mut verdict = Verdict {
        threads,
        elapsed_ns,
        waited,
        synchronised,
        worked,
        speed: worked * all / elapsed_ns as f64,
        most_speed,
        transfer_ns,
        scales,
        sentence: String::new(),
    };
    verdict.sentence = match worst {
        _ if is_harmless => verdict.harmless(),
        Some(worst) if !scales => verdict.will_not_scale(worst),
        _ => verdict.will_scale(lines),
    };
    verdict
}

impl Verdict {
    fn harmless(&self) -> String {
        let mut sentence = format!(
            "This program's memory will not hold it back: its threads waited for it for {} of their time.",
            percent(self.waited)
        );
        if self.synchronised >= HARMLESS {
            sentence +=
                &format!(" But for {} they waited at locks and barriers.", percent(self.synchronised));
        }
        sentence
    }

    fn will_not_scale(&self, worst: &Shared) -> String {
        let most = self.most_speed.unwrap_or(0.0);
        let limit = if most < 1.05 {
            "no faster than one thread alone".to_owned()
        } else {
            format!("at most {most:.1} times as fast as one thread that waits for nothing")
        };
        let lines = worst
            .parties
            .iter()
            .map(|party| party.place.to_string())
            .collect::<std::collections::BTreeSet<_>>();
        let lines = lines.into_iter().collect::<Vec<_>>().join(" and ");
        let what = worst.variables.join(", ");
        let why = match worst.pattern {
            Pattern::FalseSharing | Pattern::FalseReading => {
                "which components share only because it is one block"
            }
            Pattern::HandToHand => "to which several components store",
            Pattern::Published => "which one component changes and others read",
            Pattern::Exchanged => "of which each component changes a part and reads the others'",
        };
        format!(
            "This program will not scale because {lines} {wait} for {what}, {why}: one block of it has changed hands {times} times, one after \
             the other, {each} each at best. However many components, it is {limit}; now threads wait for memory for {waited} of \
             their time.",
            wait = if worst.parties.len() > 1 && lines.contains(" and ") { "wait" } else { "waits" },
            times = worst.most_misses,
            each = time(self.transfer_ns),
            waited = percent(self.waited),
        )
    }

    fn will_scale(&self, lines: &[Line]) -> String {
        let times = format!(
            "its threads waited for it for {} of their time, and worked for {}",
            percent(self.waited),
            percent(self.worked)
        );
        let mut sentence = if self.waited > self.worked {
            format!("Memory holds this program back: {times}")
        } else {
            format!("This program can scale, but pays for its memory: {times}")
        };
        if let Some(line) = lines.first() {
            sentence += &format!("; most of the waiting is at {}, for {}", line.place, line.variable);
        }
        sentence + "."
    }
}

/// How long a miss takes that does not have to wait for others: a quarter took less.
fn quarter(parts: &[&Part]) -> u64 {
    let classes = parts.iter().map(|part| part.waits.len()).max().unwrap_or(0).min(63);
    let of = |class: usize| -> u64 { parts.iter().filter_map(|part| part.waits.get(class)).sum() };
    let all: u64 = (0..classes).map(of).sum();
    let mut below = 0;
    for class in 0..classes {
        let here = of(class);
        if here > 0 && (below + here) * 4 >= all {
            // As if those of a class were spread evenly over it.
            let into = all.div_ceil(4).saturating_sub(below).min(here);
            return (1 << class) + (1 << class) / here * into;
        }
        below += here;
    }
    0
}

pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent > 0.0 && percent < 0.95 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// For people, by two or three digits.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(crate) fn time(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    let of = |value: f64, unit: &str| {
        if value < 9.95 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
    };
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => of(value / 1e3, "µs"),
        1_000_000..1_000_000_000 => of(value / 1e6, "ms"),
        _ => of(value / 1e9, "s"),
    }
}

#[cfg(test)]
mod tests {
    use comb_region::report::{BlockPart, Kind, Site};

    use super::super::lines::lines;
    use super::super::scene::{Plain, block, part};
    use super::super::sharing::sharing;
    use super::*;

    /// Two that have waited so often, 16 to 32 µs each time.
    fn judged(stored: [u32; 2], misses: u64) -> Verdict {
        let of = |rank: u32, stored: u32| {
            let waited_ns = misses * 20_000;
            let site = Site {
                instruction: 100,
                kind: Kind::Write,
                count: misses,
                waited_ns,
                longest_ns: 20_000,
                address: 0x2000,
            };
            let block = BlockPart { waited_ns, ..block(0x2000, &[], &[stored], 100, misses) };
            let mut part = Part { sites: vec![site], blocks: vec![block], ..part(rank) };
            part.waits[14] = misses;
            part
        };
        let parts = [of(0, stored[0]), of(1, stored[1])];
        let parts: Vec<&Part> = parts.iter().collect();
        verdict(&parts, &lines(&parts, &mut Plain), &sharing(&parts, &mut Plain))
    }

    #[test]
    fn who_fights_for_a_block_will_not_scale() {
        // A second of each, of which 0.6 s are waited: 0.8 s of work, and 60,000 transfers of 20 µs one after the other.
        let verdict = judged([0, 1], 30_000);
        assert!(!verdict.scales);
        assert!((verdict.waited - 0.6).abs() < 1e-9 && (verdict.speed - 0.8).abs() < 1e-9, "{verdict:?}");
        assert!(verdict.most_speed.unwrap() < 1.0);
        for words in [
            "will not scale because a.c:1 (work) waits for v2",
            "only because it is one block",
            "60000 times",
            "60 %",
        ] {
            assert!(verdict.sentence.contains(words), "{words}: {}", verdict.sentence);
        }
        let verdict = judged([1, 1], 30_000);
        assert!(verdict.sentence.contains("to which several components store"), "{}", verdict.sentence);
    }

    #[test]
    fn who_hardly_waits_is_not_held_back() {
        let verdict = judged([0, 1], 1000);
        assert!(verdict.scales && verdict.sentence.contains("will not hold it back"), "{}", verdict.sentence);
        assert!(verdict.sentence.contains("2 %"), "{}", verdict.sentence);
    }

    #[test]
    fn who_waits_for_what_nobody_fights_for_can_scale() {
        let mut alone = Part { blocks: vec![block(0x2000, &[1], &[], 200, 9)], ..part(0) };
        alone.sites.push(Site {
            instruction: 200,
            kind: Kind::Read,
            count: 9,
            waited_ns: 300_000_000,
            longest_ns: 1,
            address: 0x2000,
        });
        alone.waits[25] = 9;
        let verdict = verdict(&[&alone], &lines(&[&alone], &mut Plain), &sharing(&[&alone], &mut Plain));
        assert!(verdict.scales && verdict.most_speed.is_none());
        assert!(
            verdict.sentence.contains("can scale, but pays") && verdict.sentence.contains("a.c:2"),
            "{}",
            verdict.sentence
        );
    }

    #[test]
    fn a_quarter_is_found_where_it_is() {
        let mut one = part(0);
        assert_eq!(quarter(&[&one]), 0);
        (one.waits[10], one.waits[20]) = (25, 75);
        assert!((1024..=2048).contains(&quarter(&[&one])));
        (one.waits[10], one.waits[20]) = (5, 95);
        assert!(quarter(&[&one]) >= 1 << 20);
    }

    #[test]
    fn times_have_two_digits_or_three() {
        assert_eq!(
            [0, 999, 1500, 15_000, 150_000_000, 20_000_000_000].map(time),
            ["0 ns", "999 ns", "1.5 µs", "15 µs", "150 ms", "20 s"]
        );
        assert_eq!([0.0, 0.004, 0.5].map(percent), ["0 %", "0.4 %", "50 %"]);
    }
}
