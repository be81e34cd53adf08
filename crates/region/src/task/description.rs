//! What a component is told of its task by whoever started it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The environment variable that holds a [`Description`], as JSON.
pub const TASK_VARIABLE: &str = "COMB_TASK";

/// Of [`Description`]. Launcher and component are of neighbouring builds, or this number tells.
pub const DESCRIPTION_VERSION: u32 = 1;

/// A task, as one of its components is to know it. The launcher writes it, and the kernel hands it over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Description {
    /// Of this format: [`DESCRIPTION_VERSION`].
    pub version: u32,
    /// The task's name, such as `run-4711`. A component's process is called [`Description::process`] at its agent.
    pub name: String,
    /// Which component this is.
    pub rank: u32,
    /// The socket of the agent on this host.
    pub agent: PathBuf,
    /// All components, by rank.
    pub components: Vec<Component>,
    /// How components of one host come to each other's memory.
    pub share: Share,
    /// An inherited descriptor: the page frames that the components of this host share. It stays open in programs that the
    /// component executes, unless it sets `FD_CLOEXEC`.
    pub frames: Option<i32>,
    /// The most that each component may keep of memory homed in it, in bytes; 0 is no limit.
    pub memory_bytes: u64,
    /// The most that each component keeps of copies of others' memory, in bytes; 0 is no limit.
    #[serde(default)]
    pub copies_bytes: u64,
    /// Where the task's checkpoints are.
    pub checkpoint: Option<Checkpoint>,
    /// Where threads begin of a program that was compiled to have them in all components.
    #[serde(default)]
    pub spread: Spread,
    /// An inherited descriptor: the file into which this component writes where its memory traffic comes from. Without it nothing of
    /// that is recorded.
    #[serde(default)]
    pub report: Option<i32>,
}

/// One of a task's processes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Component {
    /// Its host, as agents know it. Equal names are one machine.
    pub host: String,
}

/// How components of one host come to each other's memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Share {
    /// By the fastest way that there is.
    #[default]
    Auto,
    /// By copies, as if they were on several hosts.
    Copy,
}

/// In which components the threads of a program begin.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Spread {
    /// One after the other, in component after component.
    #[default]
    RoundRobin,
    /// In that of the thread that makes them.
    Home,
    /// So many in each, before the next gets any; when all have as many, from the first again.
    Fill(u32),
}

impl Spread {
    /// As comb_program.h has it.
    pub fn number(self) -> u32 {
        match self {
            Self::RoundRobin => 0,
            Self::Home => 1,
            Self::Fill(threads) => threads.max(1).saturating_add(1),
        }
    }
}

/// `round-robin`, `home` or `fill:N`.
impl std::str::FromStr for Spread {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, text.strip_prefix("fill:")) {
            ("round-robin", _) => Ok(Self::RoundRobin),
            ("home", _) => Ok(Self::Home),
            (_, Some(threads)) => match threads.parse() {
                Ok(threads @ 1..=1_000_000) => Ok(Self::Fill(threads)),
                _ => Err("say how many threads each component gets, at least 1: fill:4"),
            },
            _ => Err("say round-robin, home, or fill:4 for four threads to each component"),
        }
    }
}

/// Where a task's checkpoints are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The directory, the same for all components. Absolute.
    pub directory: PathBuf,
    /// Whether the task goes on from the last one that is there.
    pub restores: bool,
}

/// Why there is no description of a task.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// Nobody started this process as a component.
    #[error("this process is no component of a task: start it by `comb run -n 2 -- PROGRAM`")]
    Missing,
    /// Whoever started it wrote something else.
    #[error("{TASK_VARIABLE} is no description of a task ({0}): only `comb run` sets it")]
    Malformed(String),
    /// Of another version.
    #[error(
        "{TASK_VARIABLE} has version {found}, and this program understands {DESCRIPTION_VERSION}: \
         build the program and `comb` from the same release"
    )]
    Version {
        /// What was found.
        found: u32,
    },
}

impl Description {
    /// What this process was told when it was started.
    pub fn from_environment() -> Result<Self, DescriptionError> {
        let text = std::env::var_os(TASK_VARIABLE).ok_or(DescriptionError::Missing)?;
        Self::parse(text.to_str().ok_or_else(|| DescriptionError::Malformed("not UTF-8".into()))?)
    }

