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
