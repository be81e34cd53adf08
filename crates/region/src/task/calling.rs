//! Calls between components, and the end of a task that one component decides: for the runtime of a program that has one `main`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Task;
use crate::calls::{Answer, CallError, Incoming, MOST_CALL_BYTES};
use crate::engine::{Engine, end_now};
use crate::runtime::Runtime;
use crate::waiting::Slot;

/// How long component 0 waits until all others know of the end. The launcher ends whoever does not.
const LONGEST_END: Duration = Duration::from_secs(2);

impl Task {
    /// Calls a component, possibly this one, and waits until a thread there has answered.
    pub fn call(&self, rank: u32, service: u32, content: &[u8], room: usize) -> Result<Answer, CallError> {
        if rank >= self.count() {
            return Err(CallError::NoComponent(rank));
        }
        if content.len() > MOST_CALL_BYTES {
            return Err(CallError::TooLong(content.len()));
        }
        self.publish();
        let room = room.min(MOST_CALL_BYTES);
        let (token, _) = self.runtime().call(|engine, slot| {
            slot.begin(0);
            if engine.parted.contains(&rank) || !engine.core.lives(rank) {
                return None;
            }
            let Engine { calls, core, .. } = engine;
            Some(calls.call(core, (rank, service), content, room, slot))
        });
        let answer = token.and_then(|token| self.runtime().lock().calls.take_answer(token));
        answer.ok_or(CallError::Over(rank))
    }

    /// Waits for the next call of this component.
    pub fn next_call(&self) -> Incoming {
        let _away = comb_memory::threads::Away::begin();
        let runtime = self.runtime();
        let slot = Arc::new(Slot::default());
        loop {
            let mut engine = runtime.lock();
            if let Some(incoming) = engine.calls.next() {
                return incoming;
            }
            engine.calls.wait(&slot);
            drop(engine);
            // It does not drive meanwhile, nor look: there may be many such threads, and what they wait for may never come.
            while !slot.is_done() {
                slot.sleep(None);
            }
        }
    }

    /// Answers a call, by its number. What this thread has stored, the caller finds.
    pub fn answer_call(&self, number: u64, answer: Answer) {
        self.publish();
        let mut engine = self.runtime().enter();
        let Engine { calls, core, .. } = &mut *engine;
        calls.answer(core, number, answer);
        Runtime::leave(engine);
    }

    /// Ends this process at once; of component 0 the whole task with this status. Another one that ends has failed, if its status is not 0.
    pub fn end(&self, status: i32) -> ! {
        if self.rank() == 0 && self.count() > 1 {
            let runtime = self.runtime();
            let slot = Arc::new(Slot::default());
            let mut engine = runtime.enter();
            engine.say_that_it_ends(&slot);
            Runtime::leave(engine);
            let deadline = Instant::now() + LONGEST_END;
            // Signals' handlers may run meanwhile.
            while runtime.wait_as_told(&slot, Some(deadline)) == Err(rustix::io::Errno::INTR) {}
            let mut engine = runtime.lock();
            engine.let_all_end();
            while Instant::now() < deadline && engine.core.peers.as_mut().is_some_and(|peers| !peers.flush())
            {
            }
        }
        // Again, with what others have asked for meanwhile; and that of one that ends alone.
        self.hand_in_report();
        end_now(status)
    }
}
