//! What is in a space beside its program: the little code by which its threads stop, and by which its memory changes.
//!
//! A space is a process with nothing in it but this. Its first thread, the *mapper*, does what the supervisor tells it, one system call after the other,
//! and nothing else: it has no stack, and reads its orders from a page that the space cannot write. All other threads run programs. Whatever
//! stops one of these (a system call, a fault, an exception, the supervisor) is a signal, whose handler writes down that it is stopped, rings its
//! kernel's bell, and waits until it is told to go on. Only that a message has come stops nothing: if the thread has a signal function, the handler returns there,
//! and from its end to where the thread was. Filters of the host's kernel let no system call pass but those of this code, and of a
//! program's thread only the two that waiting and going on take.
//!
//! The first process of all is the *stem*, which the supervisor forks: it has the stub and orders, and no space. Those of spaces are its copies, which get orders
//! and areas of their own.
//!
//! A program can jump into this code, or write over all that it may write: it then waits, goes on, or dies. What stands in the pages that
//! it may write is an allegation to all others.

mod code;
mod filters;
pub(crate) mod layout;

pub(crate) use self::code::{entries, handler, text};
