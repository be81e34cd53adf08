//! A record under a mutex, changed in ways that commute; and one that threads change by turns, in their order.

use crate::expression::value;
use crate::flavour::Flavour;
use crate::piece::Piece;
use crate::world::{Role, World};

pub(crate) fn piece(world: &mut World) -> Piece {
    let name = world.name("locked");
    let flavour = Flavour::any(world, &name);
    let (element, make, read) = (&flavour.type_name, &flavour.make, &flavour.read);
    let buckets = world.between(3, 30);
    let globals = format!(
        "{}struct {name} {{
        pthread_mutex_t mutex;
        pthread_cond_t next;
        uint8_t small;
        uint64_t sum;
        uint32_t either;
        uint16_t buckets[{buckets}];
        unsigned turn;
        {element} by_turns;
        }};
        static struct {name} *{name};
        ",
        flavour.declarations
    );
    let setup = format!(
        "{name} = calloc(1, sizeof *{name});
        pthread_mutex_init(&{name}->mutex, NULL);
        pthread_cond_init(&{name}->next, NULL);
        "
    );
    let look = format!(
        "hash = mix(hash, {name}->sum + {name}->small);
        hash = mix(hash, {name}->either);
        for (unsigned i = 0; i < {buckets}; i++) {{
        hash = mix(hash, {name}->buckets[i]);
        }}
        hash = mix(hash, {read}({name}->by_turns));
        "
    );
    let mut phases = Vec::new();
    for role in world.roles() {
        phases.push(match role {
            Role::Read => look.clone(),
            Role::Write => {
                let (times, amount) = (world.between(3, 40), value(world, &["i", "hash", "self"]));
                format!(
                    "for (unsigned i = 0; i < {times}; i++) {{
                    uint64_t amount = {amount};
                    pthread_mutex_lock(&{name}->mutex);
                    {name}->sum += amount;
                    {name}->small ^= (uint8_t)amount;
                    {name}->either |= (uint32_t)(amount & amount >> 7);
                    {name}->buckets[amount % {buckets}]++;
                    pthread_mutex_unlock(&{name}->mutex);
                    }}
                    "
                )
            }
            Role::Alone => {
                let amount = value(world, &["old", "hash", "self"]);
                format!(
                    "pthread_mutex_lock(&{name}->mutex);
                    while ({name}->turn != self) {{
                    pthread_cond_wait(&{name}->next, &{name}->mutex);
                    }}
                    uint64_t old = {read}({name}->by_turns);
                    {name}->by_turns = {make}({amount});
                    hash = mix(hash, old);
                    {name}->turn = (self + 1) % THREADS;
                    pthread_cond_broadcast(&{name}->next);
                    pthread_mutex_unlock(&{name}->mutex);
                    "
                )
            }
        });
    }
    Piece { globals, setup, thread: String::new(), phases, finish: look }
}
