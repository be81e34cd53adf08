//! Tokens: what lets a host in whose key nobody knows yet.
//!
//! A token names where to go, whose key is to be there, and a secret. Who has it connects, sees that the key is the one, and only
//! then says the secret: so nobody in between hears it. The agent keeps the secret's hash, how long it counts and how often.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use comb_net::hosts::PublicKey;
use ring::digest;
use ring::rand::{SecureRandom, SystemRandom};

/// Of the form of a token.
const VERSION: u32 = 1;
const SECRET_BYTES: usize = 16;
/// More are not open at one time: the oldest is not good any more.
const MOST_TOKENS: usize = 64;

/// A token, as it is handed from person to person: one word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    /// Where the agent listens.
    pub address: SocketAddr,
    /// The key that is to be there.
    pub key: PublicKey,
    /// What it wants to hear.
    pub secret: String,
}

/// What every public key begins with.
const KEY_PREFIX: &str = "ed25519:";

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = self.key.to_string();
        let digits = key.strip_prefix(KEY_PREFIX).unwrap_or(&key);
        write!(f, "comb-{VERSION}:{}:{digits}:{}", self.address, self.secret)
    }
}

impl std::str::FromStr for Token {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "that is no token: `comb token` on a host of the comb prints one, of the form comb-1:ADDRESS:PORT:KEY:SECRET".to_owned()
        };
        let (version, rest) =
            text.trim().strip_prefix("comb-").and_then(|rest| rest.split_once(':')).ok_or_else(wrong)?;
        if version.parse() != Ok(VERSION) {
            return Err(format!(
                "the token is of version {version}, and this `comb` reads {VERSION}: upgrade the older one"
            ));
        }
        let (rest, secret) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let (address, key) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let is_secret =
            secret.len() == 2 * SECRET_BYTES && secret.bytes().all(|byte| byte.is_ascii_hexdigit());
        let key = format!("{KEY_PREFIX}{key}").parse().map_err(|_| wrong())?;
        let address = address.parse().map_err(|_| wrong())?;
        if is_secret { Ok(Self { address, key, secret: secret.to_owned() }) } else { Err(wrong()) }
    }
}

/// One that is open.
#[derive(Debug)]
struct Open {
    hash: digest::Digest,
    until: Instant,
    uses: u32,
}

/// Those that an agent has given.
#[derive(Debug, Default)]
pub struct Tokens {
    open: Vec<Open>,
}

fn hash(secret: &str) -> digest::Digest {
    digest::digest(&digest::SHA256, secret.as_bytes())
}

impl Tokens {
    /// A new secret, which counts for so long and so often.
    pub fn make(&mut self, now: Instant, ttl: Duration, uses: u32) -> String {
        let mut secret = [0_u8; SECRET_BYTES];
        SystemRandom::new().fill(&mut secret).expect("the operating system gives randomness");
        let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        self.open.retain(|open| open.until > now);
        self.open.drain(..(self.open.len() + 1).saturating_sub(MOST_TOKENS));
        // Beyond what a clock counts is for ever.
        let until = now.checked_add(ttl).unwrap_or_else(|| now + Duration::from_secs(1 << 30));
        self.open.push(Open { hash: hash(&secret), until, uses });
        secret
    }

    /// Whether a secret opens the door now. What is used up and what is over is kept as such for a while, so that it can be said.
    pub fn check(&self, now: Instant, secret: &str) -> Result<(), String> {
        let hash = hash(secret);
        let found = self.open.iter().find(|open| open.hash.as_ref() == hash.as_ref());
        let again = "`comb token` makes a new one";
        match found {
            None => Err(format!(
                "this host has given no such token, or its agent was started anew since: {again}"
            )),
            Some(open) if open.until <= now => Err(format!("the token has expired: {again}")),
            Some(open) if open.uses == 0 => Err(format!("the token was used already: {again}")),
            Some(_) => Ok(()),
        }
    }

    /// It has let one in.
    pub fn used(&mut self, secret: &str) {
        let hash = hash(secret);
        for open in self.open.iter_mut().filter(|open| open.hash.as_ref() == hash.as_ref()) {
            open.uses = open.uses.saturating_sub(1);
        }
    }

    /// Until when strangers are let in to say a secret; none: not at all. Whoever comes with one that is over is to hear so.
    pub fn open_until(&self) -> Option<Instant> {
        const TOLD_FOR: Duration = Duration::from_secs(600);
        self.open.iter().map(|open| open.until + TOLD_FOR).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comb_net::hosts::HostKey;

    #[test]
    fn a_token_is_read_as_it_is_printed() {
        let key = HostKey::generate().public();
        for address in ["10.0.0.1:7170", "[fd00::1]:7170"] {
            let token = Token { address: address.parse().unwrap(), key, secret: "0f".repeat(16) };
            let text = token.to_string();
            assert!(text.starts_with(&format!("comb-1:{address}:")), "{text}");
            assert_eq!(text.parse(), Ok(token));
            for strange in
                [&text[..text.len() - 1], &text[1..], &text.replace(':', " "), "comb-1:", "comb-1::::", ""]
            {
                assert!(strange.parse::<Token>().is_err(), "{strange}");
            }
            let later = text.replacen("comb-1", "comb-2", 1).parse::<Token>().unwrap_err();
            assert!(later.contains("upgrade"), "{later}");
        }
    }

    #[test]
    fn it_opens_as_often_and_as_long_as_was_said() {
        let (now, mut tokens) = (Instant::now(), Tokens::default());
        assert_eq!(tokens.open_until(), None);
        let (ttl, second) = (Duration::from_secs(60), Duration::from_secs(1));
        let (once, twice) = (tokens.make(now, ttl, 1), tokens.make(now, 2 * ttl, 2));
        assert_ne!(once, twice);
        assert_eq!(tokens.check(now, &once), Ok(()));
        tokens.used(&once);
        assert!(tokens.check(now, &once).unwrap_err().contains("used already"));
        for _ in 0..2 {
            assert_eq!(tokens.check(now + ttl, &twice), Ok(()));
            tokens.used(&twice);
        }
        assert!(tokens.check(now, &twice).unwrap_err().contains("used already"));
        let late = tokens.make(now, ttl, 1);
        assert_eq!(tokens.check(now + ttl - second, &late), Ok(()));
        assert!(tokens.check(now + ttl, &late).unwrap_err().contains("expired"));
        assert!(tokens.check(now, "0f0f").unwrap_err().contains("no such token"));
        assert!(tokens.open_until() > Some(now + 2 * ttl));
    }

    #[test]
    fn there_are_not_more_of_them_than_can_be() {
        let (now, mut tokens) = (Instant::now(), Tokens::default());
        let first = tokens.make(now, Duration::MAX, 1);
        let last = (0..MOST_TOKENS).map(|_| tokens.make(now, Duration::MAX, 1)).last().unwrap();
        assert_eq!(tokens.open.len(), MOST_TOKENS);
        assert!(tokens.check(now, &first).is_err() && tokens.check(now, &last).is_ok());
    }
}
