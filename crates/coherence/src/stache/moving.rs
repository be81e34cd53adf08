//! A home that gives a block away.
//!
//! To become the home is a request like those for rights, made by the old home for the new one, and waits its turn among them. All
//! others give up what they have; then the content goes to the new home, and with it the directory's entry, which is empty. Until the new
//! home has said that it has taken it, the old one keeps the requests that come in, and it sends nobody to a cell that may not
//! know of its luck. Then all that waited are sent there, and whoever asks later.

use alloc::collections::VecDeque;

use comb_types::CellId;

use super::home::{Request, Transaction};
use super::message::{Kind, Want};
use super::{Access, Block, Cells, Content, Stache, Tempest};
use crate::directory::Holding;
use crate::homes::Home;
use crate::tempest::Loss;

impl Stache {
    /// To whom a block of this cell's was given that has not said yet that it has taken it.
    pub(super) fn given(&self, block: Block) -> Option<Home> {
        self.transactions.get(&block)?.given
    }

    /// Whether a block of this cell's is to live in another, as soon as those before have been served.
    pub(super) fn begin_to_move(&mut self, tempest: &mut dyn Tempest, block: Block, to: CellId) -> bool {
        let (me, home) = (tempest.me(), tempest.home(block));
        let is_ours = tempest.homes_move() && home.cell == me && home.moves < u32::MAX;
        let is_lost = self.directory.holding(block) == Holding::Lost;
        let transaction = self.transactions.get_mut(&block);
        let is_moving = transaction.is_some_and(Transaction::is_to_move);
        if !is_ours || is_lost || is_moving || to == me || self.dead.contains(to) {
            return false;
        }
        self.request(tempest, block, Request { from: to, want: Want::Home, has_copy: false });
        true
    }

    /// Nobody else has any right: the block goes to its new home.
    pub(super) fn give(
        &mut self,
        tempest: &mut dyn Tempest,
        block: Block,
        request: Request,
        behind: VecDeque<Request>,
    ) {
        let to = request.from;
        // It may have a copy to read, and may have said so in a question that is on its way.
        let reads = matches!(self.directory.holding(block), Holding::Shared(cells) if cells.contains(to));
        let readers = if reads { Cells::one(to) } else { Cells::NONE };
        self.directory.set(block, Holding::Shared(&readers));
        tempest.set_access(block, Access::Invalid);
        let given = Home { cell: to, moves: tempest.home(block).moves + 1 };
        tempest.send(to, Kind::Given as u8, block, u64::from(given.moves), Content::Block);
        let mut transaction = Transaction::of(request);
        (transaction.given, transaction.behind) = (Some(given), behind);
        self.transactions.insert(block, transaction);
    }

    /// The new home has taken the block, or is dead and may have. It may even have given it to another.
    pub(super) fn taken(&mut self, tempest: &mut dyn Tempest, block: Block, given: Home) {
        let Transaction { behind, .. } = self.transactions.remove(&block).expect("it was given away");
        self.directory.set(block, Holding::Home);
        tempest.set_home(block, given);
        let (me, home) = (tempest.me(), tempest.home(block));
        if self.dead.contains(home.cell) {
            tempest.lose(block, Loss::Home(home.cell));
        }
        for request in behind {
            if request.from != me {
                tempest.send(request.from, Kind::Moved as u8, block, home.to_word(), Content::None);
            } else if !self.dead.contains(home.cell) {
                self.ask(tempest, block, request.want);
            }
        }
    }

    /// Who was to be the home has not taken the block: it stays.
    pub(super) fn declined(&mut self, tempest: &mut dyn Tempest, block: Block) {
        let Transaction { mut behind, .. } = self.transactions.remove(&block).expect("it was given away");
        let is_alone = self.directory.holding(block) == Holding::Home;
        tempest.set_access(block, if is_alone { Access::ReadWrite } else { Access::ReadOnly });
        if let Some(next) = behind.pop_front() {
            self.begin(tempest, block, next, behind);
        }
    }
}
