//! All that can be configured, a row each: the file, the environment, `comb config` and its checks go by this list.

use std::net::SocketAddr;
use std::path::Path;

use comb_host::MOST_CELLS;
use comb_net::agent::Limits;
use comb_net::mechanism::{Mechanism, Mechanisms};
use serde_json::{Value, json};

use super::{Config, User};
use crate::suggest::did_you_mean;

/// All limits in one.
pub(super) const LIMITS_VARIABLE: &str = "COMB_LIMITS";

/// What somebody has written.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Given {
    Text(String),
    Number(i64),
    Truth(bool),
    List(Vec<Given>),
    /// What no key wants, such as a date.
    Other(&'static str),
}

/// A key.
pub(super) struct Key {
    /// With its table, such as `dashboard.listen`.
    pub(super) name: &'static str,
    pub(super) variable: &'static str,
    /// A few words about it.
    pub(super) about: &'static str,
    /// The error is the end of a sentence that says what it has to be.
    pub(super) set: fn(&mut Config, &Given) -> Result<(), String>,
    /// None: it is not set.
    pub(super) get: fn(&Config) -> Option<Value>,
}

macro_rules! limit {
    ($field:ident, $name:literal, $about:literal) => {
        Key {
            name: $name,
            variable: LIMITS_VARIABLE,
            about: $about,
            set: |config, given| {
                let value = text(given).ok_or_else(|| {
                    wants(concat!($name, " is a number, at least 1; bytes may end in K, M or G"), given)
                })?;
                let limits: Limits = format!("{}={value}", stringify!($field)).parse().map_err(|_| {
                    wants(concat!($name, " is a number, at least 1; bytes may end in K, M or G"), given)
                })?;
                config.limits.$field = limits.$field;
                Ok(())
            },
            get: |config| Some(json!(config.limits.$field)),
        }
    };
}

