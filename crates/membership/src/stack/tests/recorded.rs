//! What members of this version say to each other, as it was recorded. Another that speaks the same version has to understand it.

use std::string::String;

use super::*;

const V1: &str = include_str!("recorded_v1.txt");

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("two digits");
    (0..hex.len()).step_by(2).map(digit).collect()
}

#[test]
fn messages_of_version_one_are_read_as_they_were_written() {
    let lines = V1.lines().filter(|line| !line.starts_with('#'));
    let mut protocols = Vec::new();
    for line in lines {
        let (hex, text) = line.split_once(' ').unwrap_or((line, ""));
        let bytes = bytes(hex);
        assert_eq!(bytes[0], 1, "{line}");
        protocols.push(bytes[1]);
        if !text.is_empty() {
            assert_eq!(Stack::describe(NodeId(1), &bytes), text);
        }
        // It may be none that suits this member, but it is one.
        let mut stack = Group::configured(9, &Config::default()).stacks.remove(&0).expect("it is there");
        if let Err(error) =
            stack.handle(Time::from_millis(2), Input::Message { from: NodeId(1), bytes: &bytes })
        {
            let is_unread = ["read", "behind", "envelope", "version", "protocol"];
            assert!(!is_unread.iter().any(|word| error.rule.contains(word)), "{line}: {}", error.rule);
        }
    }
    protocols.dedup();
    assert_eq!(protocols, [1, 2, 3, 4, 5, 6, 7, 9], "each of them, but for the classic way's");
}

#[test]
fn a_message_of_another_version_is_refused_with_its_reason() {
    let line = V1.lines().next_back().expect("one");
    let mut bytes = bytes(line.split(' ').next().expect("its bytes"));
    bytes[0] += 1;
    let mut group = Group::configured(3, &Config::default());
    let stack = group.stacks.get_mut(&0).expect("it is there");
    let refused = stack.handle(group.now, Input::Message { from: NodeId(1), bytes: &bytes });
    let rule = refused.expect_err("it is of another").rule;
    assert_eq!(String::from(rule), "a message of another version");
}
