//! Global pointers between the components of a program, each with an endpoint of its own, through a real agent.

use std::time::Duration;

use comb_net::global::{GlobalError, GlobalMemory, GlobalPointer};
use comb_net::{AccessError, InProcess};

const SOON: Duration = Duration::from_secs(10);
const AT_ONCE: Duration = Duration::from_millis(5);

/// Runs one function in each of so many components.
fn run<T: Send>(components: usize, program: impl Fn(GlobalMemory) -> T + Sync) -> Vec<T> {
    let agent = InProcess::start();
    let addresses: Vec<String> = (0..components).map(|number| format!("c{number}/desk")).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    std::thread::scope(|scope| {
        let work: Vec<_> = (0..components)
            // The last first: whoever comes early waits for the others.
            .rev()
            .map(|number| {
                let (agent, addresses, program) = (&agent, &addresses, &program);
                scope.spawn(move || {
                    let endpoint = agent.connect(&format!("c{number}")).unwrap().endpoint("desk").unwrap();
                    program(GlobalMemory::join(endpoint, addresses, SOON).unwrap())
                })
            })
            .collect();
        work.into_iter().map(|work| work.join().unwrap()).collect()
    })
}

fn word(memory: &mut GlobalMemory, at: GlobalPointer) -> u64 {
    let mut bytes = [0; 8];
    memory.get(at, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

#[test]
fn everybody_puts_everywhere_and_all_is_there_after_the_barrier() {
    for components in [1, 2, 3, 5] {
        run(components, |mut memory| {
            let (me, all) = (memory.component(), memory.components());
            assert_eq!(all as usize, components);
            let window = memory.make(1000, SOON).unwrap();
            let second = memory.make(16, SOON).unwrap();
            assert_eq!((window, second), (0, 1));
            for round in 0..20_u64 {
                for other in 0..all {
                    let to = memory.pointer(other, window, u64::from(me) * 8).unwrap();
                    memory.put(to, &(round * 100 + u64::from(me)).to_le_bytes()).unwrap();
                }
                memory.barrier(SOON).unwrap();
                for (component, from) in (0..all).flat_map(|c| (0..all).map(move |f| (c, f))) {
                    let at = memory.pointer(component, window, 0).unwrap().advance(u64::from(from) * 8);
                    assert_eq!(word(&mut memory, at), round * 100 + u64::from(from), "{component} {from}");
                }
                memory.barrier(SOON).unwrap();
            }
        });
    }
}

#[test]
fn split_phase_operations_are_done_after_sync() {
    run(2, |mut memory| {
        let window = memory.make(100_000, SOON).unwrap();
        let (me, other) = (memory.component(), 1 - memory.component());
        let to = memory.pointer(other, window, 500).unwrap();
        let data = vec![u8::try_from(me + 1).unwrap(); 50_000];
        memory.start_put(to, &data).unwrap();
        memory.barrier(SOON).unwrap();
        let here = memory.pointer(me, window, 500).unwrap();
        let fetches = [memory.start_get(to, 50_000).unwrap(), memory.start_get(here, 3).unwrap()];
        assert_eq!(memory.take(fetches[0]), None, "not before sync");
        memory.sync().unwrap();
        assert!(memory.take(fetches[0]) == Some(data));
        assert_eq!(memory.take(fetches[0]), None, "once");
        assert_eq!(memory.take(fetches[1]), Some(vec![u8::try_from(other + 1).unwrap(); 3]));
        memory.barrier(SOON).unwrap();
    });
}

#[test]
fn a_store_tells_its_target_how_much_came() {
    run(4, |mut memory| {
        let window = memory.make(64_000, SOON).unwrap();
        let me = memory.component();
        for round in 0..50_u32 {
            if me == 0 {
                // From each, itself too, a block of its own.
                memory.store(memory.pointer(0, window, 0).unwrap(), &[9; 40]).unwrap();
                memory.await_stored(window, 3 * 1000 + 40, SOON).unwrap();
                for from in 1..4 {
                    let at = memory.pointer(0, window, from * 1000).unwrap();
                    let mut block = vec![0; 1000];
                    memory.get(at, &mut block).unwrap();
                    assert!(block.iter().all(|&byte| u32::from(byte) == round + 1), "{from} in {round}");
                }
                assert_eq!(memory.stored(window), 0, "all of it was waited for");
            } else {
                let to = memory.pointer(0, window, u64::from(me) * 1000).unwrap();
                memory.store(to, &[u8::try_from(round + 1).unwrap(); 1000]).unwrap();
            }
            memory.barrier(SOON).unwrap();
        }
        let late = memory.await_stored(window, 1, AT_ONCE).unwrap_err();
        assert!(matches!(late, GlobalError::TimedOut { .. }), "{late}");
        memory.barrier(SOON).unwrap();
    });
}

#[test]
fn spread_arrays_go_round_the_components() {
    run(3, |mut memory| {
        let window = memory.make(10 * 8, SOON).unwrap();
        if memory.component() == 1 {
            for index in 0..30 {
                let at = memory.spread(window, index, 8).unwrap();
                assert_eq!((u64::from(at.component), at.offset), (index % 3, index / 3 * 8));
                memory.put(at, &index.to_le_bytes()).unwrap();
            }
        }
        memory.barrier(SOON).unwrap();
        let mut sum = 0;
        for index in 0..30 {
            let at = memory.spread(window, index, 8).unwrap();
            sum += word(&mut memory, at);
        }
        assert_eq!(sum, 29 * 30 / 2);
        memory.barrier(SOON).unwrap();
    });
}

#[test]
fn bad_pointers_are_refused() {
    run(2, |mut memory| {
        let window = memory.make(100, SOON).unwrap();
        for component in 0..2 {
            let good = memory.pointer(component, window, 92).unwrap();
            memory.put(good, &[1; 8]).unwrap();
            for offset in [93, 100, u64::MAX] {
                let bad = GlobalPointer { offset, ..good };
                let error = memory.put(bad, &[1; 8]).unwrap_err();
                assert!(
                    matches!(error, GlobalError::Access(AccessError::Range { window_bytes: 100, .. })),
                    "{error}"
                );
                memory.get(bad, &mut [0; 8]).unwrap_err();
                memory.start_get(bad, 8).unwrap_err();
            }
            let stale = GlobalPointer { epoch: good.epoch + 1, ..good };
            assert!(matches!(memory.put(stale, &[1]), Err(GlobalError::Stale { .. })));
            for nowhere in [GlobalPointer { window: 1, ..good }, GlobalPointer { component: 2, ..good }] {
                assert!(matches!(memory.store(nowhere, &[1]), Err(GlobalError::Nowhere(_))));
            }
        }
        memory.barrier(SOON).unwrap();
    });
}

#[test]
fn a_component_that_left_is_named() {
    run(3, |mut memory| {
        let window = memory.make(100, SOON).unwrap();
        memory.barrier(SOON).unwrap();
        if memory.component() == 2 {
            return;
        }
        // Whoever waits for the lost one says so; the other then waits for somebody who gave up.
        let error = memory.barrier(SOON).unwrap_err();
        assert!(matches!(error, GlobalError::Lost { .. } | GlobalError::Post { .. }), "{error}");
        let to = memory.pointer(2, window, 0).unwrap();
        let until = std::time::Instant::now() + SOON;
        let error = loop {
            match memory.put(to, b"x") {
                Err(error) => break error,
                Ok(()) => assert!(std::time::Instant::now() < until, "its end is never seen"),
            }
        };
        assert!(
            matches!(error, GlobalError::Access(AccessError::Ended(_) | AccessError::Withdrawn { .. })),
            "{error}"
        );
    });
}

#[test]
fn a_list_without_us_or_with_one_twice_is_refused() {
    let agent = InProcess::start();
    let process = agent.connect("c0").unwrap();
    for list in [&["c1/desk"][..], &["c0/a", "c1/desk", "c1/desk"], &[]] {
        let error = GlobalMemory::join(process.endpoint("a").unwrap(), list, AT_ONCE).unwrap_err();
        assert!(matches!(error, GlobalError::List(_)), "{error}");
    }
    let error = GlobalMemory::join(process.endpoint("a").unwrap(), &["c0/a", "c1/a"], AT_ONCE).unwrap_err();
    assert!(error.to_string().contains("component 1 (c1/a) did not come"), "{error}");
    let error = GlobalMemory::join(process.endpoint("a").unwrap(), &["c1/a", "c0/a"], AT_ONCE).unwrap_err();
    assert!(matches!(error, GlobalError::Unreachable { component: 0, .. }), "{error}");
}
