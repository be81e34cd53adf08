//! An array of any type, anywhere in memory, written by threads in many patterns: strides, blocks, elements of one cache
//! line by turns.

use crate::expression::{constant, value};
use crate::flavour::Flavour;
use crate::piece::Piece;
use crate::world::{Role, World};
use std::fmt::Write;

/// Where an array is, and how C names its elements.
struct Place {
    globals: String,
    setup: String,
    /// What stands before and after an index in brackets.
    before: String,
    after: &'static str,
    is_heap: bool,
}

/// One array.
struct Array {
    name: String,
    flavour: Flavour,
    place: Place,
    elements: u32,
}

pub(crate) fn piece(world: &mut World) -> Piece {
    let name = world.name("array");
    let flavour = Flavour::any(world, &name);
    let elements = world.between(17, 300);
    let place = place(world, &name, &flavour, elements);
    let array = Array { name, flavour, place, elements };
    let mut phases = Vec::new();
    for role in world.roles() {
        phases.push(match role {
            Role::Write => array.write(world),
            Role::Read => array.read(world),
            Role::Alone => array.alone(world),
        });
    }
    let finish = format!(
        "for (unsigned i = 0; i < {elements}; i++) {{
        hash = mix(hash, {});
        }}
        ",
        array.get("i")
    );
    let globals = format!("{}{}", array.flavour.declarations, array.place.globals);
    Piece { globals, setup: array.place.setup, thread: String::new(), phases, finish }
}

fn place(world: &mut World, name: &str, flavour: &Flavour, elements: u32) -> Place {
    let element = &flavour.type_name;
    let mut place = Place {
        globals: String::new(),
        setup: String::new(),
        before: name.to_owned(),
        after: "",
        is_heap: false,
    };
    let linkage = world.one_of(&["static ", ""]);
    match world.dice.below(7) {
        0 => place.globals = format!("{linkage}{element} {name}[{elements}];\n"),
        1 | 2 if flavour.is_integer => {
            let mut values = Vec::new();
            for _ in 0..world.between(1, 12.min(elements)) {
                values.push(format!("{}{}", flavour.make, constant(world)));
            }
            place.globals = format!("{linkage}{element} {name}[{elements}] = {{{}}};\n", values.join(", "));
        }
        // Elements with something between them.
        3 => {
            let pad = world.between(1, 9);
            place.globals =
                format!("{linkage}struct {{\nchar pad[{pad}];\n{element} element;\n}} {name}[{elements}];\n");
            place.after = ".element";
        }
        // Not where a line begins.
        4 => {
            let pad = world.between(1, 70);
            place.globals = format!(
                "{linkage}struct {{\nchar pad[{pad}];\n{element} elements[{elements}];\n}} {name};\n"
            );
            place.before = format!("{name}.elements");
        }
        // On the stack of the first thread.
        5 => {
            place.globals = format!("{linkage}{element} *{name};\n");
            place.setup = format!(
                "{element} {name}_stack[{elements}];
                {name} = {name}_stack;
                "
            );
            place.setup += &first_values(name, flavour, elements);
        }
        _ => {
            place.globals = format!("{linkage}{element} *{name};\n");
            place.is_heap = true;
            if world.once_in(2) {
                place.setup = format!("{name} = calloc({elements}, sizeof({element}));\n");
            } else {
                place.setup = format!("{name} = malloc({elements} * sizeof({element}));\n");
                place.setup += &first_values(name, flavour, elements);
            }
        }
    }
    place
}

fn first_values(name: &str, flavour: &Flavour, elements: u32) -> String {
    format!("for (unsigned i = 0; i < {elements}; i++) {{\n{name}[i] = {}(i * 3ul);\n}}\n", flavour.make)
}

impl Array {
    fn element(&self, index: &str) -> String {
        format!("{}[{index}]{}", self.place.before, self.place.after)
    }

    fn get(&self, index: &str) -> String {
        format!("{}({})", self.flavour.read, self.element(index))
    }

