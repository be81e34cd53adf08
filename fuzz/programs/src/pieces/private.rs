//! Variables that every thread has its own of.

use crate::expression::{constant, value};
use crate::flavour::Flavour;
use crate::piece::Piece;
use crate::world::World;

pub(crate) fn piece(world: &mut World) -> Piece {
    let name = world.name("private");
    let flavour = Flavour::any(world, &name);
    let (make, read) = (&flavour.make, &flavour.read);
    let slots = world.between(2, 20);
    let globals = format!(
        "{}static _Thread_local {} {name}[{slots}];
        _Thread_local uint64_t {name}_last = {};

        static void {name}_keep(uint64_t *kept, uint64_t number) {{
        *kept = mix(*kept, number);
        }}
        ",
        flavour.declarations,
        flavour.type_name,
        constant(world)
    );
    let mut phases = Vec::new();
    for _ in 0..world.phases {
        let value = value(world, &["i", "hash", "self"]);
        phases.push(format!(
            "for (unsigned i = {}; i < {slots}; i++) {{
            {name}[i] = {make}({value});
            }}
            for (unsigned i = 0; i < {slots}; i++) {{
            {name}_keep(&{name}_last, {read}({name}[i]));
            }}
            hash = mix(hash, {name}_last);
            ",
            world.dice.below(slots)
        ));
    }
    Piece { globals, phases, ..Piece::default() }
}
