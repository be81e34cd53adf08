//! Agents that are none.
