//! Weighs what the detectors say.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use comb_types::{Incarnation, Time};

use super::{Condition, Evidence, Kind, Source};
use crate::view::Member;

/// From so many thousandths on, a node is suspected, or has failed.
const SUSPECTED_PER_MILLE: u32 = 100;
const FAILED_PER_MILLE: u32 = 990;

/// How long a piece of evidence counts if nobody says it again.
const LASTING: Duration = Duration::from_secs(30);

/// A plug-in that says again what an answer of the node has just denied is not heard for so long. Not for longer: that answer may have
/// been the last, on its way when the link went down.
const DENIED_LASTING: Duration = Duration::from_secs(3);

/// How long others count as hearing a node after they did.
const HEARD_LASTING: Duration = Duration::from_secs(10);

/// What a verdict is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// Something speaks for a failure.
    Evidence(Evidence),
    /// This source says that it is so no more. An end is an end, and nobody takes it back.
    Over {
        /// Of whom.
        subject: Member,
        /// What it was.
        kind: Kind,
        /// Who had seen it.
        source: Source,
    },
    /// The node was heard of: its version has risen, by whatever way.
    Heard(Member),
    /// It answered ourselves: the way to it is whole.
    Answered(Member),
    /// It said itself that it has not failed.
    Refuted(Member),
    /// The time of [`Verdict::next_timeout`] has come.
    Timeout,
}

/// A life of a node is in another condition now.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Change {
    /// Which.
    pub subject: Member,
    /// What it is now.
    pub condition: Condition,
}

#[derive(Clone, Debug)]
struct Case {
    condition: Condition,
    heard_at: Option<Time>,
    evidence: Vec<Piece>,
}

#[derive(Clone, Debug)]
struct Piece {
    evidence: Evidence,
    said_at: Time,
    /// When the node last gave a sign of life that speaks against it. It does not count then.
    denied_at: Option<Time>,
}

/// The conditions of all nodes against which anything speaks.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    cases: BTreeMap<Member, Case>,
    changes: VecDeque<Change>,
}

impl Verdict {
    /// Nothing speaks against anybody.
    pub fn new() -> Self {
        Self::default()
    }

    /// Feeds one input. Call again at [`Verdict::next_timeout`].
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Evidence(evidence) => {
                self.forget_lives_before(evidence.subject);
                let none = || Case { condition: Condition::Alive, heard_at: None, evidence: Vec::new() };
                let case = self.cases.entry(evidence.subject).or_insert_with(none);
                case.say(now, evidence);
                self.judge(now, evidence.subject);
            }
            Input::Over { subject, kind, source } => self.change(now, subject, |case| {
                case.evidence.retain(|Piece { evidence: old, .. }| {
                    (old.kind, old.source) != (kind, source) || old.is_final()
                });
            }),
            Input::Heard(member) => self.change(now, member, |case| {
                case.heard_at = Some(now);
                case.deny(now, Kind::ends_with_life);
            }),
            Input::Answered(member) => self.change(now, member, |case| {
                case.heard_at = Some(now);
                case.deny(now, |kind| kind.ends_with_life() || kind.is_of_the_way());
            }),
            Input::Refuted(member) => self.change(now, member, |case| {
                case.heard_at = Some(now);
                case.evidence.retain(|piece| piece.evidence.is_final());
            }),
            Input::Timeout => {
                let due = |case: &Case| case.ends_at().is_some_and(|end| end <= now);
                let due: Vec<_> =
                    self.cases.iter().filter(|(_, case)| due(case)).map(|(&who, _)| who).collect();
                due.into_iter().for_each(|member| self.change(now, member, |case| case.expire(now)));
            }
        }
    }

    /// The next change. Ask until there is none.
    pub fn poll_event(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// When some evidence will have become too old.
    pub fn next_timeout(&self) -> Option<Time> {
        self.cases.values().filter_map(Case::ends_at).min()
    }

    /// What is to be said of a life of a node.
    pub fn condition(&self, member: Member) -> Condition {
        self.cases.get(&member).map_or(Condition::Alive, |case| case.condition)
    }

    /// Whether we ourselves get no answers from it, whatever else is so.
    pub fn gets_no_answer(&self, member: Member) -> bool {
        // What a plug-in says of answers are not answers of ours.
        let is_ours = |it: Evidence| it.kind == Kind::NoAnswer && !it.source.is_plug_in();
        self.cases.get(&member).is_some_and(|case| case.counting().any(is_ours))
    }

    /// The lives against which anything speaks, or has until they denied it. Whoever knows when these were heard of last says so by [`Input::Heard`].
    pub fn subjects(&self) -> impl Iterator<Item = Member> {
        self.cases.keys().copied()
    }

    /// What speaks against a life of which a later one is known concerns nobody.
    fn forget_lives_before(&mut self, member: Member) {
        let first = Member { incarnation: Incarnation(0), ..member };
        let former: Vec<_> = self.cases.range(first..member).map(|(&former, _)| former).collect();
        former.iter().for_each(|former| drop(self.cases.remove(former)));
    }

    fn change(&mut self, now: Time, member: Member, change: impl FnOnce(&mut Case)) {
        if let Some(case) = self.cases.get_mut(&member) {
            change(case);
            self.judge(now, member);
        }
    }

    fn judge(&mut self, now: Time, subject: Member) {
        let Some(case) = self.cases.get_mut(&subject) else { return };
        let condition = case.judged(now);
        if condition != case.condition {
            case.condition = condition;
            self.changes.push_back(Change { subject, condition });
        }
        if case.evidence.is_empty() {
            self.cases.remove(&subject);
        }
    }
}

