//! What can be configured: by a file, by the environment, by flags, or not at all.
//!
//! [`keys`] is the list of all there is, [`mod@file`] reads a file, [`show`] is `comb config`. A flag counts more than the environment, that
//! more than the file, and that more than the default.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::Args;
use comb_host::CombName;
use comb_net::agent::Limits;
use comb_net::mechanism::Mechanisms;

use crate::failure::{Failure, Kind};
use crate::output::GLOBAL;
use crate::suggest::did_you_mean;

mod environment;
mod file;
mod keys;
mod show;

pub(crate) use self::environment::adopt;
use self::keys::{Given, KEYS};
pub(crate) use self::show::Configuration;

/// Of every command.
#[derive(Debug, Default, Args)]
#[group(skip)]
pub(crate) struct Options {
    /// Which of your combs is meant, where there are several [default: the one without a name]
    #[arg(long = "name", id = "global_name", global = true, value_name = "NAME", help_heading = GLOBAL)]
    name: Option<CombName>,
    /// The configuration file [default: $COMB_CONFIG, else ~/.config/comb/config.toml, else /etc/comb/config.toml]
    #[arg(long = "config", id = "global_config", global = true, value_name = "FILE", help_heading = GLOBAL)]
    config: Option<PathBuf>,
}

/// What is in effect.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Config {
    /// Which of this user's combs.
    pub(crate) name: Option<CombName>,
    /// How many cells `comb up` starts.
    pub(crate) cells: u32,
    /// Bytes of memory of each cell.
    pub(crate) memory: Option<u64>,
    /// What of the kernel is done without.
    pub(crate) without: Mechanisms,
    /// What a process may hold at the agent.
    pub(crate) limits: Limits,
    pub(crate) dashboard: Dashboard,
    pub(crate) metrics: Metrics,
    pub(crate) hosts: Hosts,
    pub(crate) run: Run,
    /// Bytes of memory of all virtual machines together, of those whose memory comes and goes.
    pub(crate) vm_memory: Option<u64>,
    /// Of each key that is not as it would be by default.
    sources: BTreeMap<&'static str, Source>,
    /// The file that was read.
    pub(crate) file: Option<PathBuf>,
}

/// What people look at.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Dashboard {
    pub(crate) enabled: bool,
    pub(crate) listen: SocketAddr,
}

/// What monitoring asks.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Metrics {
    /// None: nobody can ask.
    pub(crate) listen: Option<SocketAddr>,
}

/// Several hosts as one comb.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Hosts {
    /// None: the machine's own name.
    pub(crate) name: Option<String>,
    pub(crate) listen: SocketAddr,
    pub(crate) allow: Vec<User>,
}

/// Who may command the cells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum User {
    Name(String),
    Number(u32),
}

/// `comb run` on other hosts.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Run {
    pub(crate) shell: Option<String>,
    pub(crate) comb: Option<PathBuf>,
}

/// Where a value is from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Default,
    File { path: PathBuf, line: usize },
    Environment(&'static str),
    Flag(&'static str),
}

impl Source {
    fn word(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File { .. } => "file",
            Self::Environment(_) => "environment",
            Self::Flag(_) => "flag",
        }
    }

    /// More exactly.
    fn place(&self) -> Option<String> {
        match self {
            Self::Default => None,
            Self::File { path, line } => Some(format!("{}:{line}", path.display())),
            Self::Environment(variable) => Some((*variable).to_owned()),
            Self::Flag(flag) => Some((*flag).to_owned()),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place().unwrap_or_else(|| self.word().to_owned()))
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: None,
            cells: 4,
            memory: None,
            without: Mechanisms::default(),
            limits: Limits::default(),
            dashboard: Dashboard { enabled: true, listen: (Ipv4Addr::LOCALHOST, 0).into() },
            metrics: Metrics { listen: None },
            hosts: Hosts { name: None, listen: (Ipv4Addr::UNSPECIFIED, 7170).into(), allow: Vec::new() },
            run: Run::default(),
            vm_memory: None,
            sources: BTreeMap::new(),
            file: None,
        }
    }
}

impl Config {
    /// Reads all that there is.
    pub(crate) fn read(options: &Options) -> Result<Self, Failure> {
        let mut config = Self::default();
        if let Some(path) = path(options, |variable| std::env::var_os(variable))? {
            config.read_file(&path)?;
        }
        config.read_environment(|variable| std::env::var_os(variable))?;
        if let Some(name) = &options.name {
            config.name = Some(name.clone());
            config.sources.insert("name", Source::Flag("--name"));
        }
        Ok(config)
    }

