use proptest::prelude::*;

use super::*;
use crate::event::{Identity, append_text};

fn behind(texts: &[(Identity, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    texts.iter().for_each(|(base, text)| append_text(&mut bytes, *base, text));
    bytes
}

fn event_and_texts() -> impl Strategy<Value = (Event, Vec<u8>)> {
    let number = || prop_oneof![0..4_u64, Just(u64::MAX), any::<u64>(), 4000..4100_u64];
    let identity = || {
        (0..6_u64, 0..2_u32, 0..2_u32).prop_map(|(inode, device, generation)| match inode {
            0 => Identity::default(),
            inode => Identity { inode, device, generation },
        })
    };
    let texts = prop::collection::vec(
        (identity(), prop_oneof![Just(b"/etc".to_vec()), prop::collection::vec(any::<u8>(), 0..9)]),
        0..3,
    );
    let narrow = (0..9_u8, any::<u8>(), 0..3_u32, 0..2_u32, -1..4_i32);
    let wide = (number(), number(), any::<i64>(), number(), number(), number(), 0..4_u64);
    (narrow, wide, identity(), number(), any::<u32>(), 0..3_u32, texts).prop_map(
        |(narrow, wide, file, size, mode, pages, texts)| {
            let (operation, flags, thread, process, descriptor) = narrow;
            let (start_ns, duration_ns, result, offset, asked, argument, handle) = wide;
            let text = behind(&texts);
            let text_bytes = u16::try_from(text.len()).unwrap();
            let event = Event {
                operation,
                flags,
                text_bytes,
                thread,
                process,
                descriptor,
                start_ns,
                duration_ns,
                result,
                offset,
                asked,
                argument,
                handle,
                file,
                size,
                mode,
                pages,
            };
            (event, text)
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read(blocks in prop::collection::vec(prop::collection::vec(event_and_texts(), 1..20), 1..4)) {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        for events in blocks {
            events.iter().for_each(|(event, texts)| encoder.add(event, texts));
            let mut read = Vec::new();
            decoder.read(&encoder.take().unwrap(), |event, texts| read.push((*event, texts.to_vec()))).unwrap();
            prop_assert_eq!(read, events);
        }
        prop_assert!(encoder.take().is_none());
    }
}

fn reads(count: u64) -> impl Iterator<Item = Event> {
    (0..count).map(move |number| Event {
        operation: 3,
        thread: 7,
        process: 7,
        descriptor: 3,
        start_ns: 1000 * number,
        duration_ns: 300,
        result: 4096,
        offset: 4096 * number,
        asked: 4096,
        handle: 77,
        file: Identity { inode: 5, device: 1, generation: 0 },
        size: 4096 * count,
        ..Event::default()
    })
}

#[test]
fn what_is_as_expected_takes_next_to_nothing() {
    let mut encoder = Encoder::default();
    reads(10_000).for_each(|event| encoder.add(&event, &[]));
    let block = encoder.take().unwrap();
    assert!(block.len() < 1000, "{} bytes for 10,000 reads that follow each other", block.len());
}

#[test]
fn a_block_without_the_one_before_it_is_an_error_and_so_is_a_shortened_one() {
    let mut encoder = Encoder::default();
    let [first, second] = [0, 1].map(|_| {
        reads(10).for_each(|event| encoder.add(&event, &[]));
        encoder.take().unwrap()
    });
    assert_eq!(Decoder::default().read(&second, |_, _| {}), Err(CorruptBlock::Predecessor));
    for length in 0..first.len() {
        assert!(
            Decoder::default().read(&first[..length], |_, _| {}).is_err(),
            "{length} bytes of {}",
            first.len()
        );
    }
    let mut decoder = Decoder::default();
    assert_eq!((decoder.read(&first, |_, _| {}), decoder.read(&second, |_, _| {})), (Ok(()), Ok(())));
}

#[test]
fn all_is_forgotten_when_too_much_is_known() {
    let mut encoder = Encoder::default();
    let mut decoder = Decoder::default();
    let mut read = 0;
    for block in 0..40 {
        for number in 0..MOST_EVENTS as u64 {
            let text = behind(&[(Identity::default(), format!("/{block}/{number}").into_bytes())]);
            encoder.add(&Event { operation: 12, thread: 1, process: 1, ..Event::default() }, &text);
        }
        decoder.read(&encoder.take().unwrap(), |_, _| read += 1).unwrap();
        assert!(encoder.memory.known() <= MOST_KNOWN);
    }
    assert_eq!(read, 40 * MOST_EVENTS);
}
