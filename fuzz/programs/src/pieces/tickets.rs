//! Who comes first draws the first ticket: which thread has which place is nobody's to say, but what lies there in all is.

use crate::expression::value;
use crate::piece::Piece;
use crate::world::World;

pub(crate) fn piece(world: &mut World) -> Piece {
    let name = world.name("tickets");
    let (each, width) = (world.between(5, 40), world.one_of(&[8, 16, 32, 64]));
    let by_mutex = world.once_in(3) && !world.is_bare();
    let mut phases = Vec::new();
    // Drawn in even phases, looked at in odd ones, when it is cleared as well for the next round.
    for phase in 0..world.phases {
        if phase % 2 == 1 {
            phases.push(format!(
                "if (self == {}) {{
                uint64_t sum = 0;
                for (unsigned i = 0; i < {name}_next; i++) {{
                sum += mix(1, {name}[i]);
                }}
                hash = mix(hash, sum + {name}_next);
                {name}_next = 0;
                }}
                ",
                world.dice.below(world.threads)
            ));
            continue;
        }
        let value = value(world, &["i", "hash", "self"]);
        let draw = if by_mutex {
            format!(
                "pthread_mutex_lock(&{name}_mutex);
                unsigned ticket = {name}_next++;
                pthread_mutex_unlock(&{name}_mutex);"
            )
        } else {
            format!("unsigned ticket = atomic_fetch_add(&{name}_next, 1);")
        };
        phases.push(format!(
            "for (unsigned i = 0; i < {each}; i++) {{
            {draw}
            {name}[ticket] = (uint{width}_t)({value});
            }}
            "
        ));
    }
    let (kind, mutex) = if by_mutex {
        ("", format!("static pthread_mutex_t {name}_mutex = PTHREAD_MUTEX_INITIALIZER;\n"))
    } else {
        ("_Atomic ", String::new())
    };
    Piece {
        globals: format!(
            "static uint{width}_t {name}[{each} * THREADS];\nstatic {kind}unsigned {name}_next;\n{mutex}"
        ),
        phases,
        finish: format!("hash = mix(hash, {name}_next);\n"),
        ..Piece::default()
    }
}
