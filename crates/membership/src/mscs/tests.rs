use proptest::prelude::*;

use comb_types::Incarnation;

use super::*;

const FROM: NodeId = NodeId(1);

fn member(node: u32) -> Member {
    Member { node: NodeId(node), incarnation: Incarnation(1) }
}

fn set(nodes: impl IntoIterator<Item = u32>) -> NodeSet {
    nodes.into_iter().map(NodeId).collect()
}

/// A member, a joiner, and the first member of a cluster.
fn machines() -> [Mscs; 3] {
    let now = Time::from_millis(5);
    let mut joiner = Mscs::joining(now, member(3), set(0..4), Discovery::AskAddressHolder(FROM));
    joiner.handle(now, Input::Timeout).expect("nobody else is at fault");
    [Mscs::member(now, member(2), set(0..4)), joiner, Mscs::member(now, member(0), set(0..2))]
}

/// Takes everything out, as a driver does.
fn drain(mscs: &mut Mscs) -> usize {
    std::iter::from_fn(|| mscs.poll_transmit()).count() + std::iter::from_fn(|| mscs.poll_event()).count()
}

#[test]
fn a_message_in_ones_own_name_is_refused() {
    let [mut mscs, ..] = machines();
    let bytes = wire::encode(Protocol::Mscs, &Message::Heartbeat { number: 1 });
    let own = mscs.handle(Time::ZERO, Input::Message { from: NodeId(2), bytes: &bytes });
    assert_eq!(own, Err(PeerError::new(NodeId(2), "a message from no other node")));
    let far = mscs.handle(Time::ZERO, Input::Message { from: NodeId(64), bytes: &bytes });
    assert!(far.is_err());
    assert_eq!(mscs.handle(Time::ZERO, Input::Message { from: FROM, bytes: &bytes }), Ok(()));
}

/// The double of a call for the lock comes after the unlock: dealt with again, it would take the lock for good.
#[test]
fn a_call_that_comes_twice_is_answered_twice_and_dealt_with_once() {
    let [.., mut locker] = machines();
    let id = UpdateId { origin: FROM, life: 1, number: 1 };
    let update = gup::Update { id, change: Change::Data(Vec::from([7])) };
    let mut receive = |number, request| {
        let call = CallId { life: 1, number };
        let request = rpc::Request::Gup(request);
        let bytes = wire::encode(Protocol::Mscs, &Message::Request { call, epoch: 1, request });
        locker.handle(Time::ZERO, Input::Message { from: FROM, bytes: &bytes }).expect("a sound call");
        locker.poll_transmit()
    };
    let first = receive(1, gup::Request::Lock(update.clone()));
    receive(2, gup::Request::Unlock { sequence: 1 });
    assert_eq!(receive(1, gup::Request::Lock(update)), first);
    assert!(first.is_some());
    locker.handle(Time::ZERO, Input::Update(&[8])).expect("nobody else is at fault");
    assert_eq!(locker.applied().0, 2, "the lock is free for another");
}

#[test]
fn a_call_of_another_epoch_is_asked_in_vain() {
    let [.., mut locker] = machines();
    let request = rpc::Request::Gup(gup::Request::Unlock { sequence: 1 });
    let call = CallId { life: 1, number: 1 };
    for (epoch, answers) in [(0, 0), (2, 0), (1, 1)] {
        let message = Message::Request { call, epoch, request: request.clone() };
        let bytes = wire::encode(Protocol::Mscs, &message);
        locker.handle(Time::ZERO, Input::Message { from: FROM, bytes: &bytes }).expect("a sound call");
        assert_eq!(std::iter::from_fn(|| locker.poll_transmit()).count(), answers, "epoch {epoch}");
    }
}

proptest! {
    /// Whatever a peer sends, nothing panics and the error names it. Half of the cases begin as a message does.
    #[test]
    fn any_bytes_do_no_harm(
        messages in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..80), 0_u8..8, 0_u32..5, any::<bool>()),
            1..40,
        ),
    ) {
        for mut mscs in machines() {
            let mut now = Time::from_millis(5);
            for (bytes, variant, from, is_framed) in &messages {
                let mut framed = Vec::from([wire::VERSION, Protocol::Mscs as u8, *variant]);
                framed.extend(bytes);
                let bytes = if *is_framed { &framed } else { bytes };
                let from = NodeId(*from);
                if let Err(error) = mscs.handle(now, Input::Message { from, bytes }) {
                    prop_assert_eq!(error.from, from);
                }
                now = now.saturating_add(core::time::Duration::from_millis(170));
                mscs.handle(now, Input::Timeout).expect("nobody else is at fault");
                prop_assert!(drain(&mut mscs) < 1000);
                let _ = (describe(bytes), kind(bytes));
            }
        }
    }

    /// As above, with small numbers in every place, so that most are messages and many fit the machine's state.
    #[test]
    fn any_messages_do_no_harm(
        messages in prop::collection::vec(
            (prop::collection::vec(prop_oneof![19 => 0_u8..4, 1 => any::<u8>()], 30..90), 1_u8..4, 0_u32..4),
            1..60,
        ),
    ) {
        for mut mscs in machines() {
            let mut now = Time::from_millis(5);
            for (bytes, variant, from) in &messages {
                // What is behind a message is cut off, or all would be refused for it.
                let body = [&[*variant], &bytes[..]].concat();
                let Ok((message, _)) = postcard::take_from_bytes::<Message>(&body) else { continue };
                let bytes = wire::encode(Protocol::Mscs, &message);
                let from = NodeId(*from);
                if let Err(error) = mscs.handle(now, Input::Message { from, bytes: &bytes }) {
                    prop_assert_eq!(error.from, from);
                }
                now = now.saturating_add(core::time::Duration::from_millis(170));
                mscs.handle(now, Input::Timeout).expect("nobody else is at fault");
                drain(&mut mscs);
            }
        }
    }
}
