//! Every operation in every form, against what the program itself says of it.

use std::process::Command;

use comb_trace::Operation;
use comb_trace::event::flag;
use comb_trace::kernel::Options;

use crate::scene::{Scene, Seen, attach, command, run};

/// A path in a line: bytes that would end it, or are none of a text, stand as `%20`.
fn unescaped(text: &str) -> Vec<u8> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    bytes
}

/// What of a line is not so in what was recorded.
fn differences(line: &str, seen: &Seen) -> Vec<String> {
    let mut words = line.split_whitespace();
    let operation = words.next().expect("a line says what was done");
    let mut wrong = Vec::new();
    if seen.operation.name() != operation {
        wrong.push(format!("is a {}", seen.operation));
    }
    let event = &seen.event;
    for word in words {
        let (key, value) = word.split_once('=').unwrap();
        let number = |value: &str| -> u64 {
            value.parse().unwrap_or_else(|_| value.parse::<i64>().expect(line).cast_unsigned())
        };
        let is = match key {
            "path" | "other" => {
                let path = if key == "path" { &seen.path } else { &seen.other };
                if *path != unescaped(value) {
                    wrong.push(format!("{key} is {}", String::from_utf8_lossy(path)));
                }
                continue;
            }
            "result" => event.result.cast_unsigned(),
            "descriptor" => i64::from(event.descriptor).cast_unsigned(),
            "asked" => event.asked,
            "argument" => event.argument,
            "offset" => event.offset,
            "size" => event.size,
            "mode" => event.mode.into(),
            "inode" => event.file.inode,
            "device" => event.file.device.into(),
            "generation" => event.file.generation.into(),
            // What was in the cache is not in the program's hands.
            "flags" => (event.flags & !flag::MISS).into(),
            other => panic!("{other}"),
        };
        if is != number(value) {
            wrong.push(format!("{key} is {}", is.cast_signed()));
        }
    }
    wrong
}

/// Compares line by line. After an operation too few or too many nothing is as it should be: the first differences tell.
pub(crate) fn compare(lines: &str, seen: &[&Seen]) {
    let lines: Vec<&str> = lines.lines().collect();
    let mut wrong = String::new();
    let mut count = 0;
    for (number, line) in lines.iter().enumerate() {
        let Some(seen) = seen.get(number) else { break };
        let differences = differences(line, seen);
        if !differences.is_empty() {
            count += 1;
            if count <= 12 {
                wrong += &format!("{number}: {line}\n    {}\n", differences.join(", "));
            }
        }
    }
    assert!(count == 0, "{count} are not as the program says:\n{wrong}");
    assert_eq!(seen.len(), lines.len(), "operations");
}

fn check() {
    let Some(mut kernel) = attach(Options::default()) else { return };
    let scene = Scene::new();
    let program = scene.compile("calls.c");
    let place = scene.place("place");
    let (recording, lines) = run(&mut kernel, command(program, &[&place]));
    assert!(lines.lines().count() > 4000);
    compare(&lines, &recording.between_marks());
    assert_eq!((recording.counters.lost, recording.counters.foreign), (0, 0));
    assert_eq!(recording.counters.recorded, recording.seen.len() as u64);
    // Two pages of a mapped file were touched, and nobody else's business was recorded.
    let touched = recording.of(Operation::PageIn).filter(|seen| seen.event.size == 10_000);
    assert!(touched.count() > 0);
    // What was written was not missed in the cache, and what was read of it was there.
    for seen in recording.between_marks() {
        if seen.path.starts_with(place.as_os_str().as_encoded_bytes())
            && matches!(seen.operation, Operation::Write | Operation::Read)
        {
            assert_eq!(seen.event.flags & flag::MISS, 0, "{seen:?}");
        }
    }
}

#[test]
fn every_operation_is_recorded_as_the_program_says() {
    check();
}

/// Set in the process that does without.
const WITHOUT: &str = "COMB_WITHOUT";

#[test]
fn without_types_of_pointers_all_is_the_same() {
    if std::env::var(WITHOUT).is_err() {
        let mut second = Command::new(std::env::current_exe().unwrap());
        second.args(["--exact", "calls::without_types_of_pointers_all_is_the_same"]);
        let output = second.env(WITHOUT, "bpf_cast").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    check();
}
