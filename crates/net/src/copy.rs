//! Copies to and from memory that another process may write at the same time.
//!
//! In Rust such a race is undefined behaviour for ordinary reads and for `memcpy`. Assembly is opaque to the compiler:
//! it sees that memory was read, not that it was stable.
#![expect(unsafe_code, reason = "raw copies in assembly")]

/// From so many bytes on the string instruction beats the loop when the lines come from another core: 4 KB in 0.87 of
/// the time here. Below, its start costs more than it saves.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const STRING_MOVE_BYTES: usize = 512;

/// Copies out of memory that the peer wrote.
///
/// # Safety
/// Both ranges are mapped for the whole length and do not overlap. Another process may write either at any time: the
/// result is then any mixture of old and new bytes.
#[inline]
pub(crate) unsafe fn copy_out(to: *mut u8, from: *const u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if bytes >= STRING_MOVE_BYTES {
        // SAFETY: as promised by the caller; the direction flag is clear by the calling convention.
        unsafe {
            std::arch::asm!(
                "rep movsb",
                inout("rcx") bytes => _,
                inout("rsi") from => _,
                inout("rdi") to => _,
                options(nostack, preserves_flags),
            );
        }
        return;
    }
    // SAFETY: as promised by the caller.
    unsafe { copy_in(to, from, bytes) }
}

/// Copies into memory that the peer reads.
///
/// # Safety
/// As for [`copy_out`].
#[inline]
pub(crate) unsafe fn copy_in(to: *mut u8, from: *const u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as promised by the caller.
    unsafe {
        copy_x86_64(to, from, bytes);
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: as promised by the caller; volatile accesses are not merged, moved or repeated.
    unsafe {
        copy_bytewise(to, from, bytes);
    }
}

/// As [`copy_in`], but whole lines of `to` are written past the cache: others may see later stores before them, until
/// [`settle`].
///
/// # Safety
/// As for [`copy_out`].
#[inline]
pub(crate) unsafe fn copy_past_cache(to: *mut u8, from: *const u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let before = (to as usize).wrapping_neg() % 64;
        if bytes < before + 64 {
            // SAFETY: as promised by the caller.
            unsafe { copy_in(to, from, bytes) };
            return;
        }
        let behind = before + (bytes - before) / 64 * 64;
        // SAFETY: as promised by the caller; the whole lines between what is before them and what is behind lie within
        // the range, and are aligned.
        unsafe {
            copy_in(to, from, before);
            std::arch::asm!(
                "cmp {at}, {end}",
                "jae 3f",
                "2:",
                "movdqu {a}, [{from} + {at}]",
                "movdqu {b}, [{from} + {at} + 16]",
                "movdqu {c}, [{from} + {at} + 32]",
                "movdqu {d}, [{from} + {at} + 48]",
                "movntdq [{to} + {at}], {a}",
                "movntdq [{to} + {at} + 16], {b}",
                "movntdq [{to} + {at} + 32], {c}",
                "movntdq [{to} + {at} + 48], {d}",
                "add {at}, 64",
                "cmp {at}, {end}",
                "jb 2b",
                "3:",
                at = inout(reg) before => _,
                end = in(reg) behind,
                from = in(reg) from,
                to = in(reg) to,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack),
            );
            copy_in(to.add(behind), from.add(behind), bytes - behind);
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: as promised by the caller.
    unsafe {
        copy_in(to, from, bytes);
    }
}

/// What [`copy_past_cache`] wrote is there before what is stored from now on.
#[inline]
pub(crate) fn settle() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a fence changes nothing.
    unsafe {
        std::arch::asm!("sfence", options(nostack, preserves_flags));
    }
}

