//! Processors of a machine that has cores of the host's for itself: each stays on one of them.
//!
//! Which cores those are its cell says, by the threads of the engine: all of them run on these. A processor that moved from one to another there would leave behind what the core knows of it.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::json;

use crate::engine::ANSWER_LIMIT;
use crate::qmp::{Qmp, QmpError};

/// The threads that are a machine's processors, and where they were put.
#[derive(Debug)]
pub(crate) struct Processors {
    engine: Pid,
    threads: Vec<Pid>,
    given: Option<CpuSet>,
}

fn pid(number: impl TryInto<i32>) -> Option<Pid> {
    Pid::from_raw(number.try_into().ok()?)
}

impl Processors {
    /// Those of an engine.
    pub(crate) fn of(engine: u32, qmp: &mut Qmp) -> Result<Self, QmpError> {
        let all = qmp.call("query-cpus-fast", &json!({}), ANSWER_LIMIT)?;
        let all = all.as_array().into_iter().flatten();
        let threads = all.filter_map(|one| pid(one["thread-id"].as_u64()?)).collect();
        Ok(Self { engine: pid(engine).expect("it runs"), threads, given: None })
    }

    /// Puts each on one of the cores that the engine was given, or lets it run on all of them when it was given none.
    pub(crate) fn follow(&mut self) {
        let Ok(given) = sched_getaffinity(Some(self.engine)) else { return };
        if self.given == Some(given) {
            return;
        }
        let is_given = sched_getaffinity(None).is_ok_and(|own| own != given);
        for (at, &thread) in self.threads.iter().enumerate() {
            let _ = sched_setaffinity(Some(thread), &if is_given { one_of(&given, at) } else { given });
        }
        self.given = Some(given);
    }
}

/// The one with this number, and begins anew where there are no more.
fn one_of(given: &CpuSet, at: usize) -> CpuSet {
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| given.is_set(core)).collect();
    let mut one = CpuSet::new();
    if let Some(at) = at.checked_rem(cores.len()) {
        one.set(cores[at]);
    }
    one
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn set(cores: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        cores.iter().for_each(|&core| set.set(core));
        set
    }

    #[test]
    fn processors_take_the_cores_in_turn() {
        let given = set(&[1, 4, 6]);
        assert_eq!([0, 1, 2, 3].map(|at| one_of(&given, at)), [set(&[1]), set(&[4]), set(&[6]), set(&[1])]);
        assert_eq!(one_of(&set(&[]), 3), set(&[]));
    }

    #[test]
    fn processors_go_where_their_engine_was_put_and_back() {
        let own = sched_getaffinity(None).unwrap();
        let last = (0..CpuSet::MAX_CPU).rfind(|&core| own.is_set(core)).unwrap();
        if own == set(&[last]) {
            return;
        }
        // Two threads are an engine and its processor.
        let (says, hears) = mpsc::channel();
        let threads: Vec<mpsc::Sender<()>> = (0..2)
            .map(|_| {
                let (end, waits) = mpsc::channel();
                let says = says.clone();
                std::thread::spawn(move || {
                    says.send(rustix::thread::gettid()).unwrap();
                    let _ = waits.recv();
                });
                end
            })
            .collect();
        let [engine, processor] = [hears.recv().unwrap(), hears.recv().unwrap()];
        let mut processors = Processors { engine, threads: vec![processor], given: None };
        let now = || sched_getaffinity(Some(processor)).unwrap();
        processors.follow();
        assert_eq!(now(), own);
        sched_setaffinity(Some(engine), &set(&[last])).unwrap();
        processors.follow();
        assert_eq!(now(), set(&[last]));
        sched_setaffinity(Some(engine), &own).unwrap();
        processors.follow();
        assert_eq!(now(), own);
        drop(threads);
    }
}