    /// What a thread does with one element that it owns.
    fn store(&self, world: &mut World) -> String {
        let mut text = String::new();
        let value = if world.once_in(3) {
            let _ = writeln!(text, "uint64_t old = {};", self.get("i"));
            value(world, &["i", "hash", "old"])
        } else {
            value(world, &["i", "hash", "self"])
        };
        let _ = writeln!(text, "{} = {}({value});", self.element("i"), self.flavour.make);
        if world.once_in(2) {
            let _ = writeln!(text, "hash = mix(hash, {});", self.get("i"));
        }
        if world.once_in(5) {
            let _ = writeln!(text, "if ((hash & 63) == {}) {{\nbreak;\n}}", world.dice.below(64));
        }
        text
    }

    /// Every thread has its share, and takes another share from phase to phase.
    fn write(&self, world: &mut World) -> String {
        let (turn, store, n) = (world.turn(), self.store(world), self.elements);
        let turn = format!("unsigned turn = {turn};\n");
        let share = format!("unsigned i = {n} * turn / THREADS, end = {n} * (turn + 1) / THREADS;\n");
        match world.dice.below(7) {
            // Neighbours in one line, or one word.
            0 | 1 => format!("{turn}for (unsigned i = turn; i < {n}; i += THREADS) {{\n{store}}}\n"),
            2 => format!("{turn}{share}for (; i < end; i++) {{\n{store}}}\n"),
            3 => format!("{turn}{share}while (i < end) {{\n{store}i++;\n}}\n"),
            // Backwards.
            4 => {
                let last = format!("{n} * (turn + 1) / THREADS - 1");
                format!(
                    "{turn}for (int i = (int)({last}); i >= (int)({n} * turn / THREADS); i--) {{\n{store}}}\n"
                )
            }
            5 => {
                let chunk = world.between(2, 9);
                format!(
                    "{turn}for (unsigned b = turn * {chunk}; b < {n}; b += THREADS * {chunk}) {{
                    for (unsigned i = b; i < b + {chunk} && i < {n}; i++) {{\n{store}}}\n}}\n"
                )
            }
            // A prime stride visits every element once, in an order that no prefetcher likes.
            _ => {
                let stride = world.one_of(&[307, 311, 509, 1009]);
                format!(
                    "{turn}for (unsigned k = turn; k < {n}; k += THREADS) {{
                    unsigned i = k * {stride} % {n};\n{store}}}\n"
                )
            }
        }
    }

    fn read(&self, world: &mut World) -> String {
        let (n, stop) = (self.elements, world.dice.below(256));
        let mut body = format!("hash = mix(hash, {});\n", self.get("i"));
        if world.once_in(3) {
            let _ = writeln!(body, "if ((hash & 255) == {stop}) {{\nbreak;\n}}");
        }
        match world.dice.below(5) {
            0 => format!("for (unsigned i = 0; i < {n}; i++) {{\n{body}}}\n"),
            1 => format!("for (unsigned i = {n}; i-- > 0;) {{\n{body}}}\n"),
            2 => {
                let stride = world.between(2, 40);
                format!("for (unsigned i = self; i < {n}; i += {stride}) {{\n{body}}}\n")
            }
            // Each tells where the next is.
            3 => format!(
                "unsigned i = (unsigned)(hash % {n});
                for (unsigned step = 0; step < {}; step++) {{\n{body}i = (unsigned)((hash ^ i) % {n});\n}}\n",
                world.between(10, 100)
            ),
            _ => {
                let (left, right) = (self.get("i"), self.get("i + 1"));
                format!(
                    "unsigned i = 0, rises = 0;
                    do {{
                    rises += {left} < {right};
                    }} while (++i + 1 < {n});
                    hash = mix(hash, rises);\n"
                )
            }
        }
    }

    fn alone(&self, world: &mut World) -> String {
        let (name, n, who) = (&self.name, self.elements, world.dice.below(world.threads));
        let element = &self.flavour.type_name;
        let body = if self.place.is_heap {
            let more = world.between(0, 4000);
            format!("{name} = realloc((void *){name}, {n} * sizeof({element}) + {more});\n")
        } else {
            let (from, to) = (self.element(&format!("{}", n - 1)), self.element("0"));
            format!("{to} = {from};\nhash = mix(hash, {});\n", self.get("0"))
        };
        format!("if (self == {who}) {{\n{body}}}\n")
    }
}
