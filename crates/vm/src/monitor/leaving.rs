//! A machine leaves for another host: a thread carries it there, and has the monitor do what is to be done to the engine. See [`crate::moving`].

use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvError, Sender};
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use serde_json::{Value, json};

use super::{Beginning, End, Monitor, User};
use crate::control::{Answer, State, proportional_bytes};
use crate::engine::{ANSWER_LIMIT, EngineError};
use crate::hardware::Accelerator;
use crate::image::Image;
use crate::moving::arriving::engine_version;
use crate::moving::files::{self, OF_IMAGE};
use crate::moving::pages::{Differences, Mapped};
use crate::moving::record::Token;
use crate::moving::{
    Heard, Machine, MoveError, Moved, Offer, PART_BYTES, Rest, SILENCE_LIMIT, Talk, VERSION, Way, What, Word,
    processor,
};

/// Looking whether the image is there takes as long as reading it.
const OFFER_LIMIT: Duration = Duration::from_secs(120);

/// An engine is started within this, on a busy host.
const ENGINE_LIMIT: Duration = Duration::from_secs(45);

/// Taking it up after the last of it has gone.
const READY_LIMIT: Duration = Duration::from_secs(75);

/// Whoever has been given it says so within this.
const RUNS_LIMIT: Duration = Duration::from_secs(10);

/// How often it is looked how far the engine is.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// How often the other end is heard meanwhile, which says nothing if all is well, and how often it hears something.
const BETWEEN_SIGNS: Duration = Duration::from_millis(500);

/// The engine stops the machine when what is left takes no longer, as far as it knows.
const STILL_MS: u64 = 100;

/// A guest that changes its memory as fast as it goes over stands still for longer: each time that this has passed, twice as long.
const BETWEEN_DOUBLINGS: Duration = Duration::from_secs(2);

/// A translator that takes note of what changes more often than that may miss some. See [`Monitor::goes_once`].
const MOST_NOTES: u64 = 2;

/// Nothing takes longer, as the engine has it.
const LONGEST_STILL_MS: u64 = 2_000_000;

/// How often another host is asked what became of a machine.
const BETWEEN_QUESTIONS: Duration = Duration::from_secs(1);

type Work = Box<dyn FnOnce(&mut Monitor<'_>, &mut dyn User) + Send>;

/// The monitor's end of it.
pub(super) struct Leaving {
    host: String,
    works: Receiver<Work>,
    wake: Arc<OwnedFd>,
    /// When the machine stood still.
    stopped: Option<Instant>,
    /// What was said to the guest and has not come to it.
    unread: Vec<u8>,
    /// The other host may have it by now.
    is_given: bool,
    /// Whoever knows better has said that it has not.
    is_kept: Arc<AtomicBool>,
}

impl Leaving {
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// The thread's.
struct Hand {
    works: Sender<Work>,
    wake: Arc<OwnedFd>,
    client: u32,
}

impl Hand {
    /// Has the monitor do something.
    fn have<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Monitor<'_>, &mut dyn User) -> T + Send + 'static,
    ) -> Result<T, MoveError> {
        self.begin(work).recv().map_err(ended)
    }

    /// The same, and waits for nothing: what comes of it is said later.
    fn begin<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Monitor<'_>, &mut dyn User) -> T + Send + 'static,
    ) -> Receiver<T> {
        let (answer, answered) = mpsc::channel();
        let work: Work = Box::new(move |monitor, user| drop(answer.send(work(monitor, user))));
        // If there is no monitor any more, the answer has nobody who could say it.
        let _ = self.works.send(work);
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        answered
    }

    /// Tells whoever wanted it.
    fn tell(&self, answer: Answer) -> Result<(), MoveError> {
        let client = self.client;
        self.have(move |monitor, _| monitor.tell_client(client, &answer))
    }
}

fn ended(_: RecvError) -> MoveError {
    MoveError::Here("the machine has ended".into())
}

