//! Frames between hosts: authenticated, encrypted, each taken once.
//!
//! Inside one host the kernel says who wrote a page. Between hosts nobody does, so every frame carries proof:
//! it is sealed (AEAD) with a key that only the other end of its channel has, and which lasts for one session
//! and one direction. What cannot prove itself is counted and dropped; it never reaches a decoder.
//!
//! ```text
//!  0         1       2      3       4             8            16
//!  | version | suite | kind | flags | channel tag | counter     | payload, encrypted … | tag, 16 bytes |
//!  └──────────────── associated data ──────────────────────────┘
//! ```
//!
//! Numbers are little-endian. The nonce is the direction and the counter; the counter is never reset while
//! the key lives. A frame whose counter has been seen, or is too old to tell, is refused, and that is asked
//! only *after* authentication: a forger must not be able to move the window.
//!
//! [`Suite::Plain`] leaves out encryption and proof for networks that are trusted wholly (and for measuring
//! what the proof costs). Its frames are still checked for version, channel, length and repetition, which
//! finds faults and stops nobody.

mod header;
mod replay;
#[cfg(test)]
mod tests;

use comb_types::{ChannelId, Version};
use header::Header;
use replay::ReplayWindow;
use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use thiserror::Error;

pub use header::{HEADER_BYTES, channel_of};

/// Bytes behind the payload of a sealed frame.
pub const TAG_BYTES: usize = 16;

/// Bytes of a channel's secret, whatever the suite.
pub const SECRET_BYTES: usize = 32;

/// One key seals no more frames than this. GCM leaks in proportion to the square of the blocks it has sealed:
/// 2³⁶ frames of 64 KiB are 2⁴⁸ blocks, where an attacker who reads all of them tells them from noise with a
/// chance of 2⁻³³. A million frames a second take 19 hours to get there; then the channel needs new keys.
pub const FRAMES_PER_KEY: u64 = 1 << 36;

/// How frames are protected. Both ends must use the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Suite {
    /// Not at all.
    Plain = 0,
    /// AES-256-GCM: the faster one where the CPU has instructions for it.
    Aes256Gcm = 1,
    /// ChaCha20-Poly1305: the faster one, and the one without timing leaks, where it has not.
    ChaCha20Poly1305 = 2,
}

impl Suite {
    /// The faster suite on this CPU.
    pub fn preferred() -> Suite {
        if has_aes() { Suite::Aes256Gcm } else { Suite::ChaCha20Poly1305 }
    }

    /// The suite of two ends that prefer `self` and `other`: each can do both, and the one without AES
    /// instructions suffers more from AES than the other from ChaCha.
    pub fn agree(self, other: Suite) -> Suite {
        if self == other { self } else { Suite::ChaCha20Poly1305 }
    }

    /// The suite that the wire calls `byte`.
    pub fn from_byte(byte: u8) -> Option<Suite> {
        [Suite::Plain, Suite::Aes256Gcm, Suite::ChaCha20Poly1305]
            .into_iter()
            .find(|suite| *suite as u8 == byte)
    }

    fn algorithm(self) -> Option<&'static aead::Algorithm> {
        match self {
            Suite::Plain => None,
            Suite::Aes256Gcm => Some(&aead::AES_256_GCM),
            Suite::ChaCha20Poly1305 => Some(&aead::CHACHA20_POLY1305),
        }
    }

    fn tag_bytes(self) -> usize {
        if self == Suite::Plain { 0 } else { TAG_BYTES }
    }

    /// What a frame is longer than its payload.
    pub fn overhead_bytes(self) -> usize {
        HEADER_BYTES + self.tag_bytes()
    }
}

#[cfg(target_arch = "x86_64")]
fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq")
}

#[cfg(target_arch = "aarch64")]
fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes") && std::arch::is_aarch64_feature_detected!("pmull")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn has_aes() -> bool {
    false
}

/// Which way a frame goes. Part of the nonce, so that even a key used for both directions by mistake would
/// not seal two frames under one nonce, and a frame that is sent back to its author does not open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Direction {
    /// From the end that connected.
    FromConnector = 0,
    /// From the end that accepted.
    FromAcceptor = 1,
}

/// The key of one direction of one channel. Whoever makes one vouches that its secret was never used for
/// another channel, direction or session: counters start from zero, and a nonce used twice gives away both
/// frames and lets anyone forge more.
pub struct SealKey {
    suite: Suite,
    direction: Direction,
    secret: [u8; SECRET_BYTES],
}

impl SealKey {
    /// A key for frames that go in `direction`. With [`Suite::Plain`] the secret is not used.
    pub fn new(suite: Suite, direction: Direction, secret: [u8; SECRET_BYTES]) -> SealKey {
        SealKey { suite, direction, secret }
    }

    fn cipher(&self) -> Option<LessSafeKey> {
        let algorithm = self.suite.algorithm()?;
        let key = UnboundKey::new(algorithm, &self.secret).expect("both suites take keys of this length");
        Some(LessSafeKey::new(key))
    }

