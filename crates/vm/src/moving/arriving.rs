//! What comes from another host: a machine, a snapshot, or a question.

use std::io::Write;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use super::files::{self, receive_image};
use super::pages::Mapped;
use super::record::{Fate, Records};
use super::{Heard, Machine, MoveError, Offer, Rest, SILENCE_LIMIT, Show, Talk, What, Word, processor};
use crate::control::Machines;
use crate::engine::{ANSWER_LIMIT, Engine, EngineError};
use crate::hardware::Accelerator;
use crate::image::{Image, Images};
use crate::names::Name;
use crate::snapshot::{Of, Snapshots};

/// An engine that has all of a machine has taken it up by then.
const LOAD_LIMIT: Duration = Duration::from_secs(60);

/// Who has been told that it runs says so at once.
const THANKS_LIMIT: Duration = Duration::from_secs(2);

/// How often an engine is asked whether it has taken up what came.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// Where what arrives is put.
#[derive(Debug)]
pub struct Places {
    /// Images.
    pub images: Images,
    /// Snapshots.
    pub snapshots: Snapshots,
    /// What became of machines.
    pub records: Records,
    /// Those that run.
    pub machines: Machines,
}

/// A machine that is on its way to here.
pub struct Arrival {
    talk: Talk,
    records: Records,
    /// What it is.
    pub machine: Machine,
    /// Its image here.
    pub image: Image,
}

/// Hears what another host wants. A machine is left to be done; what else there is has been done then.
pub fn hear(mut talk: Talk, places: &Places) -> Result<Option<Arrival>, MoveError> {
    match welcome(&mut talk, places) {
        Ok(Some((machine, image))) => {
            Ok(Some(Arrival { talk, records: places.records.clone(), machine: *machine, image }))
        }
        Ok(None) => Ok(None),
        Err(error) => {
            talk.refuse(&error);
            Err(error)
        }
    }
}

fn welcome(talk: &mut Talk, places: &Places) -> Result<Option<(Box<Machine>, Image)>, MoveError> {
    places.records.tidy();
    let offer = match talk.word(SILENCE_LIMIT)? {
        Word::Offer(text) => Offer::read(&text)?,
        Word::Ask(token) => {
            let fails = |error| MoveError::Host("what became of machines".into(), error);
            let fate = places.records.decide(token, Fate::Never).map_err(fails)?;
            talk.say(if fate == Fate::Runs { &Word::Runs } else { &Word::Never })?;
            if talk.expect(&Word::Thanks, THANKS_LIMIT).is_ok() {
                places.records.forget(token);
            }
            return Ok(None);
        }
        other => return Err(MoveError::Nonsense(format!("{other:?} instead of an offer"))),
    };
    let name = |text: &str| text.parse::<Name>().map_err(|error| MoveError::Nonsense(error.to_string()));
    match &offer.what {
        What::Machine(machine) => {
            look_at(machine, available_bytes())?;
            let name = name(&machine.name)?;
            if places.machines.reach(&name).is_ok() {
                return Err(MoveError::Here(format!("a machine `{name}` runs already")));
            }
        }
        What::Snapshot { name: wanted, .. } => {
            if places.snapshots.open(&name(wanted)?).is_ok() {
                return Err(MoveError::Here(format!("there is a snapshot `{wanted}` already")));
            }
        }
    }
    let image_name = name(&offer.image)?;
    let image = match files::find(&places.images, &image_name, &offer.digest)? {
        Some(image) => {
            talk.say(&Word::Wants { image: false })?;
            image
        }
        None => {
            talk.say(&Word::Wants { image: true })?;
            receive_image(talk, &places.images, &image_name, &offer.digest)?
        }
    };
    match offer.what {
        What::Machine(machine) => Ok(Some((machine, image))),
        What::Snapshot { name: wanted, of } => {
            let of = Of { image: image.name.to_string(), ..of };
            talk.say(&Word::Waits)?;
            places.snapshots.make(&name(&wanted)?, &of, |directory| {
                files::receive(talk, directory, &files::OF_SNAPSHOT)
            })?;
            talk.say(&Word::Runs)?;
            Ok(None)
        }
    }
}

/// Whether a machine can run here at all.
fn look_at(machine: &Machine, available_bytes: u64) -> Result<(), MoveError> {
    let hardware = &machine.hardware;
    if hardware.accelerator == Accelerator::Kvm
        && (Accelerator::of_host() != Accelerator::Kvm || processor(hardware) != machine.processor)
    {
        return Err(MoveError::Here(
            "the host's processor is to run it, and is another here, or may not".into(),
        ));
    }
    if machine.used_bytes > available_bytes {
        return Err(MoveError::Here(format!(
            "there is no room for it: it uses {} MB, and {} are free",
            machine.used_bytes.div_ceil(1 << 20),
            available_bytes >> 20
        )));
    }
    Ok(())
}

/// What this host's kernel would give, in bytes.
fn available_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.map_or(u64::MAX, |kilobytes| kilobytes.saturating_mul(1024))
}

/// Of which version an engine is.
pub(crate) fn engine_version(engine: &mut Engine) -> Result<String, MoveError> {
    let said = engine.qmp.call("query-version", &json!({}), ANSWER_LIMIT)?;
    Ok(format!("{} {}", said["qemu"], said["package"]))
}

