//! The gate that upcalls pass one at a time, and that anybody may close.

use std::cell::RefCell;
use std::sync::Arc;

use crate::sync::{AtomicU32, Ordering, thread_local, yield_now};

/// An upcall runs. The rest of the word counts those who disabled them.
const RUNNING: u32 = 1 << 31;

thread_local! {
    /// The gates whose upcalls run on this thread: one upcall may poll another queue, whose upcalls have another gate.
    static INSIDE: RefCell<Vec<usize>> = RefCell::default();
}

/// Disables and enables upcalls, from any thread.
#[derive(Clone, Debug)]
pub struct Gate(Arc<AtomicU32>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(AtomicU32::new(0)))
    }
}

impl Gate {
    /// No upcall runs from now on until the returned value is dropped. Waits for one that runs on another thread; an
    /// upcall that disables upcalls does not wait for itself. Sections nest.
    pub fn disable(&self) -> Disabled {
        let disabled = self.close();
        if !INSIDE.with(|inside| inside.borrow().contains(&self.number())) {
            self.await_upcall();
        }
        disabled
    }

    fn close(&self) -> Disabled {
        self.0.fetch_add(1, Ordering::SeqCst);
        Disabled(self.clone())
    }

    fn await_upcall(&self) {
        while self.0.load(Ordering::SeqCst) & RUNNING != 0 {
            std::hint::spin_loop();
            yield_now();
        }
    }

    fn number(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Runs the upcall if the gate is open; says whether.
    pub(crate) fn run(&self, upcall: impl FnOnce()) -> bool {
        if self.0.compare_exchange(0, RUNNING, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return false;
        }
        // Opened again also when the upcall panics: who disables upcalls then must not wait for ever.
        struct Leave<'a>(&'a Gate);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                INSIDE.with(|inside| inside.borrow_mut().pop());
                self.0.0.fetch_and(!RUNNING, Ordering::SeqCst);
            }
        }
        INSIDE.with(|inside| inside.borrow_mut().push(self.number()));
        let _leave = Leave(self);
        upcall();
        true
    }
}

/// Upcalls are disabled as long as this lives.
#[derive(Debug)]
pub struct Disabled(Gate);

impl Drop for Disabled {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// An upcall that polled another queue, whose upcall ran, was afterwards taken for a stranger at its own gate: it
    /// waited for itself for ever. And the inner upcall did so at the outer gate.
    #[test]
    fn an_upcall_within_an_upcall_waits_for_neither_gate() {
        let (outer, inner) = (Gate::default(), Gate::default());
        assert!(outer.run(|| {
            assert!(inner.run(|| {
                drop(inner.disable());
                drop(outer.disable());
            }));
            drop(outer.disable());
            drop(inner.disable());
        }));
        assert!(outer.run(|| ()) && inner.run(|| ()), "both open again");
    }

    #[test]
    fn a_gate_that_is_closed_twice_opens_once_both_are_gone() {
        let gate = Gate::default();
        let (one, two) = (gate.disable(), gate.disable());
        drop(one);
        assert!(!gate.run(|| panic!("closed")));
        drop(two);
        assert!(gate.run(|| ()));
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sync::Words;
    use crate::sync::plain::PlainWords;

    const INSIDE_UPCALL: usize = 0;
    const UPCALLS: usize = 1;

    type Run = fn(&Gate, &dyn Fn()) -> bool;
    type Disable = fn(&Gate) -> Disabled;

    /// A critical section on one thread while upcalls come on another: they exclude each other, and see what the other
    /// wrote.
    fn section_while_an_upcall_comes(run: Run, disable: Disable) {
        loom::model(move || {
            let (gate, words) = (Gate::default(), PlainWords::new(2));
            let (their_gate, theirs) = (gate.clone(), words.clone());
            let polling = loom::thread::spawn(move || {
                run(&their_gate, &|| {
                    theirs.word(INSIDE_UPCALL).store(1, Ordering::Relaxed);
                    let before = theirs.word(UPCALLS).load(Ordering::Relaxed);
                    theirs.word(UPCALLS).store(before + 1, Ordering::Relaxed);
                    theirs.word(INSIDE_UPCALL).store(0, Ordering::Relaxed);
                })
            });
            let section = disable(&gate);
            let inside = || words.word(INSIDE_UPCALL).load(Ordering::Relaxed);
            let before = words.word(UPCALLS).load(Ordering::Relaxed);
            assert_eq!(inside(), 0, "an upcall runs within a section");
            words.word(UPCALLS).store(before + 10, Ordering::Relaxed);
            assert_eq!(inside(), 0, "an upcall began within a section");
            drop(section);
            let ran = polling.join().unwrap();
            assert_eq!(
                words.word(UPCALLS).load(Ordering::Relaxed),
                10 + u64::from(ran),
                "one of both is lost"
            );
        });
    }

    #[test]
    fn loom_no_upcall_runs_in_a_critical_section_and_a_hasty_one_is_found() {
        let run: Run = |gate, upcall| gate.run(upcall);
        section_while_an_upcall_comes(run, Gate::disable);
        let broken = |run: Run, disable: Disable| {
            std::panic::catch_unwind(|| section_while_an_upcall_comes(run, disable)).is_err()
        };
        assert!(broken(run, Gate::close), "a section that does not wait begins within an upcall");
        let look_then_run: Run = |gate, upcall| {
            let open = gate.0.load(Ordering::SeqCst) == 0;
            if open {
                gate.0.fetch_or(RUNNING, Ordering::SeqCst);
                upcall();
                gate.0.fetch_and(!RUNNING, Ordering::SeqCst);
            }
            open
        };
        assert!(broken(look_then_run, Gate::disable), "an upcall that looks first begins within a section");
    }
}
