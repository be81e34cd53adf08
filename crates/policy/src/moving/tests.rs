use proptest::prelude::*;

use super::*;

const MB: u64 = 1 << 20;

/// A machine of 128 to 1024 MB, that has and uses so much.
fn machine(name: &str, has_mb: u64, used_mb: u64) -> MachineState {
    MachineState {
        name: name.into(),
        least_bytes: 128 * MB,
        most_bytes: 1024 * MB,
        bytes: has_mb * MB,
        wanted_bytes: has_mb * MB,
        is_giving: true,
        available_bytes: has_mb.saturating_sub(used_mb) * MB,
        stalled_permille: 0,
        idle_permille: 0,
    }
}

fn shared(machines: &[MachineState], spare_mb: u64) -> Vec<(String, u64)> {
    let picture = MemoryPicture { machines: machines.to_vec(), spare_bytes: spare_mb * MB, short_bytes: 0 };
    share(&picture).into_iter().map(|(name, bytes)| (name, bytes / MB)).collect()
}

fn orders(of: &[(&str, u64)]) -> Vec<(String, u64)> {
    of.iter().map(|&(name, mb)| (name.to_owned(), mb)).collect()
}

#[test]
fn who_has_neither_plenty_nor_little_is_left_alone() {
    for used_mb in [0, 50, 96] {
        assert_eq!(shared(&[machine("a", 128, used_mb), machine("b", 512, 40)], 500), []);
    }
}

#[test]
fn what_nobody_has_is_given_first_and_then_what_others_do_not_need() {
    let (short, plenty) = (machine("short", 128, 110), machine("plenty", 512, 40));
    // It is to have what it uses and 128 MB.
    assert_eq!(shared(&[short.clone(), plenty.clone()], 500), orders(&[("short", 240)]));
    assert_eq!(shared(&[short.clone(), plenty.clone()], 20), orders(&[("plenty", 292), ("short", 148)]));
    assert_eq!(shared(&[short.clone(), plenty.clone()], 0), orders(&[("plenty", 272)]));
    // It comes: nobody is asked for it twice, and who waits for it has it only when it is there.
    let gives = MachineState { wanted_bytes: 272 * MB, ..plenty };
    assert_eq!(shared(&[short.clone(), gives.clone()], 0), []);
    let gives = MachineState { bytes: 500 * MB, available_bytes: 460 * MB, ..gives };
    assert_eq!(shared(&[short.clone(), gives.clone()], 12), orders(&[("short", 140)]));
    // It does not come: another is asked.
    let gives = MachineState { is_giving: false, ..gives };
    let other = machine("other", 256, 20);
    assert_eq!(shared(&[short, gives, other], 0), orders(&[("other", 128)]));
}

#[test]
fn some_of_what_nobody_needs_is_kept_for_who_is_short_next() {
    assert_eq!(shared(&[machine("plenty", 512, 40)], 0), orders(&[("plenty", 384)]));
    assert_eq!(shared(&[machine("plenty", 512, 40)], 128), []);
    assert_eq!(shared(&[machine("a", 512, 460)], 0), [], "it has no plenty");
}

#[test]
fn the_idle_give_before_the_busy() {
    let idle = MachineState { idle_permille: 990, ..machine("idle", 512, 20) };
    let machines = [machine("short", 128, 110), machine("busy", 1024, 20), idle];
    assert_eq!(shared(&machines, 0), orders(&[("idle", 272)]));
}

#[test]
fn programs_that_wait_for_memory_are_short_of_it_whatever_could_be_had() {
    let waits = MachineState { stalled_permille: 100, ..machine("waits", 256, 20) };
    assert_eq!(shared(std::slice::from_ref(&waits), 500), orders(&[("waits", 288)]));
    assert_eq!(shared(&[MachineState { stalled_permille: 99, ..waits }], 500), []);
}

#[test]
fn who_has_less_than_is_fair_gets_it_of_those_who_have_more() {
    let takes_all = machine("takes-all", 896, 896);
    let machines = [takes_all, machine("honest", 128, 120)];
    // Each may have 512.
    assert_eq!(shared(&machines, 0), orders(&[("takes-all", 776)]));
    // It is not told to keep what it was told to give, though it is short itself.
    let gives = MachineState { wanted_bytes: 776 * MB, ..machines[0].clone() };
    assert_eq!(shared(&[gives, machines[1].clone()], 0), []);
    // One that has what is fair has no claim on more.
    assert_eq!(shared(&[machine("a", 512, 512), machine("b", 512, 512)], 0), []);
}

#[test]
fn where_they_have_too_much_together_they_give_it_back() {
    let mut picture = MemoryPicture {
        machines: vec![machine("a", 512, 40), machine("b", 512, 500)],
        spare_bytes: 0,
        short_bytes: 100 * MB,
    };
    assert_eq!(share(&picture), BTreeMap::from([("a".to_owned(), 172 * MB)]));
    picture.machines.remove(0);
    picture.short_bytes = 500 * MB;
    assert_eq!(share(&picture), BTreeMap::from([("b".to_owned(), 128 * MB)]));
}

prop_compose! {
    fn some_machine()(least in 0_u64..600, more in 0_u64..2000, bytes in 0_u64..3000 * MB, wanted in 0_u64..3000 * MB,
                      is_giving: bool, available_bytes: u64, stalled_permille: u64, idle_permille: u64) -> MachineState {
        MachineState {
            least_bytes: least * MB, most_bytes: (least + more) * MB, bytes, wanted_bytes: wanted,
            is_giving, available_bytes, stalled_permille, idle_permille, name: String::new(),
        }
    }
}

/// A guest as it is, and not as it says.
struct Guest {
    uses: u64,
    /// It says that it has nothing left, and that its programs wait.
    lies: bool,
}