/// What is to leave, and where to.
struct Plan {
    host: String,
    way: Way,
    machine: Machine,
    image: Image,
    root: PathBuf,
    engine: u32,
    is_kept: Arc<AtomicBool>,
}

impl Monitor<'_> {
    /// Begins to move; an answer if it does not.
    pub(super) fn leave(&mut self, client: u32, host: &str, user: &mut dyn User) -> Option<Answer> {
        let no = |why: String| Some(Answer::Refused(why));
        if let Some(leaving) = &self.leaving {
            return no(format!("it moves to {} already", leaving.host));
        }
        if self.state != State::Up {
            return no(format!(
                "a machine moves when its guest is at work, and this one is {}",
                self.state.as_str()
            ));
        }
        if !self.order.hardware.attached.is_empty() {
            return no(
                "it has disks or a network, which stay on this host: only a machine without them moves"
                    .into(),
            );
        }
        if !self.order.files.is_empty() || !self.order.segments.is_empty() {
            return no(
                "it has files or memory in common with others here, and they would not go with it".into()
            );
        }
        match self.begin_to_leave(client, host, user) {
            Ok(()) => None,
            Err(error) => no(error.to_string()),
        }
    }

    fn begin_to_leave(&mut self, client: u32, host: &str, user: &mut dyn User) -> Result<(), MoveError> {
        let fails = |error: std::io::Error| MoveError::Host("a thread to move it".into(), error);
        let order = self.order;
        let machine = Machine {
            name: order.name.to_string(),
            token: Token::new().map_err(fails)?,
            hardware: order.hardware.clone(),
            engine: engine_version(&mut self.engine)?,
            processor: processor(&order.hardware),
            is_replaced: order.is_replaced,
            is_clone: matches!(order.beginning, Beginning::Template(_)),
            is_outside: self.seat.is_none(),
            used_bytes: proportional_bytes(self.engine.process()).unwrap_or_default(),
        };
        let is_kept = Arc::new(AtomicBool::new(false));
        let plan = Plan {
            host: host.to_owned(),
            way: user.way_to(host),
            machine,
            image: order.image.clone(),
            root: self.root.clone(),
            engine: self.engine.process(),
            is_kept: Arc::clone(&is_kept),
        };
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(rustix::event::eventfd(0, flags).map_err(|error| fails(error.into()))?);
        let (sender, works) = mpsc::channel();
        let hand = Hand { works: sender, wake: Arc::clone(&wake), client };
        let carries = move || {
            let outcome = carry(&plan, &hand);
            let _ = hand.have(move |monitor, _| monitor.left(client, outcome));
        };
        std::thread::Builder::new().name("comb-leaves".into()).spawn(carries).map_err(fails)?;
        self.leaving = Some(Leaving {
            host: host.to_owned(),
            works,
            wake,
            stopped: None,
            unread: Vec::new(),
            is_given: false,
            is_kept,
        });
        Ok(())
    }

    pub(super) fn serve_leaving(&mut self, user: &mut dyn User) {
        let Some(leaving) = &self.leaving else { return };
        let _ = rustix::io::read(&*leaving.wake, &mut [0; 8]);
        while let Some(work) = self.leaving.as_ref().and_then(|leaving| leaving.works.try_recv().ok()) {
            work(self, user);
        }
    }

    /// Whether nothing is said to the guest, because it is about to be another host's.
    pub(super) fn stands_still(&self) -> bool {
        matches!(self.state, State::Moves | State::Unsure)
    }

    /// The engine has stopped it.
    pub(super) fn stood_still(&mut self) {
        if let Some(leaving) = &mut self.leaving {
            leaving.stopped.get_or_insert_with(Instant::now);
        }
    }

    /// It goes on.
    pub(super) fn went_on(&mut self) {
        if let Some(leaving) = &mut self.leaving {
            leaving.stopped = None;
        }
    }

    /// What those hear whose programs run in it when it is not here any more.
    pub(super) fn why_programs_end(&self) -> String {
        match &self.leaving {
            Some(leaving) if self.end == Some(End::Moved) => {
                format!(
                    "the machine has moved to {}, and programs with a line to here have ended",
                    leaving.host
                )
            }
            _ => "the machine has ended".to_owned(),
        }
    }

    /// One that the other host may have is not replaced here, however it has ended.
    pub(super) fn end_of_leaving(&self, end: End) -> End {
        if self.leaving.as_ref().is_some_and(|leaving| leaving.is_given) { End::Moved } else { end }
    }

    pub(super) fn keep(&mut self) -> Answer {
        match &self.leaving {
            Some(leaving) if self.state == State::Unsure => {
                leaving.is_kept.store(true, Ordering::Relaxed);
                Answer::Done
            }
            _ => Answer::Refused("it is here, and nobody else may have it".into()),
        }
    }

    fn tell_client(&mut self, client: u32, answer: &Answer) {
        if let Some(client) = self.clients.lines.get_mut(&client) {
            client.say(answer);
        }
    }

    /// It has left, or stays.
    fn left(&mut self, client: u32, outcome: Result<Moved, MoveError>) {
        match outcome {
            Ok(moved) => {
                self.tell_client(client, &Answer::Moved(moved));
                self.end = Some(End::Moved);
            }
            Err(error) => {
                let name = &self.order.name;
                let why = match self.stay() {
                    Ok(()) => format!("{name} goes on here: {error}"),
                    Err(worse) => {
                        format!("{name} has not moved: {error}; and it does not go on here: {worse}")
                    }
                };
                self.tell_client(client, &Answer::Refused(why));
            }
        }
    }

    fn look_at_engine(&mut self) -> Result<Value, MoveError> {
        Ok(self.engine.qmp.call("query-migrate", &json!({}), ANSWER_LIMIT)?)
    }

    /// A translator that takes note again and again of what a running machine changes misses some of it: what was to go anyway does not count as changed, and if
    /// nothing else was, stores to it stay as fast as they are, and unseen (QEMU's `physical_memory_sync_dirty_bitmap`, with `cpu_` before it in 7.2). So it takes note twice, each
    /// time while the machine stands still: before it begins, and when all has gone once.
    fn goes_once(&self) -> bool {
        self.order.hardware.accelerator == Accelerator::Tcg
    }

    fn set_capabilities(&mut self, is_leaving: bool) -> Result<(), MoveError> {
        let capability = |name: &str, state: bool| json!({ "capability": name, "state": state });
        // A guest that changes more than goes over again is slowed down; and what stops the machine lets us say when that is all.
        let all = [
            capability("x-ignore-shared", false),
            capability("auto-converge", is_leaving && !self.goes_once()),
            capability("pause-before-switchover", is_leaving),
        ];
        self.engine.qmp.call("migrate-set-capabilities", &json!({ "capabilities": all }), ANSWER_LIMIT)?;
        Ok(())
    }

    fn set_longest_still(&mut self, still_ms: u64) -> Result<(), MoveError> {
        // It would ask to know whether that is enough.
        let still_ms = if self.goes_once() { 0 } else { still_ms };
        let parameters = json!({ "max-bandwidth": 1_u64 << 40, "downtime-limit": still_ms });
        self.engine.qmp.call("migrate-set-parameters", &parameters, ANSWER_LIMIT)?;
        Ok(())
    }

    /// Has the engine say all of the machine's state, by this.
    fn begin_state(&mut self) -> Result<UnixStream, MoveError> {
        self.set_capabilities(true)?;
        self.set_longest_still(STILL_MS)?;
        let host = |error| MoveError::Host("a line to the engine".into(), error);
        let (state, theirs) = UnixStream::pair().map_err(host)?;
        self.engine.qmp.give("leaves", theirs.as_fd())?;
        if self.goes_once() {
            self.engine.qmp.call("stop", &json!({}), ANSWER_LIMIT)?;
        }
        self.engine.qmp.call("migrate", &json!({ "uri": "fd:leaves" }), ANSWER_LIMIT)?;
        if self.goes_once()
            && self.await_status(&["active", "pre-switchover", "failed"])?["status"] == "active"
        {
            self.engine.go_on()?;
        }
        Ok(state)
    }

    /// The machine is stopped and nothing of it has changed since: takes what its line to the guest has under way.
    fn take_rest(&mut self, user: &mut dyn User) -> Result<(Rest, Instant), MoveError> {
        self.state = State::Moves;
        for _ in 0..2 {
            self.hear_guest(user);
            // Whatever the engine had no room for comes before the answer.
            self.engine.qmp.call("query-status", &json!({}), ANSWER_LIMIT)?;
        }
        self.hear_guest(user);
        let host = |error| MoveError::Host("the line to the guest".into(), error);
        let unread = self.engine.unread().map_err(host)?;
        let goes = [&unread[..], &self.agent_goes].concat();
        let execs = self.clients.lines.values().filter_map(|client| client.exec).collect();
        let came = self.engine.came.rest().to_vec();
        let Some(leaving) = &mut self.leaving else {
            return Err(MoveError::Here("it does not leave".into()));
        };
        leaving.unread = unread;
        let stopped = *leaving.stopped.get_or_insert_with(Instant::now);
        if goes.len() > Rest::MOST_BYTES {
            return Err(MoveError::Here("its guest takes nothing of what is said to it".into()));
        }
        Ok((Rest { came, goes, execs, next_exec: self.next_exec }, stopped))
    }

    /// Has the engine say the last of it.
    fn end_state(&mut self) -> Result<(), MoveError> {
        let state = json!({ "state": "pre-switchover" });
        self.engine.qmp.call("migrate-continue", &state, ANSWER_LIMIT)?;
        Ok(())
    }

    /// The engine has hung up: because it has said all?
    fn await_end_of_state(&mut self) -> Result<(), MoveError> {
        let at = self.await_status(&["completed", "failed", "cancelled"])?;
        if at["status"] == "completed" {
            let notes = at["ram"]["dirty-sync-count"].as_u64().unwrap_or_default();
            if self.goes_once() && notes > MOST_NOTES {
                let why =
                    format!("its engine took note {notes} times of what changes, and may have missed some");
                return Err(MoveError::Here(why));
            }
            return Ok(());
        }
        let why = at["error-desc"].as_str().unwrap_or("it does not say why");
        Err(EngineError::Ended(format!("its state cannot be had: {why}")).into())
    }

    fn await_status(&mut self, wanted: &[&str]) -> Result<Value, MoveError> {
        let until = Instant::now() + ANSWER_LIMIT;
        loop {
            let at = self.look_at_engine()?;
            match at["status"].as_str() {
                Some(status) if !wanted.contains(&status) && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => return Ok(at),
            }
        }
    }

    fn give(&mut self) {
        if let Some(leaving) = &mut self.leaving {
            leaving.is_given = true;
        }
    }

    /// Nobody else has it: it goes on here.
    fn stay(&mut self) -> Result<(), MoveError> {
        if let Some(leaving) = self.leaving.take() {
            self.agent_goes.splice(0..0, leaving.unread);
        }
        // There may be nothing to cancel.
        let _ = self.engine.qmp.call("migrate_cancel", &json!({}), ANSWER_LIMIT);
        self.await_status(&["completed", "failed", "cancelled", "none"])?;
        if self.engine.qmp.call("query-status", &json!({}), ANSWER_LIMIT)?["running"] != true {
            self.engine.go_on()?;
        }
        self.set_capabilities(false)?;
        if self.stands_still() {
            self.state = State::Up;
        }
        self.answered = Instant::now();
        Ok(())
    }
}

