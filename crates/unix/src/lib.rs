//! Unmodified Linux programs on the cache kernel.
