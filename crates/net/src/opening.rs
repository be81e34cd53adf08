//! Opening a channel: our side goes out, the peer's comes back. Who cannot wait for it looks again later.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::client::{Agent, Answer, Question, RequestError, something_else};
use crate::agent::visitor::SHORTEST_SILENCE_MS;
use crate::channel::{ChannelKey, Link};
use crate::endpoint::{Endpoint, EndpointShared, Incoming};
use crate::events::ChannelEvent;
use crate::shm::{OwnSide, ShmLink};

/// A channel that was asked for and is not there yet: [`Endpoint::begin_opening`]. Dropped, it is not wanted any more.
#[derive(Debug)]
pub struct Opening {
    agent: Agent,
    shared: Arc<EndpointShared>,
    to: String,
    /// None once it is answered.
    question: Option<Question>,
    /// Of a channel within this machine, until the peer has its side.
    side: Option<OurSide>,
}

#[derive(Debug)]
struct OurSide {
    own: OwnSide,
    index: u32,
    event: Option<ChannelEvent>,
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(side) = self.side.take() {
            side.own.abandonment().declare();
            self.shared.release_index(side.index);
        }
        if let Some(question) = self.question.take() {
            self.agent.shared().abandon(&question);
        }
    }
}

impl Endpoint {
    /// Opens a channel to `process/endpoint`, or to `host:process/endpoint`. The peer need not be polling.
    pub fn open(&mut self, to: &str) -> Result<ChannelKey, RequestError> {
        let mut opening = self.begin_opening(to)?;
        self.finish_opening(&mut opening, Duration::MAX).unwrap_or_else(|| unreachable!("it has a limit"))
    }

    /// The same for whoever cannot wait: asks, and leaves the rest to [`Endpoint::finish_opening`]. The answer wakes
    /// [`Endpoint::wait`].
    pub fn begin_opening(&mut self, to: &str) -> Result<Opening, RequestError> {
        let shared = Arc::clone(&self.shared);
        let (question, side) = if to.contains(':') {
            if shared.event_set().is_none() {
                return Err(RequestError::NeedsEvents);
            }
            let limit = shared.options().silence_limit.unwrap_or(shared.options().silence_limit_elsewhere);
            let limit_ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX).max(SHORTEST_SILENCE_MS);
            (self.agent.shared().begin_opening_elsewhere(&shared, to, limit_ms)?, None)
        } else {
            let (own, side, ring, event) = shared.new_side()?;
            let index = side.bell_index;
            let mut with = vec![&ring];
            with.extend(event.as_ref().map(ChannelEvent::descriptor));
            let question = self.agent.shared().begin_opening(&shared, to, side, &with);
            let question = question.inspect_err(|_| {
                own.abandonment().declare();
                shared.release_index(index);
            })?;
            (question, Some(OurSide { own, index, event }))
        };
        let (agent, to, question) = (self.agent.clone(), to.to_owned(), Some(question));
        Ok(Opening { agent, shared, to, question, side })
    }

    /// The channel, or why there is none; nothing yet if the peer has not answered within `wait`. Once it has said, drop it.
    pub fn finish_opening(
        &mut self,
        opening: &mut Opening,
        wait: Duration,
    ) -> Option<Result<ChannelKey, RequestError>> {
        let answer = match &opening.question {
            Some(question) => self.agent.shared().answer(question, wait)?,
            None => Err(something_else()),
        };
        opening.question = None;
        Some(answer.and_then(|answer| self.opened(answer, opening)))
    }

    fn opened(&mut self, answer: Answer, opening: &mut Opening) -> Result<ChannelKey, RequestError> {
        let forget = |channel, life| self.agent.shared().forget_channel(channel, life);
        let incoming = match (answer, &opening.side) {
            (Answer::Opened { channel, peer, life }, Some(side)) => {
                let link = ShmLink::new(&side.own, peer).inspect_err(|_| forget(channel, &life))?;
                let Some(OurSide { index, event, .. }) = opening.side.take() else { unreachable!("seen") };
                let peer = opening.to.clone();
                Incoming { channel, index, peer, link: Link::Shm(link), life, event }
            }
            (Answer::RemoteOpened { channel, transport, life }, None) => {
                let made = self.shared.remote_channel(channel, Arc::clone(&life), transport);
                made.inspect_err(|_| forget(channel, &life))?
            }
            _ => return Err(something_else()),
        };
        Ok(self.install(incoming))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EndpointOptions, InProcess};
    use std::time::Instant;

    const SOON: Duration = Duration::from_secs(20);

    const PLACES: u32 = 8;

    fn endpoints(agent: &InProcess) -> (Endpoint, Endpoint) {
        let options = EndpointOptions { channels: PLACES, ..EndpointOptions::default() };
        let endpoint = |process| {
            let agent = agent.connect(process).expect("an agent");
            agent.endpoint_with("end", options).expect("an endpoint")
        };
        (endpoint("one"), endpoint("two"))
    }

    fn finished(endpoint: &mut Endpoint, mut opening: Opening) -> Result<ChannelKey, RequestError> {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(finished) = endpoint.finish_opening(&mut opening, Duration::ZERO) {
                return finished;
            }
            assert!(Instant::now() < deadline, "no answer");
            endpoint.wait(Duration::from_secs(5));
        }
    }

    #[test]
    fn who_does_not_wait_has_the_channel_when_it_looks_again() {
        let agent = InProcess::start();
        let (mut one, mut two) = endpoints(&agent);
        let opening = one.begin_opening("two/end").expect("asked");
        let channel = finished(&mut one, opening).expect("a channel");
        one.send(channel, 0, b"hello").expect("room");
        let there = two.accept(SOON).expect("a channel");
        let deadline = Instant::now() + SOON;
        let mut heard = 0;
        while heard == 0 {
            heard += two.poll(|delivery| assert_eq!(delivery.channel, there)).expect("no end");
            assert!(Instant::now() < deadline, "nothing came");
        }
    }

    #[test]
    fn what_cannot_be_opened_says_why_and_costs_no_place() {
        let agent = InProcess::start();
        let (mut one, _two) = endpoints(&agent);
        for _ in 0..2 * PLACES {
            let opening = one.begin_opening("three/end").expect("a place");
            let error = finished(&mut one, opening).expect_err("nobody is called three");
            assert!(matches!(error, RequestError::Refused(_)), "{error}");
        }
    }

    #[test]
    fn what_is_given_up_costs_no_place_and_the_peer_is_told() {
        let agent = InProcess::start();
        let (mut one, mut two) = endpoints(&agent);
        for round in 0..2 * PLACES {
            let opening = one.begin_opening("two/end").expect("a place");
            // It is there already, or on its way.
            if round % 2 == 0 {
                assert!(two.accept(SOON).is_some());
            }
            drop(opening);
            let deadline = Instant::now() + SOON;
            while round % 2 == 0 && two.poll(|_| {}).is_ok() {
                assert!(Instant::now() < deadline, "what was given up goes on");
            }
        }
    }
}
