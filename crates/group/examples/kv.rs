//! A key-value service: replicas, each a process and a member of one group, serve clients over TCP. An agent must run:
//!
//! ```console
//! $ cargo build -p comb-group --features tokio --example kv
//! $ comb up --cells 1
//! 1 cell is up after 22 ms
//! agent: process 14506, in /tmp/comb-1000
//! $ kv() { target/debug/examples/kv /tmp/comb-1000/agent.sock "$@"; }
//! $ kv 0 3 127.0.0.1:7400 new &          # number, how many, address; new: the group's first start
//! $ kv 1 3 127.0.0.1:7401 new &
//! $ kv 2 3 127.0.0.1:7402 new &
//! $ exec 3<>/dev/tcp/127.0.0.1/7401      # a line asks, a line answers; or nc 127.0.0.1 7401
//! $ echo put colour green >&3; head -1 <&3
//! ok
//! $ kv 0 3 127.0.0.1:7400 join &         # when replica 0 was killed: it gets the others' state
//! ```
//!
//! Requests: `put KEY VALUE`, `get KEY`, `cas KEY OLD NEW`. All of them, reads too, are updates of the group, and are answered
//! when they are applied here, in the one order of all. A replica cannot read its own state and call that the truth: it may
//! have been left out a moment ago, and stopped, or cut off, have heard nothing of it; the others have gone on to
//! write. An ordered read is after every write that was acknowledged before it was asked: the service is linearisable.
//!
//! Answers: `ok`, `is VALUE`, `none`, `not` (a `cas` whose OLD is not there); `sorry: …`, nothing was done; `lost: …`, or the end
//! of the connection: it may have been done, or may yet be. Ask another replica again, with the same number: a request that
//! begins with `CLIENT:NUMBER` is done once, however often it is sent, if the numbers of a client rise and each is
//! answered before the next.

use std::collections::BTreeMap;
use std::error::Error;

use comb_group::asynchronous::AsyncGroup;
use comb_group::{Config, Event, Group, GroupOptions, Level, Names, NodeId};
use comb_net::{Agent, EndpointOptions};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

/// What all replicas have in common.
#[derive(Default, serde::Serialize, serde::Deserialize)]
struct Store {
    values: BTreeMap<String, String>,
    /// Each client's last numbered request, and its answer. (A service that is to last forgets clients, too, in the one order.)
    answered: BTreeMap<String, (u64, String)>,
}

impl Store {
    /// What every replica does with a request. Nothing but the requests before it decides on the answer.
    fn apply(&mut self, request: &str) -> String {
        let (id, rest) = request.split_once(' ').unwrap_or_default();
        let id = id.split_once(':').and_then(|(client, number)| Some((client, number.parse().ok()?)));
        let Some((client, number)) = id else { return self.act(request) };
        match self.answered.get(client) {
            Some((last, answer)) if *last == number => answer.clone(),
            Some((last, _)) if *last > number => format!("sorry: number {last} was answered already"),
            _ => {
                let answer = self.act(rest);
                self.answered.insert(client.to_owned(), (number, answer.clone()));
                answer
            }
        }
    }

    fn act(&mut self, request: &str) -> String {
        match request.split(' ').collect::<Vec<_>>()[..] {
            ["put", key, value] => {
                self.values.insert(key.to_owned(), value.to_owned());
                "ok".to_owned()
            }
            ["get", key] => self.values.get(key).map_or("none".to_owned(), |value| format!("is {value}")),
            ["cas", key, old, new] => match self.values.get_mut(key) {
                Some(value) if value == old => {
                    new.clone_into(value);
                    "ok".to_owned()
                }
                _ => "not".to_owned(),
            },
            _ => "sorry: put KEY VALUE, get KEY, or cas KEY OLD NEW".to_owned(),
        }
    }
}

/// A request, and where its answer goes. Dropped, it tells the client that the answer was lost.
type Request = (String, oneshot::Sender<String>);