/// Asks for the cache lines of a range, to be written. A hint: any address is allowed.
#[inline]
pub(crate) fn prefetch_for_writing(start: *const u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for offset in (0..bytes).step_by(64) {
        // SAFETY: a prefetch changes nothing and never faults.
        unsafe {
            std::arch::asm!(
                "prefetchw [{}]",
                in(reg) start.wrapping_add(offset),
                options(nostack, preserves_flags),
            );
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (start, bytes);
}

/// Asks for one cache line, to be read. A hint: any address is allowed.
#[inline]
pub(crate) fn prefetch_for_reading(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch changes nothing and never faults.
    unsafe {
        std::arch::asm!("prefetcht0 [{}]", in(reg) line, options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

/// Lines of 64 bytes by four 16-byte moves, as every x86-64 has them; then 16 bytes at a time; then the last 16 bytes
/// once more, overlapping. 64-byte loads in a row keep several line fetches from the other core in flight.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn copy_x86_64(to: *mut u8, from: *const u8, bytes: usize) {
    if bytes < 16 {
        // SAFETY: as promised by the caller.
        unsafe { copy_bytewise(to, from, bytes) };
        return;
    }
    // SAFETY: every access lies within the two ranges: whole lines while 64 bytes are left, 16 while 16 are left,
    // and the last 16 end at `bytes`, which is at least 16.
    unsafe {
        std::arch::asm!(
            "sub {left}, 64",
            "jb 3f",
            "2:",
            "movdqu {a}, [{from}]",
            "movdqu {b}, [{from} + 16]",
            "movdqu {c}, [{from} + 32]",
            "movdqu {d}, [{from} + 48]",
            "movdqu [{to}], {a}",
            "movdqu [{to} + 16], {b}",
            "movdqu [{to} + 32], {c}",
            "movdqu [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "sub {left}, 64",
            "jae 2b",
            "3:",
            "add {left}, 64",
            "jz 6f",
            "sub {left}, 16",
            "jb 5f",
            "4:",
            "movdqu {a}, [{from}]",
            "movdqu [{to}], {a}",
            "add {from}, 16",
            "add {to}, 16",
            "sub {left}, 16",
            "jae 4b",
            "5:",
            "add {left}, 16",
            "jz 6f",
            "movdqu {a}, [{from} + {left} - 16]",
            "movdqu [{to} + {left} - 16], {a}",
            "6:",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            left = inout(reg) bytes => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// Reads eight bytes that others may be storing one by one at this moment: atomics of two sizes must not meet in Rust,
/// and assembly is none.
///
/// # Safety
/// The word is mapped.
#[inline]
pub(crate) unsafe fn glance(word: *const u64) -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let seen;
        // SAFETY: as promised by the caller; a load changes nothing.
        unsafe {
            std::arch::asm!(
                "mov {seen}, [{word}]",
                seen = out(reg) seen,
                word = in(reg) word,
                options(nostack, preserves_flags, readonly),
            );
        }
        seen
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        // SAFETY: as promised by the caller; single bytes are always aligned.
        let bytes = unsafe { word.cast::<[std::sync::atomic::AtomicU8; 8]>().as_ref_unchecked() };
        let load = |byte: &std::sync::atomic::AtomicU8| byte.load(std::sync::atomic::Ordering::Relaxed);
        u64::from_ne_bytes(bytes.each_ref().map(load))
    }
}

/// How many blocks of 64 bytes are the same on both sides before one is not. `shared` may be written meanwhile, as for
/// [`glance`]; a thousand channels' flags are sixteen blocks, looked at by every poll.
///
/// # Safety
/// Both sides are mapped for so many blocks, and eight bytes aligned.
#[inline]
pub(crate) unsafe fn same_blocks(shared: *const u64, private: *const u64, blocks: usize) -> usize {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let mut at = 0_usize;
        // SAFETY: as promised by the caller; loads change nothing. Every access lies before `end`.
        unsafe {
            std::arch::asm!(
                "cmp {at}, {end}",
                "jae 3f",
                "2:",
                "movdqu {a}, [{shared} + {at}]",
                "movdqu {b}, [{shared} + {at} + 16]",
                "movdqu {c}, [{shared} + {at} + 32]",
                "movdqu {d}, [{shared} + {at} + 48]",
                "movdqu {e}, [{private} + {at}]",
                "movdqu {f}, [{private} + {at} + 16]",
                "movdqu {g}, [{private} + {at} + 32]",
                "movdqu {h}, [{private} + {at} + 48]",
                "pcmpeqb {a}, {e}",
                "pcmpeqb {b}, {f}",
                "pcmpeqb {c}, {g}",
                "pcmpeqb {d}, {h}",
                "pand {a}, {b}",
                "pand {c}, {d}",
                "pand {a}, {c}",
                "pmovmskb {same:e}, {a}",
                "cmp {same:e}, 0xFFFF",
                "jne 3f",
                "add {at}, 64",
                "cmp {at}, {end}",
                "jb 2b",
                "3:",
                at = inout(reg) at,
                end = in(reg) blocks * 64,
                shared = in(reg) shared,
                private = in(reg) private,
                same = out(reg) _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                e = out(xmm_reg) _,
                f = out(xmm_reg) _,
                g = out(xmm_reg) _,
                h = out(xmm_reg) _,
                options(nostack, readonly),
            );
        }
        at / 64
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        // SAFETY: as promised by the caller.
        let same = |word: usize| unsafe { glance(shared.add(word)) == *private.add(word) };
        (0..blocks * 8).position(|word| !same(word)).map_or(blocks, |word| word / 8)
    }
}

unsafe fn copy_bytewise(to: *mut u8, from: *const u8, bytes: usize) {
    for offset in 0..bytes {
        // SAFETY: as promised by the caller.
        unsafe { to.add(offset).write_volatile(from.add(offset).read_volatile()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn miri_the_first_block_that_differs_is_found() {
        let same_everywhere = [0x0101_0101_0101_0101_u64; 40];
        let mut memory = same_everywhere;
        // Mutable: others could be storing to it.
        let shared = (&raw mut memory).cast::<u64>().cast_const();
        for blocks in 0..=5 {
            // SAFETY: 40 words are five blocks.
            assert_eq!(unsafe { same_blocks(shared, same_everywhere.as_ptr(), blocks) }, blocks);
        }
        for byte in 0..320 {
            let mut private = same_everywhere;
            private[byte / 8] ^= 0x80 << (byte % 8 * 8);
            // SAFETY: as above.
            let same = unsafe { same_blocks(shared, private.as_ptr(), 5) };
            assert_eq!(same, byte / 64, "byte {byte}");
        }
    }

    #[test]
    fn miri_every_length_and_alignment_is_copied_exactly() {
        let from: Vec<u8> = (0..1200_u32).map(|i| (i * 7 + 1).to_le_bytes()[0]).collect();
        let long = [191, 192, 193, 255, 256, 300, 511, 512, 513, 1000];
        // An interpreter copies byte by byte whatever the length, and slowly.
        let (short, long) = if cfg!(miri) { (0..10, &long[..1]) } else { (0..140, &long[..]) };
        for bytes in short.chain(long.iter().copied()) {
            for (shift, start) in [(0, 32), (1, 32), (8, 40), (13, 48), (0, 71)] {
                for copy in [copy_in, copy_out, copy_past_cache] {
                    let mut to = vec![0xEE_u8; 1200];
                    // SAFETY: 71 + 1000 + 13 < 1200 on both sides.
                    unsafe { copy(to.as_mut_ptr().add(start), from.as_ptr().add(shift), bytes) };
                    assert_eq!(to[start..start + bytes], from[shift..shift + bytes], "{bytes} bytes");
                    let beside = to[..start].iter().chain(&to[start + bytes..]);
                    assert!(beside.copied().all(|byte| byte == 0xEE), "nothing beside {bytes}");
                }
            }
        }
    }
}
