//! Who may command an agent: its own user and root, and whom its owner has listed besides.

use std::collections::BTreeSet;

/// One entry of the list, as it is written: `alice`, `1000`, `beta:1000`, or `here`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Entry {
    /// This user, of this host and of all others.
    User(u32),
    /// This user of that host.
    Of(String, u32),
}

/// The list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Access {
    entries: BTreeSet<Entry>,
    /// Nobody of another host, but whom the list names with it.
    is_here_only: bool,
}

impl Access {
    /// Reads it: entries separated by commas. `USER` may command from every host of the comb, `HOST:USER` from that one. `here`: root
    /// and the agent's own user may from this host alone. Users are names of this host, or numbers; those of other hosts are numbers,
    /// by their agents' word.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut access = Self::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            match entry.rsplit_once(':') {
                _ if entry == "here" => access.is_here_only = true,
                Some((host, user)) if comb_net::hosts::KnownHosts::is_name(host) => {
                    access.entries.insert(Entry::Of(host.to_owned(), user_number(user)?));
                }
                Some((host, _)) => return Err(format!("{host:?} is no name of a host")),
                None => drop(access.entries.insert(Entry::User(user_number(entry)?))),
            }
        }
        Ok(access)
    }

    /// Whether anybody may besides the agent's user and root.
    pub fn is_for_others(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry, Entry::User(_)))
    }

    /// Whether a user may command; of another host, if one is named. A sentence if not.
    pub fn may(&self, host: Option<&str>, uid: u32) -> Result<(), String> {
        let own = rustix::process::geteuid().as_raw();
        let is_own = (uid == 0 || uid == own) && (host.is_none() || !self.is_here_only);
        let is_listed = self.entries.contains(&Entry::User(uid))
            || host.is_some_and(|host| self.entries.contains(&Entry::Of(host.to_owned(), uid)));
        if is_own || is_listed {
            return Ok(());
        }
        Err(match host {
            None => format!(
                "these cells belong to user {own}, not to you (`comb up --allow` lists who else may command)"
            ),
            Some(host) => {
                format!("user {uid} of host {host} may not command here (`comb up --allow` lists who may)")
            }
        })
    }
}

/// A user's number, by its name on this host.
fn user_number(user: &str) -> Result<u32, String> {
    if let Ok(number) = user.parse() {
        return Ok(number);
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let of = |line: &str| {
        let mut fields = line.split(':');
        (fields.next() == Some(user)).then(|| fields.nth(1)?.parse().ok()).flatten()
    };
    users.lines().find_map(of).ok_or_else(|| {
        format!("there is no user {user:?} on this host: say a name of /etc/passwd, or a number")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agents_user_and_root_may_and_whom_the_list_names() {
        let own = rustix::process::geteuid().as_raw();
        let (stranger, other) = (own + 71, own + 72);
        let nobody = Access::parse("").unwrap();
        for uid in [0, own] {
            assert!(nobody.may(None, uid).is_ok() && nobody.may(Some("beta"), uid).is_ok());
        }
        assert!(nobody.may(None, stranger).is_err() && !nobody.is_for_others());
        let listed = Access::parse(&format!("{stranger}, beta:{other}")).unwrap();
        assert!(listed.may(None, stranger).is_ok() && listed.may(Some("gamma"), stranger).is_ok());
        assert!(listed.may(Some("beta"), other).is_ok() && listed.is_for_others());
        for (host, uid) in [(None, other), (Some("gamma"), other), (Some("beta"), own + 73)] {
            assert!(listed.may(host, uid).is_err(), "{host:?} {uid}");
        }
    }

    #[test]
    fn who_trusts_no_other_host_says_so() {
        let here = Access::parse("here,beta:0").unwrap();
        assert!(here.may(None, 0).is_ok() && here.may(Some("beta"), 0).is_ok());
        let refused = here.may(Some("gamma"), 0).unwrap_err();
        assert!(refused.contains("gamma") && refused.contains("--allow"), "{refused}");
    }

    #[test]
    fn names_are_those_of_this_host() {
        assert_eq!(Access::parse("root"), Access::parse("0"));
        assert!(Access::parse("no such user").unwrap_err().contains("/etc/passwd"));
        assert!(Access::parse("a b:0").unwrap_err().contains("no name of a host"));
    }
}
