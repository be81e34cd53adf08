//! A key-value service: replicas, each a process and a member of one group, serve clients over TCP, a line for a line. What to type,
//! and what clients may say, is in `kv.md`. All requests, reads too, are updates of the group, and are answered when they are
//! applied here, in the one order of all: a replica's own state may be old, and it would not know.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use comb_group::asynchronous::AsyncGroup;
use comb_group::{Config, Event, Group, GroupOptions, Level, Names, NodeId};
use comb_net::{Agent, EndpointOptions};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

/// What all replicas have in common: values, and each client's last numbered request with its answer.
#[derive(Default, serde::Serialize, serde::Deserialize)]
struct Store {
    values: BTreeMap<String, String>,
    answered: BTreeMap<String, (u64, String)>,
}

impl Store {
    /// Nothing but the requests before it decides on the answer. One with a number is done once, however often it is asked.
    fn apply(&mut self, request: &str) -> String {
        let (id, rest) = request.split_once(' ').unwrap_or_default();
        let id = id.split_once(':').and_then(|(client, number)| Some((client, number.parse().ok()?)));
        let Some((client, number)) = id else { return self.act(request) };
        match self.answered.get(client) {
            Some((last, answer)) if *last == number => return answer.clone(),
            Some((last, _)) if *last > number => return format!("sorry: number {last} was answered already"),
            _ => {}
        }
        let answer = self.act(rest);
        self.answered.insert(client.to_owned(), (number, answer.clone()));
        answer
    }

    fn act(&mut self, request: &str) -> String {
        let (key, value) = match request.split(' ').collect::<Vec<_>>()[..] {
            ["get", key] => {
                return self.values.get(key).map_or("none".to_owned(), |value| format!("is {value}"));
            }
            ["cas", key, old, _] if self.values.get(key).is_none_or(|value| value != old) => {
                return "not".to_owned();
            }
            ["put", key, value] | ["cas", key, _, value] => (key, value),
            _ => return "sorry: put KEY VALUE, get KEY, or cas KEY OLD NEW".to_owned(),
        };
        self.values.insert(key.to_owned(), value.to_owned());
        "ok".to_owned()
    }
}

/// A request, and where its answer goes. Dropped, it tells the client that the answer was lost.
type Request = (String, oneshot::Sender<String>);

/// Serves as a member, until the group has gone on without it.
async fn serve(mut group: AsyncGroup, requests: &mut mpsc::Receiver<Request>) -> Result<(), Box<dyn Error>> {
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
                Event::WantsState => group.group().give_state(&postcard::to_stdvec(&store)?),
                Event::Restore { state, .. } => {
                    store = postcard::from_bytes(&state).map_err(|error| format!("the others' state: {error}"))?;
                    waiting.clear(); // Those that are in that state were answered elsewhere, in it.
                }
                Event::Stuck(_) => (is_stuck, waiting) = (true, BTreeMap::new()),
                Event::View(view) => {
                    println!("view {}: {:?}", view.epoch.0, view.nodes().map(|node| node.0).collect::<Vec<_>>());
                    is_stuck = false;
                }
                Event::Excluded { .. } => return Ok(()),
                _ => {}
            },
            Some((request, client)) = requests.recv() => {
                let mut submit = || group.group().submit(Level::Majority, request.as_bytes()).map_err(|error| error.to_string());
                match if is_stuck { Err("too few replicas are here".to_owned()) } else { submit() } {
                    Ok(number) => drop(waiting.insert(number, client)),
                    Err(refusal) => drop(client.send(format!("sorry: {refusal}"))),
                }
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

/// How a replica is a member. What a client was told is kept, or else nothing is told any more.
pub(crate) fn options() -> GroupOptions {
    let names = Names { process: "kv-".to_owned(), endpoint: "group".to_owned(), ..Names::default() };
    let config = Config { needs_quorum: true, ..Config::default() };
    GroupOptions { names, config, endpoint: EndpointOptions { events: true, ..EndpointOptions::default() } }
}

/// Runs a replica for ever, with arguments `AGENT NUMBER COUNT ADDRESS new|join`.
pub(crate) async fn replica(arguments: &[String], options: GroupOptions) -> Result<(), Box<dyn Error>> {
    let [agent, number, count, address, how] = arguments else {
        return Err("usage: kv AGENT_SOCKET NUMBER COUNT ADDRESS new|join".into());
    };
    let (own, nodes) = (NodeId(number.parse()?), (0..count.parse()?).map(NodeId).collect::<Vec<_>>());
    let agent = Agent::connect(Path::new(agent), &options.names.process(own))?;
    let (sender, mut requests) = mpsc::channel(64);
    let listener = TcpListener::bind(address).await?;
    println!("replica {number} serves {}", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(client(stream, sender.clone()));
        }
    });
    let begin = if how == "new" { Group::configured } else { Group::joining };
    let mut group = begin(&agent, own, &nodes, options.clone())?;
    loop {
        serve(AsyncGroup::new(group)?, &mut requests).await?;
        println!("the group has gone on without this replica, which comes in again");
        group = Group::joining(&agent, own, &nodes, options.clone())?;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    replica(&std::env::args().skip(1).collect::<Vec<_>>(), options()).await
}
