//! Calls between components: one asks, a thread of the other that serves such calls answers.
//!
//! What is called means nothing here; it is for the runtime of the program. A call waits at the component that is called until a thread comes for
//! it ([`Calls::next`]), and is known by a number until it is answered. A component calls itself in the same way, without a message.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::driver::Core;
use crate::kept::{Kept, TooMuch};
use crate::waiting::Slot;
use crate::wire::{Head, Kind};

/// The longest content of a call, and of an answer.
pub const MOST_CALL_BYTES: usize = 64 << 10;
/// Calls of one component that wait for an answer at once: each of its threads makes one.
const MOST_CALLS: u64 = 65_536;

/// Why a message about calls is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Mistake {
    #[error("more than {0} calls of one component that wait for an answer")]
    Calls(u64),
    #[error("a call or an answer of {0} bytes")]
    Content(usize),
    #[error("an answer to a call that it was not asked")]
    NotAsked,
    #[error("a service or an error with the number {0}")]
    Number(u64),
}

/// Why a call has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallError {
    /// The caller has the wrong number.
    #[error("there is no component {0}")]
    NoComponent(u32),
    /// The task is about to end.
    #[error("component {0} is over")]
    Over(u32),
    /// The caller wants too much at once.
    #[error("{0} bytes are more than a call has ({MOST_CALL_BYTES})")]
    TooLong(usize),
}

/// A call that has come to this component.
#[derive(PartialEq, Eq, Debug)]
pub struct Incoming {
    /// Who calls.
    pub from: u32,
    /// What it wants.
    pub service: u32,
    /// With this.
    pub content: Vec<u8>,
    /// No more is taken of an answer.
    pub room: usize,
    /// By which it is answered.
    pub number: u64,
}

/// What a call has come to.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Answer {
    /// As the service means it.
    pub result: i64,
    /// As the service means it; a number as `errno` has.
    pub error: i32,
    /// Not more than the caller has room for.
    pub content: Vec<u8>,
}

/// Who waits for the answer to a call.
struct Caller {
    rank: u32,
    token: u64,
    room: usize,
}

pub(crate) struct Calls {
    own: u32,
    incoming: VecDeque<Incoming>,
    /// Threads that wait for one.
    idle: Vec<Arc<Slot>>,
    callers: BTreeMap<u64, Caller>,
    next_number: u64,
    /// Of calls that are not answered yet.
    asked: Kept,
    /// Answers that their threads have not taken yet, by token.
    answers: BTreeMap<u64, Answer>,
}

impl Calls {
    pub(crate) fn new(own: u32) -> Self {
        Self {
            own,
            incoming: VecDeque::new(),
            idle: Vec::new(),
            callers: BTreeMap::new(),
            next_number: 0,
            asked: Kept::new(own, MOST_CALLS),
            answers: BTreeMap::new(),
        }
    }

    /// Calls a component that lives. The slot ends when there is an answer: [`Calls::take_answer`] has it, by the token.
    pub(crate) fn call(
        &mut self,
        core: &mut Core,
        (rank, service): (u32, u32),
        content: &[u8],
        room: usize,
        slot: &Arc<Slot>,
    ) -> u64 {
        slot.begin(1);
        let token = core.token(rank, slot);
        if rank == self.own {
            self.come(Caller { rank, token, room }, service, content).expect("as many as we like");
        } else {
            core.say(rank, Kind::Call, &[token, u64::from(service), room as u64, 0], content);
        }
        token
    }

    pub(crate) fn take_answer(&mut self, token: u64) -> Option<Answer> {
        self.answers.remove(&token)
    }

    /// The call that has waited longest.
    pub(crate) fn next(&mut self) -> Option<Incoming> {
        self.incoming.pop_front()
    }

    /// A thread found none. Its slot ends when one has come, which another may take before it.
    pub(crate) fn wait(&mut self, slot: &Arc<Slot>) {
        slot.begin(1);
        self.idle.push(Arc::clone(slot));
    }

    /// Answers a call. One that has been answered already is not there any more.
    pub(crate) fn answer(&mut self, core: &mut Core, number: u64, mut answer: Answer) {
        let Some(Caller { rank, token, room }) = self.callers.remove(&number) else { return };
        self.asked.remove(rank, 1);
        answer.content.truncate(room);
        if rank == self.own {
            self.answers.insert(token, answer);
            core.answered(rank, token, [0, 0]).expect("a thread of ours waits for it");
        } else {
            let head = [token, answer.result.cast_unsigned(), u64::from(answer.error.cast_unsigned()), 0];
            core.say(rank, Kind::CallAnswer, &head, &answer.content);
        }
    }

    /// What another component says.
    pub(crate) fn hear(&mut self, from: u32, head: &Head, content: &[u8]) -> Result<(), Mistake> {
        let [token, service, room, _] = *head;
        check_length(content)?;
        let service = u32::try_from(service).map_err(|_| Mistake::Number(service))?;
        let room = usize::try_from(room).unwrap_or(usize::MAX).min(MOST_CALL_BYTES);
        self.come(Caller { rank: from, token, room }, service, content)
    }

