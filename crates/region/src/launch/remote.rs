//! The launcher's side of its parts on other hosts.

use std::ffi::OsString;
use std::io::{BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::process::{ChildStdin, ChildStdout, Command};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use super::bringing::{self, Brought};
use super::conversation::{self, FromPart, GREETING, Neighbour, ToPart};
use super::crew::{Event, Order, Plan};
use super::delivery::{Delivery, Progress};
use super::files::{Files, Unsent};
use super::hosts::Share;
use super::luggage::Luggage;
use super::process::{Endowment, How, Process};
use super::spawn::Flow;
use super::{LaunchError, noise};

/// In a shell command, what stands for the host's name.
const HOST: &str = "{host}";
/// For a host to let us in, and between two signs of life before its components start.
const START_LIMIT: Duration = Duration::from_secs(60);
/// While a host is waited for.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);
/// For a command whose output has ended.
const STATUS_LIMIT: Duration = Duration::from_secs(2);
/// What a part needs to end its components and itself, on a slow machine.
const END_LIMIT: Duration = Duration::from_secs(5);

/// By what a part is started on its host: words, and the program to run there. Without one, this program is brought along.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Shell {
    pub(super) words: Vec<String>,
    pub(super) comb: Option<OsString>,
}

/// A part at work. Dropping it ends it, and what runs there.
#[derive(Debug)]
struct Part {
    share: Share,
    /// `None`: it is told that it is over.
    mouth: Option<Sender<Speech>>,
    process: Option<Process>,
    delivery: Arc<Delivery>,
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
    Started(Process),
    Said(FromPart),
    Gone(String),
}

/// What is said to a part.
enum Speech {
    Say(ToPart),
    Send(Arc<Files>),
}

impl Shell {
    fn command(&self, host: &str) -> Command {
        let words = self.words.iter().map(|word| OsString::from(word.replace(HOST, host)));
        let there = match &self.comb {
            Some(comb) => [Some(comb.clone()), Some("run-part".into())],
            None => [Some("sh".into()), None],
        };
        let mut words = words.chain(there.into_iter().flatten());
        let mut command = Command::new(words.next().expect("there is a program"));
        command.args(words);
        command
    }

    /// For people.
    fn text(&self, host: &str) -> String {
        let command = self.command(host);
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }
}

/// What this program brings along: packed by the thread that needs it first, while others log in.
type Packed = Arc<OnceLock<Result<Luggage, String>>>;

/// Starts a part on each host, and all components. `plan` says what a host is to run.
pub(super) fn start(
    shell: &Shell,
    shares: Vec<Share>,
    files: Option<&Arc<Files>>,
    plan: impl Fn(&Share) -> Plan,
    events: &SyncSender<Event>,
) -> Result<Parts, LaunchError> {
    let mut progress = Progress::new();
    let mut parts = Parts(Vec::new());
    let mut ears = Vec::new();
    let packed = shell.comb.is_none().then(Packed::default);
    for share in shares {
        let (part, ear) = Part::start(shell, share, packed.clone(), events)?;
        progress.deliveries.push(Arc::clone(&part.delivery));
        if let Some(files) = files {
            part.delivery.expect(files.bytes);
            part.speak(Speech::Send(Arc::clone(files)));
        }
        // Each prepares itself while the next one is started.
        part.say(ToPart::Gather { address: part.share.address, plan: Box::new(plan(&part.share)) });
        parts.0.push(part);
        ears.push(ear);
    }
    let mut hosts = Vec::new();
    for (part, ear) in parts.0.iter_mut().zip(&ears) {
        match part.hear(shell, ear, &mut progress)? {
            FromPart::Gathered { key, door } => {
                hosts.push(Neighbour { name: part.share.host.clone(), key, door });
            }
            _ => return Err(part.confused()),
        }
    }
    for part in &parts.0 {
        part.say(ToPart::Settle { host: part.share.host.clone(), hosts: hosts.clone() });
    }
    for (part, ear) in parts.0.iter_mut().zip(&ears) {
        match part.hear(shell, ear, &mut progress)? {
            FromPart::Settled => {}
            _ => return Err(part.confused()),
        }
    }
    parts.0.iter().for_each(|part| part.say(ToPart::Start));
    Ok(parts)
}