    /// Reads one. What other parts rely on holds of it: this component is one of those that it names.
    pub fn parse(text: &str) -> Result<Self, DescriptionError> {
        /// Read alone and first: what comes with another version may be anything.
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let malformed = |reason: String| DescriptionError::Malformed(reason);
        let Versioned { version } =
            serde_json::from_str(text).map_err(|error| malformed(error.to_string()))?;
        if version != DESCRIPTION_VERSION {
            return Err(DescriptionError::Version { found: version });
        }
        let description: Self = serde_json::from_str(text).map_err(|error| malformed(error.to_string()))?;
        let count = description.components.len();
        if description.rank as usize >= count {
            return Err(malformed(format!("rank {} of {count}", description.rank)));
        }
        Ok(description)
    }

    /// What a component's process is called at its agent.
    pub fn process(&self, rank: u32) -> String {
        format!("{}.{rank}", self.name)
    }

    /// Where this component finds an endpoint of another.
    ///
    /// # Panics
    ///
    /// There is no component of that rank.
    pub fn address(&self, rank: u32, endpoint: &str) -> String {
        let here = format!("{}/{endpoint}", self.process(rank));
        if self.is_here(rank) { here } else { format!("{}:{here}", self.components[rank as usize].host) }
    }

    /// On how many hosts the components are.
    pub fn hosts(&self) -> u32 {
        let names: std::collections::BTreeSet<&str> =
            self.components.iter().map(|component| component.host.as_str()).collect();
        u32::try_from(names.len()).expect("at most as many as ranks")
    }

    /// Whether a component is on the host of this one.
    ///
    /// # Panics
    ///
    /// There is no component of that rank.
    pub fn is_here(&self, rank: u32) -> bool {
        self.components[rank as usize].host == self.components[self.rank as usize].host
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description() -> Description {
        let component = |host: &str| Component { host: host.to_owned() };
        Description {
            version: DESCRIPTION_VERSION,
            name: "run-7".into(),
            rank: 1,
            agent: "/tmp/agent.sock".into(),
            components: vec![component("a"), component("a"), component("b")],
            share: Share::Auto,
            frames: Some(5),
            memory_bytes: 0,
            copies_bytes: 0,
            checkpoint: Some(Checkpoint { directory: "/c".into(), restores: true }),
            spread: Spread::default(),
            report: None,
        }
    }

    #[test]
    fn a_description_is_read_as_it_was_written() {
        let text = serde_json::to_string(&description()).unwrap();
        assert_eq!(Description::parse(&text).unwrap(), description());
    }

    /// An older launcher's, written down: a change that it would not survive needs a new version.
    #[test]
    fn a_recorded_description_is_read() {
        let text = r#"{"version":1,"name":"run-7","rank":1,"agent":"/tmp/agent.sock",
            "components":[{"host":"a"},{"host":"a"},{"host":"b"}],"share":"Auto","frames":5,"memory_bytes":0,
            "checkpoint":{"directory":"/c","restores":true}}"#;
        assert_eq!(Description::parse(text).unwrap(), description());
    }

    #[test]
    fn what_is_no_description_is_refused_with_the_reason() {
        let outside = Description { rank: 3, ..description() };
        let outside = serde_json::to_string(&outside).unwrap();
        for (text, words) in [
            ("", "is no description"),
            ("{}", "missing field `version`"),
            (r#"{"version":2,"shape":"other"}"#, "has version 2"),
            (r#"{"version":1}"#, "missing field"),
            (&outside, "rank 3 of 3"),
        ] {
            let error = Description::parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn a_spread_is_read_as_people_write_it_and_has_a_number() {
        let read = |text: &str| text.parse::<Spread>().map(|spread| (spread, spread.number()));
        assert_eq!(read("round-robin"), Ok((Spread::RoundRobin, 0)));
        assert_eq!(read("home"), Ok((Spread::Home, 1)));
        assert_eq!(read("fill:1"), Ok((Spread::Fill(1), 2)));
        assert_eq!(read("fill:8"), Ok((Spread::Fill(8), 9)));
        assert!(["", "fill", "fill:", "fill:0", "fill:-1", "Home"].iter().all(|text| read(text).is_err()));
    }

    #[test]
    fn a_peer_is_found_on_its_host() {
        let description = description();
        assert_eq!(description.hosts(), 2);
        assert_eq!(description.address(0, "memory"), "run-7.0/memory");
        assert_eq!(description.address(2, "memory"), "b:run-7.2/memory");
    }
}
