//! The table of comb_program.h: what the C runtime of compiled programs stands on.

mod calls;
mod joining;
mod locks;
mod table;

use std::ffi::c_int;
use std::time::Duration;

use comb_region::Task;
use comb_region::task::Deadline;

pub use self::table::{Program, comb_program};
use crate::{failed, locked};

/// Of comb_program.h.
const VERSION: u32 = 4;

/// The task that the program is a component of. It stays: nothing of it is ever given back before the process ends.
static TASK: std::sync::OnceLock<Task> = std::sync::OnceLock::new();

/// The task. A runtime that has not joined has made a mistake.
fn task() -> &'static Task {
    TASK.get().unwrap_or_else(|| {
        eprintln!("comb: this program has joined no task: join() comes first");
        std::process::abort()
    })
}

/// When a wait ends. `deadline` may be null: never.
///
/// # Safety
/// `deadline` is null or points to a time.
unsafe fn deadline(deadline: *const libc::timespec, is_realtime: c_int) -> Option<Deadline> {
    // SAFETY: the caller's promise.
    let time = unsafe { deadline.as_ref() }?;
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or_default());
    let time = seconds + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or_default());
    Some(if is_realtime != 0 { Deadline::Realtime(time) } else { Deadline::Monotonic(time) })
}
