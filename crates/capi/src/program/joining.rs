//! How a compiled program becomes a component of its task.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use comb_region::task::{Image, Joining};
use comb_region::{Guard, Sharing, Task, Terms};

use super::{TASK, VERSION};
use crate::failed;

/// `struct comb_terms_of_program`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct TermsOfProgram {
    version: c_uint,
    access: c_uint,
    block_bytes: c_uint,
    images: c_uint,
    image: *const CombImage,
    build: *const c_char,
    polls: c_uint,
}

/// Of comb_program.h: where code looks for mail.
const MAIL_PAGE: usize = 0x10_0000;

/// `struct comb_image`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct CombImage {
    start: *mut c_void,
    bytes: usize,
}

/// `struct comb_place`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Place {
    rank: c_uint,
    count: c_uint,
    imports: c_uint,
    spread: c_uint,
    hosts: c_uint,
}

/// `enum comb_access`, by number. With the third, objects have [`Guard::Mmu`], and there are none in images.
const ACCESSES: [Guard; 4] = [Guard::Check, Guard::Hybrid, Guard::Page, Guard::Page];

static TERMS: OnceLock<Terms> = OnceLock::new();

/// How this program's memory is shared, unless something else is said of a piece of it.
pub(super) fn terms() -> Terms {
    TERMS.get().copied().unwrap_or_default()
}

/// Whether threads look at the state table themselves, and rights are ever taken from them.
pub(super) fn threads_check() -> bool {
    let is_checked = matches!(terms().guard, Guard::Check | Guard::Hybrid);
    is_checked && TASK.get().is_some_and(|task| !task.imports())
}

/// See `comb_program.h`.
///
/// # Safety
/// `terms` points to terms, which point to as many images as they say and to a string; `place` points to room for a place.
pub(super) unsafe extern "C" fn join(wanted: *const TermsOfProgram, place: *mut Place) -> c_int {
    // SAFETY: the caller's promise.
    let understood = unsafe { understand(&*wanted) };
    let joined = understood.and_then(|joining| {
        let task = Task::join_with(&joining).map_err(|error| error.to_string())?;
        Ok((joining, task))
    });
    let (joining, task) = match joined {
        Ok(joined) => joined,
        Err(error) => return failed(&error),
    };
    let _ = TERMS.set(joining.terms);
    // SAFETY: the caller's promise.
    if unsafe { (*wanted).polls } != 0
        && matches!(joining.terms.guard, Guard::Check | Guard::Hybrid)
        && !task.imports()
        && let Err(error) = task.begin_to_poll(MAIL_PAGE)
    {
        return failed(&error);
    }
    let told = Place {
        rank: task.rank(),
        count: task.count(),
        imports: c_uint::from(task.imports()),
        spread: task.spread().number(),
        hosts: task.hosts(),
    };
    // SAFETY: the caller's promise.
    unsafe { place.write(told) };
    if TASK.set(task).is_err() {
        return failed(&"this program has joined its task already");
    }
    0
}

/// How it is to be joined.
///
/// # Safety
/// As [`join`].
unsafe fn understand(wanted: &TermsOfProgram) -> Result<Joining, String> {
    if wanted.version != VERSION {
        return Err(format!("the program speaks version {}, and libcomb {VERSION}", wanted.version));
    }
    let access = ACCESSES.get(wanted.access as usize);
    let guard = *access.ok_or_else(|| format!("there is no access {}", wanted.access))?;
    let block_bytes = if wanted.block_bytes == 0 { Terms::default().block_bytes } else { wanted.block_bytes };
    let terms = Terms { guard, block_bytes, sharing: Sharing::Stache, ..Terms::default() };
    let images = if wanted.images == 0 {
        &[]
    } else {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(wanted.image, wanted.images as usize) }
    };
    let image = |image: &CombImage| Image { start: image.start as usize, bytes: image.bytes };
    let images: Vec<Image> = images.iter().map(image).collect();
    // SAFETY: the caller's promise.
    let build = unsafe { CStr::from_ptr(wanted.build) };
    let alike = format!("{VERSION} {} {block_bytes} {images:x?} {}", wanted.access, build.to_string_lossy());
    Ok(Joining { images, terms, alike: alike.into_bytes() })
}