impl Part {
    fn start(
        shell: &Shell,
        share: Share,
        packed: Option<Packed>,
        events: &SyncSender<Event>,
    ) -> Result<(Self, Receiver<Word>), LaunchError> {
        let (sender, ear) = mpsc::channel();
        let (mouth, speeches) = mpsc::channel();
        let failed = |reason| LaunchError::Host { host: share.host.clone(), reason };
        let delivery = Arc::new(Delivery::new());
        let listener = Listener {
            command: shell.command(&share.host),
            share: share.clone(),
            packed,
            delivery: Arc::clone(&delivery),
            words: sender,
            events: events.clone(),
        };
        // The process gets a signal when this thread ends, however this program ends.
        let thread = std::thread::Builder::new().name("comb-part".into());
        let thread = thread.spawn(move || listener.live(speeches));
        thread.map_err(|error| failed(format!("no thread for it: {error}")))?;
        let process = match ear.recv() {
            Ok(Word::Started(process)) => process,
            Ok(Word::Gone(reason)) => return Err(failed(reason)),
            _ => return Err(failed("it did not start".to_owned())),
        };
        Ok((Self { share, mouth: Some(mouth), process: Some(process), delivery }, ear))
    }

    fn say(&self, message: ToPart) {
        self.speak(Speech::Say(message));
    }

    fn speak(&self, speech: Speech) {
        // One that is gone is heard of from its ear.
        let _ = self.mouth.as_ref().map(|mouth| mouth.send(speech));
    }

    fn order(&self, order: &Order) {
        if matches!(order, Order::Input(_)) && self.share.first > 0 {
            return;
        }
        self.say(ToPart::Order(order.clone()));
    }

    fn hear(
        &mut self,
        shell: &Shell,
        ear: &Receiver<Word>,
        progress: &mut Progress,
    ) -> Result<FromPart, LaunchError> {
        let host = self.share.host.clone();
        let failed = |reason| LaunchError::Host { host, reason };
        let command = shell.text(&self.share.host);
        let began = Instant::now();
        loop {
            match ear.recv_timeout(BETWEEN_LOOKS) {
                Ok(Word::Said(FromPart::Refused(reason))) => return Err(failed(reason)),
                Ok(Word::Said(message)) => return Ok(message),
                Ok(Word::Gone(reason)) => {
                    let reason = match self.delivery.failure() {
                        Some(ours) => ours,
                        None => format!("`{command}` {reason}{}", self.advice(shell)),
                    };
                    return Err(failed(reason));
                }
                Err(RecvTimeoutError::Timeout)
                    if began.max(self.delivery.moved()).elapsed() < START_LIMIT =>
                {
                    progress.show();
                }
                _ => {
                    let limit = START_LIMIT.as_secs();
                    return Err(failed(format!("`{command}` did not answer within {limit} s")));
                }
            }
        }
    }

