//! Comb's own options, taken out of the command line.

/// How a program notices that a block is not here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Access {
    /// Loads and stores look for themselves.
    #[default]
    Check,
    /// Stores look; loads leave it to the MMU.
    Hybrid,
    /// The MMU, with a mapping for each object.
    Mmu,
    /// The MMU, by pages.
    Page,
}

impl Access {
    pub(crate) fn of(name: &str) -> Result<Self, String> {
        match name {
            "check" => Ok(Self::Check),
            "hybrid" => Ok(Self::Hybrid),
            "mmu" => Ok(Self::Mmu),
            "page" => Ok(Self::Page),
            _ => Err(format!("--access={name}: it is check, hybrid, mmu or page")),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Hybrid => "hybrid",
            Self::Mmu => "mmu",
            Self::Page => "page",
        }
    }

    /// The state table's grain; or a page, where the MMU has a part in it.
    fn smallest_block_bytes(self) -> u64 {
        match self {
            Self::Check => 128,
            _ => 4096,
        }
    }

    /// What most programs are fastest with: a miss costs much the same up to here.
    fn usual_block_bytes(self) -> u64 {
        self.smallest_block_bytes().max(1024)
    }
}

/// The state table's words of rights are of so much; larger blocks have no home.
const LARGEST_BLOCK_BYTES: u64 = 65536;

/// Options with a value, which may be the next word as well.
const TAKES_VALUE: &[&str] =
    &["--access", "--block", "--stores", "--lookup-cost", "--invocation-cost", "--allow-uncovered"];

/// What the command line asked of Comb.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) access: Access,
    pub(crate) block_bytes: u64,
    /// The command line names them.
    pub(crate) names_access: bool,
    pub(crate) names_block: bool,
    pub(crate) explains: bool,
    pub(crate) pins_stores: bool,
    pub(crate) polls_not: bool,
    pub(crate) lookup_cost: u32,
    pub(crate) invocation_cost: u32,
    pub(crate) allowed: Vec<String>,
    pub(crate) asks_for_help: bool,
    pub(crate) asks_for_version: bool,
}

impl Options {
    /// The options, and the words that are clang's.
    pub(crate) fn parse(words: Vec<String>) -> Result<(Self, Vec<String>), String> {
        let mut own = Self::default();
        let mut passed = Vec::new();
        let mut block_bytes = None;
        let mut words = words.into_iter();
        while let Some(mut word) = words.next() {
            if TAKES_VALUE.contains(&word.as_str()) {
                let value = words.next().ok_or_else(|| format!("{word}: its value is missing, {word}=…"))?;
                word = format!("{word}={value}");
            }
            let (name, value) = word.split_once('=').unwrap_or((&word, ""));
            match name {
                "--access" => (own.access, own.names_access) = (Access::of(value)?, true),
                "--block" => block_bytes = Some(block_size(value)?),
                "--no-poll" => own.polls_not = true,
                "--explain" => own.explains = true,
                "--stores" => own.pins_stores = pins_stores(value)?,
                "--lookup-cost" => own.lookup_cost = number(name, value)?,
                "--invocation-cost" => own.invocation_cost = number(name, value)?,
                "--allow-uncovered" => own.allowed.extend(value.split(',').map(str::to_owned)),
                _ => {
                    own.asks_for_help |= word == "--help";
                    own.asks_for_version |= word == "--version";
                    passed.push(word);
                }
            }
        }
        let smallest = own.access.smallest_block_bytes();
        own.names_block = block_bytes.is_some();
        own.block_bytes = block_bytes.unwrap_or(own.access.usual_block_bytes());
        if own.block_bytes < smallest {
            return Err(format!(
                "--block={}: --access={} needs at least {smallest}",
                own.block_bytes,
                own.access.name()
            ));
        }
        Ok((own, passed))
    }