/// Carries a machine to another host. However this fails, it is nobody else's.
fn carry(plan: &Plan, hand: &Hand) -> Result<Moved, MoveError> {
    let about = |error: MoveError| match error {
        MoveError::Refused(why) => MoveError::Refused(format!("{}: {why}", plan.host)),
        MoveError::Lost(why) => MoveError::NoWay(format!("the way to {} is lost: {why}", plan.host)),
        other => other,
    };
    carry_all(plan, hand).map_err(about)
}

fn carry_all(plan: &Plan, hand: &Hand) -> Result<Moved, MoveError> {
    let since = Instant::now();
    let mut moved = Moved { host: plan.host.clone(), ..Moved::default() };
    let mut talk = Talk::new((plan.way)().map_err(MoveError::NoWay)?);
    let digest = files::digest(&plan.image)?;
    let what = What::Machine(Box::new(plan.machine.clone()));
    talk.offer(&Offer { version: VERSION, what, image: plan.image.name.to_string(), digest })?;
    match talk.word(OFFER_LIMIT)? {
        Word::Wants { image: false } => {}
        Word::Wants { image: true } => {
            hand.tell(Answer::Told(format!("image {} is not there yet: it goes first", plan.image.name)))?;
            let before = talk.sent_bytes;
            files::send(&mut talk, &plan.image.directory, &OF_IMAGE)?;
            moved.image_bytes = talk.sent_bytes - before;
        }
        other => return Err(MoveError::Nonsense(format!("{other:?} instead of a wish"))),
    }
    talk.expect(&Word::Waits, ENGINE_LIMIT)?;
    let base = plan.image.directory.join("root");
    let mapped = Mapped::of(plan.engine, &plan.root, plan.image.root_bytes)?;
    let mut root = Root { differences: Differences::new(mapped, &base, base == plan.root)?, bytes: 0 };
    root.round(&mut talk)?;
    let still = carry_state(hand, &mut talk, &mut root)?;
    talk.say(&Word::Last)?;
    talk.expect(&Word::Ready, READY_LIMIT)?;
    // From here on it may run there, and this host does not know it otherwise than from there.
    hand.have(|monitor, _| monitor.give())?;
    if let Err(error) = talk.say(&Word::Run).and_then(|()| talk.expect(&Word::Runs, RUNS_LIMIT)) {
        if matches!(error, MoveError::Refused(_)) {
            return Err(error);
        }
        moved.bytes = talk.sent_bytes;
        drop(talk);
        ask(plan, hand, &error)?;
    } else {
        let _ = talk.say(&Word::Thanks);
        moved.bytes = talk.sent_bytes;
    }
    let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    (moved.still_us, moved.took_us) = (micros(still.elapsed()), micros(since.elapsed()));
    moved.root_bytes = root.bytes;
    Ok(moved)
}

