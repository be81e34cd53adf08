//! What components say to each other: a kind, four words, and content.

/// Words before the content.
pub(crate) const HEAD_BYTES: usize = 32;

/// Who understands a message. A part of a longer message has the bit [`PART`] as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A protocol's: kind and generation, allocation, block, word.
    Protocol = 1,
    /// There is an allocation: token; [`crate::Allocation`].
    Allocated,
    /// That it is known, or why it cannot be: token, whether; words.
    Known,
    /// It is no more: token, allocation.
    Freed,
    /// Who is the home of an extent? token, allocation, extent.
    WhoseIs,
    /// That is: token, allocation, extent, rank.
    ItIs,
    /// To whom one synchronises with: see [`crate::synchronise`].
    Synchronise,
    /// A system call on shared memory: see [`crate::futex`].
    Futex,
    /// Of checkpoints.
    Checkpoint,
    /// No more will come: the sender's program is over.
    Bye,
    /// To the home of a named region: who the sender is, as it was told at the door. Number, and proof.
    Enter,
    /// An importer may not do something: token, region or allocation, block, whether it is to store and how many blocks it would like to see.
    Want,
    /// It may now, or why not: token, outcome, how many blocks it may see; where the block lives, if that may be elsewhere.
    May,
    /// Goodbye of an attachment: token, region. What it alone had is asked for before the answer.
    Leave,
    /// Of a guest to its lead: what it has stored in an allocation is to be found by whoever synchronises with it. Token, allocation. The lead
    /// answers by [`Kind::Known`].
    Publish,
    /// Of a guest to its lead: it would do something, were it the lead. What, where, how many bytes, and for whom. See
    /// [`crate::engine::Hint`].
    Hint,
    /// A call: token, service, room for the answer; content. See [`crate::calls`].
    Call,
    /// Its answer: token, result, error; content.
    CallAnswer,
    /// To who has made an allocation: it is to be freed. Token, allocation. Answered by [`Kind::Known`].
    Release,
    /// Of component 0: its program is over, and the task with it. Token, and whether all know that already: then the receiver ends at once. The
    /// first is answered by [`Kind::Known`].
    End,
    /// Several messages, from another host. See [`crate::bundles`].
    Together,
}

const KINDS: [Kind; 21] = [
    Kind::Protocol,
    Kind::Allocated,
    Kind::Known,
    Kind::Freed,
    Kind::WhoseIs,
    Kind::ItIs,
    Kind::Synchronise,
    Kind::Futex,
    Kind::Checkpoint,
    Kind::Bye,
    Kind::Enter,
    Kind::Want,
    Kind::May,
    Kind::Leave,
    Kind::Publish,
    Kind::Hint,
    Kind::Call,
    Kind::CallAnswer,
    Kind::Release,
    Kind::End,
    Kind::Together,
];

/// More of the same message follows.
pub(crate) const PART: u8 = 0x40;

impl Kind {
    pub(crate) fn of(number: u8) -> Option<Self> {
        KINDS.get(usize::from(number & !PART).wrapping_sub(1)).copied()
    }
}

/// The words before a message's content.
pub(crate) type Head = [u64; 4];

pub(crate) fn pack(head: &Head) -> [u8; HEAD_BYTES] {
    let mut bytes = [0; HEAD_BYTES];
    for (into, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(head) {
        *into = word.to_le_bytes();
    }
    bytes
}

/// Head and content; nothing if it is shorter than a head.
pub(crate) fn split(message: &[u8]) -> Option<(Head, &[u8])> {
    let (head, content) = message.split_first_chunk::<HEAD_BYTES>()?;
    let words = head.as_chunks::<8>().0;
    Some((std::array::from_fn(|index| u64::from_le_bytes(words[index])), content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_what_it_was() {
        let head = [1, u64::MAX, 3, 0];
        let message = [&pack(&head)[..], b"content"].concat();
        assert_eq!(split(&message), Some((head, &b"content"[..])));
        assert_eq!(split(&message[..HEAD_BYTES - 1]), None);
        for (kind, number) in KINDS.into_iter().zip(1..) {
            assert_eq!(kind as u8, number);
            assert_eq!(Kind::of(number | PART), Some(kind));
        }
        assert_eq!((Kind::of(0), Kind::of(22)), (None, None));
    }
}
