//! Files of models: what is written is read, and what anybody has changed does no harm.

use comb_trace::synthesis::{Amount, Model, ModelFileError, generate};
use comb_types::Dice;

fn written(model: &Model) -> Vec<u8> {
    let mut text = Vec::new();
    model.write(&mut text).unwrap();
    text
}

fn told(text: &str) -> String {
    Model::read(text.as_bytes()).unwrap_err().to_string()
}

#[test]
fn a_model_is_read_as_it_was_written() {
    let model = Model::thesis();
    model.check().unwrap();
    let text = written(&model);
    assert_eq!(Model::read(text.as_slice()).unwrap(), model);
    let text = String::from_utf8(text).unwrap();
    assert!(text.lines().any(|line| line.starts_with("  \"read_bytes\": {\"points\": [[0.0,2],")), "{text}");
    assert!(text.len() < 16 << 10);
}

#[test]
fn what_is_no_model_and_what_is_wrong_with_one_is_said() {
    let text = String::from_utf8(written(&Model::thesis())).unwrap();
    for foreign in ["", "PAR1", "{}", "[1]", "{\"format\": \"another\"}", "{\"format\": 7}"] {
        assert_eq!(told(foreign), "this is no workload model of comb", "{foreign}");
    }
    assert_eq!(
        told(&text.replace("workload 1", "workload 2")),
        "this workload model has format '2', and this comb reads format '1'"
    );
    for (from, to, expected) in [
        ("\"sources\": 10,", "", "missing field `sources`"),
        ("\"sources\"", "\"sauces\"", "unknown field `sauces`"),
        ("\"sources\": 10", "\"sources\": 0", "sources are not between"),
        ("[0.5,4]", "[0.5,0]", "active_opens: its points do not ascend"),
        ("[0.5,4]", "[0.5,-4]", "invalid value"),
        ("\"alpha\": 1.2", "\"alpha\": 0", "its tail's alpha"),
        ("\"control\": 74.0", "\"control\": -1", "kinds: shares"),
        ("\"deleted\": 0.6,", "\"deleted\": 0.9,", "births.overwritten and births.deleted together"),
        ("\"discount\": 0.68", "\"discount\": 1", "reuse:"),
    ] {
        assert!(text.contains(from), "{from}");
        let error = told(&text.replacen(from, to, 1));
        assert!(error.starts_with("the workload model is damaged: ") && error.contains(expected), "{error}");
    }
    for length in 0..text.len() {
        let error = Model::read(&text.as_bytes()[..length]);
        // Without the line's end it is whole.
        assert_eq!(error.is_err(), length < text.len() - 1, "cut after {length} bytes");
    }
}

/// Numbers that a hand or a fault may put into a file.
const NUMBERS: [&str; 12] =
    ["0", "1", "-1", "0.5", "1e308", "-0.0", "18446744073709551615", "1e-300", "4096", "null", "\"\"", "[]"];

#[test]
fn changed_models_are_refused_or_make_a_workload() {
    let whole = written(&Model::thesis());
    let mut dice = Dice::new(11);
    let (mut good, mut refused) = (0, 0);
    for _ in 0..6000 {
        let mut text = whole.clone();
        for _ in 0..=dice.below(3) {
            let at = dice.index(text.len());
            match dice.below(4) {
                0 => text[at] ^= 1 << dice.below(8),
                1 => drop(text.drain(at..(at + dice.index(40)).min(text.len()))),
                2 => {
                    let from = dice.index(text.len());
                    let piece = text[from..(from + 20).min(text.len())].to_vec();
                    text.splice(at..at, piece);
                }
                // The number that comes next becomes another.
                _ => {
                    let is_digit = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
                    let Some(start) = text[at..].iter().position(is_digit).map(|start| at + start) else {
                        continue;
                    };
                    let length = text[start..].iter().position(|byte| !is_digit(byte)).unwrap_or(1);
                    text.splice(start..start + length, NUMBERS[dice.index(NUMBERS.len())].bytes());
                }
            }
        }
        match Model::read(text.as_slice()) {
            Ok(model) => {
                good += 1;
                let events = generate(&model, 1, Amount::Sessions(30)).take(500);
                events.for_each(|made| assert!(made.texts.len() < 4096));
            }
            Err(ModelFileError::Io(error)) => panic!("{error}"),
            Err(_) => refused += 1,
        }
    }
    assert!(good > 150 && refused > 300, "{good} {refused}");
}
