//! Sums of floating numbers in one order, of values that others wrote.

use crate::piece::Piece;
use crate::world::{Role, World};

pub(crate) fn piece(world: &mut World) -> Piece {
    let name = world.name("real");
    let (real, bytes) = world.one_of(&[("float", 4), ("double", 8), ("long double", 10)]);
    let cells = world.between(20, 200);
    let globals = format!(
        "static const {real} {name}_weights[4] = {{0.5, 1.25, -3, 0.1}};
        static {real} {name}[{cells}];
        static {real} {name}_totals[THREADS];

        static uint64_t {name}_bits({real} number) {{
        uint64_t bits[2] = {{0, 0}};
        memcpy(bits, &number, {bytes});
        return bits[0] ^ bits[1];
        }}
        "
    );
    let mut phases = Vec::new();
    for role in world.roles() {
        let turn = world.turn();
        phases.push(match role {
            Role::Write => format!(
                "unsigned turn = {turn};
                for (unsigned i = turn; i < {cells}; i += THREADS) {{
                {name}[i] = {name}[i] / 3 + ({real})(hash % 1000) * {name}_weights[i % 4];
                hash = mix(hash, {name}_bits({name}[i]));
                }}
                "
            ),
            Role::Read => format!(
                "{real} total = 0;
                for (unsigned i = 0; i < {cells}; i++) {{
                total += {name}[i] * {name}_weights[(i + self) % 4];
                }}
                {name}_totals[self] = total;
                hash = mix(hash, {name}_bits({name}_totals[self]));
                "
            ),
            // A step of a stencil, in place.
            Role::Alone => format!(
                "if (self == {}) {{
                for (unsigned i = 1; i + 1 < {cells}; i++) {{
                {name}[i] = ({name}[i - 1] + {name}[i] + {name}[i + 1]) / 3;
                }}
                }}
                ",
                world.dice.below(world.threads)
            ),
        });
    }
    let finish = format!(
        "for (unsigned i = 0; i < {cells}; i++) {{
        hash = mix(hash, {name}_bits({name}[i]));
        }}
        for (unsigned t = 0; t < THREADS; t++) {{
        hash = mix(hash, {name}_bits({name}_totals[t]));
        }}
        "
    );
    Piece { globals, setup: String::new(), thread: String::new(), phases, finish }
}
