use super::*;
use crate::seal::{Opener, Refused, Sealer, Suite};
use comb_types::{ChannelId, Version};
use rustls::{ClientConnection, StreamOwned};
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

// ── Keys and their files
// ────────────────────────────────────────────────────────────────────────────────────────

/// A directory for one test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("comb-hosts-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("host.key")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn set_mode(file: &Path, mode: u32) {
    fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_key_survives_its_file() {
    let scratch = Scratch::new();
    let key = HostKey::generate();
    key.save(&scratch.file()).unwrap();
    assert_eq!(fs::metadata(scratch.file()).unwrap().permissions().mode() & 0o7777, 0o600);
    let loaded = HostKey::load(&scratch.file()).unwrap();
    assert_eq!(loaded.public(), key.public());
    assert_eq!(loaded.to_pkcs8(), key.to_pkcs8());
    assert_ne!(HostKey::generate().public(), key.public());
}

/// The first test vector of RFC 8032 §7.1, so that keys made elsewhere are the same keys here.
#[test]
fn a_key_is_an_ed25519_key() {
    let scratch = Scratch::new();
    let secret = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
    fs::write(scratch.file(), format!("\n# comment\ned25519-secret:{secret}\n")).unwrap();
    set_mode(&scratch.file(), 0o400);
    let public = "ed25519:d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    assert_eq!(HostKey::load(&scratch.file()).unwrap().public().to_string(), public);
}

#[test]
fn a_file_that_others_can_read_is_refused() {
    let scratch = Scratch::new();
    HostKey::generate().save(&scratch.file()).unwrap();
    for wider in [0o640, 0o604, 0o620, 0o601, 0o644, 0o666] {
        set_mode(&scratch.file(), wider);
        let refused = HostKey::load(&scratch.file()).unwrap_err();
        assert!(matches!(refused, KeyFileError::ReadableByOthers { mode, .. } if mode == wider), "{refused}");
        assert!(refused.to_string().contains(&format!("{wider:04o}")), "{refused}");
    }
    set_mode(&scratch.file(), 0o600);
    HostKey::load(&scratch.file()).unwrap();
}

#[test]
fn an_existing_file_is_never_replaced() {
    let scratch = Scratch::new();
    let first = HostKey::generate();
    first.save(&scratch.file()).unwrap();
    assert!(matches!(HostKey::generate().save(&scratch.file()), Err(KeyFileError::File { .. })));
    assert_eq!(HostKey::load(&scratch.file()).unwrap().public(), first.public());
}

#[test]
fn a_file_without_a_key_is_refused() {
    let scratch = Scratch::new();
    let secret = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
    let texts = [
        String::new(),
        "# only a comment\n".to_owned(),
        format!("{secret}\n"),
        format!("ed25519-secret:{}\n", &secret[1..]),
        format!("ed25519-secret:{secret}0\n"),
        format!("ed25519-secret:{}g\n", &secret[1..]),
        format!("ed25519:{secret}\n"),
        format!("ed25519-secret:{secret}\ned25519-secret:{secret}\n"),
    ];
    for text in texts {
        let _ = fs::remove_file(scratch.file());
        fs::write(scratch.file(), &text).unwrap();
        set_mode(&scratch.file(), 0o600);
        let refused = HostKey::load(&scratch.file()).unwrap_err();
        assert!(matches!(refused, KeyFileError::Malformed { .. }), "{text:?}: {refused}");
    }
    assert!(matches!(HostKey::load(&scratch.0.join("none")), Err(KeyFileError::File { .. })));
    assert!(matches!(HostKey::load(Path::new("/dev/null")), Err(KeyFileError::Malformed { .. })));
}

