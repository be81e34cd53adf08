//! What was agreed, in which order. (MSCS §7.8)
