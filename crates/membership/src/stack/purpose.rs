//! What a member does for its circles: they hear of all that the program hears of, and their updates go with the program's.

use comb_types::Time;

use super::{Event, Stack};
#[cfg(doc)]
use crate::circles;
use crate::circles::{CircleError, Circles, Terms, Way};
use crate::order::Level;
use crate::wire::PeerError;

/// What an update is for: its first byte.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Purpose {
    Program = 0,
    Circles = 1,
}

impl Stack {
    /// Wants to belong to a circle, which is founded on these terms if it is not there. It does when
    /// [`circles::Event::Changed`] says so.
    pub fn join_circle(&mut self, now: Time, name: &str, terms: Terms) -> Result<(), CircleError> {
        let update = Circles::join(name, terms)?;
        self.submit_for(now, Level::Majority, Purpose::Circles, &update)?;
        Ok(())
    }

    /// Wants to leave a circle. It has when [`circles::Event::Changed`] says so.
    pub fn leave_circle(&mut self, now: Time, name: &str) -> Result<(), CircleError> {
        let update = Circles::leave(name)?;
        self.submit_for(now, Level::Majority, Purpose::Circles, &update)?;
        Ok(())
    }

    /// Says something in a circle, on its terms: to all (`printers`, say), or to the one at a node (`printers/3`). The number is
    /// that of the update, where the circle is atomic, and [`Event::Reached`] tells of it.
    pub fn say(&mut self, now: Time, address: &str, body: &[u8]) -> Result<u64, CircleError> {
        if self.is_out || self.inside.is_none() {
            return Err(CircleError::Out);
        }
        self.circles.at(now);
        match self.circles.say(address, body)? {
            Way::Sent(number) => Ok(number),
            Way::Submit { level, update, ticket } => {
                let number = self.submit_for(now, level, Purpose::Circles, &update)?;
                self.circles.submitted(ticket, number);
                Ok(number)
            }
        }
    }

    /// The circles, to look at.
    pub fn circles(&self) -> &Circles {
        &self.circles
    }

    /// The first member of a view tells the circles who has left. While it has room for no more updates, it tries again.
    pub(super) fn tell_who_has_left(&mut self, now: Time) {
        if let Some(update) = self.circles.to_tell()
            && self.submit_for(now, Level::Majority, Purpose::Circles, &update).is_ok()
        {
            self.circles.has_told();
        }
    }

    /// Circles are told of the same as the program, in the same order; what is theirs alone the program is not told of.
    pub(super) fn tell_circles(&mut self, mut event: Event) -> Option<Event> {
        match &mut event {
            Event::Delivered(delivery) => {
                let purpose = delivery.body.first().copied();
                if purpose == Some(Purpose::Program as u8) {
                    delivery.body.cut_first();
                    self.circles.passed(delivery.position);
                    return Some(event);
                }
                let is_circles = purpose == Some(Purpose::Circles as u8);
                let from = delivery.sender.node;
                let outcome = match is_circles {
                    true => self.circles.delivered(delivery, &delivery.body[1..]),
                    false => Err(PeerError::new(from, "an update for nobody")),
                };
                if outcome.is_err() {
                    self.refuse(from);
                }
                return None;
            }
            Event::View(view) => {
                self.circles.follow(view);
                self.tell_who_has_left(self.circles.now());
            }
            Event::Reached { number, .. } => self.circles.reached(*number),
            Event::Restore { position, state } => *state = self.circles.restore(*position, state),
            Event::WantsState => self.circles_then = self.circles.snapshot(),
            _ => {}
        }
        Some(event)
    }
}