struct Root {
    differences: Differences,
    bytes: u64,
}

impl Root {
    fn round(&mut self, talk: &mut Talk) -> Result<(), MoveError> {
        self.bytes += self.differences.round(|at, bytes| talk.pass_part(at, bytes))?;
        Ok(())
    }
}

/// Carries memory, devices and root, from a machine that runs until it stands still: since when it does.
fn carry_state(hand: &Hand, talk: &mut Talk, root: &mut Root) -> Result<Instant, MoveError> {
    let host = |error| MoveError::Host("the engine's line".into(), error);
    let mut state = hand.have(|monitor, _| monitor.begin_state())??;
    state.set_read_timeout(Some(BETWEEN_LOOKS / 4)).map_err(host)?;
    let mut space = vec![0; PART_BYTES];
    let since = Instant::now();
    let [mut looked, mut signed, mut rooted] = [since; 3];
    let (mut still, mut still_ms) = (None, STILL_MS);
    // Whether the engine says the last of it.
    let mut says_rest: Option<Receiver<Result<(), MoveError>>> = None;
    loop {
        match state.read(&mut space) {
            Ok(0) => break,
            Ok(read) => talk.pass_memory(&space[..read])?,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(host(error)),
        }
        if let Some(Ok(answer)) = says_rest.as_ref().map(Receiver::try_recv) {
            answer?;
            says_rest = None;
        }
        if looked.elapsed() < BETWEEN_LOOKS || still.is_some() {
            continue;
        }
        if signed.elapsed() >= BETWEEN_SIGNS {
            talk.pass_memory(&[])?;
            if let Some(heard) = talk.hear(Duration::ZERO)? {
                let said = if let Heard::Word(word) = heard { format!("{word:?}") } else { "a part".into() };
                return Err(MoveError::Nonsense(format!("{said} before it was asked for")));
            }
            signed = Instant::now();
        }
        match hand.have(|monitor, _| monitor.look_at_engine())??["status"].as_str() {
            Some("pre-switchover") => {
                let (rest, stopped) = hand.have(|monitor, user| monitor.take_rest(user))??;
                root.round(talk)?;
                talk.say(&Word::Rest(rest))?;
                // It may answer only once all of that has been read.
                says_rest = Some(hand.begin(|monitor, _| monitor.end_state()));
                still = Some(stopped);
            }
            Some("failed" | "cancelled") => break,
            _ => {
                // What has changed of the root is looked for a tenth of the time.
                let begun = Instant::now();
                if begun >= rooted {
                    root.round(talk)?;
                    rooted = begun + BETWEEN_SIGNS.max(begun.elapsed() * 10);
                }
                let doublings = since.elapsed().as_secs() / BETWEEN_DOUBLINGS.as_secs();
                let wanted_ms = STILL_MS.saturating_mul(1 << doublings.min(20)).min(LONGEST_STILL_MS);
                if wanted_ms > still_ms {
                    hand.have(move |monitor, _| monitor.set_longest_still(wanted_ms))??;
                    still_ms = wanted_ms;
                }
            }
        }
        looked = Instant::now();
    }
    hand.have(|monitor, _| monitor.await_end_of_state())??;
    if let Some(answer) = says_rest {
        answer.recv().map_err(ended)??;
    }
    still.ok_or_else(|| MoveError::Here("the engine has not stopped the machine".into()))
}

