//! The launcher's side of its parts on other hosts.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::{ChildStdin, ChildStdout, Command};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use super::LaunchError;
use super::conversation::{self, FromPart, GREETING, Neighbour, ToPart};
use super::crew::{Event, Order, Plan};
use super::hosts::Share;
use super::process::{Endowment, How, Process};
use super::spawn::Flow;

/// In a shell command, what stands for the host's name.
const HOST: &str = "{host}";
/// For all hosts to log in and to come to the start together.
const START_LIMIT: Duration = Duration::from_secs(60);
/// What a part needs to end its components and itself, on a slow machine.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Of what somebody else says instead of the greeting, as much as goes into an error.
const QUOTED_BYTES: usize = 80;

/// By what a part is started on its host: words, and the program to run there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Shell {
    pub(super) words: Vec<String>,
    pub(super) comb: OsString,
}

/// A part at work. Dropping it ends it, and what runs there.
#[derive(Debug)]
struct Part {
    share: Share,
    /// `None`: it is told that it is over.
    mouth: Option<Sender<ToPart>>,
    process: Option<Process>,
}

/// The parts of a task. Dropping them ends all at a time.
#[derive(Debug)]
pub(super) struct Parts(Vec<Part>);

impl Parts {
    pub(super) fn order(&self, order: &Order) {
        self.0.iter().for_each(|part| part.order(order));
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        // Then they are waited for, one after the other.
        self.0.iter_mut().for_each(Part::hang_up);
    }
}

/// What a part's thread hears before the start.
enum Word {
    Started(Process, ChildStdin),
    Said(FromPart),
    Gone(String),
}

impl Shell {
    fn command(&self, host: &str) -> Command {
        let mut words = self.words.iter().map(|word| word.replace(HOST, host));
        let mut command = match words.next() {
            Some(first) => {
                let mut command = Command::new(first);
                command.args(words).arg(&self.comb);
                command
            }
            None => Command::new(&self.comb),
        };
        command.arg("run-part");
        command
    }

    /// For people.
    fn text(&self, host: &str) -> String {
        let command = self.command(host);
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }
}

/// Starts a part on each host, and all components. `plan` says what a host is to run.
pub(super) fn start(
    shell: &Shell,
    shares: Vec<Share>,
    plan: impl Fn(&Share) -> Plan,
    events: &SyncSender<Event>,
) -> Result<Parts, LaunchError> {
    let deadline = Instant::now() + START_LIMIT;
    let mut parts = Parts(Vec::new());
    let mut ears = Vec::new();
    for share in shares {
        let (mut part, ear) = Part::start(shell, share, events)?;
        // Each prepares itself while the next one is started.
        part.say(ToPart::Gather { address: part.share.address, plan: Box::new(plan(&part.share)) });
        parts.0.push(part);
        ears.push(ear);
    }
    let mut hosts = Vec::new();
    for (part, ear) in parts.0.iter_mut().zip(&ears) {
        match part.hear(shell, ear, deadline)? {
            FromPart::Gathered { key, door } => {
                hosts.push(Neighbour { name: part.share.host.clone(), key, door });
            }
            _ => return Err(part.confused()),
        }
    }
    for part in &mut parts.0 {
        part.say(ToPart::Settle { host: part.share.host.clone(), hosts: hosts.clone() });
    }
    for (part, ear) in parts.0.iter_mut().zip(&ears) {
        match part.hear(shell, ear, deadline)? {
            FromPart::Settled => {}
            _ => return Err(part.confused()),
        }
    }
    parts.0.iter_mut().for_each(|part| part.say(ToPart::Start));
    Ok(parts)
}

impl Part {
    fn start(
        shell: &Shell,
        share: Share,
        events: &SyncSender<Event>,
    ) -> Result<(Self, Receiver<Word>), LaunchError> {
        let (sender, ear) = mpsc::channel();
        let (command, events, of) = (shell.command(&share.host), events.clone(), share.clone());
        let failed = |reason| LaunchError::Host { host: share.host.clone(), reason };
        // The process gets a signal when this thread ends, however this program ends.
        let work = move || listen(&command, &of, &sender, &events);
        let thread = std::thread::Builder::new().name("comb-part".into()).spawn(work);
        thread.map_err(|error| failed(format!("no thread for it: {error}")))?;
        let (process, input) = match ear.recv() {
            Ok(Word::Started(process, input)) => (process, input),
            Ok(Word::Gone(reason)) => return Err(failed(reason)),
            _ => return Err(failed("it did not start".to_owned())),
        };
        let (mouth, words) = mpsc::channel();
        let speaker =
            std::thread::Builder::new().name("comb-part-mouth".into()).spawn(move || speak(&words, input));
        speaker.map_err(|error| failed(format!("no thread for it: {error}")))?;
        Ok((Self { share, mouth: Some(mouth), process: Some(process) }, ear))
    }

    fn say(&mut self, message: ToPart) {
        // One that is gone is heard of from its ear.
        let _ = self.mouth.as_ref().map(|mouth| mouth.send(message));
    }

    fn order(&self, order: &Order) {
        if matches!(order, Order::Input(_)) && self.share.first > 0 {
            return;
        }
        let _ = self.mouth.as_ref().map(|mouth| mouth.send(ToPart::Order(order.clone())));
    }