#[test]
fn a_public_key_is_read_back_from_its_line() {
    let key = HostKey::generate().public();
    let line = key.to_string();
    assert_eq!(line.len(), 8 + 64);
    assert_eq!(line.parse(), Ok(key));
    assert_eq!(PublicKey::from_spki(&key.to_spki()), Some(key));
    let bad = ["", "ed25519:", &line[8..], &line[..71], &format!("{line}0"), &line.replace(':', "=")];
    for text in bad {
        assert_eq!(text.parse::<PublicKey>(), Err(BadKey), "{text}");
    }
    let mut spki = key.to_spki();
    spki.push(0);
    assert_eq!(PublicKey::from_spki(&spki), None);
    assert_eq!(PublicKey::from_spki(&spki[..43]), None);
    spki.truncate(44);
    spki[8] ^= 1;
    assert_eq!(PublicKey::from_spki(&spki), None, "another algorithm");
}

#[test]
fn secrets_stay_out_of_logs() {
    let key = HostKey::generate();
    assert_eq!(format!("{key:?}"), format!("HostKey {{ public: {}, .. }}", key.public()));
}

// ── Known hosts
// ─────────────────────────────────────────────────────────────────────────────────────────────────

const ALPHA: &str = "ed25519:3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
const BETA: &str = "ed25519:fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025";
const LATER: &str = "ed25519:278117fc144c72340f67d0f2316e8386ceffbf2b2428c9c51fef7c597f1d426e";

fn parse(text: &str) -> Result<KnownHosts, KnownHostsError> {
    KnownHosts::parse(text, Path::new("known_hosts"))
}

#[test]
fn names_and_keys() {
    let text = format!("# room\n\n alpha={ALPHA}\nbeta = {BETA} # now\nbeta = {LATER}\nbeta = {BETA}\n");
    let known = parse(&text).unwrap();
    let key = |text: &str| text.parse::<PublicKey>().unwrap();
    assert_eq!(known.name_of(&key(ALPHA)), Some("alpha"));
    assert_eq!(known.name_of(&HostKey::generate().public()), None);
    assert_eq!(known.keys_of("beta").collect::<Vec<_>>(), [key(BETA), key(LATER)]);
    assert_eq!(known.keys_of("gamma").count(), 0);
    assert_eq!(known.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["alpha", "beta", "beta"]);

    let scratch = Scratch::new();
    fs::write(scratch.file(), text).unwrap();
    assert_eq!(KnownHosts::load(&scratch.file()).unwrap().iter().count(), 3);
    assert!(matches!(KnownHosts::load(&scratch.0.join("none")), Err(KnownHostsError::File { .. })));
}

#[test]
fn a_wrong_line_is_named() {
    let long = "x".repeat(65);
    let cases = [
        ("alpha".to_owned(), Problem::NotAPair),
        (format!("= {BETA}"), Problem::BadName),
        (format!("al pha = {BETA}"), Problem::BadName),
        (format!("{long} = {BETA}"), Problem::BadName),
        ("beta = ed25519:00".to_owned(), Problem::BadKey(BadKey)),
        (format!("beta = {ALPHA}"), Problem::KeyOfAnother { name: "alpha".to_owned() }),
    ];
    for (line, expected) in cases {
        match parse(&format!("# first\nalpha = {ALPHA}\n{line}\n")) {
            Err(KnownHostsError::Line { line: 3, problem, .. }) => assert_eq!(problem, expected),
            other => panic!("{line}: {other:?}"),
        }
    }
}

// ── Two hosts
// ───────────────────────────────────────────────────────────────────────────────────────────────────

/// Two hosts that know each other, unless a test makes them forget.
struct Room {
    alpha: HostKey,
    beta: HostKey,
    known_to_alpha: KnownHosts,
    known_to_beta: KnownHosts,
    terms: [Terms; 2],
}

fn known(file: &str, hosts: &[(&str, &HostKey)]) -> KnownHosts {
    let text: String = hosts.iter().map(|(name, key)| format!("{name} = {}\n", key.public())).collect();
    KnownHosts::parse(&text, Path::new(file)).unwrap()
}

impl Room {
    fn new() -> Room {
        let (alpha, beta) = (HostKey::generate(), HostKey::generate());
        let known_to_alpha = known("/alpha/known_hosts", &[("alpha", &alpha), ("beta", &beta)]);
        let known_to_beta = known("/beta/known_hosts", &[("alpha", &alpha), ("beta", &beta)]);
        Room { alpha, beta, known_to_alpha, known_to_beta, terms: [Terms::default(); 2] }
    }

