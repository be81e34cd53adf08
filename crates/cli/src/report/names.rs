//! What addresses are called in the program's source: lines by DWARF, functions and variables by symbols.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use addr2line::Context;
use addr2line::gimli::{Dwarf, EndianSlice, LittleEndian};
use comb_region::report::{Part, Program};
use object::elf::PF_X;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags, SymbolKind};
use serde::Serialize;

use super::allocations::Allocations;

/// Where an instruction comes from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize)]
pub(crate) struct Place {
    /// File and line, or where there is no debug information, what is known instead.
    pub(crate) line: String,
    /// The function, if it is known.
    pub(crate) function: String,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.function[..] {
            "" => f.write_str(&self.line),
            // Without debug information it is the line's name already.
            function if self.line.starts_with(&format!("{function}+0x")) => f.write_str(&self.line),
            function => write!(f, "{} ({function})", self.line),
        }
    }
}

/// Names of a task's addresses.
pub(crate) trait Naming {
    /// Where an instruction of a component comes from.
    fn place(&mut self, rank: u32, instruction: u64) -> Place;

    /// What is at an address that all components share: a variable, or an allocation; and how far behind its beginning.
    fn variable(&mut self, address: u64) -> (String, u64);

    /// Whether an instruction is Comb's own, the standard library's between Comb and its program, or nobody's that is known.
    fn is_ours(&mut self, rank: u32, instruction: u64) -> bool;
}

/// The names that the programs' own files give.
pub(crate) struct Names<'a> {
    /// What each component has mapped, by rank.
    programs: BTreeMap<u32, &'a [Program]>,
    files: BTreeMap<String, Option<File>>,
    places: BTreeMap<(u32, u64), Place>,
    allocations: Allocations,
}

/// A program, or a library.
struct File {
    segments: Vec<Segment>,
    /// By their addresses in the file.
    symbols: BTreeMap<u64, Symbol>,
    lines: Option<Context<EndianSlice<'static, LittleEndian>>>,
}

struct Segment {
    address: u64,
    bytes: u64,
    offset: u64,
    file_bytes: u64,
    is_code: bool,
}

struct Symbol {
    name: String,
    bytes: u64,
    is_function: bool,
}

impl<'a> Names<'a> {
    pub(crate) fn of(parts: impl Iterator<Item = &'a Part> + Clone) -> Self {
        let programs = parts.clone().map(|part| (part.rank, &part.programs[..])).collect();
        let mut names = Self {
            programs,
            files: BTreeMap::new(),
            places: BTreeMap::new(),
            allocations: Allocations::default(),
        };
        let mut allocations = Allocations::of(parts);
        allocations.name(&mut names);
        names.allocations = allocations;
        names
    }

    /// The file that an address is in, and which address it has there.
    fn locate(&mut self, rank: u32, address: u64, is_code: bool) -> Option<(&File, u64, String)> {
        let programs = *self.programs.get(&rank)?;
        for program in programs {
            if is_code && !(program.start..program.end).contains(&address) {
                continue;
            }
            let path = &program.path;
            if !self.files.contains_key(path) {
                self.files.insert(path.clone(), File::read(Path::new(path)));
            }
            let Some(file) = &self.files[path] else { continue };
            let Some(own) = file.own_address(program, address) else { continue };
            // Borrowed anew: the compiler does not see that the loop ends here.
            return self.files[path].as_ref().map(|file| (file, own, path.clone()));
        }
        None
    }
}

impl Naming for Names<'_> {
    fn place(&mut self, rank: u32, instruction: u64) -> Place {
        if let Some(place) = self.places.get(&(rank, instruction)) {
            return place.clone();
        }
        // Comb has looked itself, for a call of the program's.
        if instruction == 0 {
            return Place { line: "a call that Comb serves".to_owned(), function: String::new() };
        }
        let found = self.locate(rank, instruction, true).map(|(file, own, path)| file.place(own, &path));
        let place =
            found.unwrap_or_else(|| Place { line: format!("{instruction:#x}"), function: String::new() });
        self.places.insert((rank, instruction), place.clone());
        place
    }

    fn variable(&mut self, address: u64) -> (String, u64) {
        // Shared addresses are the same everywhere: whoever is there may be asked.
        let rank = self.programs.keys().next().copied().unwrap_or(0);
        if let Some((file, own, _)) = self.locate(rank, address, false)
            && let Some((start, symbol)) = file.symbol(own, false)
        {
            return (symbol.name.clone(), own - start);
        }
        self.allocations.name_of(address).unwrap_or_else(|| (format!("{address:#x}"), 0))
    }

    fn is_ours(&mut self, rank: u32, instruction: u64) -> bool {
        self.locate(rank, instruction, true).is_none_or(|(file, own, path)| {
            // Not what is inlined there: of Comb's functions that is anybody's.
            let function = file.symbol(own, true).map_or("", |(_, symbol)| &symbol.name[..]);
            is_ours(&path, function)
        })
    }
}

