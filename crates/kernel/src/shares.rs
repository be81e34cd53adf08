//! What kernels have used of the processors, and which of them have used more than their share. (Cache Kernel §4.3)
//!
//! For each processor a kernel has a *balance*: time comes in at the rate of its share, and what its threads use goes out, at a premium where their
//! priority is high and at a discount where it is low. Who has none left is demoted there: its threads run only while nobody else wants to, until it has some
//! again. Nobody saves up more than a moment's worth, and what is owed is forgiven above a fifth of a second.
//!
//! No clock, no host: the same calls have the same results.

use std::time::Duration;

use crate::objects::KernelId;

/// What a share comes to in this time can be saved up.
const MOMENT: Duration = Duration::from_millis(200);

/// So much can be owed, whatever the share: it is more than can be used before it is looked at again.
const OWED: Duration = Duration::from_millis(200);

/// A kernel that was demoted stays so until it has what its share comes to in this time: changing is not free.
const ENOUGH: Duration = Duration::from_millis(20);

/// The priority at which a used second is charged as one second.
pub const USUAL_PRIORITY: u8 = 20;

/// Above this, threads are of the host's real-time class.
pub const HIGHEST_USUAL_PRIORITY: u8 = 40;

/// What a second at this priority is charged as, in percent: half a second at the lowest, two above all usual ones.
pub fn charge_percent(priority: u8) -> u16 {
    if priority > HIGHEST_USUAL_PRIORITY {
        return 200;
    }
    // From a half over one at the usual priority to one and a half.
    50 + u16::from(priority) * 50 / u16::from(USUAL_PRIORITY)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Account {
    share: u8,
    /// In nanoseconds.
    balance: i64,
    is_demoted: bool,
    /// In all, whatever was charged for it.
    used: Duration,
}

impl Account {
    fn new(share: u8) -> Self {
        let share = share.min(100);
        Self { share, balance: Self::of(share, MOMENT), is_demoted: false, used: Duration::ZERO }
    }

    fn of(share: u8, time: Duration) -> i64 {
        let nanoseconds = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        nanoseconds.saturating_mul(share.into()) / 100
    }

    /// A kernel that has all of a processor cannot use too much of it.
    fn is_limited(&self) -> bool {
        self.share < 100
    }

    fn settle(&mut self) {
        let most = Self::of(self.share, MOMENT);
        self.balance = self.balance.clamp(-Self::of(100, OWED), most);
        let enough = Self::of(self.share, ENOUGH);
        self.is_demoted = self.is_limited()
            && (self.share == 0 || if self.is_demoted { self.balance < enough } else { self.balance < 0 });
    }
}

/// The accounts of all kernels.
#[derive(Clone, Debug)]
pub struct Meter {
    processors: usize,
    /// By slot; the kernel, and its account for each processor.
    kernels: Vec<Option<(KernelId, Vec<Account>)>>,
}

impl Meter {
    /// Of a machine with so many processors, and tables with so many kernels.
    pub fn new(processors: usize, kernels: u32) -> Self {
        Self { processors, kernels: (0..kernels).map(|_| None).collect() }
    }

    /// Sets the shares of a kernel, which is new or has others than before. Of processors that are not named it has nothing; if none is, all of all.
    pub fn set(&mut self, kernel: KernelId, shares: &[u8]) {
        let unnamed = if shares.is_empty() { 100 } else { 0 };
        let share = |processor: usize| shares.get(processor).copied().unwrap_or(unnamed);
        let place = &mut self.kernels[usize::from(kernel.slot())];
        match place {
            Some((known, accounts)) if *known == kernel => {
                for (processor, account) in accounts.iter_mut().enumerate() {
                    account.share = share(processor).min(100);
                    account.settle();
                }
            }
            place => {
                let mut accounts: Vec<_> = (0..self.processors).map(|at| Account::new(share(at))).collect();
                accounts.iter_mut().for_each(Account::settle);
                *place = Some((kernel, accounts));
            }
        }
    }

    /// A kernel has gone.
    pub fn close(&mut self, kernel: KernelId) {
        self.kernels[usize::from(kernel.slot())] = None;
    }

    fn accounts(&self, kernel: KernelId) -> &[Account] {
        match &self.kernels[usize::from(kernel.slot())] {
            Some((known, accounts)) if *known == kernel => accounts,
            _ => &[],
        }
    }

    /// Whether it matters what a kernel uses.
    pub fn is_limited(&self, kernel: KernelId) -> bool {
        self.accounts(kernel).iter().any(Account::is_limited)
    }

    /// Those of which it matters what they use.
    pub fn limited(&self) -> impl Iterator<Item = KernelId> {
        let kernels = self.kernels.iter().flatten();
        kernels.filter(|(_, accounts)| accounts.iter().any(Account::is_limited)).map(|(kernel, _)| *kernel)
    }

    /// Whether it matters what anybody uses.
    pub fn has_limits(&self) -> bool {
        self.limited().next().is_some()
    }

    /// A kernel's thread has used this much of a processor, at a priority: the lowest, if it was demoted.
    pub fn charge(&mut self, kernel: KernelId, processor: usize, priority: u8, used: Duration) {
        let is_demoted = self.is_demoted(kernel, processor);
        let percent = i64::from(charge_percent(if is_demoted { 0 } else { priority }));
        if let Some((known, accounts)) = &mut self.kernels[usize::from(kernel.slot())]
            && *known == kernel
            && let Some(account) = accounts.get_mut(processor)
        {
            account.used = account.used.saturating_add(used);
            let used = i64::try_from(used.as_nanos()).unwrap_or(i64::MAX);
            account.balance = account.balance.saturating_sub(used.saturating_mul(percent) / 100);
        }
    }

    /// Time has passed, and all that was used in it is charged.
    pub fn pass(&mut self, time: Duration) {
        for account in self.kernels.iter_mut().flatten().flat_map(|(_, accounts)| accounts) {
            account.balance = account.balance.saturating_add(Account::of(account.share, time));
            account.settle();
        }
    }

    /// How much a kernel has used of each processor, as far as it was charged: those of a kernel without limits are not looked at.
    pub fn used(&self, kernel: KernelId) -> impl Iterator<Item = Duration> {
        self.accounts(kernel).iter().map(|account| account.used)
    }

    /// Whether a kernel's threads run on this processor only while nobody else wants to.
    pub fn is_demoted(&self, kernel: KernelId, processor: usize) -> bool {
        self.accounts(kernel).get(processor).is_some_and(|account| account.is_demoted)
    }
}

#[cfg(test)]
mod tests;