    /// What its frames are longer than their payloads.
    pub(crate) fn overhead_bytes(&self) -> usize {
        self.suite.overhead_bytes()
    }

    /// For the one process that is to seal or open with it; whoever hands it on forgets it.
    pub(crate) fn secret(&self) -> &[u8; SECRET_BYTES] {
        &self.secret
    }

    fn nonce(direction: Direction, counter: u64) -> Nonce {
        let mut nonce = [0; aead::NONCE_LEN];
        nonce[0] = direction as u8;
        nonce[4..].copy_from_slice(&counter.to_le_bytes());
        Nonce::assume_unique_for_key(nonce)
    }
}

impl std::fmt::Debug for SealKey {
    /// Keeps the secret out of logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SealKey { suite, direction, .. } = self;
        f.debug_struct("SealKey").field("suite", suite).field("direction", direction).finish_non_exhaustive()
    }
}

/// Why a frame was not sealed. Nothing was sent and no counter was used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SealError {
    /// The caller's buffer is too short.
    #[error("a frame of {needed} bytes does not fit a buffer of {available}")]
    NoRoom {
        /// The length of the frame.
        needed: usize,
        /// The length of the buffer.
        available: usize,
    },
    /// This key has sealed all that it may. Go on with a new channel.
    #[error("this channel's key has sealed {FRAMES_PER_KEY} frames and may seal no more")]
    Exhausted,
}

/// Seals the frames of one direction of one channel.
#[derive(Debug)]
pub struct Sealer {
    suite: Suite,
    direction: Direction,
    cipher: Option<LessSafeKey>,
    version: Version,
    channel: ChannelId,
    next_counter: u64,
}

impl Sealer {
    /// Starts counting from zero, so `key` must be new. `version` is the one that the handshake settled on.
    #[expect(clippy::needless_pass_by_value, reason = "a key has one sealer; two would use its nonces twice")]
    pub fn new(key: SealKey, channel: ChannelId, version: Version) -> Sealer {
        let SealKey { suite, direction, .. } = key;
        Sealer { suite, direction, cipher: key.cipher(), version, channel, next_counter: 0 }
    }

    /// Copies the payload, gathered from `parts`, into a frame and seals it. Returns the frame's length.
    /// `kind` and `flags` are the caller's; everyone on the way can read them.
    pub fn seal(
        &mut self,
        kind: u8,
        flags: u8,
        parts: &[&[u8]],
        into: &mut [u8],
    ) -> Result<usize, SealError> {
        let payload_bytes = parts.iter().map(|part| part.len()).sum();
        let frame = self.frame(into, payload_bytes)?;
        let mut rest = &mut frame[HEADER_BYTES..];
        for part in parts {
            let (place, behind) = rest.split_at_mut(part.len());
            place.copy_from_slice(part);
            rest = behind;
        }
        self.seal_in_place(kind, flags, payload_bytes, into)
    }

    /// Seals a payload that the caller has written into `frame` behind [`HEADER_BYTES`]. Returns the frame's
    /// length.
    pub fn seal_in_place(
        &mut self,
        kind: u8,
        flags: u8,
        payload_bytes: usize,
        frame: &mut [u8],
    ) -> Result<usize, SealError> {
        let frame = self.frame(frame, payload_bytes)?;
        let counter = self.next_counter;
        let Sealer { version, suite, channel, .. } = *self;
        let header =
            Header { version: version.0, suite: suite as u8, kind, flags, channel, counter }.to_bytes();
        // From here on the nonce counts as used, whatever happens.
        self.next_counter += 1;
        frame[..HEADER_BYTES].copy_from_slice(&header);
        if let Some(cipher) = &self.cipher {
            let (payload, tag) = frame[HEADER_BYTES..].split_at_mut(payload_bytes);
            let nonce = SealKey::nonce(self.direction, counter);
            let sealed = cipher
                .seal_in_place_separate_tag(nonce, Aad::from(header), payload)
                .expect("no buffer is long enough to exceed the suites' limit of 2³⁶ bytes");
            tag.copy_from_slice(sealed.as_ref());
        }
        Ok(frame.len())
    }

    /// How many more frames this key may seal: the caller takes new keys before it comes to zero.
    pub fn remaining(&self) -> u64 {
        FRAMES_PER_KEY - self.next_counter
    }

    fn frame<'b>(&self, buffer: &'b mut [u8], payload_bytes: usize) -> Result<&'b mut [u8], SealError> {
        if self.next_counter >= FRAMES_PER_KEY {
            return Err(SealError::Exhausted);
        }
        let (needed, available) = (payload_bytes + self.suite.overhead_bytes(), buffer.len());
        buffer.get_mut(..needed).ok_or(SealError::NoRoom { needed, available })
    }
}

