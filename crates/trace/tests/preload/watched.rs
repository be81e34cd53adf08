//! Runs a program with the library, and keeps what was seen of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use comb_trace::event::{Event, Identity, texts};
use comb_trace::preload::{Preload, PreloadError};
use comb_trace::source::{Counters, Source};
use comb_trace::{Class, Operation};

/// Nothing that is tested here takes a minute, on whatever machine.
const SOON: Duration = Duration::from_secs(120);

/// A folder of our own, gone with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let place = std::env::temp_dir().join(format!("comb-preload-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir(&place).expect("a folder");
        Self(place.canonicalize().expect("it is there"))
    }

    /// A C program of ours, compiled in it.
    pub(crate) fn compiled(&self, name: &str) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/preload/{name}.c"));
        let program = self.0.join(name);
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let status =
            Command::new(compiler).args(["-O1", "-pthread", "-o"]).arg(&program).arg(source).status();
        assert!(status.expect("what has compiled the library compiles this").success());
        program
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A recording by a library; `None`, and said so, where it could not be built.
pub(crate) fn preload(cells: usize) -> Option<Preload> {
    match Preload::with_cells(cells) {
        Ok(preload) => Some(preload),
        Err(PreloadError::NotBuilt(why)) => {
            eprintln!("not tested: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// What was seen of a program.
pub(crate) struct Watched {
    pub(crate) output: Output,
    pub(crate) events: Vec<(Event, Vec<Vec<u8>>)>,
    pub(crate) names: BTreeMap<Identity, String>,
    pub(crate) counters: Counters,
}

/// Runs a program, and reads what is seen meanwhile, or only afterwards.
pub(crate) fn watch(mut preload: Preload, mut command: Command, is_read_meanwhile: bool) -> Watched {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = preload.start(command).expect("it can be started");
    let ended = std::thread::spawn(|| child.wait_with_output().expect("it ends"));
    let (mut events, mut names) = (Vec::new(), BTreeMap::new());
    let began = Instant::now();
    loop {
        let is_last = ended.is_finished();
        let mut fetched = 0;
        if is_read_meanwhile || is_last {
            fetched = preload.fetch(1 << 20, &mut |event, behind| {
                let texts: Vec<_> = texts(behind).map(|(_, text)| text.to_vec()).collect();
                if event.operation == Operation::Name as u8 {
                    names.insert(event.file, path_of(&texts[0]));
                }
                events.push((*event, texts));
            });
        }
        if is_last && fetched == 0 {
            break;
        }
        assert!(began.elapsed() < SOON, "it does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    let output = ended.join().expect("it was waited for");
    Watched { output, events, names, counters: preload.counters() }
}

/// Parts of a name, innermost first.
fn path_of(parts: &[u8]) -> String {
    let text = String::from_utf8_lossy(parts);
    let mut parts: Vec<&str> = text.split_terminator('\0').collect();
    parts.reverse();
    format!("/{}", parts.join("/"))
}

impl Watched {
    pub(crate) fn status(&self) -> ExitStatus {
        self.output.status
    }

    /// Operations, without notes.
    pub(crate) fn operations(&self) -> impl Iterator<Item = (Operation, &Event, &[Vec<u8>])> {
        self.events.iter().filter_map(|(event, texts)| {
            let operation = Operation::of_number(event.operation).expect("the source has checked that");
            (operation.class() != Class::Note).then_some((operation, event, &**texts))
        })
    }

    /// What was done with files in a folder, by whoever: how often, and how many bytes were moved.
    pub(crate) fn of_folder(&self, folder: &Path) -> BTreeMap<&'static str, (u64, u64)> {
        let prefix = format!("{}/", folder.display());
        let mut counted = BTreeMap::<_, (u64, u64)>::new();
        for (operation, event, texts) in self.operations() {
            let name = self.names.get(&event.file).map_or("", String::as_str);
            let is_within = name.starts_with(&prefix) || name == folder.to_string_lossy();
            // Paths from where the program is.
            let is_of_ours =
                is_within || texts.iter().any(|text| !text.starts_with(b"/") && !text.is_empty());
            if !is_of_ours || operation == Operation::Execute {
                continue;
            }
            let (count, bytes) = counted.entry(operation.name()).or_default();
            *count += 1;
            if operation.class() == Class::Data {
                *bytes += u64::try_from(event.result).unwrap_or(0);
            }
        }
        counted
    }

    pub(crate) fn count(&self, wanted: Operation) -> usize {
        self.events.iter().filter(|(event, _)| event.operation == wanted as u8).count()
    }
}