/// Those without a table first, as a file has them.
pub(super) const KEYS: &[Key] = &[
    Key {
        name: "name",
        variable: "COMB_NAME",
        about: "which of your combs",
        set: |config, given| {
            let Given::Text(name) = given else {
                return Err(wants("name is a text such as \"night\"", given));
            };
            config.name = Some(name.parse().map_err(|error: comb_host::BadName| error.to_string())?);
            Ok(())
        },
        get: |config| Some(json!(config.name.as_ref()?.to_string())),
    },
    Key {
        name: "cells",
        variable: "COMB_CELLS",
        about: "how many cells comb up starts",
        set: |config, given| {
            let cells = text(given).and_then(|text| text.parse().ok());
            let cells = cells.filter(|cells| (1..=MOST_CELLS).contains(cells));
            config.cells =
                cells.ok_or_else(|| wants(&format!("cells is a number from 1 to {MOST_CELLS}"), given))?;
            Ok(())
        },
        get: |config| Some(json!(config.cells)),
    },
    Key {
        name: "memory",
        variable: "COMB_MEMORY",
        about: "bytes of each cell for regions",
        set: |config, given| {
            let bytes = text(given).and_then(|text| crate::run::memory(&text).ok());
            let wanted = "memory is a number of bytes, at least 1, or a text such as \"512M\" or \"4G\"";
            config.memory = Some(bytes.ok_or_else(|| wants(wanted, given))?);
            Ok(())
        },
        get: |config| Some(json!(config.memory?)),
    },
    Key {
        name: "without",
        variable: "COMB_WITHOUT",
        about: "mechanisms of the kernel to do without",
        set: |config, given| {
            let list = match given {
                Given::Text(list) => list.clone(),
                Given::List(names) => texts(names)
                    .ok_or_else(|| wants("without is a list of mechanisms' names", given))?
                    .join(","),
                _ => return Err(wants("without is a list of mechanisms' names, or \"all\"", given)),
            };
            config.without = mechanisms(&list)?;
            Ok(())
        },
        get: |config| Some(json!(config.without.iter().map(Mechanism::name).collect::<Vec<_>>())),
    },
    limit!(endpoints, "limits.endpoints", "of one process"),
    limit!(channels, "limits.channels", "of one process"),
    limit!(memory_bytes, "limits.memory_bytes", "that one process hands to others"),
    limit!(connections, "limits.connections", "of all processes"),
    limit!(connections_per_user, "limits.connections_per_user", "of one user's processes"),
    Key {
        name: "dashboard.enabled",
        variable: "COMB_DASHBOARD",
        about: "whether there is a dashboard",
        set: |config, given| {
            config.dashboard.enabled = match given {
                Given::Truth(truth) => *truth,
                Given::Text(text) if text == "true" || text == "false" => text == "true",
                _ => return Err(wants("dashboard.enabled is true or false", given)),
            };
            Ok(())
        },
        get: |config| Some(json!(config.dashboard.enabled)),
    },
    Key {
        name: "dashboard.listen",
        variable: "COMB_DASHBOARD_LISTEN",
        about: "where; port 0: any",
        set: |config, given| {
            config.dashboard.listen = address("dashboard.listen", given)?;
            Ok(())
        },
        get: |config| Some(json!(config.dashboard.listen.to_string())),
    },
    Key {
        name: "metrics.listen",
        variable: "COMB_METRICS",
        about: "where monitoring asks; not set: nowhere",
        set: |config, given| {
            config.metrics.listen = Some(address("metrics.listen", given)?);
            Ok(())
        },
        get: |config| Some(json!(config.metrics.listen?.to_string())),
    },
    Key {
        name: "hosts.name",
        variable: "COMB_HOSTS_NAME",
        about: "of this host; not set: the machine's",
        set: |config, given| {
            config.hosts.name = Some(word("hosts.name", given)?);
            Ok(())
        },
        get: |config| Some(json!(config.hosts.name.as_ref()?)),
    },
    Key {
        name: "hosts.listen",
        variable: "COMB_HOSTS_LISTEN",
        about: "where other hosts reach this one",
        set: |config, given| {
            config.hosts.listen = address("hosts.listen", given)?;
            Ok(())
        },
        get: |config| Some(json!(config.hosts.listen.to_string())),
    },
    Key {
        name: "hosts.allow",
        variable: "COMB_HOSTS_ALLOW",
        about: "users, by name or number",
        set: |config, given| {
            let wanted = "hosts.allow is a list of users' names or numbers, such as [\"ann\", 1000]";
            config.hosts.allow = users(given).ok_or_else(|| wants(wanted, given))?;
            Ok(())
        },
        get: |config| {
            let user = |user: &User| match user {
                User::Name(name) => json!(name),
                User::Number(number) => json!(number),
            };
            Some(config.hosts.allow.iter().map(user).collect())
        },
    },
    Key {
        name: "run.shell",
        variable: "COMB_RUN_SHELL",
        about: "what runs a command on another host",
        set: |config, given| {
            config.run.shell = Some(word("run.shell", given)?);
            Ok(())
        },
        get: |config| Some(json!(config.run.shell.as_ref()?)),
    },
    Key {
        name: "run.comb",
        variable: "COMB_RUN_COMB",
        about: "where comb is on other hosts",
        set: |config, given| {
            config.run.comb = Some(word("run.comb", given)?.into());
            Ok(())
        },
        get: |config| Some(json!(config.run.comb.as_deref().map(Path::to_string_lossy)?)),
    },
    Key {
        name: "vm.memory",
        variable: "COMB_VM_MEMORY",
        about: "bytes of all virtual machines together; not set: what the host can give",
        set: |config, given| {
            let bytes = text(given).and_then(|text| crate::run::memory(&text).ok());
            let wanted = "vm.memory is a number of bytes, at least 1, or a text such as \"8G\"";
            config.vm_memory = Some(bytes.ok_or_else(|| wants(wanted, given))?);
            Ok(())
        },
        get: |config| Some(json!(config.vm_memory?)),
    },
];

/// The key of that name; else the end of a sentence about it.
pub(super) fn find(name: &str) -> Result<&'static Key, String> {
    KEYS.iter().find(|key| key.name == name).ok_or_else(|| {
        let in_table = name.rsplit_once('.').map_or("", |(table, _)| table);
        let siblings: Vec<&str> =
            KEYS.iter().map(|key| key.name).filter(|key| table_of(key) == in_table).collect();
        let meant = did_you_mean(name, KEYS.iter().map(|key| key.name));
        let meant = if meant.is_empty() { ".".to_owned() } else { meant };
        if siblings.is_empty() {
            let tables = tables();
            let meant_table = did_you_mean(in_table, tables.iter().copied());
            let meant = if meant_table.is_empty() { meant } else { meant_table };
            return format!("there is no key {name}{meant} Tables are {}", tables.join(", "));
        }
        format!("there is no key {name}{meant} There are {}", siblings.join(", "))
    })
}

