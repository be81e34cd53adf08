//! Values and expressions of C, all of type `uint64_t`: nothing overflows, no shift is too wide, no divisor zero.

use crate::world::World;

/// Bytes by which a compiler may mark memory as invalid, and some that are near to them or common.
const FLAGS: [u8; 9] = [0xf1, 0xf1, 0xf1, 0xa5, 0x5a, 0xff, 0x00, 0x80, 0x7f];

/// A number. Often one byte over and over, as the flag of invalid memory is, or nearly so: programs have such data too.
pub(crate) fn constant(world: &mut World) -> String {
    let flag = u64::from(world.one_of(&FLAGS)) * 0x0101_0101_0101_0101;
    let value = match world.dice.below(8) {
        0..=2 => flag,
        3 => flag >> world.one_of(&[8, 16, 32, 48, 56]),
        4 => flag ^ (1 << world.dice.below(64)),
        5 => u64::from(world.dice.below(100)),
        // A quiet NaN, as a double.
        6 => 0x7ff8_0000_0000_0000 | u64::from(world.dice.below(3)),
        _ => world.dice.roll(),
    };
    if value < 256 { format!("{value}ul") } else { format!("0x{value:x}ul") }
}

/// An expression of these variables, which are unsigned.
pub(crate) fn expression(world: &mut World, variables: &[&str]) -> String {
    nested(world, variables, 3)
}

/// What to store: an expression, or now and then a flag.
pub(crate) fn value(world: &mut World, variables: &[&str]) -> String {
    let usual = expression(world, variables);
    if world.once_in(2) {
        return usual;
    }
    let (chance, flag) = (world.one_of(&[1, 3, 7]), constant(world));
    let variable = world.one_of(variables);
    format!("(({variable} & {chance}) == 0 ? {flag} : {usual})")
}

fn nested(world: &mut World, variables: &[&str], depth: u32) -> String {
    if depth == 0 || world.once_in(4) {
        return if world.once_in(3) {
            constant(world)
        } else {
            format!("(uint64_t){}", world.one_of(variables))
        };
    }
    let left = nested(world, variables, depth - 1);
    let bits = world.between(1, 63);
    match world.dice.below(14) {
        0 => format!("(({left}) >> {bits})"),
        1 => format!("(({left}) << {bits})"),
        2 => format!("(uint64_t)(uint{}_t)({left})", world.one_of(&[8, 16, 32])),
        3 => format!("(uint64_t)(int{}_t)({left})", world.one_of(&[8, 16, 32])),
        4 => format!("(uint64_t)((int64_t)({left}) >> {bits})"),
        5 => format!("mix({left}, {bits})"),
        6 => format!("~({left})"),
        other => {
            let right = nested(world, variables, depth - 1);
            match other {
                7 => format!("(({left}) / (({right}) | 1))"),
                8 => format!("(({left}) % (({right}) | 1))"),
                9 => format!("(({left}) < ({right}) ? ({right}) : {bits})"),
                _ => format!("(({left}) {} ({right}))", world.one_of(&["+", "-", "*", "^", "&", "|"])),
            }
        }
    }
}
