//! Who owns which kinds of messages. A kind is a byte in every message's header.

/// The first kind that is not an application's: everything from here on is refused by [`crate::Endpoint::send`].
pub const FIRST_RESERVED: u8 = 0x80;

/// First of the active messages' kinds, up to `0x8F`.
pub(crate) const ACTIVE_MESSAGES: u8 = 0x80;
/// First of the virtual interfaces' kinds, up to `0x9F`.
pub(crate) const VIRTUAL_INTERFACES: u8 = 0x90;
/// First of the windows' kinds, up to `0xAF`.
pub(crate) const WINDOWS: u8 = 0xA0;
/// First of the channel's own kinds, up to `0xFF`.
pub(crate) const CHANNEL: u8 = 0xF0;

// Each layer checks its own; here, that none reaches into another's.
const _: () = assert!(FIRST_RESERVED == ACTIVE_MESSAGES && VIRTUAL_INTERFACES == ACTIVE_MESSAGES + 0x10);
const _: () = assert!(WINDOWS == VIRTUAL_INTERFACES + 0x10 && CHANNEL > WINDOWS + 0x0F);

/// A message that its sender's window layer sends after a put: [`crate::PutNotice`].
pub const PUT_NOTICE: u8 = WINDOWS;
/// A component of a program tells of its window: [`crate::global`].
pub(crate) const GLOBAL_WINDOW: u8 = WINDOWS + 1;
/// A component of a program came to a barrier: [`crate::global`].
pub(crate) const GLOBAL_BARRIER: u8 = WINDOWS + 2;
