//! Models that are looked at whole.

use core::fmt::Debug;
use core::hash::Hash;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

/// Looks at all states within a model's bounds. A bound that the time cuts short is not one.
pub(crate) fn look_at_all<M>(model: M, limit: Duration)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + PartialEq + Debug + Hash + Send + Sync,
    M::Action: Clone + PartialEq + Debug + Send + Sync,
{
    let began = Instant::now();
    let checker =
        model.checker().threads(2).timeout(limit).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let (all, depth) = (checker.unique_state_count(), checker.max_depth());
    std::println!("{all} states, {depth} deep, {:?}", began.elapsed());
    checker.assert_properties();
    assert!(began.elapsed() < limit, "the time was over before all states were seen");
}
