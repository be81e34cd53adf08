//! Which part of a group may go on. (MSCS §7.7.2)
