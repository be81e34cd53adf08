//! How much memory machines are to have, of what their guests say of it: no clock, no system.
//!
//! Who has plenty gives, and who is short gets, but never more than there is: what is to come from one machine is another's only once it is there. A guest may say anything. One that says it is
//! always short has what is nobody's, and what others do not need; what is fair each has whatever others say, and what it began with nobody takes from it.

use std::collections::BTreeMap;

/// A guest that could have no more than half of this at once is short, and gets twice of it: it has just begun to want more. One that could have more than once has plenty.
const SLACK_BYTES: u64 = 64 << 20;

/// One that uses much can soon use much more: it has a quarter of that to spare.
const SLACK_PART: u64 = 4;

/// So much of what others do not need is nobody's: who is short has it at once, and does not wait until another has given it.
const POOL_BYTES: u64 = 128 << 20;

/// Nobody is told to have less, or more, by less than this.
const GRAIN_BYTES: u64 = 4 << 20;

/// A guest whose programs wait so long for memory is short of it, whatever it says that they could have: they read again and again what it had to forget.
const STALLED_PERMILLE: u64 = 100;

/// It gets so much more then, or this part of what it has.
const STEP_BYTES: u64 = 32 << 20;
const STEP_PART: u64 = 8;

/// One that has so little to do is idle: it gives before others do.
const IDLE_PERMILLE: u64 = 900;

/// No machine has more.
const MOST_BYTES: u64 = 1 << 50;

/// A machine whose memory comes and goes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MachineState {
    /// What it is called.
    pub name: String,
    /// It has so much at least.
    pub least_bytes: u64,
    /// And so much at most.
    pub most_bytes: u64,
    /// It has so much now, as its engine says.
    pub bytes: u64,
    /// It has been told to have so much.
    pub wanted_bytes: u64,
    /// What it was told to give comes, if slowly.
    pub is_giving: bool,
    /// What programs could have at once, as its guest says.
    pub available_bytes: u64,
    /// For which part of the time programs waited for memory, in thousandths, as its guest says.
    pub stalled_permille: u64,
    /// For which part of the time its processors had nothing to do, in thousandths, as its guest says.
    pub idle_permille: u64,
}

/// All that is seen at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryPicture {
    /// The machines.
    pub machines: Vec<MachineState>,
    /// What could be given to them beside what they have.
    pub spare_bytes: u64,
    /// What they have together beyond what they may have.
    pub short_bytes: u64,
}

impl MachineState {
    /// Nobody else can have that: it is there, or promised.
    fn holds(&self) -> u64 {
        self.bytes.max(self.wanted_bytes)
    }

    /// It has so much when all is done that it was told.
    fn keeps(&self) -> u64 {
        self.bytes.min(self.wanted_bytes)
    }

    fn available(&self) -> u64 {
        self.available_bytes.min(self.bytes)
    }

    fn used(&self) -> u64 {
        self.bytes - self.available()
    }

    fn slack(&self) -> u64 {
        SLACK_BYTES.max(self.used() / SLACK_PART)
    }

    fn is_stalled(&self) -> bool {
        self.stalled_permille >= STALLED_PERMILLE
    }

    fn is_short(&self) -> bool {
        let left = self.available().saturating_sub(self.bytes - self.keeps());
        left < self.slack() / 2 || self.is_stalled()
    }

    fn within(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(GRAIN_BYTES).clamp(self.least_bytes, self.most_bytes)
    }

    /// What is beyond this it has plenty of.
    fn enough(&self) -> u64 {
        self.within(self.used() + self.slack())
    }

    /// So much it is to have if it is short.
    fn wants(&self) -> u64 {
        let more = if self.is_stalled() { self.bytes + STEP_BYTES.max(self.bytes / STEP_PART) } else { 0 };
        self.within(more.max(self.used() + 2 * self.slack()))
    }
}

/// What one has of an amount that is shared by weight.
fn part(of: u64, weight: u64, all: u64) -> u64 {
    let part = u128::from(of) * u128::from(weight) / u128::from(all.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// A machine, and what is decided about it.
struct Decided<'a> {
    machine: &'a MachineState,
    /// What it has whatever others say: by what it began with.
    fair: u64,
    wants: u64,
    is_short: bool,
    order: u64,
}

impl Decided<'_> {
    /// What it would need beside what it holds, up to so much.
    fn lacks(&self, most: u64) -> u64 {
        self.wants.min(most).saturating_sub(self.machine.holds().max(self.order))
    }
}