/// Serves as a member, until the group has gone on without it.
async fn serve(mut group: AsyncGroup, requests: &mut mpsc::Receiver<Request>) -> std::io::Result<()> {
    let me = group.group().stack().me();
    let (mut store, mut waiting, mut is_stuck) = (Store::default(), BTreeMap::new(), false);
    loop {
        tokio::select! {
            event = group.next_event() => match event? {
                Event::Delivered(delivery) => {
                    let answer = store.apply(&String::from_utf8_lossy(&delivery.body));
                    if delivery.sender == me && let Some(client) = waiting.remove(&delivery.number) {
                        let _: Result<(), String> = oneshot::Sender::send(client, answer);
                    }
                }
                Event::WantsState => group.group().give_state(&postcard::to_stdvec(&store).expect("plain data")),
                Event::Restore { state, .. } => {
                    store = postcard::from_bytes(&state).unwrap_or_default();
                    waiting.clear(); // Those that are in that state were answered elsewhere, in it.
                }
                Event::Stuck(reason) => {
                    println!("stuck: {reason:?}");
                    is_stuck = true;
                    waiting.clear();
                }
                Event::View(view) => {
                    println!("view {}: {:?}", view.epoch.0, view.nodes().map(|node| node.0).collect::<Vec<_>>());
                    is_stuck = false;
                }
                Event::Excluded { .. } => return Ok(()),
                _ => {}
            },
            Some((request, client)) = requests.recv() => {
                let refusal = if is_stuck { "too few replicas are here".to_owned() } else {
                    match group.group().submit(Level::Majority, request.as_bytes()) {
                        Ok(number) => {
                            waiting.insert(number, client);
                            continue;
                        }
                        Err(error) => error.to_string(),
                    }
                };
                let _ = client.send(format!("sorry: {refusal}"));
            }
        }
    }
}

/// One client: a line asks, a line answers.
async fn client(mut stream: TcpStream, requests: mpsc::Sender<Request>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (reader, mut writer) = stream.split();
    let mut lines = BufReader::new(reader).lines();
    while let Some(request) = lines.next_line().await? {
        let (sender, answer) = oneshot::channel();
        let _ = requests.send((request, sender)).await;
        let answer = answer.await.unwrap_or("lost: it may have been done; ask another replica".to_owned());
        writer.write_all(format!("{answer}\n").as_bytes()).await?;
    }
    Ok(())
}

/// Runs a replica for ever: `AGENT NUMBER COUNT ADDRESS new|join`.
pub(crate) async fn replica(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [agent, number, count, address, how] = arguments else {
        return Err("usage: kv AGENT_SOCKET NUMBER COUNT ADDRESS new|join".into());
    };
    let (own, nodes) = (NodeId(number.parse()?), (0..count.parse()?).map(NodeId).collect::<Vec<_>>());
    let names = Names { process: "kv-".to_owned(), endpoint: "group".to_owned(), ..Names::default() };
    let endpoint = EndpointOptions { events: true, ..EndpointOptions::default() };
    let agent = Agent::connect(agent.as_ref(), &names.process(own))?;
    // What a client was told is kept, or else nothing is told any more.
    let config = Config { needs_quorum: true, ..Config::default() };
    let options = GroupOptions { names, config, endpoint };

    let (sender, mut requests) = mpsc::channel(64);
    let listener = TcpListener::bind(address).await?;
    println!("replica {number} serves {}", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(client(stream, sender.clone()));
        }
    });
    let mut group = match how.as_str() {
        "new" => Group::configured(&agent, own, &nodes, options.clone())?,
        _ => Group::joining(&agent, own, &nodes, options.clone())?,
    };
    loop {
        serve(AsyncGroup::new(group)?, &mut requests).await?;
        println!("the group has gone on without this replica, which comes in again");
        group = Group::joining(&agent, own, &nodes, options.clone())?;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    replica(&std::env::args().skip(1).collect::<Vec<_>>()).await
}
