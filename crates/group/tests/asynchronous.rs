//! Members on tokio: nothing is missed, nothing spins, and who waits hears how it ended.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use comb_group::asynchronous::{AsyncGroup, NotReached};
use comb_group::{Arrivals, Config, Event, Group, GroupOptions, Level, Mesh, Names, NodeId};
use comb_net::{EndpointOptions, InProcess};
use tokio::task::LocalSet;

const SOON: Duration = Duration::from_secs(30);

fn options() -> GroupOptions {
    let names = Names { process: "member-".to_owned(), endpoint: "group".to_owned(), ..Names::default() };
    let endpoint = EndpointOptions { events: true, ..EndpointOptions::default() };
    GroupOptions { names, config: Config::default(), endpoint }
}

fn nodes(count: u32) -> Vec<NodeId> {
    (0..count).map(NodeId).collect()
}

fn configured(agent: &InProcess, own: u32, count: u32) -> AsyncGroup {
    let agent = agent.connect(&options().names.process(NodeId(own))).expect("an agent");
    let group = Group::configured(&agent, NodeId(own), &nodes(count), options()).expect("an endpoint");
    AsyncGroup::new(group).expect("a runtime")
}

fn joining(agent: &InProcess, own: u32, contacts: u32) -> AsyncGroup {
    let agent = agent.connect(&options().names.process(NodeId(own))).expect("an agent");
    let group = Group::joining(&agent, NodeId(own), &nodes(contacts), options()).expect("an endpoint");
    AsyncGroup::new(group).expect("a runtime")
}

/// What a member's program knows, for the test to look at.
#[derive(Default)]
struct Seen {
    state: RefCell<Vec<u8>>,
    view: RefCell<Vec<u32>>,
}

impl Seen {
    fn take(&self, group: &mut AsyncGroup, event: Event) {
        match event {
            Event::Delivered(delivery) => self.state.borrow_mut().extend_from_slice(&delivery.body),
            Event::Restore { state, .. } => *self.state.borrow_mut() = state,
            Event::WantsState => group.group().give_state(&self.state.borrow()),
            Event::View(view) => *self.view.borrow_mut() = view.nodes().map(|node| node.0).collect(),
            _ => {}
        }
    }
}

/// A program that does nothing but what its group says.
fn run(mut group: AsyncGroup) -> Rc<Seen> {
    let seen = Rc::new(Seen::default());
    let own = Rc::clone(&seen);
    tokio::task::spawn_local(async move {
        loop {
            let event = group.next_event().await.expect("a runtime");
            own.take(&mut group, event);
        }
    });
    seen
}

fn on_tokio(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let limited = async { tokio::time::timeout(SOON, test).await.expect("it never comes to be so") };
    LocalSet::new().block_on(&runtime, limited);
}