    /// Alpha connects to beta through `socket`s that the caller chose.
    fn link_over(&self, alpha: TcpStream, beta: TcpStream) -> [Result<SecureStream, ConnectError>; 2] {
        thread::scope(|scope| {
            let accepted =
                scope.spawn(|| SecureStream::accept(beta, &self.beta, &self.known_to_beta, self.terms[1]));
            let connected =
                SecureStream::connect(alpha, &self.alpha, &self.known_to_alpha, "beta", self.terms[0]);
            [connected, accepted.join().unwrap()]
        })
    }

    fn link(&self) -> [SecureStream; 2] {
        let (alpha, beta) = sockets();
        self.link_over(alpha, beta).map(Result::unwrap)
    }

    fn refused_link(&self) -> [ConnectError; 2] {
        let (alpha, beta) = sockets();
        self.link_over(alpha, beta).map(Result::unwrap_err)
    }

    /// Beta accepts, and a test plays an alpha that proves itself and then does not behave.
    fn with_raw_alpha<T: Send>(
        &self,
        raw_alpha: impl FnOnce(StreamOwned<ClientConnection, TcpStream>) -> T + Send,
    ) -> (T, Result<SecureStream, ConnectError>) {
        let (alpha, beta) = sockets();
        let config = pinned::connector(&self.alpha, &self.known_to_alpha, "beta");
        let session = ClientConnection::new(Arc::new(config), "comb.invalid".try_into().unwrap()).unwrap();
        thread::scope(|scope| {
            let played = scope.spawn(|| {
                let mut alpha = StreamOwned::new(session, alpha);
                // Beta speaks first. Were its hello left unread, hanging up would reset the connection, and
                // what beta has not read yet would be lost.
                alpha.read_exact(&mut [0; HELLO_BYTES]).unwrap();
                raw_alpha(alpha)
            });
            let accepted = SecureStream::accept(beta, &self.beta, &self.known_to_beta, self.terms[1]);
            (played.join().unwrap(), accepted)
        })
    }
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (connected, listener.accept().unwrap().0)
}

/// Long enough for a loaded machine; no test waits for it when all is well.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

#[test]
fn messages_go_both_ways() {
    let [mut alpha, mut beta] = Room::new().link();
    assert_eq!((alpha.peer(), beta.peer()), ("beta", "alpha"));
    assert_eq!((alpha.version(), beta.version()), (Version::CURRENT, Version::CURRENT));
    let longest = vec![0x5a; LONGEST_MESSAGE_BYTES];
    for message in [&b"hello"[..], b"", b"again", &longest, b"after the longest"] {
        thread::scope(|scope| {
            scope.spawn(|| alpha.send(message).unwrap());
            assert_eq!(beta.receive(PATIENCE).unwrap(), Some(message));
        });
        thread::scope(|scope| {
            scope.spawn(|| beta.send(message).unwrap());
            assert_eq!(alpha.receive(PATIENCE).unwrap(), Some(message));
        });
    }
    // Several at once.
    alpha.send(b"one").unwrap();
    alpha.send(b"two").unwrap();
    assert_eq!(beta.receive(PATIENCE).unwrap(), Some(&b"one"[..]));
    assert_eq!(beta.receive(PATIENCE).unwrap(), Some(&b"two"[..]));
    alpha.close().unwrap();
    assert_eq!(beta.receive(PATIENCE).unwrap(), None);
}

/// As a write that ran into its patience is tried again: what was taken is not.
fn write_patiently(to: &mut ByteStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(taken) => bytes = &bytes[taken..],
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::TimedOut),
        }
    }
    while let Err(error) = to.flush() {
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    }
}

