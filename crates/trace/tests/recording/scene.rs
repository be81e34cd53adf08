//! A directory, programs to run in it, and what the recorder saw of them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use comb_trace::event::{Event, texts};
use comb_trace::history::{Chronicler, Fact, History, Instance, Known};
use comb_trace::kernel::{Kernel, KernelError, Options};
use comb_trace::source::{Counters, Source};
use comb_trace::trace_file::Listener;
use comb_trace::{Identity, Operation};

/// The recorder, attached; nothing where this kernel or user does not allow it. That it should be allowed and does not work is a failure.
pub(crate) fn attach(options: Options) -> Option<Kernel> {
    match Kernel::attach_with(options) {
        Ok(kernel) => {
            assert_eq!(kernel.lacks(), Vec::<String>::new(), "this kernel has all tracepoints");
            Some(kernel)
        }
        Err(error @ (KernelError::NotPermitted | KernelError::NoTypes | KernelError::SwitchedOff)) => {
            println!("did not run: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A directory of its own, gone afterwards. It is not below a link.
pub(crate) struct Scene {
    pub(crate) directory: PathBuf,
}

impl Scene {
    pub(crate) fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let directory = fs::canonicalize(std::env::temp_dir())
            .unwrap()
            .join(format!("comb-recording-{}-{number}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        Self { directory }
    }

    /// Compiles one of the programs beside this file.
    pub(crate) fn compile(&self, name: &str) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recording").join(name);
        let program = self.directory.join(source.file_stem().unwrap());
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-Wall", "-Wextra", "-Wno-unused-value", "-pthread", "-o"]);
        let output = compiler.arg(&program).arg(&source).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }

    /// A directory in it, to work in.
    pub(crate) fn place(&self, name: &str) -> PathBuf {
        let place = self.directory.join(name);
        fs::create_dir(&place).unwrap();
        place
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Paths that are as long as they may be are longer with what is removed from them.
        let _ = Command::new("rm").arg("-rf").arg(&self.directory).status();
    }
}

/// An event with its paths, made whole with the names that were told before it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) event: Event,
    pub(crate) operation: Operation,
    /// Of the file, or as the program gave it.
    pub(crate) path: Vec<u8>,
    /// The second one that the program gave.
    pub(crate) other: Vec<u8>,
}

/// All that was seen, and what the history makes of it.
pub(crate) struct Recording {
    pub(crate) seen: Vec<Seen>,
    names: HashMap<Identity, Vec<u8>>,
    pub(crate) history: History<Taken>,
    pub(crate) counters: Counters,
}

/// The history's rows.
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) instances: Vec<(Instance, Vec<u8>)>,
}

impl Chronicler for Taken {
    fn operation(&mut self, _fact: &Fact, _known: Known<'_>) {}
    fn instance(&mut self, instance: &Instance, known: Known<'_>) {
        let path = instance.file.map(|file| known.files.files()[file.0 as usize].path.clone());
        self.instances.push((*instance, path.unwrap_or_default()));
    }
}

impl Recording {
    pub(crate) fn new() -> Self {
        Self {
            seen: Vec::new(),
            names: HashMap::new(),
            history: History::new(Taken::default()),
            counters: Counters::default(),
        }
    }

    pub(crate) fn fetch(&mut self, kernel: &mut Kernel) {
        while kernel.fetch(usize::MAX, &mut |event, texts| self.take(event, texts)) > 0 {}
        self.counters = kernel.counters();
    }

    fn take(&mut self, event: &Event, behind: &[u8]) {
        self.history.event(event, behind);
        let operation = Operation::of_number(event.operation).expect("the kernel knows its operations");
        if operation == Operation::Name {
            let parts = texts(behind).next().expect("a name has a text").1.split(|&byte| byte == 0);
            let parts: Vec<&[u8]> = parts.filter(|part| !part.is_empty()).collect();
            let path: Vec<u8> = parts.iter().rev().flat_map(|part| [b"/", *part].concat()).collect();
            self.names.insert(event.file, if path.is_empty() { b"/".to_vec() } else { path });
        }
        let mut given = texts(behind).map(|(base, text)| match self.names.get(&base) {
            _ if text.is_empty() || text[0] == b'/' => text.to_vec(),
            Some(directory) => [directory.as_slice(), b"/", text].concat(),
            None => [b"(nameless)/", text].concat(),
        });
        let [first, other] = [(); 2].map(|()| given.next().unwrap_or_default());
        let path = match self.names.get(&event.file) {
            Some(name) if event.file.is_some() => name.clone(),
            _ => first,
        };
        self.seen.push(Seen { event: *event, operation, path, other });
    }

    /// What the operations of a process were between its marks.
    pub(crate) fn between_marks(&self) -> Vec<&Seen> {
        let at = |path: &[u8]| {
            self.seen.iter().position(|seen| seen.operation == Operation::Access && seen.path == path)
        };
        let begin = at(b"/comb-begin").expect("the program began");
        let end = at(b"/comb-end").expect("the program came to its end");
        let process = self.seen[begin].event.process;
        let between = self.seen[begin + 1..end].iter();
        between.filter(|seen| seen.event.process == process && is_call(seen.operation)).collect()
    }

    /// How often each operation was done, by whomever.
    pub(crate) fn count(&self, is_counted: impl Fn(&Seen) -> bool) -> usize {
        self.seen.iter().filter(|seen| is_counted(seen)).count()
    }

    pub(crate) fn of(&self, operation: Operation) -> impl Iterator<Item = &Seen> {
        self.seen.iter().filter(move |seen| seen.operation == operation)
    }
}

/// What a program asked for, and not what came of itself.
pub(crate) fn is_call(operation: Operation) -> bool {
    !matches!(
        operation,
        Operation::Name
            | Operation::ProcessBegins
            | Operation::ProcessEnds
            | Operation::PageIn
            | Operation::WriteBack
    )
}

/// Fetches until the program has ended, and all after that.
pub(crate) fn record(kernel: &mut Kernel, mut child: Child) -> (Recording, Output) {
    let mut recording = Recording::new();
    // Whoever reads what it says must not keep it waiting.
    let output = std::thread::scope(|scope| {
        let pipe = child.stdout.take();
        let text = scope.spawn(move || {
            let mut text = Vec::new();
            pipe.map(|mut pipe| std::io::Read::read_to_end(&mut pipe, &mut text));
            text
        });
        let status = loop {
            recording.fetch(kernel);
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        Output { status, stdout: text.join().unwrap(), stderr: Vec::new() }
    });
    recording.fetch(kernel);
    (recording, output)
}

/// Records a program from its first instruction to the end of the last of its descendants that it waits for.
pub(crate) fn run(kernel: &mut Kernel, mut command: Command) -> (Recording, String) {
    let told = format!("{command:?}");
    command.stdout(Stdio::piped()).stdin(Stdio::null());
    let child = kernel.start(command).unwrap();
    let (recording, output) = record(kernel, child);
    assert!(output.status.success(), "{told}: {}", output.status);
    (recording, String::from_utf8(output.stdout).unwrap())
}

/// A program with its arguments.
pub(crate) fn command(program: impl AsRef<OsStr>, arguments: &[&dyn AsRef<OsStr>]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments.iter().map(|argument| argument.as_ref()));
    command
}
