//! A model of what the thesis' chapter says of Windows NT in 1998, for who has no recording.

use super::model::{Births, Directories, Format, Kinds, Model, Reuse};
use super::variable::{Tail, Variable};

const MICROSECOND: u64 = 1000;
const MILLISECOND: u64 = 1000 * MICROSECOND;
const SECOND: u64 = 1000 * MILLISECOND;
const DAY: u64 = 86_400 * SECOND;
const KILOBYTE: u64 = 1 << 10;
const GIGABYTE: u64 = 1 << 30;

fn heavy(points: &[(f64, u64)], alpha: f64, most: u64) -> Variable {
    Variable { points: points.to_vec(), tail: Some(Tail { alpha, most }) }
}

fn light(points: &[(f64, u64)]) -> Variable {
    Variable { points: points.to_vec(), tail: None }
}

impl Model {
    /// What the text of chapter 9 says, and assumptions where it says nothing: each field says which. Its tables and figures have more than
    /// its text, and are not used. All α are from the text's range of 1.2 to 1.7 (§9.7), and which is whose is assumed but for that of
    /// arrivals, 1.2.
    pub fn thesis() -> Self {
        Self {
            format: Format,
            about: "Windows NT 4.0 in 1998, as chapter 9 of the thesis has it in its text".to_owned(),
            // Assumed: each of the 45 systems that were traced had one.
            sources: 10,
            // Assumed: three times what nine of ten opens follow within.
            silence_ns: 100 * MILLISECOND,
            // Assumed but for α, with silences so that at most 24 % of seconds have an open. (§9.8.1)
            active_opens: heavy(&[(0.0, 1), (0.5, 4), (0.8, 16)], 1.2, 10_000_000),
            // 40 % within a millisecond, 90 % within 30. (§9.8.1) A little less of these: one in twenty is a silence.
            open_gap_ns: light(&[
                (0.0, 20 * MICROSECOND),
                (0.42, MILLISECOND),
                (0.94, 30 * MILLISECOND),
                (1.0, 100 * MILLISECOND),
            ]),
            silent_ns: heavy(&[(0.0, 100 * MILLISECOND + 1), (0.5, 2 * SECOND)], 1.3, DAY),
            // 74 % control; of read-only ones 68 % whole (§9.6.2); 60 % of accesses in order (§9.1). Who writes is assumed.
            kinds: Kinds {
                control: 74.0,
                read_nothing: 0.0,
                read_whole: 14.1,
                read_sequential: 1.4,
                read_random: 5.2,
                write_whole: 3.0,
                write_sequential: 0.5,
                write_random: 0.8,
                both_whole: 0.0,
                both_sequential: 0.1,
                both_random: 0.9,
            },
            // 12 % of opens fail. (§9.8.4)
            failed_opens: 0.12 / 0.88,
            // None: NT asks by opening.
            path_questions: 0.0,
            // Assumed.
            control_operations: light(&[(0.0, 1), (0.7, 2), (1.0, 10)]),
            // 90 % within 10 ms. (§9.8.1)
            control_open_ns: heavy(
                &[(0.0, 20 * MICROSECOND), (0.5, 500 * MICROSECOND), (0.9, 10 * MILLISECOND)],
                1.4,
                DAY,
            ),
            // Assumed but for the heavy tails, which all distributions have. (§9.1)
            sequential_operations: heavy(&[(0.0, 1), (0.6, 2), (0.9, 6)], 1.5, 1_000_000),
            random_operations: heavy(&[(0.0, 2), (0.6, 6), (0.9, 30)], 1.5, 1_000_000),
            // 59 % are of 512 or 4096 bytes; else very small or from 48 KB on. (§9.8.2) Which of them, is assumed.
            read_bytes: light(&[
                (0.0, 2),
                (0.15, 8),
                (0.1501, 512),
                (0.3, 512),
                (0.3001, 4096),
                (0.75, 4096),
                (0.7501, 48 * KILOBYTE),
                (1.0, 64 * KILOBYTE),
            ]),
            // Diverse, most below 1024 bytes (§9.8.2); up to 64 KB is assumed.
            write_bytes: light(&[(0.0, 1), (0.6, 1024), (0.9, 4096), (1.0, 64 * KILOBYTE)]),
            // 80 % within 90 µs, and within 30 µs. (§9.8.2)
            read_gap_ns: heavy(&[(0.0, 5 * MICROSECOND), (0.8, 90 * MICROSECOND)], 1.5, DAY),
            write_gap_ns: heavy(&[(0.0, 2 * MICROSECOND), (0.8, 30 * MICROSECOND)], 1.5, DAY),
            // 75 % of data sessions within 10 ms. (§9.6.2) A little less of it, for requests take some.
            held_ns: heavy(
                &[(0.0, 20 * MICROSECOND), (0.5, 2 * MILLISECOND), (0.75, 8 * MILLISECOND)],
                1.2,
                DAY,
            ),
            // 31 % of sessions that read have a single read (§9.9.1), which is more than fits with this; and NT's programs ask for the size.
            end_reads: 0.0,
            // 4 % of files that are written are flushed. (§9.9.2)
            synced_writes: 0.04,
            // Assumed: most from memory.
            data_service_ns: light(&[
                (0.0, 2 * MICROSECOND),
                (0.9, 20 * MICROSECOND),
                (1.0, 10 * MILLISECOND),
            ]),
            other_service_ns: light(&[(0.0, MICROSECOND), (0.9, 10 * MICROSECOND), (1.0, MILLISECOND)]),
            // Of accessed ones 80 % are below 26 KB. (§9.1) Long sessions take long files, so of those that there are a few more have to be. How it is
            // below is assumed; a disk had some gigabytes.
            file_bytes: heavy(&[(0.0, 1), (0.3, 1000), (0.85, 26 * KILOBYTE)], 1.3, 4 * GIGABYTE),
            // 24 to 40 % of files that are opened read-only are opened again. (§9.8.1) The strength is assumed.
            reuse: Reuse { discount: 0.68, strength: 100.0 },
            births: Births {
                // Assumed: overwriting a file that was there is 26 of 81 of what ends new ones.
                truncating: 0.25,
                // 65 % below 100 bytes, 4 % above 40 KB. (§9.6.3)
                bytes: heavy(&[(0.0, 1), (0.65, 100), (0.96, 40 * KILOBYTE)], 1.5, GIGABYTE),
                // Assumed.
                operations: light(&[(0.0, 1), (0.7, 1), (0.9, 4), (1.0, 64)]),
                // 26 % are overwritten within 4 ms, 75 % of all overwritten ones; 10 % live for a minute or more. (§9.1, §9.6.3)
                overwritten: 0.26 / 0.75,
                overwritten_ns: heavy(
                    &[(0.0, 100 * MICROSECOND), (0.75, 4 * MILLISECOND), (0.9, 60 * SECOND)],
                    1.2,
                    DAY,
                ),
                // 55 % are deleted within 5 s (§9.1), and 72 % of deleted ones within 4 s (§9.6.3): more than there are left, so the share
                // is what the others leave.
                deleted: 0.60,
                deleted_ns: heavy(&[(0.0, MILLISECOND), (0.72, 4 * SECOND)], 1.3, 7 * DAY),
            },
            // Assumed.
            directories: Directories {
                files: heavy(&[(0.0, 1), (0.5, 4), (0.9, 30)], 1.5, 100_000),
                depth: light(&[(0.0, 1), (0.3, 3), (0.9, 7), (1.0, 12)]),
            },
        }
    }
}
