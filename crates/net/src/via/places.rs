//! Things with numbers. The number of one that was removed is used again, under another epoch, so that a key to it is
//! stale and what is made and removed in a loop needs no more room than what is there at once.

use std::ops::{Index, IndexMut};

/// Names a thing among its like: its number, and its epoch above. One word, because two halves that were just written
/// are read back as one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Place(u64);

impl Place {
    #[inline]
    fn new(number: u32, epoch: u32) -> Self {
        Self(u64::from(epoch) << 32 | u64::from(number))
    }

    #[inline]
    fn number(self) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
        let number = self.0 as u32;
        number
    }

    #[inline]
    fn index(self) -> usize {
        self.number() as usize
    }
}

#[derive(Debug)]
pub(super) struct Places<T> {
    places: Vec<Option<(Place, T)>>,
    free: Vec<u32>,
    epoch: u32,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new(), epoch: 0 }
    }
}

impl<T> Places<T> {
    /// Adds what `make` makes of its own key.
    pub(super) fn add(&mut self, make: impl FnOnce(Place) -> T) -> Place {
        self.epoch = self.epoch.wrapping_add(1);
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            u32::try_from(self.places.len() - 1).expect("fewer than 4 G of a kind")
        });
        let place = Place::new(index, self.epoch);
        self.places[index as usize] = Some((place, make(place)));
        place
    }

    pub(super) fn remove(&mut self, place: Place) -> Option<T> {
        self.get(place)?;
        let (_, thing) = self.places[place.index()].take()?;
        self.free.push(place.number());
        Some(thing)
    }

    #[inline]
    pub(super) fn get(&self, place: Place) -> Option<&T> {
        let (key, thing) = self.places.get(place.index())?.as_ref()?;
        (*key == place).then_some(thing)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut T> {
        let (key, thing) = self.places.get_mut(place.index())?.as_mut()?;
        (*key == place).then_some(thing)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten().map(|(_, thing)| thing)
    }
}

/// For keys that are known to be live; others panic.
impl<T> Index<Place> for Places<T> {
    type Output = T;

    #[inline]
    fn index(&self, place: Place) -> &T {
        self.get(place).expect("a live key")
    }
}

impl<T> IndexMut<Place> for Places<T> {
    #[inline]
    fn index_mut(&mut self, place: Place) -> &mut T {
        self.get_mut(place).expect("a live key")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_and_its_old_key_is_stale() {
        let mut places = Places::default();
        let kept = places.add(|_| 0);
        for number in 1..1000 {
            let place = places.add(|_| number);
            assert_eq!(places.get(place), Some(&number));
            assert_eq!(places.remove(place), Some(number));
            assert_eq!(places.get(place), None);
            assert_eq!(places.remove(place), None);
        }
        assert_eq!(places.places.len(), 2);
        assert_eq!((places[kept], places.iter().count()), (0, 1));
    }
}
