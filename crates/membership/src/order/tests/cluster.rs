//! Some members of one view, and every message that is under way.

use super::*;

pub(super) fn member(node: u32) -> Member {
    Member { node: NodeId(node), incarnation: Incarnation(1) }
}

pub(super) fn view(epoch: u64, nodes: &[u32]) -> View {
    let members: Vec<_> = nodes.iter().map(|&node| member(node)).collect();
    View { epoch: ViewEpoch(epoch), tie_breaker: members[0].node, members }
}

pub(super) struct Cluster {
    pub now: Time,
    pub orders: Vec<Order>,
    pub events: Vec<Vec<Event>>,
    pub under_way: VecDeque<(NodeId, NodeId, Vec<u8>)>,
    /// Whom nothing reaches, and nothing leaves.
    pub silent: Vec<u32>,
}

impl Cluster {
    pub(super) fn new(count: u32, config: &Config) -> Self {
        let nodes: Vec<_> = (0..count).collect();
        let order = |&node: &u32| Order::founding(config.clone(), member(node), view(1, &nodes));
        Self {
            now: Time::ZERO,
            orders: nodes.iter().map(order).collect(),
            events: vec![Vec::new(); nodes.len()],
            under_way: VecDeque::new(),
            silent: Vec::new(),
        }
    }

    pub(super) fn submit(&mut self, node: u32, level: Level, body: &[u8]) -> Result<u64, SubmitError> {
        self.orders[node as usize].submit(self.now, level, body)
    }

    pub(super) fn input(&mut self, node: u32, input: Input<'_>) -> Result<(), PeerError> {
        let outcome = self.orders[node as usize].handle(self.now, input);
        self.poll(node);
        outcome
    }

    pub(super) fn poll(&mut self, node: u32) {
        let order = &mut self.orders[node as usize];
        while let Some(cast) = order.poll_transmit() {
            let from = NodeId(node);
            match cast.to {
                To::One(to) => self.under_way.push_back((from, to, cast.bytes.to_vec())),
                To::Others => {
                    let others = order.view().nodes().filter(|&to| to != from);
                    self.under_way.extend(others.map(|to| (from, to, cast.bytes.to_vec())));
                }
            }
        }
        self.events[node as usize].extend(core::iter::from_fn(|| order.poll_event()));
        let silent = &self.silent;
        self.under_way.retain(|(from, to, _)| !silent.contains(&from.0) && !silent.contains(&to.0));
    }

    /// Carries messages until there are none. No time passes.
    pub(super) fn settle(&mut self) {
        for node in 0..self.orders.len() {
            self.poll(u32::try_from(node).expect("few nodes"));
        }
        while let Some((from, to, bytes)) = self.under_way.pop_front() {
            self.input(to.0, Input::Message { from, bytes: &bytes }).expect("honest members break no rule");
        }
    }

    /// Lets time pass, with all timers, in steps of a millisecond.
    pub(super) fn pass(&mut self, span: Duration) {
        let end = self.now.saturating_add(span);
        while self.now < end {
            self.now = self.now.saturating_add(Duration::from_millis(1));
            for node in 0..u32::try_from(self.orders.len()).expect("few nodes") {
                if self.orders[node as usize].next_timeout().is_some_and(|at| at <= self.now) {
                    self.input(node, Input::Timeout).expect("a timeout breaks no rule");
                }
            }
            self.settle();
        }
    }

    /// What a node has delivered: positions and bodies.
    pub(super) fn delivered(&self, node: u32) -> Vec<(u64, Vec<u8>)> {
        let deliveries = self.events[node as usize].iter().filter_map(|event| match event {
            Event::Delivered(delivery) => Some((delivery.position, delivery.body.to_vec())),
            _ => None,
        });
        deliveries.collect()
    }

    /// The own updates that have come as far as they were to, by number.
    pub(super) fn reached(&self, node: u32) -> Vec<(u64, Level)> {
        let reached = self.events[node as usize].iter().filter_map(|event| match event {
            Event::Reached { number, level } => Some((*number, *level)),
            _ => None,
        });
        reached.collect()
    }

    /// Brings some nodes from one view into the next, as `regroup` would.
    pub(super) fn change_view(&mut self, next: &View) {
        let nodes: Vec<u32> = next.nodes().map(|node| node.0).collect();
        for &node in &nodes {
            self.input(node, Input::Freeze).expect("our own input");
        }
        let held = |node: u32| self.orders[node as usize].held();
        let cut = nodes.iter().map(|&node| held(node)).max().expect("a view has members");
        let holders: Vec<_> =
            nodes.iter().filter(|&&node| held(node) == cut).map(|&node| NodeId(node)).collect();
        for &node in &nodes {
            let (view, holders) = (next.clone(), holders.clone());
            self.input(node, Input::Change { view, cut, holders }).expect("our own input");
        }
        self.settle();
        for &node in &nodes {
            assert_eq!(self.events[node as usize].last(), Some(&Event::Flushed), "node {node}");
            self.input(node, Input::Install(next.clone())).expect("our own input");
        }
    }
}