impl Case {
    /// The same source's earlier word of the same kind counts no more.
    fn say(&mut self, now: Time, evidence: Evidence) {
        let is_earlier =
            |piece: &Piece| (piece.evidence.kind, piece.evidence.source) == (evidence.kind, evidence.source);
        let earlier = self.evidence.iter().position(is_earlier).map(|place| self.evidence.remove(place));
        let denied_at = earlier.and_then(|earlier| earlier.denied_at);
        let denied_at = denied_at.filter(|&at| now.since(at) < DENIED_LASTING);
        self.evidence.push(Piece { evidence, said_at: now, denied_at });
    }

    /// A sign of life speaks against these. Our own detectors hear it, too; a plug-in may say the same again.
    fn deny(&mut self, now: Time, is_denied: impl Fn(Kind) -> bool) {
        self.evidence.retain(|Piece { evidence: old, .. }| !is_denied(old.kind) || old.source.is_plug_in());
        let denied = self.evidence.iter_mut().filter(|piece| is_denied(piece.evidence.kind));
        denied.for_each(|piece| piece.denied_at = Some(now));
    }

    fn counting(&self) -> impl Iterator<Item = Evidence> {
        self.evidence.iter().filter(|piece| piece.denied_at.is_none()).map(|piece| piece.evidence)
    }

    fn judged(&self, now: Time) -> Condition {
        if self.counting().any(|evidence| evidence.is_final()) {
            return Condition::Fenced;
        }
        let is_heard = self.heard_at.is_some_and(|at| now.since(at) < HEARD_LASTING);
        let of_the_way = || self.counting().filter(|evidence| evidence.kind.is_of_the_way());
        let of_itself = |evidence: &Evidence| !(is_heard && evidence.kind.is_of_the_way());
        match doubt(self.counting().filter(of_itself)) {
            FAILED_PER_MILLE.. => Condition::Failed,
            _ if is_heard && doubt(of_the_way()) >= SUSPECTED_PER_MILLE => Condition::Unreachable,
            SUSPECTED_PER_MILLE.. => Condition::Suspected,
            _ => Condition::Alive,
        }
    }

    fn ends_at(&self) -> Option<Time> {
        let passing = self.evidence.iter().filter(|piece| piece.evidence.passes());
        let evidence = passing.map(|piece| piece.said_at.saturating_add(LASTING));
        let is_of_the_way = self.counting().any(|evidence| evidence.kind.is_of_the_way());
        let heard = self.heard_at.filter(|_| is_of_the_way).map(|at| at.saturating_add(HEARD_LASTING));
        evidence.chain(heard).min()
    }

    fn expire(&mut self, now: Time) {
        self.evidence.retain(|piece| !piece.evidence.passes() || now.since(piece.said_at) < LASTING);
        self.heard_at = self.heard_at.filter(|&at| now.since(at) < HEARD_LASTING);
    }
}