#[test]
fn bytes_go_both_ways_and_an_end_is_told_from_a_cut() {
    let [alpha, beta] = Room::new().link();
    let short = Duration::from_millis(5);
    let mut alpha = ByteStream::new(alpha, short).unwrap();
    let mut beta = ByteStream::new(beta, short).unwrap();
    assert_eq!(beta.read(&mut [0; 8]).unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    // More than the sockets hold, to one who does not read before alpha has had to wait.
    let bytes: Vec<u8> = (0..16_u32 << 20).map(|number| (number % 251) as u8).collect();
    let has_waited = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !has_waited.load(Ordering::Acquire) {
                thread::yield_now();
            }
            beta.set_patience(PATIENCE.unwrap()).unwrap();
            let mut read = vec![0; bytes.len()];
            beta.read_exact(&mut read).unwrap();
            assert!(read == bytes, "other bytes than were sent");
            beta.write_all(b"all of it").unwrap();
        });
        let mut sent = 0;
        while !has_waited.load(Ordering::Acquire) {
            match alpha.write(&bytes[sent..]) {
                Ok(taken) => sent += taken,
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
                    has_waited.store(true, Ordering::Release);
                }
            }
        }
        write_patiently(&mut alpha, &bytes[sent..]);
    });
    alpha.set_patience(PATIENCE.unwrap()).unwrap();
    let mut answer = [0; 9];
    alpha.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"all of it");
    drop(beta);
    assert_eq!(alpha.read(&mut answer).unwrap(), 0, "a farewell");

    let room = Room::new();
    let current = Version::CURRENT.0;
    let (_, accepted) = room.with_raw_alpha(|mut alpha| {
        alpha.write_all(&hello(current, 1)).unwrap();
        alpha.write_all(b"wo").unwrap();
    });
    let mut beta = ByteStream::new(accepted.unwrap(), PATIENCE.unwrap()).unwrap();
    let mut word = [0; 4];
    assert_eq!(beta.read(&mut word).unwrap(), 2, "what followed the greeting");
    let cut = beta.read(&mut word).unwrap_err();
    assert_eq!(
        (cut.kind(), &*cut.to_string()),
        (std::io::ErrorKind::UnexpectedEof, "the stream was cut off")
    );
}

#[test]
fn a_host_that_is_not_in_the_file_is_refused() {
    let mut room = Room::new();
    room.known_to_beta = known("/beta/known_hosts", &[("beta", &room.beta)]);
    let [alpha, beta] = room.refused_link();
    let presented = room.alpha.public();
    match &beta {
        ConnectError::UnknownKey(unknown) => assert_eq!(
            *unknown,
            UnknownKey { presented, expected: None, belongs_to: None, file: "/beta/known_hosts".into() }
        ),
        other => panic!("{other}"),
    }
    assert_eq!(
        beta.to_string(),
        format!(
            "a host presented the key {presented}, which /beta/known_hosts does not list; \
             if you trust it, add the line: NAME = {presented}"
        )
    );
    assert!(matches!(&alpha, ConnectError::RefusedByPeer { ours, .. } if *ours == presented), "{alpha}");
    assert!(alpha.to_string().contains(&presented.to_string()), "{alpha}");
}

#[test]
fn a_host_that_is_another_than_expected_is_refused() {
    let mut room = Room::new();
    let stranger = HostKey::generate();
    room.known_to_alpha = known("/alpha/known_hosts", &[("beta", &stranger)]);
    let [alpha, beta] = room.refused_link();
    let presented = room.beta.public();
    let expected = format!(
        "beta presented the key {presented}, which /alpha/known_hosts does not list; \
         if you trust it, add the line: beta = {presented}"
    );
    assert_eq!(alpha.to_string(), expected);
    assert!(matches!(beta, ConnectError::RefusedByPeer { .. }), "{beta}");

    // A host of the room, but not the one that was called.
    room.known_to_alpha = known("/alpha/known_hosts", &[("beta", &stranger), ("gamma", &room.beta)]);
    let [alpha, _] = room.refused_link();
    let expected =
        format!("beta presented the key {presented}, which is that of gamma in /alpha/known_hosts");
    assert_eq!(alpha.to_string(), expected);
}

#[test]
fn any_key_of_a_host_will_do() {
    let mut room = Room::new();
    let retired = HostKey::generate();
    room.known_to_alpha = known("/alpha/known_hosts", &[("beta", &retired), ("beta", &room.beta)]);
    let [alpha, _beta] = room.link();
    assert_eq!(alpha.peer_key(), room.beta.public());
}

