//! A report for people: the verdict first, then what it rests on.

use std::fmt::{Display, Formatter, Result};

use super::Report;
use super::verdict::{percent, time};
use crate::table;

/// What is not shown is in the file, if it is JSON.
const MOST_LINES: usize = 12;
const MOST_SHARED: usize = 6;
const MOST_MISPLACED: usize = 6;
const MOST_PARTIES: usize = 4;
/// Of a line of running text.
const WIDTH: usize = 110;

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "comb: where the memory traffic of {} components comes from", self.components)?;
        let Some(verdict) = &self.verdict else {
            return writeln!(
                f,
                "No component has handed anything in: does the program join the task, and come to its end?"
            );
        };
        self.write_silent(f)?;
        if self.imports {
            return writeln!(
                f,
                "All components are on one host and share page frames: no load or store has to ask for anything, and so nothing was recorded. \
                 To see what it would cost on several hosts: comb run --share copy --report."
            );
        }
        f.write_str(&wrapped(&verdict.sentence))?;
        writeln!(
            f,
            "\n{} threads in {}: {} working, {} waiting for memory, {} for locks, barriers and the like.",
            verdict.threads,
            time(verdict.elapsed_ns),
            percent(verdict.worked),
            percent(verdict.waited),
            percent(verdict.synchronised)
        )?;
        self.write_lines(f)?;
        self.write_sharing(f)?;
        self.write_homes(f)?;
        self.write_uncounted(f)
    }
}

/// In lines of that length, but for words that are longer.
fn wrapped(text: &str) -> String {
    let (mut wrapped, mut column) = (String::new(), 0);
    for word in text.split(' ') {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > WIDTH {
            wrapped.push('\n');
            column = 0;
        } else if column > 0 {
            wrapped.push(' ');
            column += 1;
        }
        wrapped.push_str(word);
        column += width;
    }
    wrapped + "\n"
}

impl Report {
    fn write_silent(&self, f: &mut Formatter<'_>) -> Result {
        if self.silent.is_empty() {
            return Ok(());
        }
        let ranks: Vec<String> = self.silent.iter().map(u32::to_string).collect();
        writeln!(f, "Of component {} nothing is known: it did not come to its end.", ranks.join(", "))
    }

    fn write_lines(&self, f: &mut Formatter<'_>) -> Result {
        if self.lines.is_empty() {
            return Ok(());
        }
        let heading = ["WAITED", "EACH", "READ", "WRITE", "UPGRADE", "FIRST", "LINE", "FOR"];
        let mut rows = vec![heading.map(String::from).to_vec()];
        for line in self.lines.iter().take(MOST_LINES) {
            rows.push(vec![
                time(line.waited_ns),
                time(line.waited_ns / line.misses().max(1)),
                line.reads.to_string(),
                line.writes.to_string(),
                line.upgrades.to_string(),
                line.places.to_string(),
                line.place.to_string(),
                line.variable.clone(),
            ]);
        }
        write!(f, "\n{}", table::format(&rows))?;
        let rest = self.lines.iter().skip(MOST_LINES);
        let (count, waited) = rest.fold((0, 0), |(count, waited), line| (count + 1, waited + line.waited_ns));
        if count > 0 {
            writeln!(f, "and {count} more lines, {} in all", time(waited))?;
        }
        Ok(())
    }

    fn write_sharing(&self, f: &mut Formatter<'_>) -> Result {
        for shared in self.sharing.iter().take(MOST_SHARED) {
            let blocks = match shared.blocks {
                1 => format!("a block of {} bytes", shared.block_bytes),
                blocks => format!("{blocks} blocks of {} bytes", shared.block_bytes),
            };
            writeln!(f, "\n{}: {}", shared.variables.join(", "), shared.pattern.words())?;
            writeln!(f, "  {blocks}, missed {} times, waited for {}", shared.misses, time(shared.waited_ns))?;
            for party in shared.parties.iter().take(MOST_PARTIES) {
                let does = if party.is_store { "stores to" } else { "loads" };
                writeln!(f, "  component {} {does} bytes {} at {}", party.rank, party.bytes, party.place)?;
            }
            if shared.parties.len() > MOST_PARTIES {
                writeln!(f, "  and {} more components", shared.parties.len() - MOST_PARTIES)?;
            }
            writeln!(f, "  advice: {}", shared.advice)?;
        }
        Ok(())
    }

