//! A table that is a cache: slots with versions, a clock hand, and locks.

/// Names what is in a slot, as long as it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Key {
    pub(super) slot: u16,
    pub(super) version: u32,
}

impl Key {
    /// No slot ever has this version while something is in it.
    pub(super) const NEVER: Self = Self { slot: 0, version: 0 };
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Slot<T> {
    version: u32,
    is_used: bool,
    is_locked: bool,
    content: Option<T>,
}

/// The table. Slots that are named by number alone must be occupied; a key may be anything.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u16>,
    hand: u16,
}

impl<T> Slots<T> {
    /// All of them free; the lowest is taken first.
    pub(super) fn new(size: u32) -> Self {
        let slot = || Slot { version: 0, is_used: false, is_locked: false, content: None };
        let last = u16::try_from(size - 1).expect("sizes are checked");
        Self { slots: (0..size).map(|_| slot()).collect(), free: (0..=last).rev().collect(), hand: 0 }
    }

    /// What one takes, without what it points to.
    pub(super) fn slot_bytes(&self) -> usize {
        size_of::<Slot<T>>()
    }

    /// The slot that a key names, if it does still.
    pub(super) fn find(&self, key: Key) -> Option<u16> {
        let slot = self.slots.get(usize::from(key.slot))?;
        (slot.content.is_some() && slot.version == key.version).then_some(key.slot)
    }

    pub(super) fn key(&self, slot: u16) -> Key {
        Key { slot, version: self.slots[usize::from(slot)].version }
    }

    pub(super) fn at(&self, slot: u16) -> &T {
        self.slots[usize::from(slot)].content.as_ref().expect("the slot is occupied")
    }

    pub(super) fn at_mut(&mut self, slot: u16) -> &mut T {
        self.slots[usize::from(slot)].content.as_mut().expect("the slot is occupied")
    }

    /// What is in a slot that may be free.
    pub(super) fn get(&self, slot: u16) -> Option<&T> {
        self.slots[usize::from(slot)].content.as_ref()
    }

    pub(super) fn is_locked(&self, slot: u16) -> bool {
        self.slots[usize::from(slot)].is_locked
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// All slots, free ones too.
    pub(super) fn numbers(&self) -> impl DoubleEndedIterator<Item = u16> + Clone + use<T> {
        0..=u16::try_from(self.slots.len() - 1).expect("sizes are checked")
    }

    /// What is loaded, in the order of slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &T)> {
        self.numbers().filter_map(|slot| Some((slot, self.get(slot)?)))
    }

    /// Fills a slot. One must be free. Nothing is used yet: the hand is where it was, so a whole round passes before it comes here.
    pub(super) fn insert(&mut self, content: T, is_locked: bool) -> Key {
        let number = self.free.pop().expect("room was made");
        let slot = &mut self.slots[usize::from(number)];
        let version = slot.version.wrapping_add(1).max(1);
        *slot = Slot { version, is_used: false, is_locked, content: Some(content) };
        Key { slot: number, version }
    }

    pub(super) fn remove(&mut self, slot: u16) -> T {
        self.free.push(slot);
        self.slots[usize::from(slot)].content.take().expect("the slot is occupied")
    }

    /// Something in it was used: the hand passes it once more.
    pub(super) fn touch(&mut self, slot: u16) {
        self.slots[usize::from(slot)].is_used = true;
    }

    /// What would go next: the first from the hand on that was not used, or if all were, the first. Nothing changes until
    /// [`Self::pass`]. Only full tables have victims.
    pub(super) fn victim(&self, may_go: impl Fn(u16) -> bool) -> Option<u16> {
        let size = self.slots.len();
        let from_hand = (0..size).map(|step| (usize::from(self.hand) + step) % size);
        let mut candidates = from_hand
            .map(|slot| u16::try_from(slot).expect("sizes are checked"))
            .filter(|slot| may_go(*slot));
        let first = candidates.clone().next();
        candidates.find(|slot| !self.slots[usize::from(*slot)].is_used).or(first)
    }

    /// The hand goes on, past this victim. Those that it passes have had their second chance.
    pub(super) fn pass(&mut self, victim: u16) {
        let was_round = self.slots[usize::from(victim)].is_used;
        if was_round {
            self.slots.iter_mut().for_each(|slot| slot.is_used = false);
        }
        let size = self.slots.len();
        let mut at = usize::from(self.hand);
        while at != usize::from(victim) {
            self.slots[at].is_used = false;
            at = (at + 1) % size;
        }
        self.hand = u16::try_from((at + 1) % size).expect("sizes are checked");
    }
}

#[cfg(test)]
impl<T> Slots<T> {
    pub(super) fn forget_versions(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.version = 0);
    }
}
