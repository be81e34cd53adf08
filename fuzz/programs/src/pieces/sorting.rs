//! Blocks that each thread has the library sort, with a function of the program that compares.

use crate::expression::value;
use crate::piece::Piece;
use crate::world::{Role, World};

pub(crate) fn piece(world: &mut World) -> Piece {
    let name = world.name("keys");
    let block = world.between(10, 70);
    let key = world.one_of(&["uint8_t", "int16_t", "uint32_t", "int64_t"]);
    // Keys that are equal have tags that differ, so that the order is one.
    let globals = format!(
        "struct {name} {{
        {key} key;
        uint16_t tag;
        }};
        static struct {name} {name}[THREADS * {block}];

        static int {name}_compare(const void *left, const void *right) {{
        const struct {name} *a = left, *b = right;
        if (a->key != b->key) {{
        return a->key < b->key ? -1 : 1;
        }}
        return (int)a->tag - (int)b->tag;
        }}
        "
    );
    let mut phases = Vec::new();
    for role in world.roles() {
        let turn = world.turn();
        phases.push(match role {
            Role::Write => {
                let value = value(world, &["i", "hash", "self"]);
                format!(
                    "struct {name} *own = {name} + {block} * ({turn});
                    for (unsigned i = 0; i < {block}; i++) {{
                    own[i].key = ({key})({value});
                    own[i].tag = (uint16_t)i;
                    hash = mix(hash, i);
                    }}
                    qsort(own, {block}, sizeof *own, {name}_compare);
                    for (unsigned i = 0; i < {block}; i++) {{
                    hash = mix(hash, (uint64_t)own[i].key * 1000 + own[i].tag);
                    }}
                    "
                )
            }
            Role::Alone => format!(
                "if (self == {}) {{
                for (unsigned i = 0; i < THREADS * {block}; i++) {{
                {name}[i].tag = (uint16_t)i;
                }}
                qsort({name}, THREADS * {block}, sizeof *{name}, {name}_compare);
                }}
                ",
                world.dice.below(world.threads)
            ),
            // In the half that is not below.
            Role::Read => format!(
                "const struct {name} *block = {name} + {block} * ({turn});
                unsigned low = 0, high = {block};
                while (low < high) {{
                unsigned middle = (low + high) / 2;
                if ((uint64_t)block[middle].key < (hash & 0xff)) {{
                low = middle + 1;
                }} else {{
                high = middle;
                }}
                hash = mix(hash, block[middle].tag);
                }}
                "
            ),
        });
    }
    let finish = format!(
        "for (unsigned i = 0; i < THREADS * {block}; i++) {{
        hash = mix(hash, (uint64_t){name}[i].key + {name}[i].tag);
        }}
        "
    );
    Piece { globals, setup: String::new(), thread: String::new(), phases, finish }
}