    /// What is linked decides for what the command line does not name; what it names otherwise is refused.
    pub(crate) fn agree_with(&mut self, file: &str, mode: &str, block_bytes: u64) -> Result<(), String> {
        let access = Access::of(mode)?;
        if self.names_access && access != self.access {
            return Err(format!(
                "{file} is compiled for --access={mode}, and this command says --access={}",
                self.access.name()
            ));
        }
        if self.names_block && block_bytes != self.block_bytes {
            return Err(format!(
                "{file} is compiled for --block={block_bytes}, and this command says --block={}",
                self.block_bytes
            ));
        }
        (self.access, self.block_bytes) = (access, block_bytes);
        Ok(())
    }
}

fn block_size(value: &str) -> Result<u64, String> {
    let bytes: u64 = value.parse().map_err(|_| format!("--block={value}: not a number"))?;
    if bytes.is_power_of_two() && (128..=LARGEST_BLOCK_BYTES).contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!("--block={value}: it is a power of two from 128 to {LARGEST_BLOCK_BYTES}"))
}

fn pins_stores(value: &str) -> Result<bool, String> {
    match value {
        "rseq" => Ok(false),
        "pinned" => Ok(true),
        _ => Err(format!("--stores={value}: it is rseq or pinned")),
    }
}

fn number(name: &str, value: &str) -> Result<u32, String> {
    value.parse().map_err(|_| format!("{name}={value}: not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<(Options, Vec<String>), String> {
        Options::parse(words.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_man_page_has_all_options() {
        let page = include_str!("../../combcc.1").replace('\\', "");
        for option in crate::HELP.split_whitespace().filter(|word| word.starts_with("--")) {
            let name = option.split(['=', '[']).next().unwrap();
            assert!(page.contains(name), "{name}");
        }
    }

    #[test]
    fn own_options_are_taken_out_and_all_others_passed() {
        let (own, passed) =
            parse(&["-O2", "--access=hybrid", "-c", "a.c", "--explain", "--sysroot=/"]).unwrap();
        assert_eq!((own.access, own.block_bytes, own.explains), (Access::Hybrid, 4096, true));
        assert_eq!(passed, ["-O2", "-c", "a.c", "--sysroot=/"]);
        assert_eq!(
            (parse(&[]).unwrap().0.block_bytes, parse(&["--block=128"]).unwrap().0.block_bytes),
            (1024, 128)
        );
    }

    #[test]
    fn what_cannot_be_is_an_error() {
        let wrong = ["--access=none", "--block=100", "--block=64", "--block=131072", "--stores=none"];
        for word in wrong.into_iter().chain(["--lookup-cost=x", "--access"]) {
            assert!(parse(&[word]).is_err(), "{word}");
        }
        assert!(parse(&["--access=hybrid", "--block=128"]).is_err());
    }

    #[test]
    fn several_functions_may_be_allowed() {
        let (own, _) = parse(&["--allow-uncovered=f,g", "--allow-uncovered=h"]).unwrap();
        assert_eq!(own.allowed, ["f", "g", "h"]);
    }

    #[test]
    fn a_value_may_be_a_word_of_its_own() {
        let (own, passed) = parse(&["--access", "page", "-c", "a.c", "--block", "8192"]).unwrap();
        assert_eq!((own.access, own.block_bytes), (Access::Page, 8192));
        assert_eq!(passed, ["-c", "a.c"]);
    }

    #[test]
    fn what_is_linked_decides_for_what_is_not_named() {
        let linked = |words: &[&str], mode, block| {
            let (mut own, _) = parse(words).unwrap();
            own.agree_with("a.o", mode, block).map(|()| (own.access, own.block_bytes))
        };
        assert_eq!(linked(&[], "page", 8192), Ok((Access::Page, 8192)));
        assert_eq!(linked(&["--access=page"], "page", 4096), Ok((Access::Page, 4096)));
        let refused = linked(&["--access=check"], "page", 4096).unwrap_err();
        assert!(
            refused.contains("a.o") && refused.contains("=page") && refused.contains("=check"),
            "{refused}"
        );
        assert!(linked(&["--block=256"], "check", 128).is_err());
    }
}