/// How likely a failure is by all of this, in thousandths. As if independent: that all are wrong at once is as likely as the product.
/// But a plug-in that errs may err in all that it says, so it counts once, by what it is surest of; and what several see of one kind
/// may be one thing, so each kind counts once, by its best source.
fn doubt(counting: impl Iterator<Item = Evidence>) -> u32 {
    let mut surest: BTreeMap<Source, Evidence> = BTreeMap::new();
    let mut best: BTreeMap<Kind, u16> = BTreeMap::new();
    let mut count = |evidence: &Evidence| {
        let best = best.entry(evidence.kind).or_default();
        *best = (*best).max(evidence.confidence.0);
    };
    for evidence in counting {
        if !evidence.source.is_plug_in() {
            count(&evidence);
            continue;
        }
        let known = surest.entry(evidence.source).or_insert(evidence);
        if evidence.confidence > known.confidence {
            *known = evidence;
        }
    }
    surest.values().for_each(count);
    let all_wrong = best.values().fold(1_000_000, |wrong, &best| wrong * u64::from(1000 - best) / 1000);
    1000 - u32::try_from(all_wrong / 1000).unwrap_or(1000)
}

impl Evidence {
    /// What was seen of a process itself does not grow old, nor what all agreed on. What a plug-in says that all agreed on does.
    fn passes(&self) -> bool {
        let stays = match self.kind {
            Kind::ProcessExit => true,
            Kind::Gossip => !self.source.is_plug_in(),
            _ => self.is_final(),
        };
        !stays
    }
}

#[cfg(test)]
mod tests {
    use super::super::Confidence;
    use super::*;
    use comb_types::NodeId;

    const SUBJECT: Member = Member { node: NodeId(5), incarnation: Incarnation(1) };

    fn evidence(kind: Kind) -> Input {
        Input::Evidence(Evidence::new(SUBJECT, kind, Source::Ourselves))
    }

    /// The conditions after inputs at these seconds.
    fn conditions<const N: usize>(inputs: [(u64, Input); N]) -> [Condition; N] {
        let mut verdict = Verdict::new();
        inputs.map(|(second, input)| {
            verdict.handle(Time::from_millis(second * 1000), input);
            verdict.condition(SUBJECT)
        })
    }

    use Condition::{Alive, Failed, Fenced, Suspected, Unreachable};

    #[test]
    fn a_suspicion_goes_with_a_sign_of_life() {
        let heard = Input::Heard(SUBJECT);
        assert_eq!(conditions([(1, evidence(Kind::Silence)), (2, heard)]), [Suspected, Alive]);
    }

    #[test]
    fn whom_we_cannot_reach_but_others_hear_is_unreachable_until_it_answers_us() {
        let inputs = [
            (1, evidence(Kind::IcmpUnreachable)),
            (2, Input::Heard(SUBJECT)),
            (3, evidence(Kind::NoAnswer)),
            (4, evidence(Kind::LinkDown)),
            (5, Input::Answered(SUBJECT)),
        ];
        assert_eq!(conditions(inputs), [Suspected, Unreachable, Unreachable, Unreachable, Alive]);
    }

    #[test]
    fn when_others_hear_it_no_more_it_is_only_suspected() {
        let inputs = [(1, evidence(Kind::LinkDown)), (2, Input::Heard(SUBJECT)), (12, Input::Timeout)];
        assert_eq!(conditions(inputs), [Suspected, Unreachable, Suspected]);
    }

    #[test]
    fn pieces_of_evidence_add_up_and_grow_old() {
        let inputs = [
            (1, evidence(Kind::Silence)),
            (2, evidence(Kind::PowerFailure)),
            (3, evidence(Kind::LinkDown)),
            (40, Input::Timeout),
        ];
        assert_eq!(conditions(inputs), [Suspected, Suspected, Failed, Alive]);
    }

    #[test]
    fn one_source_cannot_say_the_same_twice_and_two_do_not_count_double() {
        let from = |source, second| (second, Input::Evidence(Evidence::new(SUBJECT, Kind::LinkDown, source)));
        let sources = [Source::PlugIn(1), Source::PlugIn(1), Source::PlugIn(2), Source::Node(NodeId(3))];
        let mut second = 0;
        let inputs = sources.map(|source| {
            second += 1;
            from(source, second)
        });
        assert_eq!(conditions(inputs), [Suspected; 4]);
    }

