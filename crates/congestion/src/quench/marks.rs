//! Where to stop a flow, and where to let it go on.

use thiserror::Error;

/// The lengths of one flow's queue at which something happens, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marks {
    pub(super) path_bytes: u32,
    pub(super) low_bytes: u32,
    pub(super) high_bytes: u32,
    pub(super) capacity_bytes: u32,
}

/// Marks that cannot work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BadMarks {
    /// Between the marks there must be something to do.
    #[error("the low mark must lie below the high mark")]
    LowNotBelowHigh,
    /// A source cannot be stopped faster than the signal travels, so a flow that fits one round trip would be
    /// stopped again and again without ever having been too fast.
    #[error("the high mark must be at least what the path holds in one feedback round trip")]
    HighBelowPath,
    /// What is under way when the quench leaves still arrives, and must fit.
    #[error("above the high mark there must be room for what arrives before a quench takes effect")]
    NoRoomAboveHigh,
}

impl Marks {
    /// `path_bytes`: what the source can send at full speed in one feedback round trip (from the moment a
    /// message enters the queue until the effect of the answer is seen in the queue).
    pub fn new(
        path_bytes: u32,
        low_bytes: u32,
        high_bytes: u32,
        capacity_bytes: u32,
    ) -> Result<Marks, BadMarks> {
        if low_bytes >= high_bytes {
            return Err(BadMarks::LowNotBelowHigh);
        }
        if high_bytes < path_bytes {
            return Err(BadMarks::HighBelowPath);
        }
        if u64::from(capacity_bytes) < u64::from(high_bytes) + u64::from(path_bytes) {
            return Err(BadMarks::NoRoomAboveHigh);
        }
        Ok(Marks { path_bytes, low_bytes, high_bytes, capacity_bytes })
    }

    /// Marks for a path that holds `path_bytes`, in multiples of it:
    ///
    /// - low mark 1: after an unquench the queue feeds the receiver for the round trip that passes before
    ///   anything new arrives, so a lone flow keeps full speed;
    /// - high mark 2: as far above the low mark, so that a flow which is just right is not signalled at all;
    /// - capacity 4: one for what arrives before the quench takes effect, one more in case that it gets lost.
    ///
    /// # Panics
    /// When `path_bytes` is zero or more than a quarter of `u32::MAX`. It must also be no less than the
    /// largest message, which this function cannot see.
    pub fn for_path(path_bytes: u32) -> Marks {
        assert!(path_bytes > 0, "every path holds something");
        assert!(path_bytes <= u32::MAX / 4, "a path of {path_bytes} bytes needs a queue beyond 32 bits");
        Marks {
            path_bytes,
            low_bytes: path_bytes,
            high_bytes: path_bytes * 2,
            capacity_bytes: path_bytes * 4,
        }
    }

    /// The most that one flow's queue may ever hold.
    pub fn capacity_bytes(&self) -> u32 {
        self.capacity_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marks_that_work() {
        assert_eq!(Marks::new(100, 200, 200, 900), Err(BadMarks::LowNotBelowHigh));
        assert_eq!(Marks::new(100, 50, 99, 900), Err(BadMarks::HighBelowPath));
        assert_eq!(Marks::new(100, 50, 100, 199), Err(BadMarks::NoRoomAboveHigh));
        assert_eq!(Marks::new(u32::MAX, 50, u32::MAX, u32::MAX), Err(BadMarks::NoRoomAboveHigh));
        assert!(Marks::new(100, 50, 100, 200).is_ok());
        assert_eq!(Ok(Marks::for_path(100)), Marks::new(100, 100, 200, 400));
    }
}
