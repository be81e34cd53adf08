//! What a compiler's command line asks for, as far as Comb must know.

use std::fs;

/// A file that contains `@itself` ends here.
const DEEPEST_RESPONSE_FILE: u32 = 16;

/// `@file` stands for the words in it. Comb's own options may be among them, and `-c`.
pub(crate) fn expand_response_files(words: Vec<String>) -> Result<Vec<String>, String> {
    let mut expanded = Vec::new();
    for word in words {
        expand(word, 0, &mut expanded)?;
    }
    Ok(expanded)
}

fn expand(word: String, depth: u32, expanded: &mut Vec<String>) -> Result<(), String> {
    let Some(path) = word.strip_prefix('@').filter(|_| depth < DEEPEST_RESPONSE_FILE) else {
        expanded.push(word);
        return Ok(());
    };
    // As compilers do: what cannot be read is a word like others.
    let Ok(text) = fs::read_to_string(path) else {
        expanded.push(word);
        return Ok(());
    };
    for inner in split_words(&text) {
        expand(inner, depth + 1, expanded)?;
    }
    Ok(())
}

/// Words with white space between, as the GNU tools read response files: quotes keep white space, a backslash the next character.
fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, quote) {
            ('\\', _) => word.get_or_insert_default().extend(characters.next()),
            (_, Some(open)) if character == open => quote = None,
            (_, Some(_)) => word.get_or_insert_default().push(character),
            ('"' | '\'', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (_, None) if character.is_whitespace() => words.extend(word.take()),
            (_, None) => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

/// Options whose value is the next word, which is no input then.
const TAKES_NEXT_WORD: &[&str] = &[
    "-o",
    "-I",
    "-L",
    "-D",
    "-U",
    "-include",
    "-imacros",
    "-isystem",
    "-iquote",
    "-idirafter",
    "-iprefix",
    "-MF",
    "-MT",
    "-MQ",
    "-x",
    "-Xclang",
    "-Xlinker",
    "-Xassembler",
    "-Xpreprocessor",
    "-mllvm",
    "-T",
    "-u",
    "-z",
    "-e",
    "-arch",
    "-target",
    "--param",
    "-B",
    "-F",
    "-framework",
    "-isysroot",
    "--sysroot",
    "-l",
    "-include-pch",
    "-aux-info",
    "-A",
    "-dumpbase",
    "-dumpdir",
    "-working-directory",
    "-rpath",
];

/// Words after which nothing is linked.
const STOPS_BEFORE_LINK: &[&str] = &[
    "-c",
    "-S",
    "-E",
    "-M",
    "-MM",
    "-fsyntax-only",
    "-r",
    "--precompile",
    "-emit-ast",
    "-help",
    "--help",
    "--version",
];

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Job {
    /// An executable or a shared library will be made.
    pub(crate) links: bool,
    pub(crate) makes_library: bool,
    /// Code that can stand anywhere: for a shared library. That of a position-independent *executable* is not meant.
    pub(crate) is_position_independent: bool,
    pub(crate) output: String,
    /// Objects and archives that are inputs as they are.
    pub(crate) objects: Vec<String>,
    pub(crate) skips_libraries: bool,
}

impl Job {
    pub(crate) fn of(words: &[String]) -> Self {
        let mut job = Self {
            links: true,
            makes_library: false,
            is_position_independent: false,
            output: "a.out".to_owned(),
            objects: Vec::new(),
            skips_libraries: false,
        };
        let mut has_input = false;
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            match word.as_str() {
                word if STOPS_BEFORE_LINK.contains(&word) => job.links = false,
                word if word.starts_with("-print-")
                    || word.starts_with("--print-")
                    || word.starts_with("-dump") =>
                {
                    job.links = false;
                }
                "-shared" | "--shared" => job.makes_library = true,
                "-fPIC" | "-fpic" => job.is_position_independent = true,
                "-fno-PIC" | "-fno-pic" => job.is_position_independent = false,
                "-nostdlib" | "-nodefaultlibs" => job.skips_libraries = true,
                "-o" => job.output = rest.next().cloned().unwrap_or_default(),
                word if TAKES_NEXT_WORD.contains(&word) => {
                    has_input |= word == "-l";
                    rest.next();
                }
                word if word.starts_with("-o") => job.output = word[2..].to_owned(),
                word if word.starts_with("-l") => has_input = true,
                word if word.starts_with('-') && word != "-" => {}
                word => {
                    has_input = true;
                    if is_object(word) {
                        job.objects.push(word.to_owned());
                    }
                }
            }
        }
        // `combcc -v` and the like.
        job.links &= has_input;
        job
    }
}

pub(crate) fn is_object(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    name.ends_with(".o")
        || name.ends_with(".a")
        || name.ends_with(".lo")
        || name.ends_with(".so")
        || name.contains(".so.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(line: &str) -> Job {
        Job::of(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_link_is_known_from_a_compilation() {
        for line in [
            "-c a.c",
            "-E a.c",
            "-S -o a.s a.c",
            "-M a.c",
            "-v",
            "-print-prog-name=ld",
            "--version",
            "-o prog",
        ] {
            assert!(!job(line).links, "{line}");
        }
        for line in ["a.c", "-o prog a.o", "-O2 -MD -MF a.d a.c", "-shared a.o", "-L. -lx"] {
            assert!(job(line).links, "{line}");
        }
    }

    #[test]
    fn the_value_of_an_option_is_no_input() {
        assert!(!job("-include config.h -x c").links);
        assert_eq!(job("-o out.o a.o -Xlinker b.o libx.a").objects, ["a.o", "libx.a"]);
        assert_eq!(job("-o out a.c").output, "out");
    }

    #[test]
    fn words_of_a_response_file() {
        assert_eq!(
            split_words("-c  'a b.c'\n\"-DX=\\\"1\\\"\" c\\ d ''"),
            ["-c", "a b.c", "-DX=\"1\"", "c d", ""]
        );
    }
}
