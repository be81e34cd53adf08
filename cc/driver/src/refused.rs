//! Options of clang's that cannot be had, and why: better than what the assembler or the linker would say.

/// Of the first that is among these words.
pub(crate) fn refused(words: &[String]) -> Option<String> {
    words.iter().enumerate().find_map(|(index, word)| {
        let next = words.get(index + 1).map_or("", String::as_str);
        let why = why(word, next)?;
        Some(format!("{word}: {why}"))
    })
}

/// Sanitizers that keep a memory of their own beside the program's.
const WATCHES_MEMORY: &[&str] = &[
    "address",
    "hwaddress",
    "kernel-address",
    "memory",
    "thread",
    "leak",
    "dataflow",
    "memtag",
    "scudo",
    "safe-stack",
];

fn why(word: &str, next: &str) -> Option<&'static str> {
    const PROCESSOR: &str = "programs for cells are for x86-64 Linux";
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    let is_other = |target: &str| !target.starts_with("x86_64") || !target.contains("linux");
    match name {
        "-static" | "-static-pie" => {
            Some("a program for cells finds libcomb when it starts, so it is linked dynamically")
        }
        "-m32" | "-mx32" | "-m16" => Some(PROCESSOR),
        "-target" if is_other(next) => Some(PROCESSOR),
        "--target" if is_other(value) => Some(PROCESSOR),
        "-fuse-ld" if value.ends_with("gold") => {
            Some("variables are placed by a script of GNU ld, which gold does not read; leave the option out")
        }
        "-stdlib" if value == "libc++" => {
            Some("C++ programs use libstdc++, whose templates are compiled with the program")
        }
        "-fsanitize" => {
            let watch = |one: &str| WATCHES_MEMORY.contains(&one);
            value.split(',').any(watch).then_some(
                "it watches memory by code and addresses of its own; sanitize what plain clang makes of the program",
            )
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<String> {
        refused(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn what_cannot_be_is_named_with_its_reason() {
        for (line, word) in [
            ("-O2 -static a.c", "-static"),
            ("-m32 a.c", "-m32"),
            ("-target aarch64-linux-gnu a.c", "-target"),
            ("--target=x86_64-w64-mingw32 a.c", "--target=x86_64-w64-mingw32"),
            ("-fuse-ld=gold a.o", "-fuse-ld=gold"),
            ("-fsanitize=undefined,address a.c", "-fsanitize=undefined,address"),
            ("-stdlib=libc++ a.cpp", "-stdlib=libc++"),
        ] {
            let said = of(line).expect(line);
            assert!(said.starts_with(&format!("{word}: ")), "{said}");
        }
    }

    #[test]
    fn what_only_looks_like_it_passes() {
        let line = "-static-libgcc -static-libstdc++ -fuse-ld=bfd -fsanitize=undefined,shift -stdlib=libstdc++ \
                    --target=x86_64-pc-linux-gnu -m64";
        assert_eq!(of(line), None);
    }
}