/// Whoever has read a file of known hosts knows the public keys, and can present them. Not sign with them.
#[test]
fn a_key_without_its_secret_proves_nothing() {
    let mut room = Room::new();
    room.alpha = HostKey::impostor(room.alpha.public());
    let [alpha, beta] = room.refused_link();
    assert!(matches!(beta, ConnectError::Tls(rustls::Error::InvalidCertificate(_))), "{beta}");
    assert!(matches!(alpha, ConnectError::RefusedByPeer { .. }), "{alpha}");

    let mut room = Room::new();
    room.beta = HostKey::impostor(room.beta.public());
    let [alpha, beta] = room.refused_link();
    assert!(matches!(alpha, ConnectError::Tls(rustls::Error::InvalidCertificate(_))), "{alpha}");
    assert!(matches!(beta, ConnectError::RefusedByPeer { .. }), "{beta}");
}

#[test]
fn an_anonymous_client_is_refused() {
    let room = Room::new();
    let (alpha, beta) = sockets();
    let mut config = pinned::connector(&room.alpha, &room.known_to_alpha, "beta");
    config.client_auth_cert_resolver = Arc::new(Anonymous);
    let session = ClientConnection::new(Arc::new(config), "comb.invalid".try_into().unwrap()).unwrap();
    let refused = thread::scope(|scope| {
        scope.spawn(|| {
            let mut anonymous = StreamOwned::new(session, alpha);
            let _ = anonymous.read(&mut [0; 100]);
        });
        SecureStream::accept(beta, &room.beta, &room.known_to_beta, Terms::default()).unwrap_err()
    });
    assert!(matches!(refused, ConnectError::Tls(_)), "{refused}");
}

#[derive(Debug)]
struct Anonymous;

impl rustls::client::ResolvesClientCert for Anonymous {
    fn resolve(
        &self,
        _hints: &[&[u8]],
        _schemes: &[rustls::SignatureScheme],
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }

    fn has_certs(&self) -> bool {
        false
    }
}

#[test]
fn something_that_is_no_agent_is_refused() {
    let room = Room::new();
    for noise in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 100], &[0x16, 3, 1, 0xff, 0xff]] {
        let (mut alpha, beta) = sockets();
        alpha.write_all(noise).unwrap();
        alpha.shutdown(Shutdown::Write).unwrap();
        let refused =
            SecureStream::accept(beta, &room.beta, &room.known_to_beta, Terms::default()).unwrap_err();
        assert!(matches!(refused, ConnectError::Tls(_) | ConnectError::Io(_)), "{refused}");
        let (alpha, mut beta) = sockets();
        beta.write_all(noise).unwrap();
        beta.shutdown(Shutdown::Write).unwrap();
        let known = &room.known_to_alpha;
        let refused = SecureStream::connect(alpha, &room.alpha, known, "beta", Terms::default()).unwrap_err();
        assert!(matches!(refused, ConnectError::Tls(_) | ConnectError::Io(_)), "{refused}");
    }
}

#[test]
fn a_peer_that_says_nothing_holds_nobody() {
    let room = Room::new();
    let terms = Terms { handshake_limit: Duration::from_millis(20), ..Terms::default() };
    let (alpha, beta) = sockets();
    let refused = SecureStream::accept(beta, &room.beta, &room.known_to_beta, terms).unwrap_err();
    assert!(matches!(refused, ConnectError::TimedOut), "{refused}");
    drop(alpha);
    // However little time there is, it is the time that is over, and nothing else is wrong.
    let (_alpha, beta) = sockets();
    let no_time = Terms { handshake_limit: Duration::ZERO, ..Terms::default() };
    let refused = SecureStream::accept(beta, &room.beta, &room.known_to_beta, no_time).unwrap_err();
    assert!(matches!(refused, ConnectError::TimedOut), "{refused}");
    let (alpha, _beta) = sockets();
    let refused = SecureStream::connect(alpha, &room.alpha, &room.known_to_alpha, "beta", terms).unwrap_err();
    assert!(matches!(refused, ConnectError::TimedOut), "{refused}");
}