    #[test]
    fn the_best_source_counts_and_each_by_its_last_word() {
        let said = |per_mille, source| {
            let confidence = Confidence::per_mille(per_mille);
            let source = Source::PlugIn(source);
            Input::Evidence(Evidence { confidence, ..Evidence::new(SUBJECT, Kind::LinkDown, source) })
        };
        let inputs = [(1, said(995, 1)), (2, said(200, 2)), (3, said(200, 1))];
        assert_eq!(conditions(inputs), [Failed, Failed, Suspected]);
    }

    #[test]
    fn nothing_is_kept_of_those_against_whom_nothing_speaks() {
        let mut verdict = Verdict::new();
        verdict.handle(Time::ZERO, evidence(Kind::Silence));
        assert_eq!(verdict.subjects().collect::<std::vec::Vec<_>>(), [SUBJECT]);
        verdict.handle(Time::ZERO, Input::Heard(SUBJECT));
        assert_eq!(verdict.subjects().count(), 0);
    }

    #[test]
    fn the_end_of_a_process_is_a_failure_and_a_refutation_ends_it_but_not_a_fence() {
        let inputs = [
            (1, evidence(Kind::ProcessExit)),
            (2, Input::Heard(SUBJECT)),
            (3, Input::Refuted(SUBJECT)),
            (4, evidence(Kind::Fenced)),
            (5, Input::Refuted(SUBJECT)),
        ];
        assert_eq!(conditions(inputs), [Failed, Failed, Alive, Fenced, Fenced]);
    }

    #[test]
    fn whom_others_hear_no_word_about_the_way_makes_a_failure_of() {
        let sure = Evidence {
            confidence: Confidence::per_mille(1000),
            ..Evidence::new(SUBJECT, Kind::LinkDown, Source::PlugIn(1))
        };
        let inputs = [(1, Input::Evidence(sure)), (2, Input::Heard(SUBJECT)), (3, evidence(Kind::NoAnswer))];
        assert_eq!(conditions(inputs), [Failed, Unreachable, Unreachable]);
        let inputs = [(1, evidence(Kind::Silence)), (2, Input::Answered(SUBJECT))];
        assert_eq!(conditions(inputs), [Suspected, Alive]);
    }

    #[test]
    fn an_end_does_not_grow_old_and_a_link_is_no_answer() {
        let mut verdict = Verdict::new();
        verdict.handle(Time::ZERO, evidence(Kind::ProcessExit));
        assert_eq!(verdict.next_timeout(), None);
        verdict.handle(Time::ZERO, evidence(Kind::LinkDown));
        assert!(!verdict.gets_no_answer(SUBJECT));
        verdict.handle(Time::ZERO, evidence(Kind::NoAnswer));
        assert!(verdict.gets_no_answer(SUBJECT));
        let due = verdict.next_timeout().expect("the rest does");
        verdict.handle(due, Input::Timeout);
        assert_eq!((verdict.condition(SUBJECT), verdict.gets_no_answer(SUBJECT)), (Failed, false));
    }

    #[test]
    fn a_later_life_takes_the_place_of_those_before_it() {
        let mut verdict = Verdict::new();
        for life in 1..100 {
            let subject = Member { incarnation: Incarnation(life), ..SUBJECT };
            let evidence = Evidence::new(subject, Kind::ProcessExit, Source::Ourselves);
            verdict.handle(Time::ZERO, Input::Evidence(evidence));
            assert!(verdict.subjects().eq([subject]));
        }
    }

    #[test]
    fn each_change_is_told_once() {
        let mut verdict = Verdict::new();
        for _ in 0..2 {
            verdict.handle(Time::ZERO, evidence(Kind::Silence));
        }
        assert_eq!(verdict.poll_event(), Some(Change { subject: SUBJECT, condition: Suspected }));
        assert_eq!(verdict.poll_event(), None);
    }

    fn plug_in(number: u32, kind: Kind, per_mille: u16) -> Input {
        let confidence = Confidence::per_mille(per_mille);
        let source = Source::PlugIn(number);
        Input::Evidence(Evidence { confidence, ..Evidence::new(SUBJECT, kind, source) })
    }

    fn over(number: u32, kind: Kind) -> Input {
        Input::Over { subject: SUBJECT, kind, source: Source::PlugIn(number) }
    }