    /// Who may command besides the agent's user, as the agent is told; none: nobody but root.
    pub(crate) fn allowed(&self) -> Option<String> {
        let users = self.hosts.allow.iter().map(|user| match user {
            User::Name(name) => name.clone(),
            User::Number(number) => number.to_string(),
        });
        let users: Vec<String> = users.collect();
        (!users.is_empty()).then(|| users.join(","))
    }

    /// Where the value of a key is from.
    pub(crate) fn source(&self, key: &str) -> Source {
        self.sources.get(key).cloned().unwrap_or(Source::Default)
    }

    fn read_file(&mut self, path: &Path) -> Result<(), Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let kind = match error.kind() {
                std::io::ErrorKind::PermissionDenied => Kind::Refused,
                _ => Kind::Usage,
            };
            Failure::of(kind, format!("cannot read the configuration in {}: {error}", path.display()))
        })?;
        self.read_text(&text, path)
    }

    fn read_text(&mut self, text: &str, path: &Path) -> Result<(), Failure> {
        let found = file::parse(text).map_err(|problem| problem.tell(text, path))?;
        for found in found {
            (found.key.set)(self, &found.given)
                .map_err(|why| file::Problem { span: found.span.clone(), why }.tell(text, path))?;
            let line = file::line_of(text, found.span.start);
            self.sources.insert(found.key.name, Source::File { path: path.to_owned(), line });
        }
        self.file = Some(path.to_owned());
        Ok(())
    }

    fn read_environment(&mut self, variable: impl Fn(&str) -> Option<OsString>) -> Result<(), Failure> {
        for key in KEYS.iter().filter(|key| key.variable != keys::LIMITS_VARIABLE) {
            let Some(value) = variable(key.variable).filter(|value| !value.is_empty()) else { continue };
            let text = value.to_string_lossy().into_owned();
            (key.set)(self, &Given::Text(text.clone()))
                .map_err(|why| Failure::usage(format!("{}={text}: {why}", key.variable)))?;
            self.sources.insert(key.name, Source::Environment(key.variable));
        }
        let limits = variable(keys::LIMITS_VARIABLE).unwrap_or_default();
        self.read_limits(&limits.to_string_lossy())
    }

    /// As `comb up --limits` has them: those that are not said stay.
    fn read_limits(&mut self, text: &str) -> Result<(), Failure> {
        let variable = keys::LIMITS_VARIABLE;
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let wrong = |why: String| Failure::usage(format!("{variable}={text}: {why}"));
            let (name, value) =
                part.split_once('=').ok_or_else(|| wrong(format!("{part:?} is no KEY=NUMBER")))?;
            let limits = || KEYS.iter().filter(|key| key.variable == variable);
            let short = |key: &keys::Key| key.name.trim_start_matches("limits.");
            let key = limits().find(|key| short(key) == name).ok_or_else(|| {
                let names: Vec<&str> = limits().map(short).collect();
                let meant = did_you_mean(name, names.iter().copied());
                wrong(format!("there is no limit {name}{meant} There are {}", names.join(", ")))
            })?;
            (key.set)(self, &Given::Text(value.to_owned())).map_err(wrong)?;
            self.sources.insert(key.name, Source::Environment(variable));
        }
        Ok(())
    }

    /// The limits in effect as one `--limits` says them; those of a flag count more.
    pub(crate) fn limits_with(&self, flag: Option<&str>) -> String {
        let Limits { endpoints, channels, memory_bytes, connections, connections_per_user } = self.limits;
        let ours = format!(
            "endpoints={endpoints},channels={channels},memory_bytes={memory_bytes},connections={connections},\
             connections_per_user={connections_per_user}"
        );
        // The last word on a key counts.
        flag.map_or_else(|| ours.clone(), |flag| format!("{ours},{flag}"))
    }
}

/// The file that is to be read. One that is asked for has to be there.
fn path(options: &Options, variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<PathBuf>, Failure> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = &options.config {
        return Ok(Some(std::path::absolute(path)?));
    }
    if let Some(path) = set("COMB_CONFIG") {
        return Ok(Some(std::path::absolute(path)?));
    }
    let of_user = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    let known = of_user.map(|directory| directory.join("comb/config.toml"));
    let known = known.into_iter().chain([PathBuf::from("/etc/comb/config.toml")]);
    // One that cannot be looked at is read, and that says why not.
    let is_there = |path: &PathBuf| match path.symlink_metadata() {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    };
    Ok(known.into_iter().find(is_there))
}

