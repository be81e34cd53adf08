//! How files are really used: every file operation of unmodified programs is recorded at little cost, and analysed with the rigour that
//! heavy tails demand. (Thesis, chapter 9)
//!
//! | module | question |
//! |---|---|
//! | [`statistics`] | what may be said of a sample whose variance could be infinite? |

pub mod statistics;
