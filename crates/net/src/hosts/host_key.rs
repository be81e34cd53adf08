//! A host's key pair, and its file.

use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use std::fmt::{self, Write as _};
use std::fs::OpenOptions;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use thiserror::Error;

const KEY_BYTES: usize = 32;
const PUBLIC_PREFIX: &str = "ed25519:";
const SECRET_PREFIX: &str = "ed25519-secret:";

/// Who a host is. Prints as one line, `ed25519:` and 64 hexadecimal digits, and is read back from that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY_BYTES]);

/// The text is not a public key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("not a public key: expected {PUBLIC_PREFIX} and 64 hexadecimal digits")]
pub struct BadKey;

/// What stands before the key itself in the form that TLS sends: a sequence of the algorithm (1.3.101.112,
/// ed25519) and a string of 33 bytes, the first zero. (RFC 8410 §4)
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// What stands before the secret in the form that the TLS library reads: version 0, the algorithm, and the
/// secret in two strings, one in the other. (RFC 8410 §7)
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

impl PublicKey {
    pub(super) fn to_spki(self) -> Vec<u8> {
        [&SPKI_PREFIX[..], &self.0].concat()
    }

    /// The key that a peer presents: nothing but its form has been checked.
    pub(super) fn from_spki(spki: &[u8]) -> Option<PublicKey> {
        spki.strip_prefix(&SPKI_PREFIX)?.try_into().ok().map(PublicKey)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PUBLIC_PREFIX}{}", hexadecimal(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<PublicKey, BadKey> {
        text.strip_prefix(PUBLIC_PREFIX).and_then(key_bytes).map(PublicKey).ok_or(BadKey)
    }
}

/// A host's secret and its public half.
#[derive(Clone)]
pub struct HostKey {
    secret: [u8; KEY_BYTES],
    public: PublicKey,
}

/// Why a key file was not read or written.
#[derive(Debug, Error)]
pub enum KeyFileError {
    /// The file cannot be opened, read or written; or there is one already where a new one was to be saved.
    #[error("key file {file}: {error}")]
    File {
        /// Which.
        file: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Others can read it, so the secret may not be one any more.
    #[error(
        "key file {file} has mode {mode:04o}: make a new key, or, if nobody else can have read it, chmod 600"
    )]
    ReadableByOthers {
        /// Which.
        file: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is not what `save` wrote.
    #[error("key file {file} does not hold a secret key")]
    Malformed {
        /// Which.
        file: PathBuf,
    },
}

impl HostKey {
    /// A new key pair.
    ///
    /// # Panics
    /// When the operating system has no randomness to give.
    pub fn generate() -> HostKey {
        let mut secret = [0; KEY_BYTES];
        SystemRandom::new().fill(&mut secret).expect("the operating system gives randomness");
        HostKey::from_secret(secret)
    }

    /// The half that other hosts must know.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Reads a key. Refuses a file that anyone but its owner may read or write.
    pub fn load(file: &Path) -> Result<HostKey, KeyFileError> {
        let failed = |error| KeyFileError::File { file: file.to_owned(), error };
        let opened = std::fs::File::open(file).map_err(failed)?;
        // Asked of the open file, not of the name: between two looks at a name, the file can be another.
        let metadata = opened.metadata().map_err(failed)?;
        let mode = metadata.permissions().mode() & 0o7777;
        if !metadata.is_file() {
            return Err(KeyFileError::Malformed { file: file.to_owned() });
        }
        if mode & 0o077 != 0 {
            return Err(KeyFileError::ReadableByOthers { file: file.to_owned(), mode });
        }
        let mut text = String::new();
        opened.take(LONGEST_FILE_BYTES).read_to_string(&mut text).map_err(failed)?;
        HostKey::parse(&text).ok_or_else(|| KeyFileError::Malformed { file: file.to_owned() })
    }

    /// Writes the key to a new file that only its owner may read. A file that is there already stays: a host
    /// that loses its key is a stranger to all others.
    pub fn save(&self, file: &Path) -> Result<(), KeyFileError> {
        let failed = |error| KeyFileError::File { file: file.to_owned(), error };
        // The mode is set when the file is made: there is no moment in which others could open it.
        let mut created =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).map_err(failed)?;
        let written = created.write_all(self.to_text().as_bytes()).and_then(|()| created.sync_all());
        written.map_err(|error| {
            // Half a key is none, and would be in the way of the next try.
            let _ = std::fs::remove_file(file);
            failed(error)
        })
    }

    /// In the form that the TLS library takes.
    pub(super) fn to_pkcs8(&self) -> PrivatePkcs8KeyDer<'static> {
        [&PKCS8_PREFIX[..], &self.secret].concat().into()
    }

    /// Claims `public` without having its secret.
    #[cfg(test)]
    pub(super) fn impostor(public: PublicKey) -> HostKey {
        HostKey { public, ..HostKey::generate() }
    }

    fn from_secret(secret: [u8; KEY_BYTES]) -> HostKey {
        let pair = Ed25519KeyPair::from_seed_unchecked(&secret).expect("any 32 bytes are a secret");
        let public = pair.public_key().as_ref().try_into().expect("public keys are 32 bytes long");
        HostKey { secret, public: PublicKey(public) }
    }

    fn to_text(&self) -> String {
        format!(
            "# The secret key of a Comb host: whoever has it can speak in this host's name.\n\
             # Public: {}\n{SECRET_PREFIX}{}\n",
            self.public,
            hexadecimal(&self.secret)
        )
    }

    fn parse(text: &str) -> Option<HostKey> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let secret = lines.next()?.strip_prefix(SECRET_PREFIX).and_then(key_bytes)?;
        lines.next().is_none().then(|| HostKey::from_secret(secret))
    }
}

impl fmt::Debug for HostKey {
    /// Keeps the secret out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostKey").field("public", &self.public).finish_non_exhaustive()
    }
}

/// Far more than a key and some comments.
const LONGEST_FILE_BYTES: u64 = 4096;

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn key_bytes(text: &str) -> Option<[u8; KEY_BYTES]> {
    let digits: &[u8; 2 * KEY_BYTES] = text.as_bytes().try_into().ok()?;
    let mut bytes = [0; KEY_BYTES];
    for (byte, [high, low]) in bytes.iter_mut().zip(digits.as_chunks().0) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

fn digit(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}
