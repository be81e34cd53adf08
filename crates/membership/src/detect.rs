//! Who seems to have failed, and how sure that is. (Galaxy §8.5.1)

pub(crate) mod staleness;
