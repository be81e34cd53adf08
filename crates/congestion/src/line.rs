//! Flows waiting in line.

use crate::Flow;
use alloc::vec::Vec;

/// A first-in, first-out line in which a flow stands at most once and which it may leave from the middle, all
/// in constant time and without allocation once the flow is known. Quenching uses it for renewals (every
/// lease is equally long, so deadlines are due in the order in which they were set), sharing uses it for
/// turns.
#[derive(Debug, Default)]
pub(crate) struct Line {
    places: Vec<Place>,
    first: Option<Flow>,
    last: Option<Flow>,
}

#[derive(Clone, Debug, Default)]
struct Place {
    standing: bool,
    ahead: Option<Flow>,
    behind: Option<Flow>,
}

impl Line {
    /// Makes room for `flow`, so that later calls need no allocation.
    pub(crate) fn admit(&mut self, flow: Flow) {
        if self.places.len() <= flow.index() {
            self.places.resize(flow.index() + 1, Place::default());
        }
    }

    pub(crate) fn first(&self) -> Option<Flow> {
        self.first
    }

    pub(crate) fn contains(&self, flow: Flow) -> bool {
        self.places[flow.index()].standing
    }

    /// Puts `flow` at the end, unless it stands in line already: then it keeps its place.
    pub(crate) fn join(&mut self, flow: Flow) {
        if self.contains(flow) {
            return;
        }
        self.places[flow.index()] = Place { standing: true, ahead: self.last, behind: None };
        match self.last.replace(flow) {
            Some(before) => self.places[before.index()].behind = Some(flow),
            None => self.first = Some(flow),
        }
    }

    /// Takes `flow` out, wherever it stands; nothing happens if it does not.
    pub(crate) fn leave(&mut self, flow: Flow) {
        let Place { standing, ahead, behind } = core::mem::take(&mut self.places[flow.index()]);
        if !standing {
            return;
        }
        match ahead {
            Some(ahead) => self.places[ahead.index()].behind = behind,
            None => self.first = behind,
        }
        match behind {
            Some(behind) => self.places[behind.index()].ahead = ahead,
            None => self.last = ahead,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    fn drain(line: &mut Line) -> Vec<Flow> {
        let mut order = Vec::new();
        while let Some(flow) = line.first() {
            line.leave(flow);
            order.push(flow);
        }
        order
    }

    proptest! {
        #[test]
        fn behaves_like_a_queue_without_duplicates(
            steps in prop::collection::vec((0u32..6, any::<bool>()), 0..60),
        ) {
            let mut line = Line::default();
            let mut model = VecDeque::new();
            for (number, joins) in steps {
                let flow = Flow(number);
                line.admit(flow);
                if joins {
                    line.join(flow);
                    if !model.contains(&flow) {
                        model.push_back(flow);
                    }
                } else {
                    line.leave(flow);
                    model.retain(|other| *other != flow);
                }
                prop_assert_eq!(line.first(), model.front().copied());
                prop_assert_eq!(line.contains(flow), model.contains(&flow));
            }
            prop_assert_eq!(drain(&mut line), Vec::from(model));
        }
    }
}
