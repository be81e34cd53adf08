//! A member for programs that run on tokio: nothing spins, and no thread is blocked.
//!
//! One task has the [`AsyncGroup`] and awaits [`AsyncGroup::next_event`] again and again: the member lives in that call, with all
//! of its timers. Any task may have a [`Submitter`], and awaits there that an update has come far enough. They are two,
//! because who waits for an update cannot at the same time answer what the group asks its program, and the update may wait
//! for just that: for the state that another member lacks, or for the quorum resource.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use comb_membership::order::{Level, SubmitError};
use comb_membership::stack::Event;
use comb_net::asynchronous::Readiness;
use tokio::sync::{mpsc, oneshot};

use crate::group::Group;

/// Updates that wait for the group's task. Whoever has more waits for a place among them.
const MOST_WAITING: usize = 256;

/// Why an update is not known to have come as far as it was to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotReached {
    /// It was not taken. Nothing happened, nothing will.
    #[error(transparent)]
    Refused(#[from] SubmitError),
    /// This member is no longer in the group, or its program has given it up. The update may have happened, or may yet happen:
    /// only members that go on can tell.
    #[error("this member was lost before the update had come far enough; it may have happened")]
    Lost,
}

/// One update on its way to the group's task.
#[derive(Debug)]
struct Submission {
    level: Level,
    body: Vec<u8>,
    reached: oneshot::Sender<Result<u64, NotReached>>,
}

/// By which any task sends updates. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Submitter(mpsc::Sender<Submission>);

impl Submitter {
    /// Sends an update, and waits until it has come as far as `level`. Says its number: [`comb_membership::order::Delivery`] has
    /// the same. For [`Level::Majority`] and [`Level::All`] the delivery came before.
    ///
    /// Waits for as long as the group cannot go on, which may be for ever. Cancelled before the group's task has taken it, the
    /// update is never sent; after that it may happen.
    pub async fn submit(&self, level: Level, body: Vec<u8>) -> Result<u64, NotReached> {
        let (reached, outcome) = oneshot::channel();
        let sent = self.0.send(Submission { level, body, reached }).await;
        sent.map_err(|_| NotReached::Refused(SubmitError::Out))?;
        outcome.await.unwrap_or(Err(NotReached::Lost))
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct AsyncGroup {
    group: Group,
    readiness: Readiness,
    submitter: Submitter,
    submissions: mpsc::Receiver<Submission>,
    /// The next one: it was taken, and there was no room for it yet.
    next: Option<Submission>,
    /// Who waits for which number.
    waiting: BTreeMap<u64, oneshot::Sender<Result<u64, NotReached>>>,
}

impl AsyncGroup {
    /// Takes over a member whose endpoint was made with [`comb_net::EndpointOptions::events`], within a runtime that has IO and
    /// time.
    ///
    /// # Panics
    /// If the endpoint has no events, or there is no runtime.
    pub fn new(mut group: Group) -> std::io::Result<Self> {
        let readiness = Readiness::of(group.endpoint())?;
        let (submitter, submissions) = mpsc::channel(MOST_WAITING);
        let (submitter, waiting) = (Submitter(submitter), BTreeMap::new());
        Ok(Self { group, readiness, submitter, submissions, next: None, waiting })
    }

    /// For the tasks that send updates.
    pub fn submitter(&self) -> Submitter {
        self.submitter.clone()
    }

    /// The member, for what does not wait. What is submitted there is sent by the next call of [`AsyncGroup::next_event`], which
    /// tells its [`Event::Reached`].
    pub fn group(&mut self) -> &mut Group {
        &mut self.group
    }

    /// The next thing that has happened. Of a [`Submitter`]'s update, that submitter hears how far it is, and nobody else. Cancelled,
    /// it has taken no event.
    ///
    /// Call it again soon, for as long as the member is to be one: in between it hears nothing, and says nothing. After
    /// [`Event::Excluded`] nothing comes.
    pub async fn next_event(&mut self) -> std::io::Result<Event> {
        // A busy group has something every time: other tasks want to run as well.
        tokio::task::coop::consume_budget().await;
        loop {
            self.submit_what_was_sent();
            self.group.poll();
            while let Some(event) = self.group.next_event() {
                match event {
                    Event::Reached { number, .. } => match self.waiting.remove(&number) {
                        // Who has given up waiting does not hear it.
                        Some(reached) => drop(reached.send(Ok(number))),
                        None => return Ok(event),
                    },
                    Event::Excluded { .. } => {
                        self.waiting.clear();
                        return Ok(event);
                    }
                    _ => return Ok(event),
                }
            }
            self.something().await?;
        }
    }

    fn submit_what_was_sent(&mut self) {
        while let Some(submission) = self.next.take().or_else(|| self.submissions.try_recv().ok()) {
            if submission.reached.is_closed() {
                continue;
            }
            match self.group.submit(submission.level, &submission.body) {
                Ok(number) => drop(self.waiting.insert(number, submission.reached)),
                Err(SubmitError::Full) => {
                    self.next = Some(submission);
                    return;
                }
                Err(error) => drop(submission.reached.send(Err(error.into()))),
            }
        }
    }

    /// Waits until something has come, is due, or is to be sent.
    async fn something(&mut self) -> std::io::Result<()> {
        let until = self.group.nothing_is_due_for();
        let endpoint = self.group.endpoint();
        if !endpoint.arm() {
            endpoint.disarm();
            return Ok(());
        }
        let mut come = pin!(self.readiness.wake_up(endpoint));
        let mut due = pin!(tokio::time::sleep(until));
        let (next, submissions) = (&mut self.next, &mut self.submissions);
        std::future::poll_fn(|context| {
            // One that found no room waits for what comes. (There is always a submitter: our own.)
            if next.is_none()
                && let Poll::Ready(submission) = submissions.poll_recv(context)
            {
                *next = submission;
                return Poll::Ready(Ok(()));
            }
            if due.as_mut().poll(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
            come.as_mut().poll(context)
        })
        .await
    }
}
