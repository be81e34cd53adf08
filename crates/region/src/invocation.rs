//! What a miss costs beside what it costs: for those who want to know what slower invocation would do to a program. (Blizzard, figure 1)

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Nanoseconds that every miss takes longer.
pub const INVOCATION_COST_VARIABLE: &str = "COMB_INVOCATION_COST";

static COST: OnceLock<Duration> = OnceLock::new();

/// Read once: who serves faults looks at no environment.
pub(crate) fn learn() {
    let cost = std::env::var(INVOCATION_COST_VARIABLE).ok().and_then(|text| text.parse().ok());
    let _ = COST.set(Duration::from_nanos(cost.unwrap_or(0)));
}

/// Spends it. Nothing is held meanwhile.
#[inline]
pub(crate) fn pay() {
    let Some(&cost) = COST.get().filter(|cost| !cost.is_zero()) else { return };
    let since = Instant::now();
    while since.elapsed() < cost {
        std::hint::spin_loop();
    }
}