/// Whether code is Comb's: of its library, or a function of its crates or of those below them that a program in Rust contains.
fn is_ours(path: &str, function: &str) -> bool {
    let is_library = path.rsplit('/').next().is_some_and(|name| name.starts_with("libcomb.so"));
    let crates = ["comb_", "comb::", "std::", "core::", "alloc::"];
    // Methods of a trait begin with the type's name, in brackets.
    is_library || crates.iter().any(|ours| function.trim_start_matches('<').starts_with(ours))
}

/// A symbol as people know it. A name of C is one of C++'s types to a demangler: `d` would be `double`.
fn readable(name: &str) -> String {
    match name {
        // The pass renames it.
        "comb_main" => "main".to_owned(),
        _ if name.starts_with("_Z") || name.starts_with("_R") => {
            addr2line::demangle_auto(name.into(), None).into_owned()
        }
        _ => name.to_owned(),
    }
}

impl File {
    fn read(path: &Path) -> Option<Self> {
        // For as long as this command goes on, which is not long any more.
        let content: &'static [u8] = Vec::leak(std::fs::read(path).ok()?);
        let file = object::File::parse(content).ok()?;
        let segments = file.segments().map(|segment| {
            let (offset, file_bytes) = segment.file_range();
            let is_code =
                matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.0 & PF_X.0 != 0);
            Segment { address: segment.address(), bytes: segment.size(), offset, file_bytes, is_code }
        });
        let mut symbols = BTreeMap::new();
        for symbol in file.dynamic_symbols().chain(file.symbols()) {
            let is_function = symbol.kind() == SymbolKind::Text;
            let is_of_interest = is_function || symbol.kind() == SymbolKind::Data;
            if let Some(name) =
                symbol.name().ok().filter(|name| is_of_interest && symbol.is_definition() && !name.is_empty())
            {
                let name = readable(name);
                symbols.insert(symbol.address(), Symbol { name, bytes: symbol.size(), is_function });
            }
        }
        let section = |id: addr2line::gimli::SectionId| {
            let content =
                file.section_by_name(id.name()).and_then(|section| section.data().ok()).unwrap_or_default();
            Ok::<_, addr2line::gimli::Error>(EndianSlice::new(content, LittleEndian))
        };
        let lines = Dwarf::load(section).ok().and_then(|dwarf| Context::from_arc_dwarf(Arc::new(dwarf)).ok());
        Some(Self { segments: segments.collect(), symbols, lines })
    }

    /// What an address of the process is in this file, which may lie anywhere.
    fn own_address(&self, program: &Program, address: u64) -> Option<u64> {
        let is_it = |segment: &&Segment| {
            // The kernel maps whole pages: the first of the code may be the last of what is before it.
            let first = segment.offset & !4095;
            segment.is_code && (first..segment.offset + segment.file_bytes).contains(&program.offset)
        };
        let code = self.segments.iter().find(is_it)?;
        let begins = code.address.wrapping_add(program.offset.wrapping_sub(code.offset));
        let own = address.wrapping_sub(program.start).wrapping_add(begins);
        let is_in = |segment: &Segment| (segment.address..segment.address + segment.bytes).contains(&own);
        self.segments.iter().any(is_in).then_some(own)
    }

    fn symbol(&self, own: u64, is_function: bool) -> Option<(u64, &Symbol)> {
        let (&start, symbol) = self.symbols.range(..=own).next_back()?;
        (symbol.is_function == is_function && own < start + symbol.bytes.max(1)).then_some((start, symbol))
    }

    fn place(&self, own: u64, path: &str) -> Place {
        let symbol = self.symbol(own, true);
        let mut function = symbol.map(|(_, symbol)| symbol.name.clone()).unwrap_or_default();
        let mut line = None;
        if let Some(lines) = &self.lines
            && let Ok(mut frames) = lines.find_frames(own).skip_all_loads()
            && let Ok(Some(frame)) = frames.next()
        {
            if let Some(name) = &frame.function
                && let Ok(name) = name.demangle()
            {
                function = name.into_owned();
            }
            let location = frame.location.filter(|location| location.line.is_some_and(|line| line > 0));
            line =
                location.and_then(|location| Some(format!("{}:{}", short(location.file?), location.line?)));
        }
        let in_file = || match symbol {
            Some((start, symbol)) => format!("{}+{:#x}", symbol.name, own - start),
            None => format!("{}+{own:#x}", short(path)),
        };
        Place { line: line.unwrap_or_else(in_file), function }
    }
}

