//! Variables on the stacks of threads, which other threads read and write.

use crate::expression::value;
use crate::flavour::Flavour;
use crate::piece::Piece;
use crate::world::{Role, World};

pub(crate) fn piece(world: &mut World) -> Piece {
    let name = world.name("frame");
    let flavour = Flavour::any(world, &name);
    let (make, read) = (&flavour.make, &flavour.read);
    let slots = world.between(3, 24);
    let globals = format!(
        "{}struct {name} {{
        char pad[{}];
        {} slots[{slots}];
        uint64_t last;
        }};
        static struct {name} *{name}_of[THREADS];
        ",
        flavour.declarations,
        world.between(1, 90),
        flavour.type_name
    );
    let thread = format!(
        "struct {name} {name}_own;
        memset(&{name}_own, 0, sizeof {name}_own);
        {name}_of[self] = &{name}_own;
        "
    );
    let mut phases = Vec::new();
    for role in world.roles() {
        let (turn, value) = (world.turn(), value(world, &["i", "hash", "self"]));
        phases.push(match role {
            // Into the whole frame of one other thread.
            Role::Write if world.once_in(2) => format!(
                "struct {name} *frame = {name}_of[{turn}];
                for (unsigned i = 0; i < {slots}; i++) {{
                frame->slots[i] = {make}({value});
                hash = mix(hash, {read}(frame->slots[i]));
                }}
                frame->last = hash;
                "
            ),
            // Some slots of every frame.
            Role::Write => format!(
                "unsigned turn = {turn};
                for (unsigned t = 0; t < THREADS; t++) {{
                for (unsigned i = turn; i < {slots}; i += THREADS) {{
                {name}_of[t]->slots[i] = {make}({value});
                }}
                }}
                "
            ),
            Role::Read => format!(
                "for (unsigned t = 0; t < THREADS; t++) {{
                const struct {name} *frame = {name}_of[(self + t) % THREADS];
                for (unsigned i = self % {slots}; i < {slots}; i++) {{
                hash = mix(hash, {read}(frame->slots[i]));
                }}
                hash = mix(hash, frame->last);
                }}
                "
            ),
            // Whole frames are copied, from one stack to the next.
            Role::Alone => format!(
                "if (self == {}) {{
                struct {name} copy = *{name}_of[0];
                for (unsigned t = 0; t + 1 < THREADS; t++) {{
                *{name}_of[t] = *{name}_of[t + 1];
                }}
                *{name}_of[THREADS - 1] = copy;
                }}
                ",
                world.dice.below(world.threads)
            ),
        });
    }
    Piece { globals, setup: String::new(), thread, phases, finish: String::new() }
}
