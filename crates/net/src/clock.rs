//! The clock of this process: what its protocols are handed as the time.

use std::sync::OnceLock;
use std::time::Instant;

use comb_types::Time;

/// Now, counted from the first call.
pub(crate) fn now() -> Time {
    static START: OnceLock<Instant> = OnceLock::new();
    let since = START.get_or_init(Instant::now).elapsed();
    Time::from_nanos(u64::try_from(since.as_nanos()).expect("584 years"))
}
