//! What is there is read.

use comb_memory::{Far, careful};

use crate::structures::{Node, Page, Words, peer, published};

#[test]
fn what_is_published_is_read() {
    let published = published();
    let peer = peer(&published);
    let last = published.allocate(Node { next: Far::NONE, number: 2 }).unwrap();
    let first = published.allocate(Node { next: last, number: 1 }).unwrap();
    published.set_root(first);
    let numbers = careful(&peer, |c| {
        let mut numbers = Vec::new();
        let mut next = c.root::<Node>()?;
        while !next.is_none() {
            let node = c.read(next)?;
            numbers.push(node.number);
            next = node.next;
        }
        Ok::<_, comb_memory::CarefulError>(numbers)
    });
    assert_eq!(numbers, Ok(vec![1, 2]));
    published.update(last, |node| node.number = 20);
    assert_eq!(careful(&peer, |c| c.read(last)), Ok(Node { next: Far::NONE, number: 20 }));
    assert_eq!(published.get(last).number, 20);
}

#[test]
fn structures_of_all_sizes_are_read_whole() {
    fn one<const N: usize>() {
        let published = published();
        let (peer, words) = (peer(&published), Words::<N>(std::array::from_fn(|i| i as u64 + 1)));
        let far = published.allocate(words).unwrap();
        assert_eq!(careful(&peer, |c| c.read(far)), Ok(words));
    }
    one::<1>();
    one::<2>();
    one::<3>();
    one::<4>();
    one::<5>();
    one::<7>();
    one::<8>();
    one::<9>();
    one::<31>();
    one::<700>();
}

#[test]
fn arrays_of_all_lengths_are_read_whole_and_by_element() {
    let published = published();
    let peer = peer(&published);
    for length in (0..70).chain([4096, 70_000]) {
        let pages: Vec<_> =
            (0..length).map(|i: u32| Page([1, i.to_le_bytes()[0], i.to_le_bytes()[1]])).collect();
        let far = published.allocate_array(&pages).unwrap();
        assert_eq!(careful(&peer, |c| c.array(far, pages.len())), Ok(pages.clone()));
        if length > 2 {
            let middle = pages.len() / 2;
            published.update_element(far, middle, |page| page.0[0] = 9);
            let read = careful(&peer, |c| c.array(far, pages.len())).unwrap();
            assert!(read.iter().enumerate().all(|(i, page)| page.0[0] == if i == middle { 9 } else { 1 }));
            assert_eq!(careful(&peer, |c| c.element(far, middle)), Ok(read[middle]));
            assert_eq!(careful(&peer, |c| c.element(far, pages.len() - 1)), Ok(pages[pages.len() - 1]));
        }
        published.free(far);
    }
}

#[test]
fn the_tick_is_seen_to_go_on() {
    let published = published();
    let peer = peer(&published);
    assert_eq!(careful(&peer, |c| c.tick()), Ok(0));
    published.tick();
    published.tick();
    assert_eq!(careful(&peer, |c| c.tick()), Ok(2));
}
