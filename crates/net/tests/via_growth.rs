//! Virtual interfaces that come and go. In a process of its own, whose memory and descriptors nobody else uses.

use std::time::Duration;

use comb_net::InProcess;
use comb_net::via::{Descriptor, InterfaceOptions, Interfaces, Side, Span};

const SOON: Duration = Duration::from_secs(20);
const INTERFACES: u32 = 10_000;
/// By then everything has the size that it keeps.
const WARM: u32 = 2_000;
/// Queues of one interface with a descriptor in each take more than half of this, in each of the two processes' parts.
const GROWTH_BYTES_EACH: u64 = 256;

/// What this process uses: resident bytes, file descriptors, mappings.
fn used() -> (u64, usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kilobytes: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mappings = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    (kilobytes * 1024, descriptors, mappings)
}

/// A server that makes an interface for each client, and a client that connects, sends a message and leaves.
#[test]
fn ten_thousand_interfaces_made_and_removed_leave_nothing_behind() {
    let agent = InProcess::start();
    let interfaces = |name| Interfaces::new(agent.connect(name).unwrap().endpoint("desk").unwrap());
    let (mut client, mut server) = (interfaces("client"), interfaces("server"));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let tag = server.new_tag();
            for number in 0..INTERFACES {
                let queue = server.new_queue();
                let key = server.new_interface(InterfaceOptions {
                    receive_queue: Some(queue),
                    ..InterfaceOptions::new(tag)
                });
                let memory = server.register(vec![0; 4], tag);
                let span = Span { memory, offset: 0, bytes: 4 };
                server.post_receive(key, Descriptor::receive(&[span])).unwrap();
                server.accept(key, SOON).unwrap();
                server.from_queue_within(queue, SOON).unwrap().outcome.unwrap();
                assert_eq!(server.memory(memory).unwrap(), number.to_le_bytes());
                server.remove_interface(key);
                server.remove_queue(queue);
                server.deregister(memory).unwrap();
            }
        });
        let tag = client.new_tag();
        let mut warm = None;
        for number in 0..INTERFACES {
            let key = client.new_interface(InterfaceOptions::new(tag));
            let memory = client.register(number.to_le_bytes().to_vec(), tag);
            let span = Span { memory, offset: 0, bytes: 4 };
            client.connect(key, "server/desk", SOON).unwrap();
            client.post_send(key, Descriptor::send(&[span])).unwrap();
            client.done_within(key, Side::Send, SOON).unwrap().outcome.unwrap();
            client.remove_interface(key);
            client.deregister(memory).unwrap();
            if number == WARM {
                warm = Some(used());
            }
        }
        let (before, now) = (warm.unwrap(), used());
        let grown = now.0.saturating_sub(before.0);
        assert!(grown < GROWTH_BYTES_EACH * u64::from(INTERFACES - WARM), "grown by {grown} bytes");
        // One channel may just come or go.
        assert!(now.1 < before.1 + 20 && now.2 < before.2 + 40, "{before:?} became {now:?}");
    });
}