#[cfg(test)]
mod tests {
    use comb_net::mechanism::Mechanism;

    use super::*;

    fn read(text: &str) -> Result<Config, String> {
        let mut config = Config::default();
        config.read_text(text, Path::new("/c.toml")).map_err(|failure| failure.to_string())?;
        Ok(config)
    }

    #[test]
    fn all_keys_are_read() {
        let config = read(
            "name = 'b'\ncells = 8\nmemory = '1G'\nwithout = ['af_xdp', \"cgroups\"]\n\
             [limits]\nchannels = 16\nmemory_bytes = '4G'\n\
             [dashboard]\nenabled = false\nlisten = '[::1]:80'\n[metrics]\nlisten = '127.0.0.1:9100'\n\
             [hosts]\nname = 'left'\nlisten = '10.0.0.1:7170'\nallow = ['ann', 1000, '7']\n\
             [run]\nshell = 'rsh {host}'\ncomb = '/opt/comb'\n",
        )
        .unwrap();
        assert_eq!(config.name.as_ref().map(ToString::to_string).as_deref(), Some("b"));
        assert_eq!((config.cells, config.memory), (8, Some(1 << 30)));
        let without: Vec<Mechanism> = config.without.iter().collect();
        assert_eq!(without, [Mechanism::AfXdp, Mechanism::Cgroups]);
        assert_eq!((config.limits.channels, config.limits.memory_bytes), (16, 4 << 30));
        assert_eq!(config.limits.endpoints, Limits::default().endpoints);
        assert!(!config.dashboard.enabled && config.dashboard.listen.is_ipv6());
        assert_eq!(config.metrics.listen.unwrap().port(), 9100);
        let allowed = [User::Name("ann".into()), User::Number(1000), User::Number(7)];
        assert_eq!(config.hosts.allow, allowed);
        assert_eq!(config.run.shell.as_deref(), Some("rsh {host}"));
        assert_eq!(config.source("limits.channels").place().as_deref(), Some("/c.toml:6"));
        assert_eq!(config.source("limits.endpoints"), Source::Default);
        assert_eq!(config.sources.len(), 14, "each of them has a source");
    }

    #[test]
    fn the_environment_counts_more_than_the_file() {
        let mut config = read("cells = 8\nname = 'file'\n[limits]\nchannels = 16\nendpoints = 5").unwrap();
        let variables = [("COMB_CELLS", "2"), ("COMB_LIMITS", "channels=7"), ("COMB_DASHBOARD", "false")];
        let variable = |name: &str| Some(variables.iter().find(|(known, _)| *known == name)?.1.into());
        config.read_environment(variable).unwrap();
        assert_eq!((config.cells, config.limits.channels, config.limits.endpoints), (2, 7, 5));
        assert!(!config.dashboard.enabled);
        assert_eq!(config.source("cells"), Source::Environment("COMB_CELLS"));
        assert_eq!(config.source("name").word(), "file");
        let all: Limits = config.limits_with(Some("channels=9")).parse().unwrap();
        assert_eq!((all.channels, all.endpoints), (9, 5));
    }

    #[test]
    fn wrong_variables_are_named() {
        let say = |name: &'static str, value: &'static str| {
            let variable = move |asked: &str| (asked == name).then(|| value.into());
            Config::default().read_environment(variable).unwrap_err().to_string()
        };
        assert!(say("COMB_CELLS", "many").starts_with("COMB_CELLS=many: "));
        assert!(say("COMB_WITHOUT", "membarier").contains("did you mean membarrier?"));
        assert!(say("COMB_LIMITS", "chanels=3").contains("did you mean channels?"));
        assert!(say("COMB_NAME", "a/b").contains("no name for a comb"));
    }

    #[test]
    fn the_first_file_that_is_there_is_read() {
        let directory = std::env::temp_dir().join(format!("comb-config-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("comb")).unwrap();
        let file = directory.join("comb/config.toml");
        std::fs::write(&file, "").unwrap();
        let home = |name: &str| (name == "XDG_CONFIG_HOME").then(|| directory.clone().into_os_string());
        assert_eq!(path(&Options::default(), home).unwrap(), Some(file));
        let said = |name: &str| (name == "COMB_CONFIG").then(|| "/no/such".into());
        assert_eq!(path(&Options::default(), said).unwrap(), Some("/no/such".into()));
        let flag = Options { config: Some("/flag".into()), ..Options::default() };
        assert_eq!(path(&flag, said).unwrap(), Some("/flag".into()));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
