//! Types of elements, of every size and way to be loaded and stored, each with a way from and to a `uint64_t`.

use crate::expression::constant;
use crate::world::World;
use std::fmt::Write;

/// A type, and C that makes a value of it from a number and reads one as a number: `make(number)`, `read(element)`.
pub(crate) struct Flavour {
    pub(crate) declarations: String,
    pub(crate) type_name: String,
    pub(crate) make: String,
    pub(crate) read: String,
    /// Whether a constant initialises it.
    pub(crate) is_integer: bool,
}

const INTEGERS: [&str; 9] =
    ["uint8_t", "uint16_t", "uint32_t", "uint64_t", "int8_t", "int16_t", "int32_t", "int64_t", "char"];

/// Floating types, the bytes that count, and the shift that leaves an exact number.
const FLOATS: [(&str, u32, u32); 3] = [("float", 4, 44), ("double", 8, 20), ("long double", 10, 10)];

/// Vectors: the type of their lanes, and how many.
const VECTORS: [(&str, u32); 6] =
    [("uint8_t", 16), ("uint32_t", 4), ("uint64_t", 2), ("uint16_t", 4), ("float", 4), ("double", 2)];

impl Flavour {
    pub(crate) fn any(world: &mut World, name: &str) -> Self {
        match world.dice.below(16) {
            0..=4 => Self::integer(world.one_of(&INTEGERS)),
            5 => Self::wide(name),
            6 | 7 => Self::float(world, name),
            8 | 9 => Self::vector(world, name),
            10 => Self::volatile(world),
            11 => Self::pointer(world, name),
            12 => Self::function(world, name),
            13 => Self::record(world, name, ""),
            14 => Self::record(world, name, "__attribute__((packed)) "),
            _ => Self::bit_fields(world, name),
        }
    }

    pub(crate) fn integer(type_name: &str) -> Self {
        Self {
            declarations: String::new(),
            type_name: type_name.to_owned(),
            make: format!("({type_name})"),
            read: "(uint64_t)".to_owned(),
            is_integer: true,
        }
    }

    fn volatile(world: &mut World) -> Self {
        let mut flavour = Self::integer(world.one_of(&INTEGERS));
        flavour.type_name.insert_str(0, "volatile ");
        flavour
    }

    /// A type that goes through functions of its own, by value.
    fn with_functions(name: &str, type_name: &str, declarations: &str, make: &str, read: &str) -> Self {
        let declarations = format!(
            "{declarations}
            __attribute__((unused)) static {type_name} {name}_make(uint64_t value) {{
            {make}
            }}

            __attribute__((unused)) static uint64_t {name}_read({type_name} element) {{
            {read}
            }}
            "
        );
        Self {
            declarations,
            type_name: type_name.to_owned(),
            make: format!("{name}_make"),
            read: format!("{name}_read"),
            is_integer: false,
        }
    }

    fn wide(name: &str) -> Self {
        let make = "return (unsigned __int128)value << 64 | (value & 7 ? value * 3 : value);";
        let read = "return (uint64_t)(element >> 64) * 5 ^ (uint64_t)element;";
        Self::with_functions(name, "unsigned __int128", "", make, read)
    }

