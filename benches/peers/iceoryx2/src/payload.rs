//! A payload is a run of 8-byte words: first, first + 1, first + 2 … The sender writes it in full for each
//! message, the receiver adds it up in full. The same loops as in `peer.h`.

/// The word at `index` of the payload that begins with `first`.
pub fn word(first: u64, index: usize) -> u64 {
    first.wrapping_add(index as u64)
}

/// Reads every word and returns the first. Panics if the message is damaged.
pub fn read(words: &[u64]) -> u64 {
    let count = words.len() as u64;
    let sum = words.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
    let expected = count.wrapping_mul(words[0]).wrapping_add(count * (count - 1) / 2);
    assert_eq!(sum, expected, "a message of {count} words arrived damaged");
    words[0]
}
