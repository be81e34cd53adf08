//! Devices of virtual machines, each a process of its own that an engine reaches by vhost-user: it has the rings and the memory of its guests, checks all that they say, and may be killed.

pub mod backend;
pub mod disk;
pub mod switch;
