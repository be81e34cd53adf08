//! AF_XDP over a virtual cable between two namespaces; skipped, and said so, where that cannot be made.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use comb_net::seal::{Direction, Suite};
use comb_net::transport::Transport;
use comb_net::udp::{self, UdpTransport};
use comb_net::xdp::{Attach, XdpError, XdpTransport, XdpWire, fastest};

use crate::conformance::{Pair, SOON, conforms, next};
use crate::namespaces::{ADDRESSES, CABLE, Namespaces};
use crate::session;

fn namespaces() -> Option<Arc<Namespaces>> {
    match Namespaces::make() {
        Ok(made) => Some(Arc::new(made)),
        Err(reason) => {
            println!("skipped: {reason}");
            None
        }
    }
}

/// Two connected sockets, one in each namespace.
fn sockets(namespaces: &Namespaces) -> [OwnedFd; 2] {
    let bind = |end: usize| {
        let local: SocketAddr = format!("{}:0", ADDRESSES[end]).parse().unwrap();
        namespaces.within(end, || udp::bind(local).unwrap())
    };
    let ((a, at_a), (b, at_b)) = (bind(0), bind(1));
    udp::connect(&a, at_b).unwrap();
    udp::connect(&b, at_a).unwrap();
    [a, b]
}

const DIRECTIONS: [Direction; 2] = [Direction::FromConnector, Direction::FromAcceptor];

fn xdp(
    namespaces: &Namespaces,
    end: usize,
    socket: &OwnedFd,
    suite: Suite,
) -> Result<XdpTransport, XdpError> {
    xdp_within(namespaces, end, socket, suite, Attach::default(), SOON)
}

fn xdp_within(
    namespaces: &Namespaces,
    end: usize,
    socket: &OwnedFd,
    suite: Suite,
    attach: Attach,
    patience: Duration,
) -> Result<XdpTransport, XdpError> {
    let started = Instant::now();
    let wire = loop {
        match namespaces.within(end, || XdpWire::open_at(socket, attach)) {
            // On a machine with much else to do the kernel takes long to give a queue back.
            Err(XdpError::System { error, .. })
                if error == rustix::io::Errno::BUSY && started.elapsed() < patience => {}
            outcome => break outcome?,
        }
    };
    Ok(XdpTransport::new(wire, session(suite, DIRECTIONS[end])))
}

fn pair(namespaces: &Arc<Namespaces>, suite: Suite, attach: Attach) -> Result<Pair, XdpError> {
    let [a, b] = sockets(namespaces);
    let mut pair = Pair::new(
        xdp_within(namespaces, 0, &a, suite, attach, SOON)?,
        xdp_within(namespaces, 1, &b, suite, attach, SOON)?,
    );
    pair.keep = Box::new(Arc::clone(namespaces));
    Ok(pair)
}

#[test]
fn af_xdp_conforms() {
    let Some(namespaces) = namespaces() else { return };
    for (suite, attach) in [(Suite::Plain, Attach::Driver), (Suite::preferred(), Attach::Generic)] {
        match pair(&namespaces, suite, attach) {
            Err(XdpError::Unavailable) => return println!("skipped: this kernel has no AF_XDP"),
            probe => drop(probe.unwrap()),
        }
        conforms(&format!("AF_XDP {suite:?} {attach:?}"), || pair(&namespaces, suite, attach).unwrap());
    }
}

#[test]
fn one_end_over_af_xdp_and_the_other_over_udp_understand_each_other() {
    let Some(namespaces) = namespaces() else { return };
    let [a, b] = sockets(&namespaces);
    let fast = match xdp(&namespaces, 0, &a, Suite::preferred()) {
        Err(XdpError::Unavailable) => return println!("skipped: this kernel has no AF_XDP"),
        fast => fast.unwrap(),
    };
    let slow = UdpTransport::new(b, session(Suite::preferred(), DIRECTIONS[1])).unwrap();
    let mut ends = Some((fast, slow));
    let (mut fast, mut slow) = ends.take().unwrap();
    for bytes in [0, 1, 100, 1400] {
        fast.send(1, &[&vec![3; bytes]]).unwrap();
        assert_eq!(next(&mut slow), (1, vec![3; bytes]));
        slow.send(2, &[&vec![4; bytes]]).unwrap();
        assert_eq!(next(&mut fast), (2, vec![4; bytes]));
    }
    fast.close();
    while !slow.peer_closed() {
        assert!(slow.is_idle());
    }
}