    /// Numbers that are exact, and patterns that are not numbers. Nobody calculates with those: what comes of it is not the
    /// same everywhere.
    fn float(world: &mut World, name: &str) -> Self {
        let (type_name, bytes, shift) = world.one_of(&FLOATS);
        let nan = if bytes == 4 { "nanf" } else { "nan" };
        let make = format!(
            "{type_name} element = ({type_name})(value >> {shift});
            if ((value & 7) == 1) {{
                memset(&element, 0xf1, {bytes});
            }} else if ((value & 7) == 2) {{
                element = __builtin_{nan}(\"\");
            }}
            return element;"
        );
        let read = format!(
            "uint64_t bits[2] = {{0, 0}};
            memcpy(bits, &element, {bytes});
            return bits[0] ^ bits[1] * 3;"
        );
        Self::with_functions(name, type_name, "", &make, &read)
    }

    fn vector(world: &mut World, name: &str) -> Self {
        let (lane, lanes) = world.one_of(&VECTORS);
        let declaration =
            format!("typedef {lane} {name}_vector __attribute__((vector_size({lanes} * sizeof({lane}))));\n");
        // Few bits: a float holds them exactly, so that sums are the same in any order.
        let narrow = if lane == "float" || lane == "double" { " & 0xffff" } else { "" };
        let make = format!(
            "{name}_vector element;
            for (unsigned lane = 0; lane < {lanes}; lane++) {{
                element[lane] = ({lane})((value >> lane){narrow});
            }}
            return element + element;"
        );
        let read = format!(
            "uint64_t number = 0;
            for (unsigned lane = 0; lane < {lanes}; lane++) {{
                number = number * 3 + (uint64_t)element[lane];
            }}
            return number;"
        );
        Self::with_functions(name, &format!("{name}_vector"), &declaration, &make, &read)
    }

    fn pointer(world: &mut World, name: &str) -> Self {
        let table: Vec<String> = (0..8).map(|_| constant(world)).collect();
        let (kind, entries) = (world.one_of(&["const ", ""]), table.join(", "));
        let declaration = format!("static {kind}uint64_t {name}_table[8] = {{{entries}}};\n");
        let make = format!("return &{name}_table[value % 8];");
        let read = "return element ? *element : 17;";
        Self::with_functions(name, "const uint64_t *", &declaration, &make, read)
    }

    fn function(world: &mut World, name: &str) -> Self {
        let mut declaration = format!("typedef uint64_t (*{name}_function)(uint64_t);\n");
        for which in 0..3 {
            let value = crate::expression::expression(world, &["x"]);
            let _ = writeln!(
                declaration,
                "static uint64_t {name}_function_{which}(uint64_t x) {{ return {value} ^ x; }}"
            );
        }
        let functions: Vec<String> = (0..3).map(|which| format!("{name}_function_{which}")).collect();
        let _ = writeln!(
            declaration,
            "static {name}_function const {name}_functions[3] = {{{}}};",
            functions.join(", ")
        );
        let make = format!("return {name}_functions[value % 3];");
        let read = "return element ? element(3) : 18;";
        Self::with_functions(name, &format!("{name}_function"), &declaration, &make, read)
    }

    /// A structure passed by value. Its padding is nobody's: only fields are looked at.
    fn record(world: &mut World, name: &str, attribute: &str) -> Self {
        let mut fields = String::new();
        let mut make = format!("struct {name}_record element;\n");
        let mut read = "uint64_t number = 0;\n".to_owned();
        for field in 0..world.between(2, 5) {
            let shift = world.dice.below(32);
            match world.dice.below(6) {
                0 => {
                    let real = world.one_of(&["float", "double"]);
                    let _ = writeln!(fields, "{real} f{field};");
                    let _ = writeln!(make, "element.f{field} = ({real})(value & 0xffff) / 4;");
                    let _ = writeln!(read, "number = mix(number, (uint64_t)(element.f{field} * 4));");
                }
                1 => {
                    let bytes = world.between(2, 13);
                    let _ = writeln!(fields, "uint8_t f{field}[{bytes}];");
                    let _ = writeln!(
                        make,
                        "for (unsigned k = 0; k < {bytes}; k++) {{
                            element.f{field}[k] = (uint8_t)(value >> (k * 4));
                        }}"
                    );
                    let _ = writeln!(
                        read,
                        "number = mix(number, element.f{field}[0] + element.f{field}[{}] * 256u);",
                        bytes - 1
                    );
                }
                _ => {
                    let integer = world.one_of(&INTEGERS);
                    let _ = writeln!(fields, "{integer} f{field};");
                    let _ = writeln!(make, "element.f{field} = ({integer})(value >> {shift});");
                    let _ = writeln!(read, "number = mix(number, (uint64_t)element.f{field});");
                }
            }
        }
        let declaration = format!("struct {attribute}{name}_record {{\n{fields}}};\n");
        let make = format!("{make}return element;");
        let read = format!("{read}return number;");
        Self::with_functions(name, &format!("struct {name}_record"), &declaration, &make, &read)
    }

    fn bit_fields(world: &mut World, name: &str) -> Self {
        let mut fields = String::new();
        let mut make = format!("struct {name}_bits element;\nmemset(&element, 0, sizeof element);\n");
        let mut read = "uint64_t number = 0;\n".to_owned();
        for field in 0..world.between(2, 6) {
            let (unit, most) =
                world.one_of(&[("uint8_t", 8), ("uint16_t", 16), ("uint32_t", 32), ("uint64_t", 64)]);
            let (width, shift) = (world.between(1, most), world.dice.below(32));
            let _ = writeln!(fields, "{unit} f{field} : {width};");
            let _ = writeln!(
                make,
                "element.f{field} = ({unit})((value >> {shift}) & (~0ull >> {}));",
                64 - width
            );
            let _ = writeln!(read, "number = mix(number, element.f{field});");
        }
        let attribute = world.one_of(&["", "__attribute__((packed)) "]);
        let declaration = format!("struct {attribute}{name}_bits {{\n{fields}}};\n");
        let make = format!("{make}return element;");
        let read = format!("{read}return number;");
        Self::with_functions(name, &format!("struct {name}_bits"), &declaration, &make, &read)
    }
}
