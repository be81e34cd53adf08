//! What the supervisor holds: kernels, spaces, threads and mappings, each in a table that is a cache.
