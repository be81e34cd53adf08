//! Which hosts a task runs on, and which of its components.

use std::net::{IpAddr, ToSocketAddrs};

use super::{LaunchError, MOST_COMPONENTS};

/// A host that is to run components.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// As it is called to people, in channels' addresses and by the shell command.
    pub name: String,
    /// Where the other hosts reach it, if its name does not tell.
    pub address: Option<IpAddr>,
    /// How many components it gets, if not as many as the others.
    pub count: Option<u32>,
}

/// The text names no host.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{0:?} is no host: say NAME, NAME=ADDRESS, NAME:COUNT or NAME=ADDRESS:COUNT, with a name of letters, digits, `.`, `-` and \
     `_`, and IPv6 addresses in brackets"
)]
pub struct BadHost(String);

/// `NAME[=ADDRESS][:COUNT]`.
impl std::str::FromStr for Host {
    type Err = BadHost;

    fn from_str(text: &str) -> Result<Self, BadHost> {
        parse(text).ok_or_else(|| BadHost(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Host> {
    let count = |text: &str| text.parse().ok().filter(|&count: &u32| count > 0);
    let end = text.find(['=', ':']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    // A shell would take a name that begins so for an option.
    if name.is_empty() || !name.bytes().all(is_good) || name.starts_with('-') {
        return None;
    }
    let host = |address, count| Some(Host { name: name.to_owned(), address, count });
    if let Some(number) = rest.strip_prefix(':') {
        return host(None, Some(count(number)?));
    }
    let Some(place) = rest.strip_prefix('=') else { return host(None, None) };
    if let Some((address, rest)) = place.strip_prefix('[').and_then(|place| place.split_once(']')) {
        let number = match rest.strip_prefix(':') {
            None if rest.is_empty() => None,
            number => Some(count(number?)?),
        };
        return host(Some(IpAddr::V6(address.parse().ok()?)), number);
    }
    match place.split_once(':') {
        None => host(Some(IpAddr::V4(place.parse().ok()?)), None),
        Some((address, number)) => host(Some(IpAddr::V4(address.parse().ok()?)), Some(count(number)?)),
    }
}

/// One host's part: neighbouring ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Share {
    pub(super) host: String,
    pub(super) address: IpAddr,
    pub(super) first: u32,
    pub(super) count: u32,
}

/// Deals ranks to hosts, in blocks: by their counts, or evenly, more to the first ones. A host that would get none is left out.
pub(super) fn deal(hosts: &[Host], components: Option<u32>) -> Result<Vec<Share>, LaunchError> {
    let wrong = |reason: String| Err(LaunchError::Deal(reason));
    if let Some(twice) =
        hosts.iter().enumerate().find(|(at, host)| hosts[..*at].iter().any(|h| h.name == host.name))
    {
        return wrong(format!(
            "host {} is named twice: say how many components it gets: {0}:2",
            twice.1.name
        ));
    }
    let said: u64 = hosts.iter().filter_map(|host| host.count).map(u64::from).sum();
    let open = hosts.iter().filter(|host| host.count.is_none()).count() as u64;
    // One each for those that do not say, unless there is a number for all.
    let all = components.map_or(said + open, u64::from);
    if all < said || (open == 0 && all != said) {
        return wrong(format!(
            "{all} components over hosts that are to get {said}: leave one of the numbers out"
        ));
    }
    let count = u32::try_from(all).ok().filter(|count| (1..=MOST_COMPONENTS).contains(count));
    let Some(count) = count else { return Err(LaunchError::Count(u32::try_from(all).unwrap_or(u32::MAX))) };
    let (mut rest, mut open) =
        (count - u32::try_from(said).expect("less than all"), u32::try_from(open).unwrap_or(0));
    let (mut shares, mut first) = (Vec::new(), 0);
    for host in hosts {
        let count = host.count.unwrap_or_else(|| {
            let share = rest.div_ceil(open.max(1));
            (rest, open) = (rest - share, open - 1);
            share
        });
        if count > 0 {
            let address = address(host)?;
            shares.push(Share { host: host.name.clone(), address, first, count });
            first += count;
        }
    }
    Ok(shares)
}

fn address(host: &Host) -> Result<IpAddr, LaunchError> {
    if let Some(address) = host.address {
        return Ok(address);
    }
    let name = &host.name;
    let found = (name.as_str(), 0).to_socket_addrs().map_err(|error| error.to_string());
    let found = found.and_then(|mut found| found.next().ok_or_else(|| "it has none".to_owned()));
    found.map(|address| address.ip()).map_err(|error| {
        LaunchError::Deal(format!(
            "the address of host {name} is not known ({error}): say --hosts {name}=ADDRESS"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(text: &str) -> Vec<Host> {
        text.split(' ').map(|host| host.parse().unwrap()).collect()
    }

    #[test]
    fn hosts_are_read_as_people_write_them() {
        for (text, address, count) in [
            ("a-1.b_c", None, None),
            ("a-1.b_c:3", None, Some(3)),
            ("a-1.b_c=10.0.0.1", Some("10.0.0.1"), None),
            ("a-1.b_c=10.0.0.1:3", Some("10.0.0.1"), Some(3)),
            ("a-1.b_c=[fe80::1]", Some("fe80::1"), None),
            ("a-1.b_c=[fe80::1]:3", Some("fe80::1"), Some(3)),
        ] {
            let address = address.map(|address: &str| address.parse().unwrap());
            assert_eq!(text.parse(), Ok(Host { name: "a-1.b_c".into(), address, count }));
        }
        for text in [
            "",
            "=10.0.0.1",
            "-oProxy=1.1.1.1",
            "a b",
            "a:",
            "a:0",
            "a:x",
            "a=",
            "a=b",
            "a=fe80::1",
            "a=[1.1.1.1]",
            "a=[::1]3",
        ] {
            assert!(text.parse::<Host>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn components_are_dealt_in_blocks() {
        let dealt = |text: &str, components| {
            let shares = deal(&hosts(text), components).map_err(|error| error.to_string())?;
            Ok(shares.into_iter().map(|share| (share.host, share.first, share.count)).collect())
        };
        let share = |host: &str, first, count| (host.to_owned(), first, count);
        let (plain, counted) = ("a=10.0.0.1 b=10.0.0.2", "a=10.0.0.1:3 b=10.0.0.2");
        assert_eq!(dealt(plain, Some(4)), Ok(vec![share("a", 0, 2), share("b", 2, 2)]));
        assert_eq!(dealt(plain, Some(5)), Ok(vec![share("a", 0, 3), share("b", 3, 2)]));
        assert_eq!(dealt(plain, Some(1)), Ok(vec![share("a", 0, 1)]));
        assert_eq!(dealt(plain, None), Ok(vec![share("a", 0, 1), share("b", 1, 1)]));
        assert_eq!(dealt(counted, None), Ok(vec![share("a", 0, 3), share("b", 3, 1)]));
        assert_eq!(dealt(counted, Some(5)), Ok(vec![share("a", 0, 3), share("b", 3, 2)]));
        let fails = |text: &str, components| -> String {
            let dealt: Result<Vec<_>, String> = dealt(text, components);
            dealt.unwrap_err()
        };
        assert!(fails(counted, Some(2)).contains("are to get 3"));
        assert!(fails("a=10.0.0.1:3 b=10.0.0.2:1", Some(5)).contains("are to get 4"));
        assert!(fails("a=10.0.0.1 a=10.0.0.2", None).contains("named twice"));
        assert!(fails("a=10.0.0.1:4000", None).contains("4000 components"));
        assert!(fails("a=10.0.0.1:4000000000 b=10.0.0.2:4000000000", None).contains("components cannot be"));
    }
}