    fn write_homes(&self, f: &mut Formatter<'_>) -> Result {
        for misplaced in self.misplaced.iter().take(MOST_MISPLACED) {
            writeln!(
                f,
                "\n{}: {} in {} blocks live with component {}, and component {} alone misses them: {} times, {}",
                misplaced.variable,
                table::bytes(misplaced.bytes),
                misplaced.blocks,
                misplaced.home,
                misplaced.user,
                misplaced.misses,
                time(misplaced.waited_ns)
            )?;
            writeln!(
                f,
                "  advice: let component {} touch them first, or let homes move to where they are used",
                misplaced.user
            )?;
        }
        let heading = ["COMPONENT", "MISSES", "WAITED", "SYNCHRONISED", "HOME OF MISSES", "CAME", "WENT"];
        let mut rows = vec![heading.map(String::from).to_vec()];
        for of in &self.traffic {
            rows.push(vec![
                of.rank.to_string(),
                of.misses.to_string(),
                time(of.waited_ns),
                time(of.synchronised_ns),
                of.served.to_string(),
                table::bytes(of.bytes_in),
                table::bytes(of.bytes_out),
            ]);
        }
        write!(f, "\n{}", table::format(&rows))
    }

    fn write_uncounted(&self, f: &mut Formatter<'_>) -> Result {
        let (lines, blocks) = (self.misses_of_unknown_lines, self.misses_of_unknown_blocks);
        if lines + blocks > 0 {
            writeln!(
                f,
                "\nNo room was left for the lines of {lines} misses, and for the blocks of {blocks}."
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use comb_region::report::{Kind, Part, Site, Uncounted};

    use super::super::scene::{Plain, block, part};
    use super::*;

    fn fighting(rank: u32, word: u32) -> Part {
        let site = Site {
            instruction: 100,
            kind: Kind::Write,
            count: 40,
            waited_ns: 800_000_000,
            longest_ns: 9,
            address: 0x2000,
        };
        let mut part = Part {
            sites: vec![site],
            blocks: vec![block(0x2000, &[], &[word], 100, 40)],
            bytes_in: 1 << 20,
            uncounted: Uncounted { misses_of_blocks: 3, ..Uncounted::default() },
            ..part(rank)
        };
        part.waits[24] = 40;
        part
    }

    #[test]
    fn a_report_says_what_it_has_found_and_what_it_does_not_know() {
        let parts = [Some(fighting(0, 0)), None, Some(fighting(2, 5))];
        let text = Report::named(&parts, &mut Plain).to_string();
        for words in [
            "Of component 1 nothing is known",
            "will not scale because a.c:1 (work)",
            "v2: false sharing",
            "component 2 stores to bytes 40 to 47 at a.c:1 (work)",
            "align it to 4096 bytes",
            "80 % waiting for memory",
            "1.0 MiB",
            "for the blocks of 6",
        ] {
            assert!(text.contains(words), "{words}:\n{text}");
        }
    }

    #[test]
    fn long_sentences_are_wrapped_between_words() {
        let text = wrapped(&["wörd"; 60].join(" "));
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH) && text.lines().count() == 3,
            "{text}"
        );
        assert_eq!(text.split_whitespace().count(), 60);
    }

    #[test]
    fn where_nothing_is_asked_nothing_is_invented() {
        let imports = |rank| Some(Part { imports: true, ..part(rank) });
        let text = Report::named(&[imports(0), imports(1)], &mut Plain).to_string();
        assert!(text.contains("share page frames") && text.lines().count() == 2, "{text}");
        let text = Report::named(&[None, None], &mut Plain).to_string();
        assert!(text.contains("does the program join"), "{text}");
        let calm = Report::named(&[Some(part(0)), Some(part(1))], &mut Plain).to_string();
        assert!(calm.contains("will not hold it back"), "{calm}");
    }
}