/// A queue has one owner: the second channel on an interface goes over UDP, and the first is none the worse.
#[test]
fn the_second_channel_on_an_interface_falls_back_to_udp() {
    let Some(namespaces) = namespaces() else { return };
    let [first, _other] = sockets(&namespaces);
    let holder = match xdp(&namespaces, 0, &first, Suite::Plain) {
        Err(XdpError::Unavailable) => return println!("skipped: this kernel has no AF_XDP"),
        holder => holder.unwrap(),
    };
    let [a, b] = sockets(&namespaces);
    let second = xdp_within(&namespaces, 0, &a, Suite::Plain, Attach::default(), Duration::ZERO);
    assert!(matches!(second, Err(XdpError::System { .. })));
    let mut a = namespaces.within(0, || fastest(a, session(Suite::Plain, DIRECTIONS[0])).unwrap());
    let mut b = UdpTransport::new(b, session(Suite::Plain, DIRECTIONS[1])).unwrap();
    a.send(1, &[b"past the program"]).unwrap();
    assert_eq!(next(&mut b).1, b"past the program");
    b.send(1, &[b"and back through it"]).unwrap();
    assert_eq!(next(&mut a).1, b"and back through it");
    drop(holder);
}

#[test]
fn the_program_goes_with_its_owner() {
    let Some(namespaces) = namespaces() else { return };
    let [a, _b] = sockets(&namespaces);
    let attached = || namespaces.ip(0, &["-d", "link", "show", CABLE]).unwrap().contains("prog/xdp");
    assert!(!attached());
    let end = match xdp(&namespaces, 0, &a, Suite::Plain) {
        Err(XdpError::Unavailable) => return println!("skipped: this kernel has no AF_XDP"),
        end => end.unwrap(),
    };
    assert!(attached(), "or this test shows nothing");
    drop(end);
    assert!(!attached());
}

const PEER: &str = "COMB_TEST_XDP_PEER";

/// Run by the test below as a process of its own, to be killed.
#[test]
#[ignore = "the other half of a_killed_owner_leaves_nothing_behind"]
fn an_owner_that_will_be_killed() {
    let Ok(peer) = std::env::var(PEER) else { return };
    let (socket, _) = udp::bind(format!("{}:0", ADDRESSES[0]).parse().unwrap()).unwrap();
    udp::connect(&socket, peer.parse().unwrap()).unwrap();
    let _wire = XdpWire::open(&socket).unwrap();
    println!("attached");
    std::thread::sleep(SOON);
}

#[test]
fn a_killed_owner_leaves_nothing_behind() {
    use std::io::BufRead;
    let Some(namespaces) = namespaces() else { return };
    let attached = || namespaces.ip(0, &["-d", "link", "show", CABLE]).unwrap().contains("prog/xdp");
    let [_, b] = sockets(&namespaces);
    match xdp(&namespaces, 1, &b, Suite::Plain) {
        Err(XdpError::Unavailable) => return println!("skipped: this kernel has no AF_XDP"),
        probe => drop(probe.unwrap()),
    }
    let peer = SocketAddr::try_from(rustix::net::getsockname(&b).unwrap()).unwrap();
    let mut owner = namespaces.within(0, || {
        std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "xdp::an_owner_that_will_be_killed", "--ignored", "--nocapture"])
            .env(PEER, peer.to_string())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    });
    let mut said = std::io::BufReader::new(owner.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("attached")), "it came up");
    assert!(attached(), "or this test shows nothing");
    owner.kill().unwrap();
    owner.wait().unwrap();
    let started = Instant::now();
    while attached() {
        assert!(started.elapsed() < SOON, "the program outlived its owner");
    }
}

#[test]
fn the_loopback_has_no_af_xdp_and_says_so() {
    let (a, _b) = crate::sockets();
    let error = XdpWire::open(&a).unwrap_err();
    assert!(matches!(error, XdpError::NoInterface(_) | XdpError::Unavailable), "{error}");
}
