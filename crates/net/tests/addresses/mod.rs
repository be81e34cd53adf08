//! Addresses that nobody else has.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

/// Another each time, on which nothing listens: in the loopback network, but on an address of this process's own. A port that was
/// free a moment ago may have been given to a connection since; these are given to nobody.
pub(crate) fn own() -> SocketAddr {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, 64 | high & 63, middle, low);
    (address, 2000 + COUNT.fetch_add(1, Ordering::Relaxed)).into()
}