/// A path as people would say it: from here, or its last two parts.
fn short(path: &str) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    if let Ok(rest) = Path::new(path).strip_prefix(&here) {
        return rest.display().to_string();
    }
    let parts: Vec<&str> = path.rsplitn(3, '/').collect();
    match &parts[..] {
        [file, directory, _] => format!("{directory}/{file}"),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_c_stay_and_main_is_main() {
        assert_eq!(["d", "x", "comb_main"].map(readable), ["d", "x", "main"]);
        assert_eq!(readable("_Z4swapRiS_"), "swap(int&, int&)");
    }

    #[test]
    fn a_function_is_named_once() {
        let place = |line: &str| Place { line: line.to_owned(), function: "solve".to_owned() }.to_string();
        assert_eq!([place("solve+0x128d"), place("a.c:3")], ["solve+0x128d", "a.c:3 (solve)"]);
    }

    /// Global variables, at fixed addresses and wherever the kernel has put them.
    #[test]
    fn a_global_variable_has_a_name_wherever_its_program_lies() {
        let directory = std::env::temp_dir().join(format!("comb-names-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let source = directory.join("globals.c");
        std::fs::write(
            &source,
            "long before = 1;\nlong hot[64] = {1};\nstatic long quiet[1000];\n\
             int main(void) {\n    return (int)(hot[0] + before + quiet[7]);\n}\n",
        )
        .unwrap();
        for options in [&["-no-pie"][..], &["-fpie", "-pie"]] {
            let program = directory.join("globals");
            let compiler = std::process::Command::new("cc");
            let compiler = { compiler }.args(options).args(["-g", "-o"]).arg(&program).arg(&source).status();
            assert!(compiler.unwrap().success());
            let content = std::fs::read(&program).unwrap();
            let file = object::File::parse(&content[..]).unwrap();
            let own = |name: &str| file.symbols().find(|symbol| symbol.name() == Ok(name)).unwrap().address();
            let code = |segment: &object::Segment<'_, '_>| {
                let range = segment.address()..segment.address() + segment.size();
                range.contains(&own("main"))
            };
            let code = file.segments().find(code).unwrap();
            let bias = if options == ["-no-pie"] { 0 } else { 0x5555_0000_0000 };
            let start = code.address() + bias;
            let path = program.display().to_string();
            let mapped = Program { path, start, end: start + code.size(), offset: code.file_range().0 };
            let part = Part { programs: vec![mapped], ..Part::default() };
            let mut names = Names::of([&part].into_iter());
            assert_eq!(names.variable(own("hot") + bias + 24), ("hot".to_owned(), 24));
            assert_eq!(
                names.variable(own("quiet") + bias),
                ("quiet".to_owned(), 0),
                "of zeros, not in the file"
            );
            assert_eq!(names.variable(64), ("0x40".to_owned(), 0));
            let place = names.place(0, own("main") + bias);
            assert!(place.line.ends_with("globals.c:4") && place.function == "main", "{place}");
            assert_eq!(names.place(0, 64).line, "0x40");
        }
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_is_combs_own_is_told_by_its_library_or_its_crates() {
        assert!(is_ours("/usr/lib/libcomb.so.0", "anything"));
        assert!(is_ours("/a/squares", "<comb_region::task::Task>::allocate"));
        assert!(is_ours("/a/squares", "comb_region::array::Array<T>::together"));
        assert!(!is_ours("/a/squares", "squares::main") && !is_ours("/a/ocean", "combine"));
    }

    #[test]
    fn paths_are_as_short_as_people_say_them() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(short(&here.join("a/b/c.c").display().to_string()), "a/b/c.c");
        assert_eq!(short("/somewhere/else/b/c.c"), "b/c.c");
        assert_eq!(short("c.c"), "c.c");
    }
}
