//! Strings in rows that share cache lines, by the functions of the library.

use crate::piece::Piece;
use crate::world::{Role, World};

pub(crate) fn piece(world: &mut World) -> Piece {
    let name = world.name("text");
    let width = world.between(25, 75);
    let words = [
        "\"\\xf1\\xf1\\xf1\\xf1\"",
        "\"comb\"",
        "\"\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\"",
        "\"a\\x5a\"",
        "\"\"",
    ];
    let globals = format!(
        "static char {name}[THREADS][{width}];
        static const char *const {name}_words[] = {{{}}};
        ",
        words.join(", ")
    );
    let mut phases = Vec::new();
    for role in world.roles() {
        phases.push(match role {
            Role::Write => write(world, &name, width),
            Role::Read => read(world, &name),
            Role::Alone => format!(
                "if (self == {}) {{
                memmove({name}[0], {name}[1], sizeof {name} - sizeof {name}[0]);
                }}
                ",
                world.dice.below(world.threads)
            ),
        });
    }
    let finish = format!(
        "for (unsigned t = 0; t < THREADS; t++) {{
        for (const char *at = {name}[t]; *at; at++) {{
        hash = mix(hash, (unsigned char)*at);
        }}
        }}
        "
    );
    Piece { globals, setup: String::new(), thread: String::new(), phases, finish }
}

/// Rows stay shorter than 24 characters until the last statement, which knows the width.
fn write(world: &mut World, name: &str, width: u32) -> String {
    let mut text = format!("char *row = {name}[{}];\n", world.turn());
    text += &match world.dice.below(3) {
        0 => format!("snprintf(row, {width}, \"%u.%lx\", self, (unsigned long)(hash & 0xffffffff));\n"),
        1 => format!("strcpy(row, {name}_words[hash % 5]);\nstrcat(row, {name}_words[(hash >> 8) % 5]);\n"),
        _ => format!("memset(row, 0, {width});\nmemset(row, 0xf1, 1 + hash % 20);\n"),
    };
    text += &match world.dice.below(4) {
        0 => "char *dot = strchr(row, '.');\nif (dot) {\n*dot = '!';\n}\n".to_owned(),
        1 => format!("strncat(row, {name}_words[1], {width} - strlen(row) - 1);\n"),
        2 => "char copy[100];\nstrcpy(copy, row);\nhash = mix(hash, strlen(copy));\n".to_owned(),
        _ => format!(
            "size_t length = strlen(row);
            memset(row + length, 'a' + (int)(hash % 26), {width} - 1 - length);
            row[{width} - 1] = 0;
            "
        ),
    };
    text
}

fn read(world: &mut World, name: &str) -> String {
    let other = match world.between(1, world.threads - 1) {
        1 => format!("{name}[(self + 1) % THREADS]"),
        by => format!("{name}[(self + {by}) % THREADS]"),
    };
    let look = match world.dice.below(5) {
        0 => "hash = mix(hash, (strcmp(own, other) > 0) + 2 * (strcmp(own, other) < 0));\n".to_owned(),
        1 => {
            "char *found = strrchr(other, 'a');\nhash = mix(hash, found ? (uint64_t)(found - other) : 99);\n"
                .to_owned()
        }
        2 => {
            "hash = mix(hash, memcmp(own, other, 16) == 0);\nhash = mix(hash, strncmp(own, other, 3) == 0);\n"
                .to_owned()
        }
        3 => format!(
            "hash = mix(hash, strstr(other, {name}_words[1]) != NULL);\nhash = mix(hash, strtoul(other, NULL, 16));\n"
        ),
        _ => "uint64_t word;\nmemcpy(&word, other + 3, sizeof word);\nhash = mix(hash, word);\n".to_owned(),
    };
    format!(
        "const char *own = {name}[self], *other = {other};\nhash = mix(hash, strlen(own) * 100 + strlen(other));\n{look}"
    )
}