/// Machines of 128 MB to 1 GB, told what to have ten times a second.
struct World {
    machines: Vec<MachineState>,
    guests: Vec<Guest>,
    all: u64,
    /// Orders of the last round, and how often one was told more after less, or less after more.
    told: usize,
    turns: Vec<(i32, usize)>,
}

impl World {
    fn new(count: usize, all_mb: u64) -> Self {
        let name = |at: usize| format!("m{at}");
        Self {
            machines: (0..count).map(|at| machine(&name(at), 128, 40)).collect(),
            guests: (0..count).map(|_| Guest { uses: 40 * MB, lies: false }).collect(),
            all: all_mb * MB,
            told: 0,
            turns: vec![(0, 0); count],
        }
    }

    fn step(&mut self) {
        for (machine, guest) in self.machines.iter_mut().zip(&self.guests) {
            let before = machine.bytes;
            // What comes is there at once; what goes takes its time, and what is in use stays.
            machine.bytes = if machine.wanted_bytes >= machine.bytes {
                machine.wanted_bytes
            } else {
                let can = machine.bytes.saturating_sub(20 * MB).max(machine.wanted_bytes);
                can.max(guest.uses.min(machine.bytes))
            };
            machine.is_giving = machine.bytes != before;
            machine.available_bytes = if guest.lies { 0 } else { machine.bytes.saturating_sub(guest.uses) };
            let waits = guest.lies || guest.uses > machine.bytes;
            machine.stalled_permille = if waits { 1000 } else { 0 };
        }
        let held: u64 = self.machines.iter().map(MachineState::holds).sum();
        assert!(held <= self.all, "{held} of {}", self.all);
        let picture =
            MemoryPicture { machines: self.machines.clone(), spare_bytes: self.all - held, short_bytes: 0 };
        let orders = share(&picture);
        self.told = orders.len();
        for (machine, turns) in self.machines.iter_mut().zip(&mut self.turns) {
            let Some(&bytes) = orders.get(&machine.name) else { continue };
            assert!((machine.least_bytes..=machine.most_bytes).contains(&bytes));
            let way = if bytes > machine.wanted_bytes { 1 } else { -1 };
            *turns = (way, turns.1 + usize::from(turns.0 == -way));
            machine.wanted_bytes = bytes;
        }
    }
}

proptest! {
    /// Whatever machines have and guests say, all stays within what there is, and nobody goes below what it began with.
    #[test]
    fn nobody_has_what_is_not_there(
        mut machines in proptest::collection::vec(some_machine(), 0..9),
        spare_bytes in 0_u64..4000 * MB,
        short_bytes in prop_oneof![Just(0), 0_u64..4000 * MB],
    ) {
        for (at, machine) in machines.iter_mut().enumerate() {
            machine.name = format!("m{at}");
        }
        let picture = MemoryPicture { machines, spare_bytes, short_bytes };
        let orders = share(&picture);
        let mut more = 0;
        for machine in &picture.machines {
            let Some(&bytes) = orders.get(&machine.name) else { continue };
            prop_assert!(bytes <= machine.most_bytes.max(machine.holds()));
            // One that was told less by somebody else is not told to have less still.
            prop_assert!(bytes >= machine.least_bytes.min(machine.wanted_bytes), "{machine:?} {bytes}");
            more += bytes.saturating_sub(machine.holds());
        }
        prop_assert!(more <= spare_bytes);
        prop_assert!(short_bytes == 0 || more == 0);
    }

    /// When guests want the same for long enough, all have what they can have, and are left alone.
    #[test]
    fn machines_come_to_rest_with_what_they_need(
        wishes in proptest::collection::vec(proptest::collection::vec(20_u64..700, 4), 1..6),
        all_mb in 600_u64..3000,
    ) {
        let mut world = World::new(4, all_mb);
        for wish in &wishes {
            for (guest, &uses_mb) in world.guests.iter_mut().zip(wish) {
                guest.uses = uses_mb * MB;
            }
            (0..40).for_each(|_| world.step());
        }
        (0..200).for_each(|_| world.step());
        world.turns = vec![(0, 0); 4];
        for _ in 0..100 {
            world.step();
            prop_assert_eq!(world.told, 0, "{:?}", &world.machines);
        }
        let uses: u64 = world.guests.iter().map(|guest| guest.uses.max(64 * MB) * 5 / 4 + 72 * MB).sum();
        for machine in &world.machines {
            prop_assert!(machine.bytes >= 128 * MB && machine.bytes <= 1024 * MB);
            // What programs hold nobody can take: where there is not enough, who came first has it.
            if uses <= world.all {
                prop_assert!(!machine.is_short(), "{machine:?} of {:?}", &world.machines);
            }
        }
    }

    /// A guest that lies has what nobody else needs, and the others what is fair.
    #[test]
    fn a_guest_that_lies_takes_from_nobody_what_is_fair(uses_mb in 20_u64..180, all_mb in 1000_u64..2000) {
        let mut world = World::new(4, all_mb);
        world.guests[0].lies = true;
        (0..100).for_each(|_| world.step());
        prop_assert!(world.machines[0].bytes > 400 * MB, "it has taken what there was");
        for guest in &mut world.guests[1..] {
            guest.uses = uses_mb * MB;
        }
        (0..200).for_each(|_| world.step());
        for machine in &world.machines[1..] {
            prop_assert!(!machine.is_short(), "{:?}", &world.machines);
        }
        prop_assert!(world.machines[0].bytes <= 1024 * MB);
        let turns = world.turns.iter().map(|turns| turns.1).max();
        prop_assert!(turns <= Some(3), "{:?}", &world.turns);
    }
}
