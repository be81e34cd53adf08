//! What every node says of itself, spread by gossip. (Galaxy §8.5.1)
