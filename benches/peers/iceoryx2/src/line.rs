//! A two-way line of messages of one size: a publish-subscribe service for each direction, loaned and read in place.

use std::error::Error;

use iceoryx2::{
    node::Node,
    port::{publisher::Publisher, subscriber::Subscriber, update_connections::UpdateConnections},
    prelude::*,
    sample_mut_uninit::SampleMutUninit,
};

use crate::payload;

type Outcome<T> = Result<T, Box<dyn Error>>;
type Loan = SampleMutUninit<ipc::Service, [std::mem::MaybeUninit<u64>], ()>;

/// Which of the two processes this is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Asker,
    Answerer,
}

pub struct Line {
    words: usize,
    publisher: Publisher<ipc::Service, [u64], ()>,
    subscriber: Subscriber<ipc::Service, [u64], ()>,
    loan: Option<Loan>,
}

impl Line {
    /// Opens this side's ports. Call `connect` when the other side has opened its own.
    pub fn open(
        node: &Node<ipc::Service>,
        side: Side,
        name: &str,
        words: usize,
        depth: usize,
    ) -> Outcome<Line> {
        let direction = |to: &str| -> Outcome<_> {
            Ok(node
                .service_builder(&format!("{name}/{words}/{to}").as_str().try_into()?)
                .publish_subscribe::<[u64]>()
                .max_publishers(1)
                .max_subscribers(1)
                .max_nodes(2)
                .history_size(0)
                .subscriber_max_buffer_size(depth)
                .enable_safe_overflow(false)
                .open_or_create()?)
        };
        let to_answerer = direction("to_answerer")?;
        let to_asker = direction("to_asker")?;
        let (outward, inward) = match side {
            Side::Asker => (to_answerer, to_asker),
            Side::Answerer => (to_asker, to_answerer),
        };
        Ok(Line {
            words,
            publisher: outward
                .publisher_builder()
                .initial_max_slice_len(words)
                .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
                .create()?,
            subscriber: inward.subscriber_builder().create()?,
            loan: None,
        })
    }

    /// Finds the other side's ports. Send only when both sides have done so: while a subscriber has not connected, a
    /// publisher drops what no longer fits, whatever its strategy.
    pub fn connect(&self) -> Outcome<()> {
        self.publisher.update_connections()?;
        self.subscriber.update_connections()?;
        Ok(())
    }

    pub fn words(&self) -> usize {
        self.words
    }

    /// Takes the next message's memory ahead of time, while the other side works.
    pub fn loan_ahead(&mut self) -> Outcome<()> {
        if self.loan.is_none() {
            self.loan = Some(self.publisher.loan_slice_uninit(self.words)?);
        }
        Ok(())
    }

    pub fn send(&mut self, first: u64) -> Outcome<()> {
        let loan = match self.loan.take() {
            Some(loan) => loan,
            None => self.publisher.loan_slice_uninit(self.words)?,
        };
        loan.write_from_fn(|index| payload::word(first, index)).send()?;
        Ok(())
    }

    /// Spins. The hint takes an eighth off the shortest round trips where the two CPUs share a core.
    pub fn receive(&self) -> Outcome<u64> {
        loop {
            if let Some(sample) = self.subscriber.receive()? {
                return Ok(payload::read(&sample));
            }
            std::hint::spin_loop();
        }
    }
}
