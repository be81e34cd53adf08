//! The smallest program of two processes: the parent runs an agent and a server, the child says hello.
//! Run: `cargo run --release -p comb-net --example hello`

use std::time::Duration;

use comb_net::Agent;
use comb_net::agent::{Limits, SameUser, Server};

const LIMIT: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    match std::env::args_os().nth(1) {
        None => parent(),
        Some(path) => child(path.as_ref()),
    }
}

fn parent() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("comb-hello-{}", std::process::id()));
    let _agent = Server::bind(&path, Box::new(SameUser), Limits::default())?;
    let mut endpoint = Agent::connect(&path, "parent")?.endpoint("door")?;
    let mut child = std::process::Command::new(std::env::current_exe()?).arg(&path).spawn()?;

    let mut buffer = [0; 100];
    let got = endpoint.receive_within(&mut buffer, LIMIT)?.ok_or("the child said nothing")?;
    let from = endpoint.peer(got.channel).unwrap_or("?").to_owned();
    println!("{from} says: {}", String::from_utf8_lossy(&buffer[..got.bytes]));
    endpoint.send(got.channel, 0, b"hello, child")?;
    child.wait()?;
    Ok(())
}

fn child(path: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut endpoint = Agent::connect(path, "child")?.endpoint("mouth")?;
    let parent = endpoint.open("parent/door")?;
    endpoint.send(parent, 0, b"hello, parent")?;
    let mut buffer = [0; 100];
    let got = endpoint.receive_within(&mut buffer, LIMIT)?.ok_or("the parent said nothing")?;
    println!("parent/door says: {}", String::from_utf8_lossy(&buffer[..got.bytes]));
    Ok(())
}
