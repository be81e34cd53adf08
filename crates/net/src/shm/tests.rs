use super::*;

const SMALL: Geometry = Geometry { slots: 8, payload_bytes: 4096 };

fn content(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (number * 31 + at).to_le_bytes()[0]).collect()
}

/// In the slot, at its limit, beyond it, and twice so long that the second can only stand where the first stood.
const LENGTHS: [usize; 7] = [8, 56, 57, 3000, 2500, 300, 0];

/// Answers fit in a slot: nobody has to read before he can answer.
const ANSWERS: [usize; 1] = [8];

fn send(link: &mut dyn Transport, number: usize, lengths: &[usize]) {
    let message = content(number, lengths[number % lengths.len()]);
    let (head, tail) = message.split_at(message.len() / 3);
    while let Err(error) = link.send(7, &[head, tail]) {
        assert_eq!(error, SendError::Full);
        std::thread::yield_now();
    }
}

fn receive(link: &mut dyn Transport, number: usize, lengths: &[usize]) {
    let mut check = |kind, payload: Payload<'_>| {
        assert_eq!((kind, payload.to_vec()), (7, content(number, lengths[number % lengths.len()])));
    };
    while !link.receive(&mut check).unwrap() {
        std::thread::yield_now();
    }
}

/// One side sends ahead, the other reads and answers every third: room is given back by headers and by control words.
/// Nothing but the ring's own order keeps the two from touching a payload at the same time, and miri would see that.
#[test]
fn miri_two_threads_exchange_messages_of_every_length() {
    const MESSAGES: usize = if cfg!(miri) { 14 } else { 20_000 };
    let (mut ours, mut theirs) = pair_for_tests(SMALL);
    let peer = std::thread::spawn(move || {
        for number in 0..MESSAGES {
            receive(&mut *theirs, number, &LENGTHS);
            if number % 3 == 0 {
                send(&mut *theirs, number / 3, &ANSWERS);
            }
        }
        theirs.close();
    });
    let mut answers = 0;
    for number in 0..MESSAGES {
        send(&mut *ours, number, &LENGTHS);
        // Never more of them unread than its ring takes, or both would wait for the other.
        while number / 3 >= answers + 4 {
            receive(&mut *ours, answers, &ANSWERS);
            answers += 1;
        }
    }
    while answers < MESSAGES.div_ceil(3) {
        receive(&mut *ours, answers, &ANSWERS);
        answers += 1;
    }
    peer.join().unwrap();
    assert!(ours.peer_closed() && ours.is_idle());
}

/// Who reads short messages tells their sender what was read: at once if it waits for that, else after some looks that
/// found nothing.
#[test]
fn what_was_read_is_told_soon_and_at_once_to_who_waits() {
    let (mut ours, mut theirs) = pair(SMALL);
    let mut empty_looks = |waits: bool| {
        assert!(ours.post_small(7, b"message"));
        assert!(matches!(theirs.receive_small(|_, _| Some(())), Small::Came(())));
        if waits {
            // Of their bell, which rings for what they read.
            ours.want_credit(true);
            theirs.bell.demand_credit(true);
        }
        let looks = (1..100).find(|_| matches!(theirs.receive_small(|_, _| Some(())), Small::Unclear));
        assert!(!matches!(theirs.receive(|_, _| ()), Ok(Some(()))), "nothing more came");
        assert_eq!(ours.peer_consumed(), low_half(theirs.consumer.credit.consumed()), "told");
        looks
    };
    assert_eq!(empty_looks(false), Some(1), "what stands in the next slot was never seen");
    assert_eq!(empty_looks(false), Some(usize::from(EMPTY_LOOKS_BEFORE_PAYING)));
    assert_eq!(empty_looks(true), Some(1), "somebody waits");
    assert!(ours.post_small(7, b"message"));
    assert!(matches!(theirs.receive_small(|_, _| Some(())), Small::Came(())));
    assert_eq!(ours.peer_consumed(), 4, "somebody waits already: told when it is read");
}
