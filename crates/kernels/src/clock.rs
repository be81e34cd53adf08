//! Time as memory: pages that say what time it is, and are messages when it is time. (Cache Kernel §2.2)
//!
//! There is a page for each period. Whoever has one mapped reads the time there without a call; a mapping with a signal thread is signalled once in each period. All numbers are
//! little-endian, in words of eight bytes that change each at once:
//!
//! | offset | |
//! |---|---|
//! | 0 | nanoseconds since the clock began, as of its last tick of any period |
//! | 8 | how many of this page's periods have passed |
//! | 16 | this page's period, in nanoseconds |
//! | 24 | when the clock began, in nanoseconds since 1970 |
//!
//! A signal is the address of the second of these. Periods that pass while the clock's kernel is not asked make one signal; the number tells of all.

use std::sync::atomic::Ordering::{Release, SeqCst};
use std::time::{Duration, Instant, SystemTime};

use comb_kernel::calls::Calls;
use comb_kernel::objects::{Mapping, Refused, SpaceId, SpaceLoad, Tag};
use comb_kernel::supervisor::CallError;
use thiserror::Error;

use crate::communication::Pages;

const TIME_AT: usize = 0;
/// Where the passed periods are, in a page: what is signalled.
pub const TICKS_AT: usize = 8;
const PERIOD_AT: usize = 16;
const BEGAN_AT: usize = 24;

/// Where the clock's own space has its pages. No thread runs there: a signal is named by where its sender has it.
const OWN_PAGE: u64 = 0x1000;

/// Why there cannot be a clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ClockError {
    /// A page for each period, and a period for each page.
    #[error("{periods} periods, and pages for {pages}")]
    Pages {
        /// So many.
        periods: usize,
        /// For so many.
        pages: u32,
    },
    /// It would tick without end.
    #[error("a period of no time")]
    NoPeriod,
}

/// A kernel's clock.
#[derive(Debug)]
pub struct Clock {
    pages: Pages,
    /// What has passed of each, and when the next is over.
    periods: Vec<(Duration, Instant)>,
    began: Instant,
    tag: Tag,
    space: Option<SpaceId>,
}

impl Clock {
    /// With a page for each period, whose signals come from a space of this name.
    pub fn new(pages: Pages, periods: &[Duration], tag: Tag, now: Instant) -> Result<Self, ClockError> {
        if pages.count() as usize != periods.len() {
            return Err(ClockError::Pages { periods: periods.len(), pages: pages.count() });
        }
        if periods.iter().any(Duration::is_zero) {
            return Err(ClockError::NoPeriod);
        }
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        for (index, period) in periods.iter().enumerate() {
            let words = [(TIME_AT, 0), (TICKS_AT, 0), (PERIOD_AT, nanoseconds(*period))];
            for (at, value) in words.into_iter().chain([(BEGAN_AT, nanoseconds(since_1970))]) {
                pages.long(index * 4096 + at).store(value, Release);
            }
        }
        let periods = periods.iter().map(|period| (*period, now + *period)).collect();
        Ok(Self { pages, periods, began: now, tag, space: None })
    }

    /// The page frame of a period.
    pub fn frame(&self, period: usize) -> u32 {
        assert!(period < self.periods.len(), "one of the clock's periods");
        self.pages.first() + u32::try_from(period).expect("few")
    }

    /// When the next period is over.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.periods.iter().map(|(_, next)| *next).min()
    }

    /// Writes what time it is, and signals those of whose periods one has passed: how many threads were told.
    pub fn turn(&mut self, now: Instant, calls: &mut dyn Calls) -> Result<u32, CallError> {
        let time = nanoseconds(now.saturating_duration_since(self.began));
        let mut told = 0;
        for index in 0..self.periods.len() {
            self.pages.long(index * 4096 + TIME_AT).store(time, SeqCst);
        }
        for index in 0..self.periods.len() {
            let (period, next) = self.periods[index];
            let Some(late) = now.checked_duration_since(next) else { continue };
            let passed = 1 + u64::try_from(late.as_nanos() / period.as_nanos()).unwrap_or(u64::MAX);
            self.pages.long(index * 4096 + TICKS_AT).fetch_add(passed, SeqCst);
            let until = u64::try_from(late.as_nanos() % period.as_nanos()).expect("less than the period");
            self.periods[index].1 = now + (period - Duration::from_nanos(until));
            told += self.signal(calls, index)?;
        }
        Ok(told)
    }

    /// Signals who listens to a page, by the clock's own mapping of it. If that was replaced, it is loaded again.
    fn signal(&mut self, calls: &mut dyn Calls, index: usize) -> Result<u32, CallError> {
        let address = ((OWN_PAGE + index as u64) << 12) + TICKS_AT as u64;
        for _ in 0..2 {
            if let Some(space) = self.space {
                match calls.signal(space, address) {
                    Err(CallError::Refused(Refused::StaleSpace(_))) => self.space = None,
                    Err(CallError::Refused(Refused::NotMapped { .. })) => self.map(calls, space)?,
                    other => return other,
                }
            }
            if self.space.is_none() {
                let space = calls.load_space(SpaceLoad { tag: self.tag, locked: false })?;
                self.space = Some(space);
                self.map(calls, space)?;
            }
        }
        calls.signal(self.space.expect("just loaded"), address)
    }

    /// To be read: of who only reads a page, nothing goes when one who listens does.
    fn map(&self, calls: &mut dyn Calls, space: SpaceId) -> Result<(), CallError> {
        let read = Mapping { message: true, ..Mapping::read(space, OWN_PAGE, self.pages.first().into()) };
        calls.load_mappings(&read, self.pages.count())
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
