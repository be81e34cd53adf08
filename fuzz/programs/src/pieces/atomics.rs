//! Counters of all widths, changed by everybody at once, in ways whose order does not matter.

use crate::expression::{constant, value};
use crate::piece::Piece;
use crate::world::{Role, World};
use std::fmt::Write;

const TYPES: [&str; 8] =
    ["uint8_t", "uint16_t", "uint32_t", "uint64_t", "int8_t", "int16_t", "int32_t", "int64_t"];

const ORDERS: [&str; 3] = ["memory_order_relaxed", "memory_order_acq_rel", "memory_order_seq_cst"];

/// How one counter is changed, in the whole program: mixed with another way the order would matter.
#[derive(Clone, Copy)]
enum Change {
    Add,
    Or,
    And,
    Xor,
    /// By an odd number, in a loop around a compare and swap.
    Multiply,
    Greatest,
}

const CHANGES: [Change; 6] =
    [Change::Add, Change::Or, Change::And, Change::Xor, Change::Multiply, Change::Greatest];

pub(crate) fn piece(world: &mut World) -> Piece {
    let name = world.name("counters");
    let counters: Vec<(&str, Change)> =
        (0..world.between(2, 6)).map(|_| (world.one_of(&TYPES), world.one_of(&CHANGES))).collect();
    let mut fields = String::new();
    let mut setup = String::new();
    for (index, (integer, _)) in counters.iter().enumerate() {
        let _ = writeln!(fields, "_Atomic {integer} c{index};");
        let first = constant(world);
        let _ = writeln!(setup, "atomic_init(&{name}->c{index}, ({integer})({first} | 1));");
    }
    // Sums of small whole numbers are exact: their order does not matter either.
    fields += "_Atomic double total;\n";
    let globals = format!(
        "struct {name} {{\n{fields}}};\nstatic struct {name} {name}_memory;\nstatic struct {name} *{name};\n"
    );
    let memory =
        if world.once_in(2) { format!("&{name}_memory") } else { format!("calloc(1, sizeof *{name})") };
    let setup = format!("{name} = {memory};\natomic_init(&{name}->total, 0);\n{setup}");
    let mut look = String::new();
    for index in 0..counters.len() {
        let _ = writeln!(look, "hash = mix(hash, (uint64_t){name}->c{index});");
    }
    let _ = writeln!(look, "hash = mix(hash, (uint64_t){name}->total);");
    let mut phases = Vec::new();
    for role in world.roles() {
        phases.push(if role == Role::Read { look.clone() } else { changes(world, &name, &counters) });
    }
    Piece { globals, setup, thread: String::new(), phases, finish: look }
}

fn changes(world: &mut World, name: &str, counters: &[(&str, Change)]) -> String {
    let mut text = format!("for (unsigned i = 0; i < {}; i++) {{\n", world.between(1, 60));
    for (index, (integer, change)) in counters.iter().enumerate() {
        let (counter, by) = (format!("{name}->c{index}"), value(world, &["i", "hash", "self"]));
        let (order, builtin) =
            (world.one_of(&ORDERS), world.one_of(&["__ATOMIC_RELAXED", "__ATOMIC_SEQ_CST"]));
        let fetch = |what: &str| {
            if builtin == "__ATOMIC_RELAXED" {
                format!("__atomic_fetch_{what}(({integer} *)&{counter}, ({integer})({by}), {builtin});\n")
            } else {
                format!("atomic_fetch_{what}_explicit(&{counter}, ({integer})({by}), {order});\n")
            }
        };
        text += &match change {
            Change::Add => fetch("add"),
            Change::Or => fetch("or"),
            Change::And => fetch("and"),
            Change::Xor => fetch("xor"),
            Change::Multiply => {
                swap(integer, &counter, &format!("({integer})((uint64_t)old * (({by}) | 1))"), "1")
            }
            Change::Greatest => swap(integer, &counter, &format!("({integer})({by})"), "wanted > old"),
        };
    }
    text += &swap("double", &format!("{name}->total"), &format!("old + {}", world.between(1, 1000)), "1");
    text += "}\n";
    text
}

/// A loop around a compare and swap, while `condition` holds of `wanted` and `old`.
fn swap(integer: &str, counter: &str, wanted: &str, condition: &str) -> String {
    format!(
        "{{
        {integer} old = atomic_load(&{counter});
        for (;;) {{
        {integer} wanted = {wanted};
        if (!({condition}) || atomic_compare_exchange_weak(&{counter}, &old, wanted)) {{
        break;
        }}
        }}
        }}
        "
    )
}
