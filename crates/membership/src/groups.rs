//! Many small groups on one. (Galaxy §8.5, §8.8)
