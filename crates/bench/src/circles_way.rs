//! A member of a measured group on which thousands of circles live, each of two members.

use std::collections::BTreeSet;
use std::time::Duration;

use comb_group::circles::{CircleError, Event as Circle, Terms};
use comb_group::{Event, Group, NodeId};

use crate::group_side::{Counts, Happened, Way};

/// On the whole group.
pub(crate) const CIRCLES: u32 = 5000;

pub(crate) struct CirclesWay {
    group: Group,
    own: u32,
    count: u32,
    to_join: Vec<u32>,
    /// Of this member's, those with both members.
    whole: BTreeSet<u32>,
    /// A view, and the circles of which a notice is to come before it counts.
    view: Option<(usize, BTreeSet<u32>)>,
}

/// The two nodes of a circle.
fn nodes(circle: u32, count: u32) -> [u32; 2] {
    let first = circle % count;
    [first, (first + 1 + circle / count % (count - 1)) % count]
}

impl CirclesWay {
    pub(crate) fn new(group: Group, own: NodeId, count: u32) -> Self {
        let to_join = (0..CIRCLES).filter(|&circle| nodes(circle, count).contains(&own.0)).collect();
        Self { group, own: own.0, count, to_join, whole: BTreeSet::new(), view: None }
    }

    fn join(&mut self) {
        while let Some(circle) = self.to_join.pop() {
            match self.group.join_circle(&circle.to_string(), Terms::lossy()) {
                Ok(()) => {}
                Err(CircleError::Full | CircleError::Out) => return self.to_join.push(circle),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn changed(&mut self, circle: &str, members: usize) {
        let Ok(circle) = circle.parse() else { return };
        if members == 2 {
            self.whole.insert(circle);
        } else if let Some((_, awaited)) = &mut self.view {
            awaited.remove(&circle);
        }
    }
}

impl Way for CirclesWay {
    fn is_whole(&self) -> bool {
        let mine = (0..CIRCLES).filter(|&circle| nodes(circle, self.count).contains(&self.own));
        self.to_join.is_empty() && self.whole.len() == mine.count()
    }

    fn submit(&mut self, _body: &[u8]) -> Option<u64> {
        None
    }

    fn poll(&mut self, happened: &mut Vec<Happened>) {
        self.group.poll();
        self.join();
        while let Some(event) = self.group.next_event() {
            match event {
                Event::View(view) => {
                    let is_gone = |node: &u32| !view.contains(NodeId(*node));
                    let is_concerned = |circle: &&u32| nodes(**circle, self.count).iter().any(is_gone);
                    let awaited = self.whole.iter().filter(is_concerned).copied().collect();
                    self.view = Some((view.members.len(), awaited));
                }
                Event::Circle(Circle::Changed { circle, members, .. }) => {
                    self.changed(&circle, members.len());
                }
                Event::WantsState => self.group.give_state(b""),
                _ => {}
            }
        }
        if let Some((members, _)) = self.view.take_if(|(_, awaited)| awaited.is_empty()) {
            happened.push(Happened::View(members));
        }
    }

    fn wait(&mut self, limit: Duration) {
        self.group.wait(limit);
    }

    fn counts(&self) -> Counts {
        Counts { messages: self.group.messages_sent(), calls: 0 }
    }
}