/// The table that a key is in; none is the empty name.
pub(super) fn table_of(key: &str) -> &str {
    key.rsplit_once('.').map_or("", |(table, _)| table)
}

/// All tables, in order.
pub(super) fn tables() -> Vec<&'static str> {
    let mut tables: Vec<&str> = KEYS.iter().map(|key| table_of(key.name)).filter(|t| !t.is_empty()).collect();
    tables.dedup();
    tables
}

fn wants(what: &str, given: &Given) -> String {
    let given = match given {
        Given::Text(text) => format!("{text:?}"),
        Given::Number(number) => number.to_string(),
        Given::Truth(truth) => truth.to_string(),
        Given::List(_) => "that list".to_owned(),
        Given::Other(what) => (*what).to_owned(),
    };
    format!("{what}; not {given}")
}

/// Numbers may be written as texts: they are in the environment.
fn text(given: &Given) -> Option<String> {
    match given {
        Given::Text(text) => Some(text.clone()),
        Given::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn texts(list: &[Given]) -> Option<Vec<String>> {
    let text = |given: &Given| if let Given::Text(text) = given { Some(text.clone()) } else { None };
    list.iter().map(text).collect()
}

fn word(key: &str, given: &Given) -> Result<String, String> {
    match given {
        Given::Text(text) if !text.is_empty() => Ok(text.clone()),
        _ => Err(wants(&format!("{key} is a text"), given)),
    }
}

fn address(key: &str, given: &Given) -> Result<SocketAddr, String> {
    let address = if let Given::Text(text) = given { text.parse().ok() } else { None };
    address.ok_or_else(|| {
        wants(&format!("{key} is an address and a port such as \"127.0.0.1:7170\" or \"[::1]:0\""), given)
    })
}

fn users(given: &Given) -> Option<Vec<User>> {
    let named = |text: &str| match text.parse() {
        Ok(number) => User::Number(number),
        Err(_) => User::Name(text.to_owned()),
    };
    let user = |given: &Given| match given {
        Given::Text(text) if !text.is_empty() => Some(named(text)),
        Given::Number(number) => u32::try_from(*number).ok().map(User::Number),
        _ => None,
    };
    match given {
        Given::List(list) => list.iter().map(user).collect(),
        Given::Text(text) => {
            Some(text.split(',').map(str::trim).filter(|user| !user.is_empty()).map(named).collect())
        }
        _ => None,
    }
}

fn mechanisms(list: &str) -> Result<Mechanisms, String> {
    Mechanisms::parse(list).map_err(|unknown| {
        let names: Vec<&str> = Mechanism::ALL.into_iter().map(Mechanism::name).chain(["all"]).collect();
        let meant = did_you_mean(unknown.0, names.iter().copied());
        let meant = if meant.is_empty() { ".".to_owned() } else { meant };
        format!("{:?} is no mechanism{meant} There are {}", unknown.0, names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_key_says_of_itself_sets_it_again() {
        fn given(value: &Value) -> Given {
            match value {
                Value::String(text) => Given::Text(text.clone()),
                Value::Number(number) => Given::Number(number.as_i64().unwrap()),
                Value::Bool(truth) => Given::Truth(*truth),
                Value::Array(list) => Given::List(list.iter().map(given).collect()),
                other => panic!("{other}"),
            }
        }
        for key in KEYS {
            let Some(value) = (key.get)(&Config::default()) else { continue };
            let mut config = Config::default();
            (key.set)(&mut config, &given(&value)).unwrap();
            assert_eq!(config, Config::default(), "{}", key.name);
        }
    }

    #[test]
    fn names_are_each_of_one_key_and_tables_are_in_one_piece() {
        let mut names: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KEYS.len());
        assert_eq!(tables(), ["limits", "dashboard", "metrics", "hosts", "run", "vm"]);
    }

    #[test]
    fn a_misspelt_key_is_answered_with_the_one_that_was_meant() {
        let say = |name: &str| find(name).err().unwrap();
        assert!(say("cels").contains("did you mean cells?"));
        assert!(say("dashbord.listen").contains("did you mean dashboard?"));
        assert!(say("dashboard.lisen").contains("did you mean dashboard.listen?"));
        assert!(say("colour").contains("There are name, cells, memory, without"));
    }
}