    /// The answer of another component.
    pub(crate) fn hear_answer(
        &mut self,
        core: &mut Core,
        from: u32,
        head: &Head,
        content: &[u8],
    ) -> Result<(), Mistake> {
        let [token, result, error, _] = *head;
        check_length(content)?;
        let number = u32::try_from(error).map_err(|_| Mistake::Number(error))?;
        let answer =
            Answer { result: result.cast_signed(), error: number.cast_signed(), content: content.to_vec() };
        // Its thread looks for it as soon as it is told.
        self.answers.insert(token, answer);
        core.answered(from, token, [0, 0]).map_err(|_| {
            self.answers.remove(&token);
            Mistake::NotAsked
        })
    }

    fn come(&mut self, caller: Caller, service: u32, content: &[u8]) -> Result<(), Mistake> {
        self.asked.add(caller.rank, 1).map_err(|TooMuch(most)| Mistake::Calls(most))?;
        self.next_number += 1;
        let number = self.next_number;
        self.incoming.push_back(Incoming {
            from: caller.rank,
            service,
            content: content.to_vec(),
            room: caller.room,
            number,
        });
        self.callers.insert(number, caller);
        if let Some(idle) = self.idle.pop() {
            idle.end([0, 0]);
        }
        Ok(())
    }
}

fn check_length(content: &[u8]) -> Result<(), Mistake> {
    if content.len() > MOST_CALL_BYTES { Err(Mistake::Content(content.len())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::scene::engine;

    #[test]
    fn a_component_calls_itself_and_the_answer_is_cut_to_the_room_for_it() {
        let mut engine = engine();
        let crate::engine::Engine { calls, core, .. } = &mut engine;
        let (caller, server) = (Arc::new(Slot::default()), Arc::new(Slot::default()));
        assert_eq!(calls.next(), None);
        calls.wait(&server);
        let token = calls.call(core, (0, 7), b"what?", 3, &caller);
        assert!(server.is_done() && !caller.is_done());
        let incoming = calls.next().expect("it has come");
        assert_eq!((incoming.from, incoming.service, incoming.room), (0, 7, 3));
        assert_eq!(incoming.content, b"what?");
        calls.answer(core, incoming.number, Answer { result: -1, error: 5, content: b"that".to_vec() });
        assert!(caller.is_done());
        let answer = calls.take_answer(token).expect("it is there");
        assert_eq!(answer, Answer { result: -1, error: 5, content: b"tha".to_vec() });
        // Once.
        calls.answer(core, incoming.number, Answer::default());
        assert_eq!(calls.take_answer(token), None);
    }

    #[test]
    fn what_others_say_is_checked_and_bounded() {
        let mut engine = engine();
        let crate::engine::Engine { calls, core, .. } = &mut engine;
        let long = vec![0; MOST_CALL_BYTES + 1];
        assert_eq!(calls.hear(1, &[1, 2, 3, 0], &long), Err(Mistake::Content(long.len())));
        assert_eq!(calls.hear(1, &[1, 1 << 32, 3, 0], &[]), Err(Mistake::Number(1 << 32)));
        assert_eq!(calls.hear_answer(core, 1, &[99, 0, 0, 0], &[]), Err(Mistake::NotAsked));
        assert_eq!(calls.take_answer(99), None);
        for token in 0..MOST_CALLS {
            assert_eq!(calls.hear(1, &[token, 2, u64::MAX, 0], &[]), Ok(()));
        }
        assert_eq!(calls.hear(1, &[7, 2, 3, 0], &[]), Err(Mistake::Calls(MOST_CALLS)));
        assert_eq!(calls.hear(2, &[7, 2, 3, 0], &[1]), Ok(()));
        let first = calls.next().expect("they have come");
        assert_eq!((first.from, first.room), (1, MOST_CALL_BYTES));
        calls.answer(core, first.number, Answer::default());
        assert_eq!(calls.hear(1, &[7, 2, 3, 0], &[]), Ok(()), "what is answered makes room");
    }

    /// Only who was called answers.
    #[test]
    fn an_answer_is_taken_from_whom_it_was_asked() {
        let mut engine = engine();
        let crate::engine::Engine { calls, core, .. } = &mut engine;
        let slot = Arc::new(Slot::default());
        let token = calls.call(core, (1, 0), &[], 8, &slot);
        assert_eq!(calls.hear_answer(core, 2, &[token, 1, 0, 0], &[]), Err(Mistake::NotAsked));
        assert!(!slot.is_done());
        assert_eq!(calls.hear_answer(core, 1, &[token, 1, 0, 0], b"yes"), Ok(()));
        assert!(slot.is_done());
        assert_eq!(calls.take_answer(token).expect("it is there").content, b"yes");
    }
}
