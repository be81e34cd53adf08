//! What the kind of a message says: who understands it. One byte, cut into ranges so that the layers of one endpoint
//! never take each other's messages.

use std::ops::RangeInclusive;

/// The application's own.
pub const APPLICATION: RangeInclusive<u8> = 0x00..=0x7F;
/// Active messages, and what is built on them.
pub const ACTIVE: RangeInclusive<u8> = 0x80..=0x8F;
/// Virtual interfaces.
pub const VIRTUAL_INTERFACE: RangeInclusive<u8> = 0x90..=0x9F;
/// Windows for direct access.
pub const WINDOW: RangeInclusive<u8> = 0xA0..=0xAF;
/// Emulated endpoints.
pub const EMULATED: RangeInclusive<u8> = 0xB0..=0xBF;
/// The channel itself.
pub const CHANNEL: RangeInclusive<u8> = 0xF0..=0xFF;

/// What [`crate::Endpoint::put_notify`] sends: a [`crate::PutNotice`].
pub const PUT_NOTICE: u8 = *WINDOW.start();
/// A component of a program tells of its window: [`crate::global`].
pub(crate) const GLOBAL_WINDOW: u8 = PUT_NOTICE + 1;
/// A component of a program came to a barrier: [`crate::global`].
pub(crate) const GLOBAL_BARRIER: u8 = PUT_NOTICE + 2;
