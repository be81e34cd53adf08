//! The classic way, with all its timers, as a baseline. (MSCS, ch. 7)
