//! How a node comes in. (MSCS §7.7.1)
