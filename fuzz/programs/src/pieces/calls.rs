//! Calls of every kind, with variables on the stack whose addresses are handed down: recursion, varying arguments, pointers
//! to functions, jumps out of many calls.

use crate::expression::{expression, value};
use crate::piece::Piece;
use crate::world::World;
use std::fmt::Write;

/// Slots that each thread has for the calls to work on.
const SLOTS: u32 = 11;

/// Makes up the functions of one kind of call, for the piece of that name.
type Definition = fn(&mut World, &str) -> String;

/// What defines a kind of call, and the end of the name of the function to call.
const KINDS: [(Definition, &str); 5] =
    [(recursion, "descend"), (varying, "add_up"), (selection, "select"), (table, "apply"), (jump, "escape")];

pub(crate) fn piece(world: &mut World) -> Piece {
    let name = world.name("calls");
    let mut globals = format!("static uint64_t {name}[THREADS][{SLOTS}];\n");
    // Jumps are the library's.
    let kinds = if world.is_bare() { &KINDS[..4] } else { &KINDS[..] };
    let first = world.dice.index(kinds.len());
    let chosen = world.between(2, 4) as usize;
    let kind = |nth: usize| kinds[(first + nth) % kinds.len()];
    for nth in 0..chosen {
        let (define, _) = kind(nth);
        let _ = write!(globals, "\n{}", define(world, &name));
    }
    let mut phases = Vec::new();
    for phase in 0..world.phases {
        let (_, call) = kind(phase as usize % chosen);
        let times = world.between(1, 6);
        phases.push(format!(
            "uint64_t *slots = {name}[{}];
            for (unsigned i = 0; i < {times}; i++) {{
            hash = mix(hash, {name}_{call}(slots, hash));
            }}
            ",
            world.turn()
        ));
    }
    let finish = format!(
        "for (unsigned t = 0; t < THREADS; t++) {{
        for (unsigned i = 0; i < {SLOTS}; i++) {{
        hash = mix(hash, {name}[t][i]);
        }}
        }}
        "
    );
    Piece { globals, setup: String::new(), thread: String::new(), phases, finish }
}

/// Each call writes into the frame of the one before.
fn recursion(world: &mut World, name: &str) -> String {
    let (depth, value) = (world.between(2, 12), value(world, &["level", "x"]));
    format!(
        "static uint64_t {name}_deeper(uint64_t *slots, uint64_t *above, unsigned level, uint64_t x) {{
        uint64_t own[3] = {{x, level, above[0]}};
        slots[level % {SLOTS}] ^= {value};
        if (level < {depth}) {{
        x = {name}_deeper(slots, own, level + 1, mix(x, own[2]));
        }}
        above[0] += own[0] ^ own[1];
        return x ^ own[0];
        }}

        static uint64_t {name}_descend(uint64_t *slots, uint64_t x) {{
        uint64_t top[1] = {{1}};
        return {name}_deeper(slots, top, 0, x) + top[0];
        }}
        "
    )
}

fn varying(world: &mut World, name: &str) -> String {
    let first = expression(world, &["x"]);
    format!(
        "struct {name}_pair {{
        uint64_t number;
        uint32_t other;
        }};

        static uint64_t {name}_each(uint64_t *slots, const char *kinds, ...) {{
        va_list arguments;
        uint64_t sum = 0;
        va_start(arguments, kinds);
        for (unsigned i = 0; kinds[i]; i++) {{
        uint64_t number = 0;
        switch (kinds[i]) {{
        case 'i':
        number = (uint64_t)va_arg(arguments, int);
        break;
        case 'd':
        number = (uint64_t)va_arg(arguments, double);
        break;
        case 'l':
        number = (uint64_t)va_arg(arguments, long double);
        break;
        case 's': {{
        struct {name}_pair pair = va_arg(arguments, struct {name}_pair);
        number = pair.number ^ pair.other;
        break;
        }}
        default:
        number = *va_arg(arguments, uint64_t *);
        }}
        slots[i % {SLOTS}] = mix(slots[i % {SLOTS}], number);
        sum += number;
        }}
        va_end(arguments);
        return sum;
        }}

        static uint64_t {name}_add_up(uint64_t *slots, uint64_t x) {{
        struct {name}_pair pair = {{{first}, 0xf1f1f1f1}};
        double real = (double)(x & 0xfffff);
        return {name}_each(slots, \"idslpdi\", (int)(x & 0xffff), real, pair, (long double)(x & 0xffffff), slots + 3, 7.0, -1);
        }}
        "
    )
}

fn selection(world: &mut World, name: &str) -> String {
    let mut text =
        format!("static uint64_t {name}_select(uint64_t *slots, uint64_t x) {{\nswitch (x % 13) {{\n");
    for case in 0..world.between(3, 12) {
        let value = value(world, &["x"]);
        let _ = writeln!(text, "case {case}:\nslots[{}] += {value};", world.dice.below(SLOTS));
        if !world.once_in(3) {
            text += "break;\n";
        }
    }
    text + "default:\nslots[0]++;\n}\nreturn slots[x % 11];\n}\n"
}

/// Pointers to functions in memory that changes.
fn table(world: &mut World, name: &str) -> String {
    let mut text = String::new();
    for function in 0..3 {
        let value = value(world, &["x"]);
        let _ = write!(text, "static uint64_t {name}_way_{function}(uint64_t x) {{\nreturn {value};\n}}\n\n");
    }
    let _ = write!(
        text,
        "static uint64_t (*const {name}_ways[3])(uint64_t) = {{{name}_way_0, {name}_way_1, {name}_way_2}};

        static uint64_t {name}_apply(uint64_t *slots, uint64_t x) {{
        uint64_t (*ways[4])(uint64_t);
        for (unsigned i = 0; i < 4; i++) {{
        ways[i] = {name}_ways[(x >> i) % 3];
        }}
        for (unsigned i = 0; i < {}; i++) {{
        slots[i % {SLOTS}] ^= ways[x % 4](x);
        x = mix(x, slots[i % {SLOTS}]);
        }}
        return x;
        }}
        ",
        world.between(2, 20)
    );
    text
}

/// Out of calls that hold variables of their own, again and again: what they held is given back.
fn jump(world: &mut World, name: &str) -> String {
    let (depth, rounds) = (world.between(1, 9), world.between(1, 60));
    format!(
        "static void {name}_into(jmp_buf *back, uint64_t *slots, uint64_t *above, unsigned level) {{
        uint64_t own[{}];
        memset(own, 0xf1, sizeof own);
        own[level % 5] = *above + level;
        slots[level % {SLOTS}] += own[(level + 1) % 5];
        *above = mix(*above, own[level % 5]);
        if (level == {depth}) {{
        longjmp(*back, (int)(*above % 5) + 1);
        }}
        {name}_into(back, slots, own + level % 5, level + 1);
        }}

        static uint64_t {name}_escape(uint64_t *slots, uint64_t x) {{
        jmp_buf back;
        uint64_t top = x;
        volatile uint64_t sum = 0;
        for (volatile unsigned round = 0; round < {rounds}; round++) {{
        switch (setjmp(back)) {{
        case 0:
        {name}_into(&back, slots, slots + round % {SLOTS}, 0);
        break;
        case 1:
        sum = sum * 7 + round;
        break;
        case 2:
        sum = sum ^ sum >> 3;
        break;
        default:
        sum = sum * 5 + 1;
        }}
        }}
        return sum ^ top;
        }}
        ",
        world.between(5, 40)
    )
}
