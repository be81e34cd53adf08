//! Where things are in every space.

/// Programs have no memory here: all that the stub needs is.
pub(crate) const STUB_START: u64 = 0x7000_0000_0000;
pub(crate) const STUB_END: u64 = 0x7000_2000_0000;
/// No address of a program is here or above.
pub(crate) const TOP: u64 = 0x7fff_ffff_f000;

pub(crate) const PAGE_BYTES: u64 = 4096;
/// The same, of a process's own memory.
pub(crate) const PAGE: usize = 4096;

/// The code, and after it what it reads: no space can write it.
pub(crate) const TEXT: u64 = STUB_START;
pub(crate) const TEXT_BYTES: u64 = 2 * PAGE_BYTES;
pub(crate) const CONSTANTS: u64 = TEXT + PAGE_BYTES;

/// What the mapper is to do: the space reads it, the supervisor writes it.
pub(crate) const ORDERS: u64 = STUB_START + 0x1_0000;
/// That something came of it: the space writes it, so that it is a hint. What, the mapper reports where the space cannot.
pub(crate) const RESULTS: u64 = ORDERS + PAGE_BYTES;
/// Where threads ring for their kernel: all its spaces write it.
pub(crate) const BELL: u64 = STUB_START + 0x3_0000;

/// Where messages of this space are signalled to: the supervisor writes it, and threads look there before they ask.
pub(crate) const TRANSLATIONS: u64 = STUB_START + 0x3_1000;
/// What translations are compared with: the same page in all spaces.
pub(crate) const VERSION: u64 = STUB_START + 0x3_2000;
/// Rings of threads in other spaces, that threads of this one signal.
pub(crate) const PORTS: u64 = STUB_START + 0x4_0000;
pub(crate) const MOST_PORTS: usize = 64;

/// An area for each thread: what is known of it while it is stopped, and the stack on which it stops.
pub(crate) const AREAS: u64 = STUB_START + 0x1000_0000;
pub(crate) const AREA_BYTES: u64 = 0x8000;
/// In one space.
pub(crate) const MOST_THREADS: u64 = 1024;
const _: () = assert!(AREAS + AREA_BYTES * MOST_THREADS <= STUB_END && AREAS.is_multiple_of(AREA_BYTES));

/// Orders of one sequence.
pub(crate) const MOST_ORDERS: usize = 62;

// Within the orders.
pub(crate) const ORDERS_SEQUENCE: usize = 0;
pub(crate) const ORDERS_COUNT: usize = 4;
pub(crate) const ORDERS_AWAITED: usize = 8;
/// The descriptor by which the mapper reports.
pub(crate) const ORDERS_REPORT: usize = 12;
pub(crate) const ORDERS_CALLS: usize = 16;
pub(crate) const ORDER_BYTES: usize = 64;
/// Of an order whose result can be any.
pub(crate) const ANY: u64 = u64::MAX - 1;
/// The stack, which is none, of a mapper that has not all of its places yet.
pub(crate) const UNFINISHED: u64 = 1;
/// What a userfaultfd is asked by one of the calls. Its answer comes behind that, which is where results are: the space can write no word of what is asked.
pub(crate) const ORDERS_REQUEST: usize = PAGE - 24;
const _: () = assert!(ORDERS_CALLS + MOST_ORDERS * ORDER_BYTES <= ORDERS_REQUEST);

// Within the results.
pub(crate) const RESULTS_DONE: usize = 8;
/// Of a stem: the number of the process that it has started.
pub(crate) const RESULTS_STARTED: usize = 16;

// Within a bell.
pub(crate) const BELL_SLEEPS: usize = 0;
pub(crate) const BELL_RUNG: usize = 64;

// Within an area.
pub(crate) const AREA_STATE: usize = 0;
pub(crate) const AREA_SLEEPS: usize = 4;
pub(crate) const AREA_NUMBER: usize = 8;
pub(crate) const AREA_SPINS: usize = 12;
pub(crate) const AREA_SIGNAL: usize = 16;
pub(crate) const AREA_FRAME: usize = 24;
pub(crate) const AREA_INFORMATION: usize = 32;
pub(crate) const AREA_FS: usize = 40;
pub(crate) const AREA_GS: usize = 48;
pub(crate) const AREA_ALTERNATE: usize = 64;
/// Where its signal function is, if it has one.
pub(crate) const AREA_FUNCTION: usize = 96;
/// Whether it is in it.
pub(crate) const AREA_IN_FUNCTION: usize = 104;
/// And where the state is that it interrupted.
pub(crate) const AREA_INTERRUPTED: usize = 112;
/// The state in which it begins.
pub(crate) const AREA_CALL: usize = 512;
/// A page of the signals that it has not taken.
pub(crate) const AREA_RING: usize = PAGE;
/// The stacks for stops begin here: of a thread in its signal function, and then of one that is not. So what a signal interrupted stays where it is.
pub(crate) const AREA_STACK: usize = 2 * PAGE;
pub(crate) const AREA_OUTER: usize = AREA_STACK + AREA_STACK_BYTES;
pub(crate) const AREA_STACK_BYTES: usize = 3 * PAGE;
const _: () = assert!((AREA_OUTER + AREA_STACK_BYTES) as u64 == AREA_BYTES);

// Within the translations: where threads wait and wake, where signal functions end, and then what is translated, by the rest of the page's number.
pub(crate) const TRANSLATIONS_WAIT: usize = 0;
pub(crate) const TRANSLATIONS_WAKE: usize = 8;
pub(crate) const TRANSLATIONS_END_OF_FUNCTION: usize = 16;
pub(crate) const TRANSLATIONS_ENTRIES: usize = 1024;
pub(crate) const TRANSLATION_BYTES: usize = 32;
pub(crate) const MOST_TRANSLATIONS: u64 = 64;

// Within a ring.
pub(crate) const RING_TAIL: usize = 0;
pub(crate) const RING_HEAD: usize = 64;
pub(crate) const RING_SLEEPS: usize = 128;
pub(crate) const RING_SLOTS: usize = 1024;
pub(crate) const MOST_SIGNALS: u64 = 256;

// Within a state, as the host's kernel keeps it: its stack for signals, its registers by the order of `Registers`.
pub(crate) const FRAME_STACK: usize = 16;
pub(crate) const FRAME_GENERAL: usize = 40;
pub(crate) const FRAME_BYTES: usize = 304;
const _: () = assert!(AREA_CALL + FRAME_BYTES <= AREA_RING);

// What a thread is, in its area's first word.
pub(crate) const RUNS: u32 = 0;
pub(crate) const STOPPED: u32 = 1;
pub(crate) const GOES_ON: u32 = 2;
pub(crate) const ENDS: u32 = 3;