const HELLO_BYTES: usize = 10;

fn hello(version: u8, suite: u8) -> Vec<u8> {
    [&[version, 5, 0, 0, 0], &b"comb"[..], &[suite]].concat()
}

#[test]
fn versions_one_apart_meet_at_the_lower() {
    let room = Room::new();
    let current = Version::CURRENT.0;
    let (_, accepted) = room.with_raw_alpha(|mut alpha| {
        // What a later version has to say besides is not for us.
        let mut longer = hello(current + 1, 1);
        longer[1] += 2;
        longer.extend_from_slice(b"??");
        alpha.write_all(&longer).unwrap();
        alpha
    });
    assert_eq!(accepted.unwrap().version(), Version(current));
    let (_, refused) =
        room.with_raw_alpha(|mut alpha| alpha.write_all(&hello(current + 2, 1)).map(|()| alpha));
    assert!(matches!(refused, Err(ConnectError::Version(_))), "{refused:?}");
    let (_, refused) = room.with_raw_alpha(|mut alpha| alpha.write_all(&hello(0, 1)).map(|()| alpha));
    assert!(matches!(refused, Err(ConnectError::Version(_))), "{refused:?}");
}

#[test]
fn a_strange_hello_is_refused() {
    let room = Room::new();
    let current = Version::CURRENT.0;
    let strange: [&[u8]; 3] = [
        &[current, 5, 0, 0, 0, b'c', b'o', b'm', b'p', 1],
        &[current, 4, 0, 0, 0, b'c', b'o', b'm', b'b'],
        &[current, 0, 0, 1, 1],
    ];
    for bytes in strange {
        let (_, refused) = room.with_raw_alpha(|mut alpha| alpha.write_all(bytes).map(|()| alpha));
        assert!(matches!(refused, Err(ConnectError::NotAnAgent)), "{refused:?}");
    }
}

/// Whoever refuses hangs up at once. If something of the other end is on its way then, the connection is
/// reset and the reason is lost with it; so the connecting end says nothing before it has been let in.
#[test]
fn the_connecting_end_waits_to_be_let_in() {
    let room = Room::new();
    let (alpha, beta) = sockets();
    let config = pinned::acceptor(&room.beta, &room.known_to_beta);
    let session = rustls::ServerConnection::new(Arc::new(config)).unwrap();
    thread::scope(|scope| {
        let heard = scope.spawn(|| {
            let mut beta = StreamOwned::new(session, beta);
            beta.write_all(b"\x01\x00\x00\x00\x00").unwrap();
            let mut heard = Vec::new();
            let _ = beta.read_to_end(&mut heard);
            heard
        });
        let known = &room.known_to_alpha;
        let refused = SecureStream::connect(alpha, &room.alpha, known, "beta", Terms::default()).unwrap_err();
        assert!(matches!(refused, ConnectError::NotAnAgent), "{refused}");
        assert_eq!(heard.join().unwrap(), b"");
    });
}

#[test]
fn a_message_too_long_is_refused() {
    let room = Room::new();
    let [mut alpha, mut beta] = room.link();
    let bytes = LONGEST_MESSAGE_BYTES + 1;
    let refused = alpha.send(&vec![0; bytes]);
    assert!(matches!(refused, Err(StreamError::TooLong { bytes: said }) if said == bytes), "{refused:?}");
    alpha.send(b"nothing was sent of it").unwrap();
    assert_eq!(beta.receive(PATIENCE).unwrap(), Some(&b"nothing was sent of it"[..]));

    let current = Version::CURRENT.0;
    let (_alpha, accepted) = room.with_raw_alpha(|mut alpha| {
        alpha.write_all(&hello(current, 1)).unwrap();
        alpha.write_all(&[current, 1, 0, 1, 0]).unwrap();
        alpha
    });
    let mut beta = accepted.unwrap();
    for _ in 0..2 {
        let refused = beta.receive(PATIENCE);
        assert!(matches!(refused, Err(StreamError::TooLong { bytes: said }) if said == bytes), "{refused:?}");
    }
}

