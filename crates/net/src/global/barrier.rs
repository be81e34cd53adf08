//! A dissemination barrier: in round k, each tells the one 2^k further on, and waits for the one 2^k before. After
//! log2 N rounds everybody has heard, directly or not, of everybody. No component does more than another.

/// One component's part.
#[derive(Debug)]
pub(super) struct Barrier {
    me: u32,
    components: u32,
    /// The barrier that we are in, or were in last.
    number: u64,
    /// By round: the last barrier for which the one before us has told.
    arrived: Vec<u64>,
}

impl Barrier {
    pub(super) fn new(me: u32, components: u32) -> Self {
        let rounds = components.next_power_of_two().trailing_zeros();
        Self { me, components, number: 0, arrived: vec![0; rounds as usize] }
    }

    pub(super) fn rounds(&self) -> u32 {
        u32::try_from(self.arrived.len()).expect("at most 32")
    }

    /// Comes to the next barrier: its number.
    pub(super) fn enter(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Whom to tell in a round.
    pub(super) fn to(&self, round: u32) -> u32 {
        self.step(u64::from(self.me) + (1 << round))
    }

    /// Who tells us.
    pub(super) fn from(&self, round: u32) -> u32 {
        self.step(u64::from(self.me) + u64::from(self.components) - (1 << round))
    }

    fn step(&self, component: u64) -> u32 {
        u32::try_from(component % u64::from(self.components)).expect("below the count")
    }

    pub(super) fn has_arrived(&self, round: u32, number: u64) -> bool {
        self.arrived[round as usize] >= number
    }

    /// A component says that it came to a barrier and finished the rounds before: an allegation.
    pub(super) fn arrive(&mut self, from: u32, number: u64, round: u64) -> Result<(), &'static str> {
        let round = u32::try_from(round).ok().filter(|round| *round < self.rounds());
        let round = round.ok_or("a barrier's round that is none")?;
        if self.from(round) != from {
            return Err("a barrier's word for another component");
        }
        // Nobody can be more than one barrier ahead of us: it would need our word for that.
        let arrived = &mut self.arrived[round as usize];
        if number != *arrived + 1 || number > self.number + 1 {
            return Err("a barrier out of order");
        }
        *arrived = number;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Runs all components over a network that delivers in an order given by a seed, and checks that nobody leaves a
    /// barrier before the last has come to it.
    fn run(components: u32, mut seed: u64) {
        let mut parts: Vec<_> = (0..components).map(|me| Barrier::new(me, components)).collect();
        // By component: barriers left, and the round that it is in; `None` before it enters.
        let mut left = vec![0_u64; components as usize];
        let mut round: Vec<Option<u32>> = vec![None; components as usize];
        let mut network: Vec<VecDeque<(u32, u64, u32)>> = vec![VecDeque::new(); components as usize];
        while left.iter().any(|&left| left < 3) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let me = usize::try_from(seed >> 33).unwrap() % components as usize;
            if let Some((from, number, round)) = network[me].pop_front() {
                parts[me].arrive(from, number, u64::from(round)).unwrap();
            }
            let part = &mut parts[me];
            let at = match round[me] {
                None if left[me] == 3 => continue,
                None => {
                    part.enter();
                    0
                }
                Some(at) if part.has_arrived(at, part.number) => at + 1,
                Some(_) => continue,
            };
            if at == part.rounds() {
                left[me] += 1;
                round[me] = None;
                assert!(parts.iter().all(|other| other.number >= left[me]), "{me} left too early");
            } else {
                let (to, number) = (part.to(at) as usize, part.number);
                round[me] = Some(at);
                network[to].push_back((u32::try_from(me).unwrap(), number, at));
            }
        }
    }

    #[test]
    fn nobody_leaves_before_the_last_has_come() {
        for components in 2..10 {
            for seed in 0..50 {
                run(components, seed);
            }
        }
    }

    #[test]
    fn alleged_arrivals_out_of_order_are_a_breach() {
        let mut barrier = Barrier::new(0, 4);
        assert_eq!((barrier.from(0), barrier.from(1)), (3, 2));
        for (from, number, round) in [(3, 2, 0), (2, 1, 0), (3, 1, 1), (3, 1, 2), (3, 1, u64::MAX), (3, 0, 0)]
        {
            barrier.arrive(from, number, round).unwrap_err();
        }
        barrier.arrive(3, 1, 0).unwrap();
        barrier.arrive(3, 2, 0).unwrap_err();
    }
}
