//! Numbers in few bytes: most are small, or close to what was to be expected.

/// Why a column holds no number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NumberFault {
    /// It ends before the number does.
    Length,
    /// It is larger than any that is written.
    Range,
}

/// Seven bits a byte, the lowest first; the eighth says that more follow.
pub(crate) fn write_number(column: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        column.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    column.push(value.to_le_bytes()[0]);
}

/// Takes a number off the front of a column.
pub(crate) fn read_number(column: &mut &[u8]) -> Result<u64, NumberFault> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = column.split_first().ok_or(NumberFault::Length)?;
        *column = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return Err(NumberFault::Range);
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(NumberFault::Range)
}

/// Small differences either way become small numbers.
pub(crate) const fn folded(difference: u64) -> u64 {
    let signed = difference as i64;
    ((signed << 1) ^ (signed >> 63)) as u64
}

/// Back again.
pub(crate) const fn unfolded(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}
