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
    fn of(name: &str) -> Result<Self, String> {
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

/// What the command line asked of Comb.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) access: Access,
    pub(crate) block_bytes: u64,
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
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((&word, ""));
            match name {
                "--access" => own.access = Access::of(value)?,
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
}

fn block_size(value: &str) -> Result<u64, String> {
    let bytes: u64 = value.parse().map_err(|_| format!("--block={value}: not a number"))?;
    if bytes.is_power_of_two() && bytes >= 128 {
        return Ok(bytes);
    }
    Err(format!("--block={value}: it is a power of two, 128 or more"))
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
        for word in ["--access=none", "--block=100", "--block=64", "--stores=none", "--lookup-cost=x"] {
            assert!(parse(&[word]).is_err(), "{word}");
        }
        assert!(parse(&["--access=hybrid", "--block=128"]).is_err());
    }

    #[test]
    fn several_functions_may_be_allowed() {
        let (own, _) = parse(&["--allow-uncovered=f,g", "--allow-uncovered=h"]).unwrap();
        assert_eq!(own.allowed, ["f", "g", "h"]);
    }
}