/// Why a frame was dropped. On a network anyone can cause each of these, so they are counted and accuse
/// nobody.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Refused {
    /// Shorter than any frame of this channel.
    #[error("truncated")]
    Truncated,
    /// Longer than any frame of this channel.
    #[error("oversized")]
    Oversized,
    /// Of a version that we cannot read.
    #[error("of an unknown version")]
    Version,
    /// Not of this channel.
    #[error("of an unknown channel")]
    UnknownChannel,
    /// Not sealed by the other end, or changed since, or of another suite than agreed.
    #[error("forged or damaged")]
    Forged,
    /// Genuine, but it has been here before, or is too old to tell.
    #[error("replayed")]
    Replayed,
}

/// Frames dropped, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// [`Refused::Forged`]
    pub forged: u64,
    /// [`Refused::Replayed`]
    pub replayed: u64,
    /// [`Refused::Truncated`]
    pub truncated: u64,
    /// [`Refused::Oversized`]
    pub oversized: u64,
    /// [`Refused::Version`]
    pub version: u64,
    /// [`Refused::UnknownChannel`]
    pub unknown_channel: u64,
}

impl Dropped {
    /// Counts one more. For whoever finds no channel for a frame; an [`Opener`] counts its own.
    pub fn count(&mut self, reason: Refused) {
        *match reason {
            Refused::Forged => &mut self.forged,
            Refused::Replayed => &mut self.replayed,
            Refused::Truncated => &mut self.truncated,
            Refused::Oversized => &mut self.oversized,
            Refused::Version => &mut self.version,
            Refused::UnknownChannel => &mut self.unknown_channel,
        } += 1;
    }

    /// All together.
    pub fn total(&self) -> u64 {
        let Dropped { forged, replayed, truncated, oversized, version, unknown_channel } = *self;
        forged + replayed + truncated + oversized + version + unknown_channel
    }
}

/// A frame that proved itself (or, with [`Suite::Plain`], alleges to be what it seems). Its author is the
/// other end of the channel, which can still be wrong or malicious: the payload is an allegation as ever.
#[derive(PartialEq, Eq, Debug)]
pub struct Opened<'f> {
    /// As given to the sealer.
    pub kind: u8,
    /// As given to the sealer.
    pub flags: u8,
    /// The author's count of this frame. No two opened frames of a channel have the same; order is not
    /// guaranteed.
    pub counter: u64,
    /// The payload, decrypted in place.
    pub payload: &'f mut [u8],
}

/// Opens the frames of one direction of one channel.
#[derive(Debug)]
pub struct Opener {
    suite: Suite,
    direction: Direction,
    cipher: Option<LessSafeKey>,
    channel: ChannelId,
    longest_payload_bytes: usize,
    window: ReplayWindow,
    dropped: Dropped,
}

impl Opener {
    /// `key` is the one that the other end seals with.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a key has one opener; two would take each frame twice"
    )]
    pub fn new(key: SealKey, channel: ChannelId, longest_payload_bytes: usize) -> Opener {
        let SealKey { suite, direction, .. } = key;
        Opener {
            suite,
            direction,
            cipher: key.cipher(),
            channel,
            longest_payload_bytes,
            window: ReplayWindow::default(),
            dropped: Dropped::default(),
        }
    }

    /// Opens a frame in place, or drops it and counts why. After a refusal the buffer's content means
    /// nothing.
    pub fn open<'f>(&mut self, frame: &'f mut [u8]) -> Result<Opened<'f>, Refused> {
        match self.check_and_open(frame) {
            Ok(opened) => Ok(opened),
            Err(reason) => {
                self.dropped.count(reason);
                Err(reason)
            }
        }
    }

    /// What was dropped so far.
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }

    fn check_and_open<'f>(&mut self, frame: &'f mut [u8]) -> Result<Opened<'f>, Refused> {
        let bytes = frame.len();
        let (header_bytes, sealed) =
            frame.split_first_chunk_mut::<HEADER_BYTES>().ok_or(Refused::Truncated)?;
        let header = Header::from_bytes(header_bytes);
        // The cheap questions first; the answers are allegations until the frame has proved itself.
        if Version::CURRENT.accept(Version(header.version)) != Ok(Version(header.version)) {
            return Err(Refused::Version);
        }
        if header.channel != self.channel {
            return Err(Refused::UnknownChannel);
        }
        if bytes > self.longest_payload_bytes + self.suite.overhead_bytes() {
            return Err(Refused::Oversized);
        }
        if bytes < self.suite.overhead_bytes() {
            return Err(Refused::Truncated);
        }
        // The suite was agreed in the handshake: a frame that asks for another asks for a weaker one.
        if header.suite != self.suite as u8 || header.counter >= FRAMES_PER_KEY {
            return Err(Refused::Forged);
        }
        let payload = match &self.cipher {
            None => sealed,
            Some(cipher) => cipher
                .open_in_place(
                    SealKey::nonce(self.direction, header.counter),
                    Aad::from(&*header_bytes),
                    sealed,
                )
                .map_err(|_| Refused::Forged)?,
        };
        if !self.window.accept(header.counter) {
            return Err(Refused::Replayed);
        }
        Ok(Opened { kind: header.kind, flags: header.flags, counter: header.counter, payload })
    }
}
