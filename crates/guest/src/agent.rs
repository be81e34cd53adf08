//! The guest's side: runs what the host asks for.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use crate::frames::{FrameError, Frames, framed};
use crate::segment;
use crate::wire::{Command, Ended, FromGuest, MemoryShown, SERIAL_BYTES, ToGuest, VERSION, WINDOW_BYTES};

mod becoming;
mod network;
mod processes;

pub use becoming::use_all_processors;

/// So many programs run at once for the host.
const MOST_PROGRAMS: usize = 256;

/// How often it is looked whether the host has come, as long as it is not there: the port cannot be waited for then.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Serves the host, for as long as there is a port to it.
pub fn serve(port: &Path) -> io::Result<()> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let port = File::options().read(true).write(true).custom_flags(flags).open(port)?;
    let mut runs = processes::Processes;
    let mut agent = Agent::on(&port, &mut runs);
    if let Ok(mut line) = rustix::termios::tcgetattr(&port) {
        line.make_raw();
        rustix::termios::tcsetattr(&port, rustix::termios::OptionalActions::Now, &line)?;
        agent.is_serial = true;
        // Before this a line would have made of what is said what a terminal makes of it.
        agent.say(&FromGuest::Hears { bytes: SERIAL_BYTES.try_into().expect("it is small") });
    }
    agent.serve().map(drop)
}

/// The same over a port, or a socket, that is open and never waits.
pub fn serve_on(port: &File) -> io::Result<()> {
    serve_by(port, &mut processes::Processes, &[]).map(drop)
}

/// The same, of what else can be run, with what has come over the port before. Ends when nothing more can be run: what has come since is the result.
pub fn serve_by(port: &File, runs: &mut dyn Runs, came_before: &[u8]) -> io::Result<Vec<u8>> {
    let mut agent = Agent::on(port, runs);
    agent.came.push(came_before);
    agent.serve()
}

/// What can be run for a host.
pub trait Runs {
    /// Runs it; or why not.
    fn start(&mut self, command: &Command) -> Result<Started, String>;

    /// Nothing more can be run.
    fn is_spent(&self) -> bool {
        false
    }

    /// Can be read from when a program wants to know something of the host.
    fn wants(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// What, if one does.
    fn question(&mut self) -> Option<FromGuest> {
        None
    }

    /// The host has answered.
    fn answer(&mut self, _answer: ToGuest) {}
}

/// A program that was started.
pub struct Started {
    /// That it lives, and how it ends.
    pub life: Box<dyn Life>,
    /// To its standard input, which never waits.
    pub input: File,
    /// Its standard output and error; neither waits.
    pub outputs: [File; 2],
}

/// The life of a program.
pub trait Life {
    /// Can be read from when it is over.
    fn end(&self) -> BorrowedFd<'_>;

    /// How it has ended, if it has.
    fn ended(&mut self) -> io::Result<Option<Ended>>;

    /// The host sends it a signal.
    fn signal(&mut self, signal: Signal);

    /// Nobody is there any more who wanted it: ends it, and what it has begun.
    fn kill(&mut self);
}

/// A program that runs for the host.
struct Program {
    life: Box<dyn Life>,
    input: Option<File>,
    /// Its standard output and error.
    outputs: [Option<File>; 2],
    /// How much of them may be said before the host has taken some.
    window: usize,
    /// What is for its standard input, which is open for as long as there may be more.
    pending: VecDeque<u8>,
    has_more: bool,
    ended: Option<Ended>,
}

struct Agent<'a> {
    port: &'a File,
    /// The host is told how much was read.
    is_serial: bool,
    runs: &'a mut dyn Runs,
    came: Frames,
    goes: VecDeque<u8>,
    programs: BTreeMap<u32, Program>,
}

/// What can be done now.
#[derive(Clone, Copy)]
enum Ready {
    Port,
    Question,
    End(u32),
    Output(u32, usize),
    Input(u32),
}

