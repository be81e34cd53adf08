//! An endpoint on tokio: nothing that comes between two looks is missed.
#![cfg(feature = "tokio")]

use std::time::Duration;

use comb_net::asynchronous::{AsyncEndpoint, ReceiveError};
use comb_net::{EndpointOptions, InProcess};

#[cfg(feature = "hosts")]
mod room;

/// Sockets to other hosts stay ready until they are read, and who woke up looked until no more were than fit in one look:
/// for ever.
#[cfg(feature = "hosts")]
#[test]
fn messages_of_many_channels_to_another_host_at_once_are_all_received() {
    use comb_net::agent::{Limits, SameUser};
    use std::future::Future;
    const CHANNELS: usize = 20;
    let room = room::Room::of(&["alpha", "beta"]);
    let host = |hosts| InProcess::among(Box::new(SameUser), Limits::default(), hosts).unwrap();
    let beta = host(room.host("beta", "127.0.0.1", &[]));
    let alpha = host(room.host("alpha", "127.0.0.1", &[("beta", beta.door().unwrap())]));
    let options = EndpointOptions { events: true, ..EndpointOptions::default() };
    let mut alice = alpha.connect("alice").unwrap().endpoint_with("desk", options).unwrap();
    let bob = beta.connect("bob").unwrap().endpoint_with("desk", options).unwrap();
    let channels: Vec<_> = (0..CHANNELS).map(|_| alice.open("beta:bob/desk").unwrap()).collect();
    let (done, all_came) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let mut bob = AsyncEndpoint::new(bob).unwrap();
            for _ in 0..CHANNELS {
                bob.accept().await.unwrap();
            }
            let mut buffer = [0; 8];
            let mut first = Box::pin(bob.recv(&mut buffer));
            std::future::poll_fn(|context| {
                assert!(first.as_mut().poll(context).is_pending(), "nothing was sent");
                std::task::Poll::Ready(())
            })
            .await;
            // All before it wakes up.
            for channel in channels {
                alice.send(channel, 0, b"hello").unwrap();
            }
            assert_eq!(first.await.unwrap().bytes, 5);
            for _ in 1..CHANNELS {
                assert_eq!(bob.recv(&mut buffer).await.unwrap().bytes, 5);
            }
        });
        done.send(()).unwrap();
    });
    all_came.recv_timeout(Duration::from_secs(20)).expect("every message");
}

#[test]
fn messages_cross_between_tasks_in_order_though_the_ring_is_full_most_of_the_time() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(async {
        const MESSAGES: u64 = 5000;
        let agent = InProcess::start();
        let options = EndpointOptions { events: true, ..EndpointOptions::default() };
        let endpoint = |name: &str| agent.connect(name).unwrap().endpoint_with("desk", options).unwrap();
        let mut alice = AsyncEndpoint::new(endpoint("alice")).unwrap();
        let mut bob = AsyncEndpoint::new(endpoint("bob")).unwrap();
        let receiver = tokio::spawn(async move {
            let channel = bob.accept().await.unwrap();
            let mut buffer = [0; 2000];
            for number in 0..MESSAGES {
                let got = bob.recv(&mut buffer).await.unwrap();
                assert_eq!((got.channel, &buffer[..8]), (channel, &number.to_le_bytes()[..]));
            }
            bob.send(channel, 0, b"done").await.unwrap();
            match bob.recv(&mut buffer).await {
                Err(ReceiveError::Ended(ended)) => ended.channel == channel,
                other => panic!("{other:?}"),
            }
        });
        let channel = alice.open("bob/desk").unwrap();
        for number in 0..MESSAGES {
            let mut message = vec![0; 8 + (number % 7) as usize * 200];
            message[..8].copy_from_slice(&number.to_le_bytes());
            alice.send(channel, 0, &message).await.unwrap();
        }
        let mut buffer = [0; 8];
        assert_eq!(alice.recv(&mut buffer).await.unwrap().bytes, 4);
        alice.endpoint().close(channel);
        assert!(receiver.await.unwrap());
    });
}

#[test]
fn two_threads_of_ping_pong_never_sleep_past_a_message() {
    let agent = InProcess::start();
    let options = EndpointOptions { events: true, ..EndpointOptions::default() };
    let endpoint = |name: &str| agent.connect(name).unwrap().endpoint_with("desk", options).unwrap();
    let (alice, bob) = (endpoint("alice"), endpoint("bob"));
    let run = |endpoint, opens: bool| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let mut endpoint = AsyncEndpoint::new(endpoint).unwrap();
            let channel =
                if opens { endpoint.open("bob/desk").unwrap() } else { endpoint.accept().await.unwrap() };
            let mut buffer = [0; 8];
            for round in 0..2000_u64 {
                if opens {
                    endpoint.send(channel, 0, &round.to_le_bytes()).await.unwrap();
                }
                endpoint.recv(&mut buffer).await.unwrap();
                assert_eq!(buffer, round.to_le_bytes());
                if !opens {
                    endpoint.send(channel, 0, &buffer).await.unwrap();
                }
            }
            // The peer reads the last message before it sees the end.
            std::thread::sleep(Duration::from_millis(if opens { 0 } else { 50 }));
        });
    };
    std::thread::scope(|scope| {
        scope.spawn(|| run(bob, false));
        run(alice, true);
    });
}