/// Asks until the other host says what became of a machine that was given to it. An error: it has not got it, and never will.
fn ask(plan: &Plan, hand: &Hand, why: &MoveError) -> Result<(), MoveError> {
    let (name, host) = (&plan.machine.name, &plan.host);
    let said = format!(
        "{host} does not say whether it has {name} ({why}): until it does, {name} stands still here. If {host} is gone for \
         good: `comb vm migrate {name} --keep`"
    );
    hand.have(|monitor, _| monitor.state = State::Unsure)?;
    hand.tell(Answer::Told(said))?;
    loop {
        let heard = (plan.way)().map_err(MoveError::NoWay).and_then(|passage| {
            let mut talk = Talk::new(passage);
            talk.say(&Word::Ask(plan.machine.token))?;
            let heard = talk.word(SILENCE_LIMIT)?;
            let _ = talk.say(&Word::Thanks);
            Ok(heard)
        });
        match heard {
            Ok(Word::Runs) => return Ok(()),
            Ok(Word::Never) => return Err(MoveError::Here(format!("{host} has not got it ({why})"))),
            _ => {}
        }
        let until = Instant::now() + BETWEEN_QUESTIONS;
        while Instant::now() < until {
            // The machine may have been ended meanwhile.
            hand.have(|_, _| ())?;
            if plan.is_kept.load(Ordering::Relaxed) {
                return Err(MoveError::Here(format!("it was kept, whatever became of it on {host}")));
            }
            std::thread::sleep(BETWEEN_QUESTIONS / 10);
        }
    }
}
