//! Active messages: a counter on the server that clients add to, a block that they store, and one that they get.
//! Run: `cargo run --release -p comb-net --example active_messages`

use std::time::Duration;

use comb_net::InProcess;
use comb_net::active::{Access, ActiveMessages};

const ADD: u16 = 0;
const STOP: u16 = 1;
const TOTAL: u16 = 0;
const BLACKBOARD: u16 = 0;

#[derive(Default)]
struct Server {
    total: u64,
    stop: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = InProcess::start();
    let mut server = ActiveMessages::new(agent.connect("server")?.endpoint("am")?, Server::default());
    server.on_request(ADD, |server: &mut Server, request| {
        server.total += request.arguments().iter().sum::<u64>();
        let total = server.total;
        request.reply(TOTAL, &[total], &[]).expect("one word fits");
    });
    server.on_request(STOP, |server: &mut Server, _| server.stop = true);
    server.add_region(BLACKBOARD, vec![b'.'; 100_000], Access::StoreAndGet, |_, stored| {
        println!("server: {} bytes came to {}", stored.bytes.len(), stored.offset);
    });

    let mut client = ActiveMessages::new(agent.connect("client")?.endpoint("am")?, Vec::new());
    client.on_reply(TOTAL, |totals: &mut Vec<u64>, reply| totals.push(reply.arguments[0]));
    let channel = client.open("server/am")?;

    let thread = std::thread::spawn(move || {
        while !server.state().stop {
            server.poll_within(Duration::from_secs(1)).expect("the client stays");
        }
    });

    // Up to a window of requests are under way at once; the replies come in order.
    for number in 1..=100 {
        client.request(channel, ADD, &[number, number], &[])?;
    }
    while client.outstanding(channel) > 0 {
        client.poll_within(Duration::from_secs(1))?;
    }
    println!("client: the last total is {:?}", client.state().last());

    client.store(channel, BLACKBOARD, 10, &[], &[b'x'; 50_000])?;
    let mut back = vec![0; 20];
    client.get(channel, BLACKBOARD, 0, &mut back)?;
    println!("client: {}", String::from_utf8_lossy(&back));

    client.request(channel, STOP, &[], &[])?;
    thread.join().expect("the server does not panic");
    Ok(())
}
