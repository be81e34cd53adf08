//! Typed calls: a little bank, its errors, and, where panics unwind, a method that panics.
//! Run: `cargo run --release -p comb-net --example rpc`

use std::collections::BTreeMap;
use std::time::Duration;

use comb_net::InProcess;
use comb_net::rpc::Rpc;
use serde::{Deserialize, Serialize};

const LIMIT: Duration = Duration::from_secs(10);
const BALANCE: u16 = 0;
const DEPOSIT: u16 = 1;
const DIVIDE: u16 = 2;

#[derive(Debug, Serialize, Deserialize)]
struct Deposit {
    account: String,
    amount: i64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = InProcess::start();
    let mut bank = Rpc::new(agent.connect("bank")?.endpoint("calls")?);
    let accounts = std::sync::Arc::new(std::sync::Mutex::new(BTreeMap::from([("ada".to_owned(), 100)])));
    let known = std::sync::Arc::clone(&accounts);
    bank.register_fallible(BALANCE, move |name: String| {
        known
            .lock()
            .expect("no method panics with it")
            .get(&name)
            .copied()
            .ok_or(format!("no account {name:?}"))
    });
    bank.register(DEPOSIT, move |Deposit { account, amount }: Deposit| {
        let mut accounts = accounts.lock().expect("no method panics with it");
        let balance = accounts.entry(account).or_insert(0);
        *balance += amount;
        *balance
    });
    bank.register(DIVIDE, |(a, b): (i64, i64)| a / b);

    let mut client = Rpc::new(agent.connect("client")?.endpoint("calls")?);
    let channel = client.open("bank/calls")?;
    let thread = std::thread::spawn(move || while bank.poll_within(LIMIT).is_ok() {});

    let balance: i64 = client.call(channel, BALANCE, &"ada", LIMIT)?;
    println!("ada has {balance}");
    let deposit = Deposit { account: "bob".to_owned(), amount: 25 };
    let balance: i64 = client.call(channel, DEPOSIT, &deposit, LIMIT)?;
    println!("bob has {balance}");
    let mut outcomes = vec![
        client.call::<_, i64>(channel, BALANCE, &"eve", LIMIT),
        client.call::<_, i64>(channel, 77, &(), LIMIT),
    ];
    // Where a panic ends the process, as in this repository's release builds, it would end the bank.
    if cfg!(panic = "unwind") {
        outcomes.push(client.call(channel, DIVIDE, &(1_i64, 0_i64), LIMIT));
    }
    for outcome in outcomes {
        println!("error: {}", outcome.expect_err("each of these fails"));
    }
    client.close(channel);
    thread.join().expect("a method's panic stays in the method");
    Ok(())
}
