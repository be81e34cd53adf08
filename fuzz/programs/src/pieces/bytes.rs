//! Two rows of bytes, copied to and fro by turns, at any address and length.

use crate::expression::constant;
use crate::piece::Piece;
use crate::world::World;
use std::fmt::Write;

pub(crate) fn piece(world: &mut World) -> Piece {
    let name = world.name("bytes");
    // Blocks of an odd length share cache lines at both ends.
    let block = world.between(19, 400);
    let (mut globals, mut setup) = (String::new(), String::new());
    if world.once_in(2) {
        let _ = writeln!(
            globals,
            "static unsigned char {name}_odd[THREADS * {block}], {name}_even[THREADS * {block}];"
        );
    } else {
        let _ = writeln!(globals, "static unsigned char *{name}_odd, *{name}_even;");
        let _ = writeln!(
            setup,
            "{name}_odd = calloc(THREADS, {block});\n{name}_even = calloc(THREADS, {block});"
        );
    }
    let mut phases = Vec::new();
    for phase in 0..world.phases {
        let (from, to) = if phase % 2 == 0 { ("odd", "even") } else { ("even", "odd") };
        let turn = world.turn();
        let mut text = format!(
            "unsigned char *own = {name}_{to} + {block} * ({turn});
            const unsigned char *others = {name}_{from};
            "
        );
        for _ in 0..world.between(2, 5) {
            text += &step(world, block);
        }
        let _ = writeln!(text, "for (unsigned i = 0; i < {block}; i++) {{\nhash = mix(hash, own[i]);\n}}");
        phases.push(text);
    }
    let finish = format!(
        "for (unsigned i = 0; i < THREADS * {block}; i++) {{
        hash = mix(hash, {name}_odd[i] * 256u + {name}_even[i]);
        }}
        "
    );
    Piece { globals, setup, thread: String::new(), phases, finish }
}

/// One copy or comparison, with `own` to write and `others` to read.
fn step(world: &mut World, block: u32) -> String {
    let at = world.dice.below(block - 18);
    let bytes = world.between(1, block - at);
    let from = world.dice.below(block * world.threads - bytes);
    match world.dice.below(9) {
        4 if world.is_bare() => String::new(),
        0 => format!("memcpy(own + {at}, others + {from}, {bytes});\n"),
        1 => format!("memmove(own + {at}, own + {}, {bytes});\n", world.dice.below(block - bytes + 1)),
        2 => format!("memset(own + {at}, 0xf1, {bytes});\n"),
        3 => format!("memset(own + {at}, (int)(hash & 255), {bytes});\n"),
        4 => format!(
            "hash = mix(hash, (memcmp(own + {at}, others + {from}, {bytes}) > 0) + 2 * (memcmp(own, others, {bytes}) < 0));\n"
        ),
        // Words at addresses that are no multiple of their size.
        5 | 6 => {
            let (width, flag) = (world.one_of(&[16, 32, 64]), constant(world));
            format!(
                "for (unsigned i = 0; i + 8 <= {block}; i += {}) {{
                uint{width}_t word;
                memcpy(&word, own + i, sizeof word);
                word = (uint{width}_t)(word * 3 ^ {flag});
                memcpy(own + i, &word, sizeof word);
                }}
                ",
                world.between(3, 13)
            )
        }
        7 => format!(
            "{{
            unsigned __int128 wide;
            memcpy(&wide, own + {at}, sizeof wide);
            wide = wide * 5 + hash;
            memcpy(own + {at}, &wide, sizeof wide);
            }}
            "
        ),
        _ => format!("for (unsigned i = 0; i < {bytes}; i++) {{\nown[{at} + i] ^= others[{from} + i];\n}}\n"),
    }
}