#[test]
fn a_message_of_another_version_than_agreed_is_refused() {
    let room = Room::new();
    let current = Version::CURRENT.0;
    let (_alpha, accepted) = room.with_raw_alpha(|mut alpha| {
        alpha.write_all(&hello(current, 1)).unwrap();
        alpha.write_all(&[current + 1, 1, 0, 0, 0, b'x']).unwrap();
        alpha
    });
    let refused = accepted.unwrap().receive(PATIENCE).unwrap_err();
    assert!(matches!(refused, StreamError::WrongVersion { .. }), "{refused}");
}

#[test]
fn a_cut_is_not_a_farewell() {
    let room = Room::new();
    let current = Version::CURRENT.0;
    // Between two messages, in a header, in a message; with a farewell that comes too early, and without.
    for (rest, farewell) in [(0, false), (3, false), (3, true), (7, false), (7, true)] {
        let (_, accepted) = room.with_raw_alpha(|mut alpha| {
            alpha.write_all(&hello(current, 1)).unwrap();
            alpha.write_all(&[current, 4, 0, 0, 0, b'w', b'o', b'r', b'd']).unwrap();
            alpha.write_all(&[current, 4, 0, 0, 0, b'w', b'o', b'r', b'd'][..rest]).unwrap();
            if farewell {
                alpha.conn.send_close_notify();
            }
            alpha.flush().unwrap();
        });
        let mut beta = accepted.unwrap();
        assert_eq!(beta.receive(PATIENCE).unwrap(), Some(&b"word"[..]));
        for _ in 0..2 {
            let cut = beta.receive(PATIENCE);
            assert!(matches!(cut, Err(StreamError::Truncated)), "{rest} {farewell} {cut:?}");
        }
    }
}

#[test]
fn what_came_of_a_message_is_kept_over_a_time_limit() {
    let room = Room::new();
    let current = Version::CURRENT.0;
    let may_go_on = AtomicBool::new(false);
    let (alpha, accepted) = room.with_raw_alpha(|mut alpha| {
        alpha.write_all(&hello(current, 1)).unwrap();
        alpha.write_all(&[current, 4, 0, 0, 0, b'w', b'o']).unwrap();
        alpha
    });
    let mut beta = accepted.unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut alpha = alpha;
            while !may_go_on.load(Ordering::Acquire) {
                thread::yield_now();
            }
            alpha.write_all(b"rd").unwrap();
            alpha
        });
        for limit in [0, 5] {
            let none = beta.receive(Some(Duration::from_millis(limit)));
            assert!(matches!(none, Err(StreamError::TimedOut)), "{none:?}");
        }
        may_go_on.store(true, Ordering::Release);
        assert_eq!(beta.receive(PATIENCE).unwrap(), Some(&b"word"[..]));
    });
}

#[test]
fn a_limit_of_nothing_takes_what_is_there() {
    let [mut alpha, mut beta] = Room::new().link();
    alpha.send(b"word").unwrap();
    // What was sent may be on its way for a moment.
    let came = (0..10_000).any(|_| matches!(beta.receive(Some(Duration::ZERO)), Ok(Some(b"word"))));
    assert!(came);
}

#[test]
fn sending_to_one_who_does_not_read_ends() {
    let mut room = Room::new();
    room.terms[0].send_limit = Duration::from_millis(20);
    let [mut alpha, _beta] = room.link();
    let message = vec![0; LONGEST_MESSAGE_BYTES];
    // The sockets' buffers hold a few megabytes.
    let stuck = (0..10_000).find_map(|_| alpha.send(&message).err()).unwrap();
    assert!(matches!(stuck, StreamError::TimedOut), "{stuck}");
}

