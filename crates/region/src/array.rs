//! Arrays of numbers in shared memory, for safe code: no reference into them exists, every access is a load or a store.

use std::marker::PhantomData;
use std::ops::Range;

use comb_memory::{Verdict, careful_copy_from, careful_copy_to, software};

use crate::named::Region;
use crate::task::{AllocateError, Task};
use crate::terms::{Guard, Terms};

/// Numbers that any bits are one of, which the processor loads and stores in one piece.
pub trait Number: Copy + sealed::Sealed + 'static {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! numbers {
    ($($number:ty),*) => { $(impl sealed::Sealed for $number {} impl Number for $number {})* };
}
numbers!(u8, i8, u16, i16, u32, i32, u64, i64, usize, isize, f32, f64);

/// What was stored there is lost with a component that died.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("what was stored at {address:#x} is lost: {reason}")]
pub struct Lost {
    /// Where.
    pub address: usize,
    /// Why.
    pub reason: comb_memory::Reason,
}

/// A shared array. A copy is the same array. Loads and stores of one element are never torn; what they find when others store is
/// what the allocation's protocol promises.
pub struct Array<T: Number> {
    first: *mut T,
    length: usize,
    /// It must not outlive the memory.
    keeper: Keeper,
    _elements: PhantomData<T>,
}

/// Whose memory it is.
#[derive(Clone)]
enum Keeper {
    Task(Task),
    Region(Region),
}

impl<T: Number> Clone for Array<T> {
    fn clone(&self) -> Self {
        Self { first: self.first, length: self.length, keeper: self.keeper.clone(), _elements: PhantomData }
    }
}

#[expect(unsafe_code, reason = "shared memory is no thread's own")]
// SAFETY: every access is a single volatile load or store of a number, or a careful copy, and none makes a reference.
unsafe impl<T: Number> Send for Array<T> {}
#[expect(unsafe_code, reason = "shared memory is no thread's own")]
// SAFETY: as above.
unsafe impl<T: Number> Sync for Array<T> {}

impl<T: Number> std::fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} elements at {:p}", self.length, self.first)
    }
}

impl<T: Number> Array<T> {
    /// Allocates one of zeros in all components: each calls it.
    pub fn together(task: &Task, length: usize, terms: &Terms) -> Result<Self, AllocateError> {
        if terms.guard == Guard::Mmu {
            return Err(AllocateError::Terms("an array needs addresses in a row: not Guard::Mmu".to_owned()));
        }
        let bytes = (length as u64).checked_mul(size_of::<T>() as u64);
        let bytes = bytes.ok_or_else(|| AllocateError::Terms(format!("{length} elements")))?;
        let first = task.allocate_together(bytes.max(1), terms)?.cast();
        Ok(Self { first, length, keeper: Keeper::Task(task.clone()), _elements: PhantomData })
    }

    /// Part of a named region, aligned and within it.
    pub(crate) fn of_region(region: Region, first: *mut T, length: usize) -> Self {
        Self { first, length, keeper: Keeper::Region(region), _elements: PhantomData }
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// For code that knows what it does.
    pub fn as_ptr(&self) -> *mut T {
        self.first
    }

    #[inline]
    fn place(&self, index: usize) -> *mut T {
        assert!(index < self.length, "element {index} of {}", self.length);
        self.first.wrapping_add(index)
    }

    /// Loads an element.
    ///
    /// # Panics
    /// If there is no such element.
    #[inline]
    #[expect(unsafe_code, reason = "shared memory")]
    pub fn get(&self, index: usize) -> T {
        let place = self.place(index);
        // SAFETY: within the allocation, which lives as long as the task; aligned; any bits are a number.
        let load = || unsafe { place.read_volatile() };
        if !software::is_needed() {
            return load();
        }
        let loaded = software::with_right(place.cast(), size_of::<T>(), false, load);
        loaded.unwrap_or_else(|verdict| lost(place.addr(), verdict))
    }

    /// Stores an element.
    ///
    /// # Panics
    /// If there is no such element.
    #[inline]
    #[expect(unsafe_code, reason = "shared memory")]
    pub fn set(&self, index: usize, value: T) {
        let place = self.place(index);
        // SAFETY: as in `get`.
        let store = || unsafe { place.write_volatile(value) };
        if !software::is_needed() {
            return store();
        }
        let stored = software::with_right(place.cast(), size_of::<T>(), true, store);
        stored.unwrap_or_else(|verdict| lost(place.addr(), verdict));
    }

    fn range(&self, first: usize, length: usize) -> Range<usize> {
        let end = first.checked_add(length).filter(|&end| end <= self.length);
        first..end.unwrap_or_else(|| panic!("elements {first} and {length} behind it of {}", self.length))
    }

    /// Copies elements out; an error if some of them are lost.
    ///
    /// # Panics
    /// If there are no such elements.
    #[expect(unsafe_code, reason = "shared memory")]
    pub fn read(&self, first: usize, into: &mut [T]) -> Result<(), Lost> {
        let range = self.range(first, into.len());
        let place = self.first.wrapping_add(range.start).cast::<u8>().cast_const();
        // SAFETY: the numbers' bytes, all of which may have any value.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(into.as_mut_ptr().cast::<u8>(), size_of_val(into)) };
        careful_copy_from(place, bytes).map_err(|lost| Lost { address: lost.address, reason: lost.reason })
    }

    /// Copies elements in; an error if some of them are lost. Those before may have been stored.
    ///
    /// # Panics
    /// If there are no such elements.
    #[expect(unsafe_code, reason = "shared memory")]
    pub fn write(&self, first: usize, elements: &[T]) -> Result<(), Lost> {
        let range = self.range(first, elements.len());
        let place = self.first.wrapping_add(range.start).cast::<u8>();
        // SAFETY: the numbers' bytes.
        let bytes =
            unsafe { std::slice::from_raw_parts(elements.as_ptr().cast::<u8>(), size_of_val(elements)) };
        careful_copy_to(bytes, place).map_err(|lost| Lost { address: lost.address, reason: lost.reason })
    }

    /// Asks for elements before they are needed, and does not wait for them.
    pub fn prefetch(&self, elements: Range<usize>, to_store: bool) {
        let range = self.range(elements.start, elements.len());
        let place = self.first.wrapping_add(range.start).cast::<u8>();
        let bytes = range.len() * size_of::<T>();
        match &self.keeper {
            Keeper::Task(task) => task.prefetch(place, bytes, to_store),
            Keeper::Region(region) => region.prefetch(place, bytes, to_store),
        }
    }
}

/// As if the thread had been stopped there.
#[cold]
fn lost(address: usize, verdict: Verdict) -> ! {
    crate::driver::fail(&format_args!("what was stored at {address:#x} cannot be had: {verdict:?}"))
}