impl<'a> Agent<'a> {
    fn on(port: &'a File, runs: &'a mut dyn Runs) -> Self {
        let (came, goes) = (Frames::default(), VecDeque::new());
        Self { port, is_serial: false, runs, came, goes, programs: BTreeMap::new() }
    }

    fn serve(mut self) -> io::Result<Vec<u8>> {
        self.obey_all()?;
        while !self.runs.is_spent() || !self.programs.is_empty() || !self.goes.is_empty() {
            self.turn()?;
        }
        Ok(self.came.rest().to_vec())
    }

    /// Waits until something can be done, and does it.
    fn turn(&mut self) -> io::Result<()> {
        let ready = self.wait()?;
        for ready in ready {
            match ready {
                Ready::Port => self.hear()?,
                Ready::Question => {
                    if let Some(question) = self.runs.question() {
                        self.say(&question);
                    }
                }
                Ready::End(exec) => {
                    if let Some(program) = self.programs.get_mut(&exec) {
                        program.ended = program.life.ended()?;
                    }
                }
                Ready::Output(exec, which) => drop(self.pass_output(exec, which)),
                Ready::Input(exec) => self.pass_input(exec),
            }
        }
        self.look_for_ends();
        self.push()
    }

    fn wait(&self) -> io::Result<Vec<Ready>> {
        let out = if self.goes.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        let mut awaited = vec![(Ready::Port, self.port.as_fd(), PollFlags::IN | out)];
        if let Some(wants) = self.runs.wants() {
            awaited.push((Ready::Question, wants, PollFlags::IN));
        }
        for (&exec, program) in &self.programs {
            if program.ended.is_none() {
                awaited.push((Ready::End(exec), program.life.end(), PollFlags::IN));
            }
            for (which, output) in program.outputs.iter().enumerate() {
                if let Some(output) = output.as_ref().filter(|_| program.window > 0) {
                    awaited.push((Ready::Output(exec, which), output.as_fd(), PollFlags::IN));
                }
            }
            if let Some(input) = program.input.as_ref().filter(|_| !program.pending.is_empty()) {
                awaited.push((Ready::Input(exec), input.as_fd(), PollFlags::OUT));
            }
        }
        let mut polled: Vec<PollFd<'_>> = awaited
            .iter()
            .map(|&(_, descriptor, flags)| PollFd::from_borrowed_fd(descriptor, flags))
            .collect();
        match rustix::event::poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |(_, polled): &(_, &PollFd<'_>)| !polled.revents().is_empty();
        Ok(awaited.iter().zip(&polled).filter(is_ready).map(|(awaited, _)| awaited.0).collect())
    }

    /// Takes what the host has said.
    fn hear(&mut self) -> io::Result<()> {
        let mut some = [0; 32_768];
        loop {
            match self.port.read(&mut some) {
                Ok(0) => {
                    self.host_is_gone();
                    std::thread::sleep(BETWEEN_LOOKS);
                    return Ok(());
                }
                Ok(read) => {
                    self.came.push(&some[..read]);
                    if self.is_serial {
                        let bytes = u32::try_from(read).expect("a buffer's");
                        self.say(&FromGuest::Hears { bytes });
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            self.obey_all()?;
        }
    }

    /// Does what has come.
    fn obey_all(&mut self) -> io::Result<()> {
        // What comes behind the last program that could be run is for whoever is there next.
        while !self.runs.is_spent() || !self.programs.is_empty() {
            match self.came.take() {
                Ok(Some(said)) => self.obey(said),
                Ok(None) => return Ok(()),
                Err(error @ (FrameError::TooLong(_) | FrameError::Nonsense)) => {
                    return Err(io::Error::new(ErrorKind::InvalidData, error));
                }
            }
        }
        Ok(())
    }

    /// What it has begun ends, and what it has not taken is gone.
    fn host_is_gone(&mut self) {
        self.came = Frames::default();
        self.goes.clear();
        for mut program in std::mem::take(&mut self.programs).into_values() {
            program.life.kill();
        }
    }

    fn say(&mut self, what: &FromGuest) {
        self.goes.extend(framed(what));
    }

    fn push(&mut self) -> io::Result<()> {
        while !self.goes.is_empty() {
            match self.port.write(self.goes.as_slices().0) {
                Ok(0) => break,
                Ok(written) => drop(self.goes.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The host has gone: it comes up where it is heard.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn obey(&mut self, said: ToGuest) {
        match said {
            ToGuest::Become(who) => {
                let is_seeded = becoming::become_who(&who);
                self.say(&FromGuest::Became { version: VERSION, is_seeded });
            }
            ToGuest::Ping { number } => {
                self.say(&FromGuest::Pong { number, memory: memory_shown().unwrap_or_default() });
            }
            ToGuest::Exec { exec, command } => match self.start(exec, &command) {
                Ok(program) => drop(self.programs.insert(exec, program)),
                Err(why) => self.say(&FromGuest::Ended { exec, how: Ended::NotRun(why) }),
            },
            ToGuest::Input { exec, bytes } => {
                let Some(program) = self.programs.get_mut(&exec) else { return };
                program.has_more &= !bytes.is_empty();
                if program.input.is_some() && program.pending.len() + bytes.len() <= WINDOW_BYTES {
                    program.pending.extend(bytes);
                }
                if program.pending.is_empty() && !program.has_more {
                    program.input = None;
                }
            }
            ToGuest::Taken { exec, bytes } => {
                if let Some(program) = self.programs.get_mut(&exec) {
                    program.window = program.window.saturating_add(bytes as usize).min(WINDOW_BYTES);
                }
            }
            ToGuest::Signal { exec, signal } => {
                let Some(program) = self.programs.get_mut(&exec) else { return };
                if let Some(signal) = Signal::from_named_raw(signal).filter(|_| program.ended.is_none()) {
                    program.life.signal(signal);
                }
            }
            ToGuest::Network(network) => network::join(&network),
            ToGuest::Names(names) => network::know(&names),
            ToGuest::PowerOff => becoming::power_off(),
            ToGuest::File { .. } => self.runs.answer(said),
            ToGuest::Segments { names } => {
                let missing = segment::find(names);
                self.say(&FromGuest::Segments { missing });
            }
        }
    }

    fn start(&mut self, exec: u32, command: &Command) -> Result<Program, String> {
        if self.programs.len() >= MOST_PROGRAMS || self.programs.contains_key(&exec) {
            return Err(format!("{MOST_PROGRAMS} programs run already, or one with this number"));
        }
        let Started { life, input, outputs } = self.runs.start(command)?;
        let (input, outputs) = (Some(input), outputs.map(Some));
        let (window, pending) = (WINDOW_BYTES, VecDeque::new());
        Ok(Program { life, input, outputs, window, pending, has_more: true, ended: None })
    }

    /// Says what a program has written; whether there may be more at once.
    fn pass_output(&mut self, exec: u32, which: usize) -> bool {
        let Some(program) = self.programs.get_mut(&exec) else { return false };
        let Some(output) = &mut program.outputs[which] else { return false };
        let mut bytes = vec![0; program.window.min(32_768)];
        if bytes.is_empty() {
            return false;
        }
        match output.read(&mut bytes) {
            Ok(read) if read > 0 => {
                bytes.truncate(read);
                program.window -= read;
                self.say(&FromGuest::Output { exec, is_error: which == 1, bytes });
                true
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => false,
            _ => {
                program.outputs[which] = None;
                false
            }
        }
    }

    fn pass_input(&mut self, exec: u32) {
        let Some(program) = self.programs.get_mut(&exec) else { return };
        let Some(input) = &mut program.input else { return };
        let written = match input.write(program.pending.as_slices().0) {
            Ok(written) => written,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return,
            Err(_) => {
                // Nobody reads it any more; the rest is taken for good.
                program.input = None;
                program.pending.len()
            }
        };
        program.pending.drain(..written);
        if program.pending.is_empty() && !program.has_more {
            program.input = None;
        }
        let bytes = u32::try_from(written).expect("a window's");
        self.say(&FromGuest::Taken { exec, bytes });
    }

    /// Tells of programs that are over, once all is said that they have written. What their children write later nobody hears.
    fn look_for_ends(&mut self) {
        let over: Vec<u32> = self
            .programs
            .iter()
            .filter(|(_, program)| program.ended.is_some())
            .map(|(&exec, _)| exec)
            .collect();
        for exec in over {
            while self.pass_output(exec, 0) || self.pass_output(exec, 1) {}
            let program = &self.programs[&exec];
            if program.window == 0 && program.outputs.iter().any(Option::is_some) {
                continue;
            }
            let how = self.programs.remove(&exec).and_then(|program| program.ended).expect("it is over");
            self.say(&FromGuest::Ended { exec, how });
        }
    }
}

fn memory_shown() -> Option<MemoryShown> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    let idle = std::fs::read_to_string("/proc/uptime").ok()?;
    let idle_hundredths: u64 = idle.split_whitespace().nth(1)?.replace('.', "").parse().ok()?;
    Some(MemoryShown {
        total_bytes: of("MemTotal")?,
        available_bytes: of("MemAvailable")?,
        free_bytes: of("MemFree")?,
        idle_ms: idle_hundredths.saturating_mul(10),
        stalled_us: stalled_us().unwrap_or(0),
    })
}

/// A kernel that does not count it says nothing.
fn stalled_us() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/pressure/memory").ok()?;
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.rsplit_once("total=")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    /// The host's side of a port that is served.
    struct Host {
        line: File,
        came: Frames,
    }

    impl Host {
        fn new() -> Self {
            let (line, theirs) = UnixStream::pair().unwrap();
            theirs.set_nonblocking(true).unwrap();
            std::thread::spawn(move || serve_on(&File::from(OwnedFd::from(theirs))));
            Self::at(OwnedFd::from(line))
        }

        fn at(line: OwnedFd) -> Self {
            Self { line: File::from(line), came: Frames::default() }
        }

        fn say(&mut self, said: &ToGuest) {
            self.line.write_all(&framed(said)).unwrap();
        }

        fn hear(&mut self) -> FromGuest {
            loop {
                if let Some(said) = self.came.take().unwrap() {
                    return said;
                }
                let mut polled = [PollFd::new(&self.line, PollFlags::IN)];
                let limit = Duration::from_secs(60).try_into().unwrap();
                assert_eq!(rustix::event::poll(&mut polled, Some(&limit)).unwrap(), 1, "it says something");
                let mut some = [0; 4096];
                let read = self.line.read(&mut some).unwrap();
                assert!(read > 0);
                self.came.push(&some[..read]);
            }
        }

        fn run(&mut self, exec: u32, script: &str) {
            let arguments = ["sh", "-c", script].map(|word| word.as_bytes().to_vec()).to_vec();
            let environment = vec![b"COLOUR=green".to_vec()];
            let command = Command { arguments, environment, directory: b"/tmp".to_vec() };
            self.say(&ToGuest::Exec { exec, command });
        }

        /// What all of one kind of output is, taken as it comes, and how the program has ended.
        fn hear_out(&mut self, exec: u32) -> (Vec<u8>, Vec<u8>, Ended) {
            let mut outputs = [Vec::new(), Vec::new()];
            loop {
                match self.hear() {
                    FromGuest::Output { exec: whose, is_error, bytes } if whose == exec => {
                        let taken = u32::try_from(bytes.len()).unwrap();
                        self.say(&ToGuest::Taken { exec, bytes: taken });
                        outputs[usize::from(is_error)].extend(bytes);
                    }
                    FromGuest::Ended { exec: whose, how } if whose == exec => {
                        let [out, error] = outputs;
                        return (out, error, how);
                    }
                    FromGuest::Taken { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    #[test]
    fn a_program_has_its_arguments_and_says_how_it_ended() {
        let mut host = Host::new();
        host.run(1, "echo $COLOUR; pwd >&2; exit 3");
        assert_eq!(host.hear_out(1), (b"green\n".to_vec(), b"/tmp\n".to_vec(), Ended::Exited(3)));
        host.run(1, "kill -9 $$");
        assert_eq!(host.hear_out(1).2, Ended::Killed(9));
        let command = Command { arguments: vec![b"/nowhere/at-all".to_vec()], ..Command::default() };
        host.say(&ToGuest::Exec { exec: 2, command });
        let Ended::NotRun(why) = host.hear_out(2).2 else { panic!() };
        assert!(why.contains("/nowhere/at-all: No such file"), "{why}");
        host.say(&ToGuest::Exec { exec: 3, command: Command::default() });
        assert!(matches!(host.hear_out(3).2, Ended::NotRun(_)));
    }

    #[test]
    fn a_line_is_raw_before_the_host_is_let_speak() {
        let host =
            rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY).unwrap();
        rustix::pty::unlockpt(&host).unwrap();
        let name = rustix::pty::ptsname(&host, Vec::new()).unwrap().into_string().unwrap();
        std::thread::spawn(move || serve(Path::new(&name)));
        let mut host = Host::at(host);
        assert_eq!(host.hear(), FromGuest::Hears { bytes: SERIAL_BYTES.try_into().unwrap() });
        // What a terminal would take for an interrupt, the end of a line or of all arrives as any other byte.
        for number in 0..128 {
            host.say(&ToGuest::Ping { number });
            assert!(matches!(host.hear(), FromGuest::Hears { bytes: 1.. }));
            assert!(matches!(host.hear(), FromGuest::Pong { number: same, .. } if same == number));
        }
    }

    #[test]
    fn what_the_host_does_not_take_is_not_said_and_others_are_heard() {
        let mut host = Host::new();
        host.run(1, "head -c 1000000 /dev/zero");
        let mut came = 0;
        while came < WINDOW_BYTES {
            let FromGuest::Output { exec: 1, bytes, .. } = host.hear() else { panic!() };
            came += bytes.len();
        }
        assert_eq!(came, WINDOW_BYTES);
        host.say(&ToGuest::Ping { number: 5 });
        let FromGuest::Pong { number: 5, memory } = host.hear() else { panic!() };
        assert!(memory.total_bytes > memory.available_bytes && memory.available_bytes > 0);
        host.say(&ToGuest::Taken { exec: 1, bytes: u32::try_from(came).unwrap() });
        assert_eq!(host.hear_out(1).0.len() + came, 1_000_000);
    }

    #[test]
    fn what_is_said_to_a_program_comes_to_it_until_there_is_no_more() {
        let mut host = Host::new();
        host.run(9, "wc -c");
        let mut left = 3 * WINDOW_BYTES;
        let mut room = WINDOW_BYTES;
        while left > 0 {
            if room == 0 {
                let FromGuest::Taken { exec: 9, bytes } = host.hear() else { panic!() };
                room += bytes as usize;
            }
            let some = room.min(left).min(10_000);
            host.say(&ToGuest::Input { exec: 9, bytes: vec![1; some] });
            (left, room) = (left - some, room - some);
        }
        host.say(&ToGuest::Input { exec: 9, bytes: Vec::new() });
        let (out, _, how) = host.hear_out(9);
        assert_eq!((String::from_utf8_lossy(&out).trim(), how), ("196608", Ended::Exited(0)));
        host.run(9, "sleep 1000");
        host.say(&ToGuest::Signal { exec: 9, signal: libc::SIGTERM });
        assert_eq!(host.hear_out(9).2, Ended::Killed(libc::SIGTERM));
    }
}