/// Which machines are to have how much from now on. Of others nothing changes.
pub fn share(picture: &MemoryPicture) -> BTreeMap<String, u64> {
    let can_be = |machine: &&MachineState| {
        machine.least_bytes <= machine.most_bytes
            && machine.most_bytes <= MOST_BYTES
            && machine.holds() <= MOST_BYTES
    };
    let machines: Vec<&MachineState> = picture.machines.iter().filter(can_be).collect();
    let sum = |of: fn(&MachineState) -> u64| {
        machines.iter().fold(0_u64, |sum, machine| sum.saturating_add(of(machine)))
    };
    let (held, least) = (sum(MachineState::holds), sum(|machine| machine.least_bytes));
    let all = held.saturating_add(picture.spare_bytes).saturating_sub(picture.short_bytes);
    let mut decided: Vec<Decided<'_>> = machines
        .iter()
        .map(|machine| {
            let fair = part(all, machine.least_bytes, least).clamp(machine.least_bytes, machine.most_bytes);
            let is_short = machine.is_short();
            let wants = if is_short { machine.wants() } else { 0 };
            Decided { machine, fair, wants, is_short, order: machine.wanted_bytes }
        })
        .collect();
    let spare = if picture.short_bytes > 0 { 0 } else { picture.spare_bytes };
    let starved = |decided: &[Decided<'_>]| decided.iter().map(|one| one.lacks(one.fair)).sum::<u64>();
    let is_scarce = picture.short_bytes > 0 || starved(&decided) > spare;
    // What one was told to give and still has, it may keep: unless others have less than is fair.
    for one in decided.iter_mut().filter(|one| one.is_short) {
        let most = if is_scarce { one.fair } else { u64::MAX };
        one.order = one.order.max(one.wants.min(one.machine.holds()).min(most));
    }
    let mut left = give(&mut decided, spare, |one| one.fair);
    if starved(&decided) == 0 {
        left = give(&mut decided, left, |_| u64::MAX);
    }
    let coming = decided.iter().filter(|one| one.machine.is_giving);
    let coming: u64 = coming.map(|one| one.machine.bytes.saturating_sub(one.order)).sum();
    let lacked: u64 = decided.iter().map(|one| one.lacks(u64::MAX)).sum();
    let pool = if picture.short_bytes > 0 { 0 } else { POOL_BYTES.saturating_sub(left) };
    let missing = (lacked + pool).saturating_add(picture.short_bytes).saturating_sub(coming);
    let starving = starved(&decided).saturating_add(picture.short_bytes).saturating_sub(coming);
    let mut givers: Vec<usize> = (0..decided.len()).collect();
    // One that was told to, and does not, is not told again.
    givers.retain(|&at| {
        let machine = decided[at].machine;
        decided[at].order <= machine.bytes && (machine.is_giving || machine.wanted_bytes >= machine.bytes)
    });
    let plenty = |one: &Decided<'_>| if one.is_short { u64::MAX } else { one.machine.enough() };
    let is_busy = |machine: &MachineState| machine.idle_permille < IDLE_PERMILLE;
    givers.sort_by_key(|&at| {
        let one = &decided[at];
        (is_busy(one.machine), std::cmp::Reverse(one.order.saturating_sub(plenty(one))), at)
    });
    let taken = take(&mut decided, &givers, missing, plenty);
    take(&mut decided, &givers, starving.saturating_sub(taken), |one| one.fair);
    decided
        .into_iter()
        .filter(|one| one.order != one.machine.wanted_bytes)
        .map(|one| (one.machine.name.clone(), one.order))
        .collect()
}

/// Gives of what there is to all who lack something up to an amount, each by how much: what is left.
fn give(decided: &mut [Decided<'_>], spare: u64, most: impl Fn(&Decided<'_>) -> u64) -> u64 {
    let lacks: Vec<u64> = decided.iter().map(|one| one.lacks(most(one))).collect();
    let all = lacks.iter().sum::<u64>();
    let mut left = spare;
    for (one, lacks) in decided.iter_mut().zip(lacks) {
        let gets = if all <= spare { lacks } else { part(spare, lacks, all) };
        let gets = if gets < lacks { gets / GRAIN_BYTES * GRAIN_BYTES } else { gets };
        if gets > 0 {
            one.order = one.machine.holds().max(one.order) + gets;
            left -= gets;
        }
    }
    left
}

/// Takes so much, of each what it has beyond an amount: what was taken.
fn take(
    decided: &mut [Decided<'_>],
    givers: &[usize],
    wanted: u64,
    keeps: impl Fn(&Decided<'_>) -> u64,
) -> u64 {
    let mut taken = 0;
    for &at in givers {
        let one = &mut decided[at];
        let has = one.order.min(one.machine.bytes);
        let gives = has.saturating_sub(keeps(one)) / GRAIN_BYTES * GRAIN_BYTES;
        let gives = gives.min(wanted.saturating_sub(taken).next_multiple_of(GRAIN_BYTES));
        if gives > 0 {
            one.order = has - gives;
            taken += gives;
        }
    }
    taken
}

#[cfg(test)]
mod tests;
