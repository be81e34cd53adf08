//! What no peer is believed alone.
//!
//! Most of what a peer says of a third node does little harm if it is not so: that it has failed, the node itself denies. Three things
//! it could not deny: a later life, beside which nothing counts that it says in its true one; that it was ended for certain;
//! and a turn so late that soon there would be none left to deny with. These are believed of a node that is known when it says so
//! itself, or when two peers do. A node of the zone is asked, so one that came back waits for nobody.
//!
//! Of a node that was not known at all, everything is believed: who comes into a farm would wait long for second voices.

use comb_types::NodeId;

use super::State;
use super::message::{Kind, Message, News};
use super::standing::Standing;

/// What waits for a second voice. The oldest goes first: it will be told again.
const MOST_HEARSAY: usize = 64;

/// A node that has been taken for failed and was not, so many times over, since anybody told us how it stood.
const MOST_TURNS_AT_ONCE: u32 = 1 << 10;

/// What one peer has said, and nobody else yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hearsay {
    news: News,
    by: NodeId,
}

impl State {
    /// What of some news is to be taken for so, if anything.
    pub(super) fn weigh(&mut self, from: NodeId, news: News) -> Option<News> {
        let News { node, standing } = news;
        let Some(known) =
            self.zones.get(node).filter(|known| from != node && is_undeniable(*known, standing))
        else {
            return Some(news);
        };
        let is_same = |heard: &Hearsay| {
            let told = heard.news.standing;
            (heard.news.node, told.incarnation) == (node, standing.incarnation)
                && told.is_fenced() == standing.is_fenced()
        };
        if self.hearsay.iter().any(|heard| is_same(heard) && heard.by != from) {
            self.hearsay.retain(|heard| !is_same(heard));
            return Some(news);
        }
        if !self.hearsay.iter().any(is_same) {
            if self.hearsay.len() == MOST_HEARSAY {
                self.hearsay.remove(0);
            }
            self.hearsay.push(Hearsay { news, by: from });
            if known.incarnation < standing.incarnation {
                self.ask_for_life(node);
            }
        }
        // That it was ended shows at least that it seems to have failed. If it lives, it will say so.
        let is_of_this_life = known.incarnation == standing.incarnation && standing.is_fenced();
        is_of_this_life.then(|| News { node, standing: known.failed() })
    }

    /// Asks a node of our zone which life it is in. What it says of itself counts.
    pub(super) fn ask_for_life(&mut self, node: NodeId) {
        if let Ok(place) = self.find(node) {
            let mut row = self.near[place].row(NodeId(0));
            row.version = 0;
            let question = Message { kind: Kind::Digest, rows: alloc::vec![row], ..self.blank() };
            self.send(node, &question);
        }
    }
}

/// Whether the node could not answer this, were it not so.
fn is_undeniable(known: Standing, told: Standing) -> bool {
    let is_of_this_life = told.incarnation == known.incarnation;
    told.incarnation > known.incarnation
        || (is_of_this_life && told.turn.saturating_sub(known.turn) > MOST_TURNS_AT_ONCE)
}