    /// What a command that ended too early says by its status.
    fn advice(&mut self, shell: &Shell) -> String {
        let status = self.process.take_if(|process| has_ended(process, STATUS_LIMIT)).map(Process::bury);
        let what = if shell.comb.is_some() {
            "comb, where --comb says"
        } else {
            "`sh`, which it takes to bring comb there"
        };
        match status {
            // As shells have it, and ssh for what it could not do itself.
            Some(How::Exited(127)) => format!(" (status 127): there is no {what}"),
            Some(How::Exited(126)) => format!(" (status 126): it may not execute {what}"),
            Some(How::Exited(255)) => {
                " (status 255): can you log in there by hand, without being asked anything?".to_owned()
            }
            Some(How::Exited(status)) => format!(" (status {status}): does the command work by hand?"),
            _ => ": does the command work by hand?".to_owned(),
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
        // Where comb has not begun yet nobody listens; what is there tidies up when it is asked to end.
        if let Some(process) = self.process.as_ref().filter(|_| !self.delivery.is_begun()) {
            process.signal(Signal::TERM);
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.hang_up();
        let Some(process) = self.process.take() else { return };
        if !has_ended(&process, END_LIMIT) {
            process.signal(Signal::KILL);
        }
        process.bury();
    }
}

fn has_ended(process: &Process, limit: Duration) -> bool {
    let mut ended = [PollFd::from_borrowed_fd(process.ended(), PollFlags::IN)];
    let limit = limit.try_into().expect("seconds");
    !rustix::event::poll(&mut ended, Some(&limit)).is_ok_and(|ready| ready == 0)
}

/// Until it is told no more.
fn speak(speeches: Receiver<Speech>, mut input: ChildStdin, delivery: &Delivery) {
    for speech in speeches {
        let said = match speech {
            Speech::Say(message) => conversation::write(&mut input, &message).map_err(|_| Unsent::Gone),
            Speech::Send(files) => files.send(|sent, bytes| {
                conversation::write(&mut input, &ToPart::Sent(sent))?;
                delivery.sent(bytes);
                Ok(())
            }),
        };
        match said {
            Ok(()) => {}
            Err(Unsent::Gone) => return,
            Err(Unsent::Ours(reason)) => return delivery.fail(reason),
        }
    }
}

/// Who hears a part.
struct Listener {
    command: Command,
    share: Share,
    packed: Option<Packed>,
    delivery: Arc<Delivery>,
    words: Sender<Word>,
    events: SyncSender<Event>,
}

impl Listener {
    /// A part's whole life, as its launcher hears it.
    fn live(self, speeches: Receiver<Speech>) {
        let name = self.command.get_program().to_string_lossy().into_owned();
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
        let mut process = match Process::start(&self.command, &endowment) {
            Ok(process) => process,
            Err(error) => return self.gone(&format!("cannot run {name}: {error}")),
        };
        let (input, output) = (process.input.take(), process.output.take());
        let (Some(input), Some(output)) = (input, output) else { return self.gone("it has no pipes") };
        let ended = process.ended().try_clone_to_owned();
        let _ = self.words.send(Word::Started(process));
        match self.hear(input, BufReader::new(output), speeches) {
            Ok(()) => self.gone("has ended"),
            Err(error) => self.gone(&error.to_string()),
        }
        // With this thread the kernel would end it, which may still have its status to say.
        if let Ok(ended) = ended {
            while rustix::event::poll(&mut [PollFd::new(&ended, PollFlags::IN)], None).is_err() {}
        }
    }

    fn gone(&self, reason: &str) {
        let _ = self.words.send(Word::Gone(reason.to_owned()));
        let reason = format!("host {} does not answer any more: {reason}", self.share.host);
        for rank in self.share.first..self.share.first + self.share.count {
            let how = How::Lost(reason.clone());
            let _ = self.events.send(Event::Ended { rank, process: 0, how });
        }
    }

    fn hear(
        &self,
        mut input: ChildStdin,
        mut output: BufReader<ChildStdout>,
        speeches: Receiver<Speech>,
    ) -> std::io::Result<()> {
        if let Some(packed) = &self.packed {
            let packed = packed.get_or_init(|| Luggage::pack().map_err(|error| error.to_string()));
            let luggage = match packed {
                Ok(luggage) => luggage,
                Err(error) => return self.refuse(format!("cannot read comb, to bring it there: {error}")),
            };
            match bringing::bring(luggage, &mut input, &mut output, &self.delivery)? {
                Brought::Begins => {}
                Brought::BeginsOnce(why) => {
                    let host = &self.share.host;
                    eprintln!(
                        "comb: host {host}: comb is brought there each time, for no copy can be kept: {why}"
                    );
                }
                Brought::Cannot(reason) => return self.refuse(reason),
            }
        }
        noise::skip_to(&mut output, GREETING)?;
        self.delivery.begin();
        let delivery = Arc::clone(&self.delivery);
        std::thread::Builder::new()
            .name("comb-part-mouth".into())
            .spawn(move || speak(speeches, input, &delivery))?;
        self.hear_part(&mut output)
    }

    /// Says so before anything else.
    fn refuse(&self, reason: String) -> std::io::Result<()> {
        let _ = self.words.send(Word::Said(FromPart::Refused(reason)));
        Ok(())
    }

    fn hear_part(&self, output: &mut impl Read) -> std::io::Result<()> {
        let ranks = self.share.first..self.share.first + self.share.count;
        while let Some(message) = conversation::read(output)? {
            match message {
                FromPart::Event(
                    Event::Began { rank, .. }
                    | Event::Ended { rank, .. }
                    | Event::Printed { rank, .. }
                    | Event::Reported { rank, .. },
                ) if !ranks.contains(&rank) => {
                    return Err(std::io::Error::other("speaks for components that it does not have"));
                }
                // Nobody may want to hear: then this waits for nothing but the end.
                FromPart::Event(event) => drop(self.events.send(event)),
                message => drop(self.words.send(Word::Said(message))),
            }
        }
        Ok(())
    }
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
        let mut shell = Shell { words, comb: Some("/bin/comb".into()) };
        assert_eq!(shell.text("b"), "ssh -p 7 me@b /bin/comb run-part");
        shell.comb = None;
        assert_eq!(shell.text("b"), "ssh -p 7 me@b sh");
    }
}
