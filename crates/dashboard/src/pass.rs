//! Who may see, and who may act.
//!
//! Whoever knows the token of the comb may see everything and act; whoever knows the other one may only see. A page of another site that the same
//! browser has open knows neither, and cannot have the browser send one: it goes in a header that a browser adds to no request by itself, and
//! requests with one from elsewhere are asked about before, which is never answered. A name that leads to this machine though it belongs to
//! somebody else is not listened to.

use axum::http::{HeaderMap, header};

/// What a token is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Right {
    See,
    Act,
}

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// It is for a name that is not ours.
    Host,
    /// It comes from a page of another site.
    Site,
    /// It says no token, or a wrong one.
    Token,
    /// Its token is not for that.
    Right,
}

/// The tokens, and the names under which requests come.
#[derive(Clone, Debug)]
pub(crate) struct Pass {
    pub(crate) token: String,
    pub(crate) view_token: String,
}

impl Pass {
    /// What the sender of this may do.
    pub(crate) fn check(&self, headers: &HeaderMap, wanted: Right) -> Result<Right, Refusal> {
        Self::is_for_us(headers)?;
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        // Browsers say where a request comes from; programs need not.
        if let Some(origin) = text(header::ORIGIN)
            && origin.strip_prefix("http://").is_none_or(|host| !is_ours(host))
        {
            return Err(Refusal::Site);
        }
        if headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none") {
            return Err(Refusal::Site);
        }
        let said = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
        let said = said.ok_or(Refusal::Token)?;
        let has = if is_same(said, &self.token) {
            Right::Act
        } else if is_same(said, &self.view_token) {
            Right::See
        } else {
            return Err(Refusal::Token);
        };
        if wanted == Right::Act && has == Right::See { Err(Refusal::Right) } else { Ok(has) }
    }

    /// Whether a request is for a name of this machine.
    pub(crate) fn is_for_us(headers: &HeaderMap) -> Result<(), Refusal> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (host, more) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next());
        if host.is_some_and(is_ours) && more.is_none() { Ok(()) } else { Err(Refusal::Host) }
    }
}

fn is_ours(host: &str) -> bool {
    // Whoever looks through a tunnel has another port. By its number nobody has got here who was led astray by a name.
    let name = host.rsplit_once(':').map_or(host, |(name, port)| {
        if port.bytes().all(|byte| byte.is_ascii_digit()) { name } else { host }
    });
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok()
}

/// Takes as long whatever is wrong.
fn is_same(one: &str, other: &str) -> bool {
    let differ = one.bytes().zip(other.bytes()).fold(0, |differ, (one, other)| differ | (one ^ other));
    one.len() == other.len() && !other.is_empty() && differ == 0
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    fn pass() -> Pass {
        let (token, view_token) = ("0123abcd".to_owned(), "ffff0000".to_owned());
        Pass { token, view_token }
    }

    fn asks(headers: &[(&str, &str)], wanted: Right) -> Result<Right, Refusal> {
        let name = |name: &str| HeaderName::from_bytes(name.as_bytes()).unwrap();
        let headers = headers.iter().map(|(key, value)| (name(key), value.parse().unwrap())).collect();
        pass().check(&headers, wanted)
    }

    const HOST: (&str, &str) = ("host", "127.0.0.1:7070");
    const TOKEN: (&str, &str) = ("authorization", "Bearer 0123abcd");

    #[test]
    fn who_knows_the_token_may_act_and_who_knows_the_other_may_see() {
        assert_eq!(asks(&[HOST, TOKEN], Right::Act), Ok(Right::Act));
        let view = ("authorization", "Bearer ffff0000");
        assert_eq!(asks(&[HOST, view], Right::See), Ok(Right::See));
        assert_eq!(asks(&[HOST, view], Right::Act), Err(Refusal::Right));
        for said in ["Bearer 0123abce", "Bearer 0123abcd0", "Bearer ", "Basic 0123abcd", "0123abcd", ""] {
            assert_eq!(asks(&[HOST, ("authorization", said)], Right::See), Err(Refusal::Token), "{said:?}");
        }
        assert_eq!(asks(&[HOST], Right::See), Err(Refusal::Token));
    }

    #[test]
    fn pages_of_other_sites_are_refused_even_if_they_knew_the_token() {
        for origin in
            ["http://evil.example", "null", "https://127.0.0.1:7070", "http://127.0.0.1.evil.example"]
        {
            assert_eq!(asks(&[HOST, TOKEN, ("origin", origin)], Right::Act), Err(Refusal::Site), "{origin}");
        }
        for site in ["cross-site", "same-site"] {
            assert_eq!(asks(&[HOST, TOKEN, ("sec-fetch-site", site)], Right::See), Err(Refusal::Site));
        }
        let own = [HOST, TOKEN, ("origin", "http://127.0.0.1:7070"), ("sec-fetch-site", "same-origin")];
        assert_eq!(asks(&own, Right::Act), Ok(Right::Act));
    }

    /// A name of somebody else's that is made to lead to 127.0.0.1 makes his page one of this site.
    #[test]
    fn a_name_that_is_not_ours_is_not_listened_to() {
        for host in ["evil.example", "evil.example:7070", "127.0.0.1.evil.example", "", "[::1", "a:b"] {
            assert_eq!(asks(&[("host", host), TOKEN], Right::See), Err(Refusal::Host), "{host:?}");
        }
        assert_eq!(asks(&[TOKEN], Right::See), Err(Refusal::Host));
        assert_eq!(asks(&[HOST, HOST, TOKEN], Right::See), Err(Refusal::Host));
        for host in ["localhost:7070", "[::1]:9", "192.168.1.7:7070", "localhost"] {
            assert_eq!(asks(&[("host", host), TOKEN], Right::See), Ok(Right::Act), "{host:?}");
        }
    }
}
