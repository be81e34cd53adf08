//! How a program joins whose memory is shared where it lies, and whose components must be alike.

use super::{Description, DescriptionError, JoinError, Share, Task};
use crate::synchronise::Combine;
use crate::terms::Terms;

/// Memory of the program, outside the heap: whole pages at the same address in all components, with the same content when they join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Image {
    /// Where it begins.
    pub start: usize,
    /// How long it is.
    pub bytes: usize,
}

/// How a program joins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Joining {
    /// What it shares beside what it allocates.
    pub images: Vec<Image>,
    /// How that is shared.
    pub terms: Terms,
    /// What must be the same in all components.
    pub alike: Vec<u8>,
}

impl Task {
    /// Joins the task that this process was started for, by a thread that is alone in the process, and makes images shared. What is
    /// in them is that of component 0 where page frames are shared; else each component's own counts for what lives there.
    pub fn join_with(joining: &Joining) -> Result<Self, JoinError> {
        let mut description = match Description::from_environment() {
            Err(DescriptionError::Missing) => None,
            description => Some(description?),
        };
        if let Some(description) = &mut description
            && !joining.images.is_empty()
            && description.hosts() > 1
        {
            // Rights to memory outside the heap are each process's own.
            description.share = Share::Copy;
        }
        let task = Self::begin(description, true)?;
        let sum = sum(&joining.alike);
        if task.reduce(Combine::Least, &[sum, !sum]) != [sum, !sum] {
            return Err(JoinError::NotAlike);
        }
        task.share_images(joining)?;
        Ok(task)
    }

    /// On how many hosts its components are.
    pub fn hosts(&self) -> u32 {
        self.inner.hosts
    }
}

/// FNV-1a: for what differs by accident.
fn sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
