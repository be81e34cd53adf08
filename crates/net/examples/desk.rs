//! A desk that answers other processes, and outlives every one of them: docs/tutorial/messages.md. The agent is the one of `comb up`.
//! Run: `cargo run --release -p comb-net --example desk`, and beside it, as often as you like, the same with a name behind `--`.

use std::time::Duration;

use comb_net::Agent;
use comb_net::agent::runtime_directory::RuntimeDirectory;

fn main() -> std::process::ExitCode {
    let ended = run();
    if let Err(error) = &ended {
        eprintln!("desk: {error}");
    }
    u8::from(ended.is_err()).into()
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let socket = RuntimeDirectory::from_environment()?.agent_socket();
    match std::env::args().nth(1) {
        None => answer(&Agent::connect(&socket, "bank")?),
        Some(who) => ask(&Agent::connect(&socket, &who)?),
    }
}

fn answer(agent: &Agent) -> Result<(), Box<dyn std::error::Error>> {
    let mut desk = agent.endpoint("desk")?;
    let mut buffer = [0; 64];
    loop {
        match desk.receive_within(&mut buffer, Duration::from_secs(600)) {
            Ok(Some(question)) => {
                // Who has ended meanwhile needs no answer.
                if let Err(error) = desk.send(question.channel, 0, &buffer[..question.bytes]) {
                    println!("no answer: {error}");
                }
            }
            Ok(None) => return Ok(()),
            // One peer is gone, by name and with the reason. All other channels are as they were.
            Err(ended) => println!("{ended}"),
        }
    }
}

fn ask(agent: &Agent) -> Result<(), Box<dyn std::error::Error>> {
    let mut endpoint = agent.endpoint("mouth")?;
    let desk = endpoint.open("bank/desk")?;
    let (mut buffer, mut fastest) = ([0; 64], Duration::MAX);
    for round in 1..=u64::MAX {
        let began = std::time::Instant::now();
        endpoint.send(desk, 0, &round.to_le_bytes())?;
        endpoint.receive_within(&mut buffer, Duration::from_secs(5))?.ok_or("no answer in five seconds")?;
        fastest = fastest.min(began.elapsed());
        if round % 100_000 == 0 {
            println!("{round} questions, the fastest answered in {fastest:?}");
        }
    }
    Ok(())
}