impl Arrival {
    /// Has an engine that waits take it up, and go on with it once it is given: from then on it is this host's. What its line to the guest had
    /// under way.
    pub fn take_up(&mut self, engine: &mut Engine, root: &Path, show: Show<'_>) -> Result<Rest, MoveError> {
        let rest = self.receive(engine, root)?;
        let token = self.machine.token;
        let fails = |error| MoveError::Host("what became of machines".into(), error);
        if self.records.decide(token, Fate::Runs).map_err(fails)? == Fate::Never {
            return Err(MoveError::Here("it was told that it would not be taken".into()));
        }
        let shown = show().map_err(|error| MoveError::Host("a socket".into(), error));
        if let Err(error) = shown.and_then(|()| Ok(engine.go_on()?)) {
            self.records.regret(token);
            return Err(error);
        }
        // Who does not hear this asks.
        if self.talk.say(&Word::Runs).is_ok() && self.talk.expect(&Word::Thanks, THANKS_LIMIT).is_ok() {
            self.records.forget(token);
        }
        Ok(rest)
    }

    /// It is not taken, which is not its own fault: the other end hears why.
    pub fn refuse(&mut self, why: &str) {
        self.talk.refuse(&MoveError::Here(why.to_owned()));
    }

    fn receive(&mut self, engine: &mut Engine, root: &Path) -> Result<Rest, MoveError> {
        let version = engine_version(engine)?;
        if version != self.machine.engine {
            return Err(MoveError::Here(format!(
                "its engine is {version}, and that of the machine {}: what one saves the other does not read",
                self.machine.engine
            )));
        }
        // Otherwise it would run by itself when all has come.
        engine.qmp.call("stop", &json!({}), ANSWER_LIMIT)?;
        let host = |error| MoveError::Host("a line to the engine".into(), error);
        let (mut state, theirs) = UnixStream::pair().map_err(host)?;
        state.set_write_timeout(Some(SILENCE_LIMIT)).map_err(host)?;
        engine.qmp.give("arrives", theirs.as_fd())?;
        drop(theirs);
        engine.qmp.call("migrate-incoming", &json!({ "uri": "fd:arrives" }), ANSWER_LIMIT)?;
        let root = Mapped::of(engine.process(), root, self.image.root_bytes)?;
        self.talk.say(&Word::Waits)?;
        let mut rest = None;
        loop {
            match self.talk.next(SILENCE_LIMIT)? {
                Heard::Memory(bytes) => {
                    if let Err(error) = state.write_all(&bytes) {
                        let said = engine.last_words().unwrap_or_else(|| error.to_string());
                        return Err(EngineError::Ended(said).into());
                    }
                }
                Heard::Part { at, bytes } => root.write(at, &bytes)?,
                Heard::Word(Word::Rest(came)) => rest = Some(came),
                Heard::Word(Word::Last) => break,
                Heard::Word(other) => {
                    return Err(MoveError::Nonsense(format!("{other:?} instead of a machine")));
                }
            }
        }
        let rest = rest.ok_or_else(|| MoveError::Nonsense("a machine without its end".into()))?;
        state.shutdown(Shutdown::Write).map_err(host)?;
        await_state(engine)?;
        self.talk.say(&Word::Ready)?;
        self.talk.expect(&Word::Run, SILENCE_LIMIT)?;
        Ok(rest)
    }
}

/// Waits until an engine has taken up what it was sent.
fn await_state(engine: &mut Engine) -> Result<(), MoveError> {
    let until = Instant::now() + LOAD_LIMIT;
    loop {
        let at = engine.qmp.call("query-migrate", &json!({}), ANSWER_LIMIT);
        let at = match at {
            Ok(at) => at,
            Err(error) => {
                return Err(engine.last_words().map_or(error.into(), |said| EngineError::Ended(said).into()));
            }
        };
        match at["status"].as_str() {
            Some("completed") => return Ok(()),
            Some("failed" | "cancelled") => {
                let why = at["error-desc"].as_str().unwrap_or("it does not say why");
                return Err(EngineError::Ended(why.to_owned()).into());
            }
            _ if Instant::now() > until => {
                return Err(MoveError::Here("the engine does not take it up".into()));
            }
            _ => std::thread::sleep(BETWEEN_LOOKS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Hardware;
    use crate::moving::record::Token;

    #[test]
    fn a_machine_that_has_no_room_is_not_taken() {
        let machine = Machine {
            name: "a".into(),
            token: Token::new().unwrap(),
            hardware: Hardware { accelerator: Accelerator::Tcg, ..Hardware::default() },
            engine: "7".into(),
            processor: None,
            is_replaced: false,
            is_clone: false,
            is_outside: false,
            used_bytes: 100 << 20,
        };
        look_at(&machine, 100 << 20).unwrap();
        let why = look_at(&machine, (99 << 20) + 1).unwrap_err().to_string();
        assert!(why.contains("it uses 100 MB, and 99 are free"), "{why}");
        // One that this host's processor would run as another's.
        let kvm = Hardware { accelerator: Accelerator::Kvm, ..Hardware::default() };
        let other = Machine { hardware: kvm, processor: Some("another".into()), ..machine };
        assert!(look_at(&other, u64::MAX).unwrap_err().to_string().contains("processor"));
        assert!(available_bytes() > 1 << 20);
    }
}
