//! Lists of nodes from the heap: one thread links them, others chase the pointers, change them, free them.

use crate::expression::value;
use crate::flavour::Flavour;
use crate::piece::Piece;
use crate::world::{Role, World};
use std::fmt::Write;

pub(crate) fn piece(world: &mut World) -> Piece {
    let name = world.name("nodes");
    let flavour = Flavour::any(world, &name);
    let read = &flavour.read;
    let mut globals = flavour.declarations.clone();
    let _ = write!(
        globals,
        "struct {name} {{
        struct {name} *next;
        uint16_t small;
        {} payload;
        }};
        static struct {name} *{name}[THREADS];

        static uint64_t {name}_walk(const struct {name} *node, uint64_t hash) {{
        for (; node; node = node->next) {{
        hash = mix(hash, {read}(node->payload) + node->small);
        }}
        return hash;
        }}
        ",
        flavour.type_name
    );
    let mut phases = Vec::new();
    let roles = world.roles();
    for (phase, role) in roles.iter().enumerate() {
        phases.push(match role {
            Role::Write if phase == 0 || world.once_in(2) => link(world, &name, &flavour),
            Role::Write => change(world, &name, &flavour),
            Role::Read => format!(
                "for (unsigned t = 0; t < {}; t++) {{
                hash = {name}_walk({name}[(self + t) % THREADS], hash);
                }}
                ",
                world.between(1, world.threads)
            ),
            Role::Alone => turn_around(world, &name),
        });
    }
    let finish = format!(
        "for (unsigned t = 0; t < THREADS; t++) {{
        hash = {name}_walk({name}[t], hash);
        while ({name}[t]) {{
        struct {name} *node = {name}[t];
        {name}[t] = node->next;
        free(node);
        }}
        }}
        "
    );
    Piece { globals, setup: String::new(), thread: String::new(), phases, finish }
}

fn link(world: &mut World, name: &str, flavour: &Flavour) -> String {
    let (turn, count, value) = (world.turn(), world.between(3, 30), value(world, &["i", "hash", "self"]));
    format!(
        "unsigned turn = {turn};
        for (unsigned i = 0; i < {count}; i++) {{
        struct {name} *node = malloc(sizeof *node);
        node->next = {name}[turn];
        node->small = (uint16_t)(hash >> 5);
        node->payload = {}({value});
        {name}[turn] = node;
        }}
        ",
        flavour.make
    )
}

/// Changes every node, and frees each one whose hash is odd.
fn change(world: &mut World, name: &str, flavour: &Flavour) -> String {
    let (turn, value) = (world.turn(), value(world, &["old", "hash", "self"]));
    let free = if world.once_in(2) { "hash & 1" } else { "0" };
    format!(
        "struct {name} **link = &{name}[{turn}];
        while (*link) {{
        struct {name} *node = *link;
        uint64_t old = {}(node->payload);
        hash = mix(hash, old);
        if ({free}) {{
        *link = node->next;
        free(node);
        continue;
        }}
        node->payload = {}({value});
        link = &node->next;
        }}
        ",
        flavour.read, flavour.make
    )
}

/// Every list the other way round, by one thread.
fn turn_around(world: &mut World, name: &str) -> String {
    format!(
        "if (self == {}) {{
        for (unsigned t = 0; t < THREADS; t++) {{
        struct {name} *done = NULL, *node = {name}[t];
        while (node) {{
        struct {name} *next = node->next;
        node->next = done;
        done = node;
        node = next;
        }}
        {name}[t] = done;
        }}
        }}
        ",
        world.dice.below(world.threads)
    )
}
