//! Fifty emulated endpoints that share two real ones.
//! Run: `cargo run --release -p comb-net --example emulated`

use std::time::Duration;

use comb_net::InProcess;
use comb_net::emulated::Emulator;

const LIMIT: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = InProcess::start();
    let clients = Emulator::new(agent.connect("clients")?.endpoint("shared")?);
    let servers = Emulator::new(agent.connect("servers")?.endpoint("shared")?);

    let threads: Vec<_> = (0..25)
        .map(|number| {
            let mut server = servers.endpoint(&format!("echo{number}"))?;
            let mut client = clients.endpoint(&format!("client{number}"))?;
            let address = server.address();
            let echo = std::thread::spawn(move || {
                let mut buffer = [0; 100];
                // Ends with the client's close.
                while let Ok(got) = server.receive_within(&mut buffer, LIMIT) {
                    let got = got.expect("the client hurries");
                    server.send(got.channel, got.kind, &buffer[..got.bytes]).expect("one at a time");
                }
            });
            let talk = std::thread::spawn(move || {
                let channel =
                    client.open(&address, LIMIT).expect("its emulator is serviced by who waits there");
                let mut buffer = [0; 100];
                for round in 0..10 {
                    client.send(channel, round, address.as_bytes()).expect("there is room for one");
                    let got = client.receive_within(&mut buffer, LIMIT).expect("open").expect("in time");
                    assert_eq!((got.kind, &buffer[..got.bytes]), (round, address.as_bytes()));
                }
                client.close(channel);
            });
            Ok([echo, talk])
        })
        .collect::<Result<_, comb_net::RequestError>>()?;
    for thread in threads.into_iter().flatten() {
        thread.join().expect("each got its own echo");
    }
    println!("25 conversations of 10 rounds over one real channel");
    Ok(())
}