/// Somebody on the way who can do with the bytes what he likes.
#[test]
fn changed_bytes_are_noticed() {
    let room = Room::new();
    let (alpha, mut from_alpha) = sockets();
    let (to_beta, beta) = sockets();
    let (mut answers, mut to_alpha) = (to_beta.try_clone().unwrap(), from_alpha.try_clone().unwrap());
    let mut to_beta = to_beta;
    let tamper = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| std::io::copy(&mut answers, &mut to_alpha));
        scope.spawn(|| {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = from_alpha.read(&mut bytes) {
                if tamper.load(Ordering::Acquire) {
                    bytes[read - 1] ^= 1;
                }
                let _ = to_beta.write_all(&bytes[..read]);
            }
            let _ = to_beta.shutdown(Shutdown::Both);
        });
        let [alpha, beta] = room.link_over(alpha, beta);
        let (mut alpha, mut beta) = (alpha.unwrap(), beta.unwrap());
        alpha.send(b"untouched").unwrap();
        assert_eq!(beta.receive(PATIENCE).unwrap(), Some(&b"untouched"[..]));
        tamper.store(true, Ordering::Release);
        alpha.send(b"touched").unwrap();
        let noticed = beta.receive(PATIENCE);
        assert!(matches!(noticed, Err(StreamError::Tls(rustls::Error::DecryptError))), "{noticed:?}");
    });
}

#[test]
fn both_ends_derive_the_same_keys_for_a_channel_once() {
    const CHANNEL: ChannelId = ChannelId(7);
    let room = Room::new();
    let [mut alpha, mut beta] = room.link();
    assert_eq!(alpha.suite(), Suite::preferred());
    let (alpha_sends, alpha_receives) = alpha.channel_keys(CHANNEL).unwrap();
    let (beta_sends, beta_receives) = beta.channel_keys(CHANNEL).unwrap();
    assert_ne!(alpha_sends.secret(), alpha_receives.secret());
    assert_eq!(alpha_sends.secret(), beta_receives.secret());
    let (elsewhere, _) = beta.channel_keys(ChannelId(8)).unwrap();
    let [_, mut another_session] = room.link();
    let (another_sends, _) = another_session.channel_keys(CHANNEL).unwrap();
    assert_eq!(alpha.channel_keys(CHANNEL).unwrap_err(), KeysTaken(CHANNEL));

    let mut frame = [0; 100];
    let mut at_beta = Opener::new(beta_receives, CHANNEL, 50);
    let bytes =
        Sealer::new(alpha_sends, CHANNEL, alpha.version()).seal(1, 0, &[b"there"], &mut frame).unwrap();
    assert_eq!(at_beta.open(&mut Vec::from(&frame[..bytes])).unwrap().payload, b"there");

    let mut at_alpha = Opener::new(alpha_receives, CHANNEL, 50);
    assert_eq!(at_alpha.open(&mut frame[..bytes]), Err(Refused::Forged), "each direction has its key");
    for stranger in [elsewhere, another_sends] {
        let bytes = Sealer::new(stranger, CHANNEL, alpha.version()).seal(1, 0, &[b"?"], &mut frame).unwrap();
        assert_eq!(at_alpha.open(&mut frame[..bytes]), Err(Refused::Forged));
    }
    let bytes = Sealer::new(beta_sends, CHANNEL, beta.version()).seal(1, 0, &[b"back"], &mut frame).unwrap();
    assert_eq!(at_alpha.open(&mut frame[..bytes]).unwrap().payload, b"back");
}

#[test]
fn both_ends_agree_on_a_suite() {
    let (plain, aes, chacha) = (Suite::Plain, Suite::Aes256Gcm, Suite::ChaCha20Poly1305);
    for (alpha, beta, agreed) in
        [(aes, aes, aes), (plain, plain, plain), (aes, chacha, chacha), (plain, aes, chacha)]
    {
        let mut room = Room::new();
        (room.terms[0].suite, room.terms[1].suite) = (alpha, beta);
        assert_eq!(room.link().map(|stream| stream.suite()), [agreed, agreed]);
    }
    // A suite that only a later version knows.
    let (_alpha, accepted) = Room::new()
        .with_raw_alpha(|mut alpha| alpha.write_all(&hello(Version::CURRENT.0, 9)).map(|()| alpha));
    assert_eq!(accepted.unwrap().suite(), chacha);
}
