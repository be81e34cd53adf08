//! The physical memory map: all records of mappings, found by page and by frame. (§4.1)
//!
//! Both indexes are chains through the records, from half as many heads as there are records. With three bytes for a head and two for the
//! length of a chain this is four bytes a record: twenty in all, less than half a percent of the page that is mapped.

use super::record::{FrameKey, Kind, Number, Record, page_key};

/// A chain by frame is not to be longer. To take a record out its chain is walked, and whoever needs the room would pay for a kernel that
/// maps one frame a million times: a few microseconds at this length. Hence such a kernel replaces its own (the chain's last) first.
const LONGEST_CHAIN: u16 = 1_024;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct PhysicalMap {
    records: Box<[Record]>,
    by_page: Box<[Number]>,
    by_frame: Box<[Number]>,
    /// Of the chains by frame.
    lengths: Box<[u16]>,
    /// Chained by page.
    first_free: Number,
    free: u32,
    hand: u32,
    seed: u64,
    version: u64,
}

impl PhysicalMap {
    pub(super) fn new(size: u32, seed: u64) -> Self {
        let heads = (size / 2).max(1);
        let next = |place| if place + 1 < size { Number::new(place + 1) } else { Number::NONE };
        Self {
            records: (0..size).map(|place| Record::NOTHING.linked(next(place), Number::NONE)).collect(),
            by_page: (0..heads).map(|_| Number::NONE).collect(),
            by_frame: (0..heads).map(|_| Number::NONE).collect(),
            lengths: (0..heads).map(|_| 0).collect(),
            first_free: Number::new(0),
            free: size,
            hand: 0,
            seed: seed | 1,
            version: 0,
        }
    }

    pub(super) fn size(&self) -> u32 {
        u32::try_from(self.records.len()).expect("sizes are checked")
    }

    /// All that the map takes for its records.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.records)
            + size_of_val(&*self.by_page)
            + size_of_val(&*self.by_frame)
            + size_of_val(&*self.lengths)
    }

    pub(super) fn free(&self) -> u32 {
        self.free
    }

    /// Changes whenever something that was found before may not be any more.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn at(&self, place: u32) -> &Record {
        &self.records[place as usize]
    }

    pub(super) fn at_mut(&mut self, place: u32) -> &mut Record {
        &mut self.records[place as usize]
    }

    /// Multiply and shift: for a seed that is not known, no choice of keys collides more than chance does.
    fn bucket(&self, key: u64) -> usize {
        let hash = key.wrapping_mul(self.seed) >> 32;
        let bucket = (hash * self.by_page.len() as u64) >> 32;
        usize::try_from(bucket).expect("less than the heads")
    }

    /// The mapping of a page.
    pub(super) fn find(&self, space: u16, page: u64) -> Option<u32> {
        self.find_by(page_key(Kind::Mapping, space, page))
    }

    /// The signal record, or the copy record, of a mapping.
    pub(super) fn find_more(&self, kind: Kind, mapping: u32) -> Option<u32> {
        if !self.at(mapping).has_more() {
            return None;
        }
        self.find_by(page_key(kind, 0, u64::from(mapping)))
    }

    fn find_by(&self, key: u64) -> Option<u32> {
        let mut link = self.by_page[self.bucket(key)];
        while let Some(place) = link.next() {
            let record = self.at(place);
            if record.page_key() == key {
                return Some(place);
            }
            link = record.next_by_page;
        }
        None
    }

    /// What depends on a frame, or on a thread: the youngest first.
    pub(super) fn dependents(&self, key: FrameKey) -> impl Iterator<Item = (u32, &Record)> {
        self.chain(key).filter(move |(_, record)| record.frame_key() == key)
    }

    /// The same, and what shares the chain by chance.
    pub(super) fn chain(&self, key: FrameKey) -> impl Iterator<Item = (u32, &Record)> {
        let mut link = self.by_frame[self.bucket(key.0)];
        core::iter::from_fn(move || {
            let place = link.next()?;
            let record = self.at(place);
            link = record.next_by_frame;
            Some((place, record))
        })
    }

    pub(super) fn is_crowded(&self, key: FrameKey) -> bool {
        self.lengths[self.bucket(key.0)] >= LONGEST_CHAIN
    }

    /// Puts a record in. There must be room.
    pub(super) fn insert(&mut self, record: Record) -> u32 {
        let place = self.first_free.next().expect("room was made");
        self.first_free = self.at(place).next_by_page;
        self.free -= 1;
        let link = Number::new(place);
        let by_page = self.bucket(record.page_key());
        let by_frame = self.bucket(record.frame_key().0);
        let next_by_page = core::mem::replace(&mut self.by_page[by_page], link);
        let next_by_frame = core::mem::replace(&mut self.by_frame[by_frame], link);
        self.lengths[by_frame] = self.lengths[by_frame].saturating_add(1);
        *self.at_mut(place) = record.linked(next_by_page, next_by_frame);
        place
    }

    /// Takes one record out. Those that say more of a mapping go before it.
    pub(super) fn remove(&mut self, place: u32) {
        let record = *self.at(place);
        let by_page = self.bucket(record.page_key());
        let by_frame = self.bucket(record.frame_key().0);
        unlink(&mut self.records, &mut self.by_page[by_page], place, |record| &mut record.next_by_page);
        unlink(&mut self.records, &mut self.by_frame[by_frame], place, |record| &mut record.next_by_frame);
        self.lengths[by_frame] = self.lengths[by_frame].saturating_sub(1);
        *self.at_mut(place) = Record::NOTHING.linked(self.first_free, Number::NONE);
        self.first_free = Number::new(place);
        self.free += 1;
        self.version += 1;
    }

    /// Where the clock hand stands. It goes on by one.
    pub(super) fn step(&mut self) -> u32 {
        let place = self.hand;
        self.hand = if place + 1 < self.size() { place + 1 } else { 0 };
        place
    }
}

fn unlink(records: &mut [Record], first: &mut Number, place: u32, link: impl Fn(&mut Record) -> &mut Number) {
    let next = *link(&mut records[place as usize]);
    let mut before = first.next().expect("its chain has it");
    if before == place {
        *first = next;
        return;
    }
    loop {
        let link = link(&mut records[before as usize]);
        before = match link.next() {
            Some(found) if found == place => {
                *link = next;
                return;
            }
            following => following.expect("its chain has it"),
        };
    }
}

#[cfg(test)]
impl PhysicalMap {
    /// Panics if the indexes are not as they should be, or if not so many records are free.
    pub(super) fn check(&self, free: u32) {
        let count = |first: Number, next: fn(&Record) -> Number| {
            core::iter::successors(first.next(), |place| next(self.at(*place)).next()).count()
        };
        assert_eq!(count(self.first_free, |record| record.next_by_page), self.free as usize);
        assert_eq!(self.free, free);
        let by_page: usize =
            self.by_page.iter().map(|first| count(*first, |record| record.next_by_page)).sum();
        assert_eq!(by_page, (self.size() - free) as usize, "a chain by page has too much or too little");
        for (first, length) in self.by_frame.iter().zip(&self.lengths) {
            assert_eq!(count(*first, |record| record.next_by_frame), usize::from(*length));
        }
    }

    pub(super) fn forget_version(&mut self) {
        self.version = 0;
    }
}