async fn until(mut so: impl FnMut() -> bool) {
    while !so() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn who_waits_hears_when_an_update_is_there_and_all_get_the_same() {
    on_tokio(async {
        let agent = InProcess::start();
        let members: Vec<_> = (0..3).map(|own| configured(&agent, own, 3)).collect();
        let submitters: Vec<_> = members.iter().map(AsyncGroup::submitter).collect();
        let seen: Vec<_> = members.into_iter().map(run).collect();
        let mut tasks = Vec::new();
        // More than may be outstanding, from many tasks.
        for number in 0..900_usize {
            let (submitter, seen) = (submitters[number % 3].clone(), Rc::clone(&seen[number % 3]));
            tasks.push(tokio::task::spawn_local(async move {
                let level = if number % 2 == 0 { Level::Majority } else { Level::All };
                let body = u8::try_from(number / 3 % 250).expect("less than 250");
                submitter.submit(level, vec![body]).await.expect("a whole group");
                assert!(seen.state.borrow().contains(&body), "delivered here before it was told");
            }));
        }
        for task in tasks {
            task.await.expect("no assertion failed");
        }
        until(|| seen.iter().all(|seen| seen.state.borrow().len() == 900)).await;
        assert!(seen.iter().all(|other| other.state == seen[0].state));
    });
}

#[test]
fn a_call_that_is_cancelled_again_and_again_misses_nothing() {
    on_tokio(async {
        let agent = InProcess::start();
        let (mut own, other) = (configured(&agent, 0, 2), configured(&agent, 1, 2));
        let submitter = other.submitter();
        run(other);
        let sender = tokio::task::spawn_local(async move {
            for number in 0..100 {
                submitter.submit(Level::Majority, vec![number]).await.expect("a whole group");
            }
        });
        let mut heard = Vec::new();
        while heard.len() < 100 {
            // One look, and the call is dropped.
            let mut looked = None;
            {
                let mut call = pin!(own.next_event());
                std::future::poll_fn(|context| {
                    if let Poll::Ready(event) = call.as_mut().poll(context) {
                        looked = Some(event.expect("a runtime"));
                    }
                    Poll::Ready(())
                })
                .await;
            }
            if let Some(Event::Delivered(delivery)) = looked {
                heard.extend_from_slice(&delivery.body);
            }
            tokio::task::yield_now().await;
        }
        // The other one may still have to be told.
        while !sender.is_finished() {
            let _ = tokio::time::timeout(Duration::from_millis(1), own.next_event()).await;
        }
        assert_eq!(heard, (0..100).collect::<Vec<u8>>());
    });
}

#[test]
fn who_comes_first_asks_again_until_there_is_a_group_and_it_goes_on_without_the_dead() {
    on_tokio(async {
        let agent = InProcess::start();
        let late = run(joining(&agent, 3, 3));
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(late.view.borrow().is_empty(), "there is no group");
        let mut doomed = configured(&agent, 0, 3);
        let submitter = doomed.submitter();
        let others: Vec<_> = (1..3).map(|own| run(configured(&agent, own, 3))).collect();
        let dying = tokio::task::spawn_local(async move {
            loop {
                let event = doomed.next_event().await.expect("a runtime");
                if let Event::WantsState = event {
                    doomed.group().give_state(b"1");
                }
            }
        });
        submitter.submit(Level::All, vec![b'1']).await.expect("a whole group");
        until(|| *late.view.borrow() == [0, 1, 2, 3]).await;
        assert_eq!(*late.state.borrow(), b"1");
        dying.abort();
        until(|| others.iter().chain([&late]).all(|seen| *seen.view.borrow() == [1, 2, 3])).await;
        assert_eq!(submitter.submit(Level::Majority, vec![b'2']).await.map_err(|_| ()), Err(()));
    });
}

#[test]
fn who_waits_hears_that_the_member_was_lost_and_who_gave_up_before_has_sent_nothing() {
    on_tokio(async {
        let agent = InProcess::start();
        let mut alone = configured(&agent, 0, 3);
        let submitter = alone.submitter();
        let too_long = vec![0; Config::default().order.longest_update() + 1];
        let refused = submitter.submit(Level::Majority, too_long);
        let waits = submitter.submit(Level::Majority, vec![1]);
        let gives_up = submitter.submit(Level::Majority, vec![2]);
        let (mut refused, mut waits) = (pin!(refused), pin!(waits));
        assert!(tokio::time::timeout(Duration::ZERO, gives_up).await.is_err());
        assert!(tokio::time::timeout(Duration::ZERO, waits.as_mut()).await.is_err());
        assert!(tokio::time::timeout(Duration::ZERO, refused.as_mut()).await.is_err());
        assert!(tokio::time::timeout(Duration::from_millis(20), alone.next_event()).await.is_err());
        assert!(matches!(refused.await, Err(NotReached::Refused(_))));
        let order = alone.group().stack().order().expect("in a view");
        assert_eq!(order.outstanding(), 1, "the one that waits, and not the one that gave up");
        assert!(tokio::time::timeout(Duration::ZERO, waits.as_mut()).await.is_err(), "two are missing");
        drop(alone);
        assert_eq!(waits.await, Err(NotReached::Lost));
        assert!(matches!(submitter.submit(Level::Majority, vec![3]).await, Err(NotReached::Refused(_))));
    });
}

/// An endpoint that waits looks up by itself ten times a second, which hides what does not wake it: but not a thousand times.
#[test]
fn who_sends_wakes_the_member() {
    on_tokio(async {
        let agent = InProcess::start();
        let group = configured(&agent, 0, 1);
        let submitter = group.submitter();
        let seen = run(group);
        for _ in 0..1000 {
            submitter.submit(Level::Majority, vec![1]).await.expect("a whole group");
        }
        assert_eq!(seen.state.borrow().len(), 1000);
    });
}

/// As above: a joiner knocks at a contact that never answers, a thousand times.
#[test]
fn what_is_due_is_done_when_it_is_due() {
    on_tokio(async {
        let agent = InProcess::start();
        let mut options = options();
        options.config.join.resend = Duration::from_millis(1);
        let connect = |node| agent.connect(&options.names.process(NodeId(node))).expect("an agent");
        let mut contact =
            Mesh::join(&connect(0), NodeId(0), options.names.clone(), options.endpoint).expect("an endpoint");
        let knocking = Group::joining(&connect(1), NodeId(1), &nodes(1), options.clone());
        run(AsyncGroup::new(knocking.expect("an endpoint")).expect("a runtime"));
        let (mut arrivals, mut knocks) = (Arrivals::default(), 0);
        until(|| {
            contact.poll(&mut arrivals);
            knocks += arrivals.messages().count();
            knocks > 1000
        })
        .await;
    });
}

#[test]
fn an_idle_member_is_left_asleep() {
    on_tokio(async {
        let agent = InProcess::start();
        let (mut own, other) = (configured(&agent, 0, 2), configured(&agent, 1, 2));
        let submitter = other.submitter();
        run(other);
        let first = tokio::task::spawn_local(async move { submitter.submit(Level::All, vec![1]).await });
        while !first.is_finished() {
            let _ = tokio::time::timeout(Duration::from_millis(5), own.next_event()).await;
        }
        let polls = Cell::new(0_u32);
        let idle = tokio::time::timeout(Duration::from_millis(500), async {
            let mut call = pin!(own.next_event());
            std::future::poll_fn(|context| {
                polls.set(polls.get() + 1);
                call.as_mut().poll(context)
            })
            .await
        });
        let _ = idle.await;
        // A loop would have come by a hundred thousand times; an endpoint that sleeps looks up ten times a second.
        assert!(polls.get() < 1000, "{} times", polls.get());
    });
}