    fn hear(&self, shell: &Shell, ear: &Receiver<Word>, deadline: Instant) -> Result<FromPart, LaunchError> {
        let Share { host, .. } = &self.share;
        let failed = |reason| LaunchError::Host { host: host.clone(), reason };
        let command = shell.text(host);
        match ear.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Word::Said(FromPart::Refused(reason))) => Err(failed(reason)),
            Ok(Word::Said(message)) => Ok(message),
            Ok(Word::Gone(reason)) => Err(failed(format!("`{command}` {reason}"))),
            _ => Err(failed(format!("`{command}` did not answer within {} s", START_LIMIT.as_secs()))),
        }
    }

    fn confused(&self) -> LaunchError {
        let reason =
            "its comb says what was not asked: is it of another release? Install the same on all hosts";
        LaunchError::Host { host: self.share.host.clone(), reason: reason.to_owned() }
    }

    /// Tells it that it is over. Dropped, it is waited for.
    fn hang_up(&mut self) {
        self.mouth = None;
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.hang_up();
        let Some(process) = self.process.take() else { return };
        let mut ended = [PollFd::from_borrowed_fd(process.ended(), PollFlags::IN)];
        let limit = END_LIMIT.try_into().expect("seconds");
        if rustix::event::poll(&mut ended, Some(&limit)).is_ok_and(|ready| ready == 0) {
            process.signal(Signal::KILL);
        }
        process.bury();
    }
}

/// Until it is told no more.
fn speak(words: &Receiver<ToPart>, mut input: ChildStdin) {
    for message in words {
        if conversation::write(&mut input, &message).is_err() {
            return;
        }
    }
}

/// A part's whole life, as its launcher hears it.
fn listen(command: &Command, share: &Share, words: &Sender<Word>, events: &SyncSender<Event>) {
    let name = command.get_program().to_string_lossy().into_owned();
    // Of a group of its own: a terminal's Ctrl-C is not for it. Asked to end, it tidies up, which a killed one cannot.
    let endowment = Endowment {
        name: None,
        streams: [Flow::Piped, Flow::Piped, Flow::Inherited],
        cgroup: None,
        inherits: [None, None],
        guard: None,
        core: None,
        has_group: true,
        at_our_end: Signal::TERM,
    };
    let gone = |reason: String| {
        let _ = words.send(Word::Gone(reason.clone()));
        let reason = format!("host {} does not answer any more: {reason}", share.host);
        for rank in share.first..share.first + share.count {
            let how = How::Lost(reason.clone());
            let _ = events.send(Event::Ended { rank, process: 0, how });
        }
    };
    let mut process = match Process::start(command, &endowment) {
        Ok(process) => process,
        Err(error) => return gone(format!("cannot run {name}: {error}")),
    };
    let (input, output) = (process.input.take(), process.output.take());
    let (Some(input), Some(mut output)) = (input, output) else { return gone("it has no pipes".to_owned()) };
    let _ = words.send(Word::Started(process, input));
    gone(match hear_all(&mut output, share, words, events) {
        Ok(()) => "has ended".to_owned(),
        Err(error) => error.to_string(),
    });
}

fn hear_all(
    output: &mut ChildStdout,
    share: &Share,
    words: &Sender<Word>,
    events: &SyncSender<Event>,
) -> std::io::Result<()> {
    let other = |text: &str| Err(std::io::Error::other(text));
    let mut greeting = vec![0; GREETING.len()];
    let mut heard = 0;
    while heard < greeting.len() {
        match output.read(&mut greeting[heard..])? {
            0 => break,
            bytes => heard += bytes,
        }
        if !GREETING.starts_with(&greeting[..heard]) {
            greeting.resize(QUOTED_BYTES, 0);
            heard += output.read(&mut greeting[heard..]).unwrap_or(0);
            let said = String::from_utf8_lossy(&greeting[..heard]);
            let said = said.trim().lines().next().unwrap_or_default().to_owned();
            return other(&format!(
                "says {said:?} instead of being a part: is the same comb installed there (--comb says where), and do start-up \
                 files of the shell there print nothing?"
            ));
        }
    }
    if heard < greeting.len() {
        return other(
            "ended before it answered: does the command work by hand, and is comb installed there (--comb says where)?",
        );
    }
    while let Some(message) = conversation::read(output)? {
        match message {
            FromPart::Event(
                Event::Began { rank, .. }
                | Event::Ended { rank, .. }
                | Event::Printed { rank, .. }
                | Event::Reported { rank, .. },
            ) if !(share.first..share.first + share.count).contains(&rank) => {
                return other("speaks for components that it does not have");
            }
            // Nobody may want to hear: then this waits for nothing but the end.
            FromPart::Event(event) => drop(events.send(event)),
            message => drop(words.send(Word::Said(message))),
        }
    }
    Ok(())
}

/// The words of a command, as a shell splits them: by white space, outside quotes; a backslash keeps what follows.
pub(super) fn split_words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (None, '"' | '\'') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().push(characters.next()?),
            (None, space) if space.is_whitespace() => words.extend(word.take()),
            (_, other) => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// A path that a remote shell takes for one word, whatever splits it there.
pub(super) fn is_plain(path: &OsString) -> bool {
    path.as_bytes().iter().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+:@%".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_split_as_a_shell_does() {
        for (text, words) in [
            ("ssh -o BatchMode=yes {host}", &["ssh", "-o", "BatchMode=yes", "{host}"][..]),
            ("  a  'b c'\"d e\" \\\"f '' ", &["a", "b cd e", "\"f", ""]),
            ("", &[]),
        ] {
            assert_eq!(split_words(text).unwrap(), words);
        }
        assert_eq!(split_words("'open"), None);
        assert_eq!(split_words("end\\"), None);
    }

    #[test]
    fn the_hosts_name_goes_where_the_command_wants_it() {
        let words = split_words("ssh -p 7 me@{host}").unwrap();
        let shell = Shell { words, comb: "/bin/comb".into() };
        assert_eq!(shell.text("b"), "ssh -p 7 me@b /bin/comb run-part");
    }
}