    #[test]
    fn all_that_a_plug_in_says_is_no_more_than_what_it_is_surest_of() {
        use Kind::{IcmpUnreachable, LinkDown, PowerFailure};
        let inputs = [
            (1, plug_in(1, PowerFailure, 950)),
            (2, plug_in(1, LinkDown, 950)),
            (3, plug_in(1, IcmpUnreachable, 989)),
            // Another that sees something else does count.
            (4, plug_in(2, LinkDown, 500)),
        ];
        assert_eq!(conditions(inputs), [Suspected, Suspected, Suspected, Failed]);
    }

    #[test]
    fn what_is_not_at_all_likely_is_no_suspicion() {
        let [less, more] = [99, 100].map(|per_mille| plug_in(1, Kind::LinkDown, per_mille));
        assert_eq!(conditions([(1, less), (2, more)]), [Alive, Suspected]);
        let heard = Input::Heard(SUBJECT);
        assert_eq!(conditions([(1, less), (2, heard), (3, more)]), [Alive, Alive, Unreachable]);
    }

    #[test]
    fn no_plug_in_speaks_for_our_own_detectors() {
        let mut verdict = Verdict::new();
        for kind in [Kind::NoAnswer, Kind::Gossip, Kind::Fenced] {
            verdict.handle(Time::ZERO, plug_in(1, kind, 900));
        }
        assert_eq!((verdict.condition(SUBJECT), verdict.gets_no_answer(SUBJECT)), (Suspected, false));
        let due = verdict.next_timeout().expect("all of it grows old");
        verdict.handle(due, Input::Timeout);
        assert_eq!((verdict.condition(SUBJECT), verdict.next_timeout()), (Alive, None));
    }

    #[test]
    fn a_plug_in_takes_back_its_own_word_and_that_alone() {
        let inputs = [
            (1, plug_in(1, Kind::LinkDown, 800)),
            (2, over(2, Kind::LinkDown)),
            (3, over(1, Kind::PowerFailure)),
            (4, over(1, Kind::LinkDown)),
        ];
        assert_eq!(conditions(inputs), [Suspected, Suspected, Suspected, Alive]);
    }

    #[test]
    fn an_end_that_is_not_certain_is_only_likely_and_one_that_is_is_not_taken_back() {
        let inputs = [
            (1, plug_in(1, Kind::Fenced, 980)),
            (2, plug_in(1, Kind::Fenced, 995)),
            (3, Input::Refuted(SUBJECT)),
            (4, plug_in(1, Kind::Fenced, 1000)),
            (5, over(1, Kind::Fenced)),
            (6, Input::Refuted(SUBJECT)),
        ];
        assert_eq!(conditions(inputs), [Suspected, Failed, Alive, Fenced, Fenced, Fenced]);
    }

    /// A link of two goes down, or the battery of a node that lives runs low, and stays so.
    #[test]
    fn what_the_node_has_denied_counts_again_when_the_node_has_been_silent_for_a_while() {
        let said = plug_in(1, Kind::LinkDown, 800);
        let inputs = [
            (10, said),
            (11, Input::Answered(SUBJECT)),
            (12, said),
            (13, Input::Answered(SUBJECT)),
            (15, said),
            (16, said),
            (17, Input::Answered(SUBJECT)),
            (18, over(1, Kind::LinkDown)),
            (19, said),
        ];
        let expected = [Suspected, Alive, Alive, Alive, Alive, Unreachable, Alive, Alive, Suspected];
        assert_eq!(conditions(inputs), expected);
        let low = plug_in(1, Kind::PowerFailure, 950);
        let inputs = [(10, low), (11, Input::Heard(SUBJECT)), (12, low), (14, low)];
        assert_eq!(conditions(inputs), [Suspected, Alive, Alive, Suspected]);
    }

    #[test]
    fn a_plug_in_that_falls_silent_is_forgotten_and_so_is_what_was_denied() {
        let mut verdict = Verdict::new();
        verdict.handle(Time::ZERO, plug_in(1, Kind::PowerFailure, 950));
        verdict.handle(Time::ZERO, Input::Answered(SUBJECT));
        assert_eq!(verdict.subjects().count(), 1);
        let due = verdict.next_timeout().expect("it grows old");
        verdict.handle(due, Input::Timeout);
        assert_eq!((verdict.subjects().count(), verdict.next_timeout()), (0, None));
    }
}
