//! A message to thousands, which reaches them all almost certainly. (Galaxy §8.5.2)
