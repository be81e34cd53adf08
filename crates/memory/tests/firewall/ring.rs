//! As much of io_uring as it takes to have the kernel write to a registered buffer.

const SUBMITTED_AT: i64 = 0;
const ENTRIES_AT: i64 = 0x1000_0000;
const REGISTER_BUFFERS: u32 = 0;
const READ_FIXED: u8 = 4;
const GET_EVENTS: u32 = 1;

/// What the kernel says of a ring: flags and counts, then where things are in the memory of submissions, and of completions.
#[repr(C)]
#[derive(Default)]
struct Parameters {
    counts: [u32; 10],
    /// head, tail, mask, entries, flags, dropped, array, …
    submissions: [u32; 10],
    completions: [u32; 10],
}

pub(crate) struct Ring {
    descriptor: i32,
    submissions: *mut u8,
    entries: *mut u8,
    tail_at: usize,
    array_at: usize,
}

impl Ring {
    /// A ring with this buffer registered; the error number of what was refused.
    pub(crate) fn with_buffer(buffer: *mut u8, bytes: usize) -> Result<Self, i32> {
        let failed = || std::io::Error::last_os_error().raw_os_error().unwrap();
        let mut parameters = Parameters::default();
        // SAFETY: structures as the kernel has them, and its memory.
        unsafe {
            let descriptor = libc::syscall(libc::SYS_io_uring_setup, 8, &raw mut parameters);
            let Ok(descriptor @ 0..) = i32::try_from(descriptor) else { return Err(failed()) };
            let map = |bytes: usize, at: i64| {
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, descriptor, at)
            };
            let (submissions, entries) = (map(4096, SUBMITTED_AT).cast(), map(4096, ENTRIES_AT).cast());
            let vector = libc::iovec { iov_base: buffer.cast(), iov_len: bytes };
            let registered = libc::syscall(
                libc::SYS_io_uring_register,
                descriptor,
                REGISTER_BUFFERS,
                &raw const vector,
                1,
            );
            if registered < 0 {
                return Err(failed());
            }
            let [_, tail_at, _, _, _, _, array_at, ..] = parameters.submissions.map(|at| at as usize);
            Ok(Self { descriptor, submissions, entries, tail_at, array_at })
        }
    }

    /// Reads a byte from a descriptor to a place in the buffer.
    pub(crate) fn read_into_buffer(&self, from: i32, place: *mut u8) {
        // SAFETY: the first entry, and the kernel's own words.
        unsafe {
            let entry = std::slice::from_raw_parts_mut(self.entries, 64);
            entry.fill(0);
            entry[0] = READ_FIXED;
            entry[4..8].copy_from_slice(&from.to_ne_bytes());
            entry[8..16].copy_from_slice(&u64::MAX.to_ne_bytes());
            entry[16..24].copy_from_slice(&(place as u64).to_ne_bytes());
            entry[24..28].copy_from_slice(&1_u32.to_ne_bytes());
            self.submissions.add(self.array_at).cast::<u32>().write_volatile(0);
            let tail = self.submissions.add(self.tail_at).cast::<u32>();
            tail.write_volatile(tail.read_volatile() + 1);
            let entered = libc::syscall(libc::SYS_io_uring_enter, self.descriptor, 1, 1, GET_EVENTS, 0, 0);
            assert_eq!(entered, 1);
        }
    }
}
