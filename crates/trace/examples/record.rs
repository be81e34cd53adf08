//! Records what a program does with files, and tells what that was: `record FILE PROGRAM [ARGUMENT…]`. Needs root.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::Command;
use std::thread;

use comb_trace::Operation;
use comb_trace::event::Event;
use comb_trace::kernel::Kernel;
use comb_trace::privacy::Privacy;
use comb_trace::recorder::{Recorder, TraceFile};
use comb_trace::trace_file::{Head, Listener, Moment, read_trace};

/// How often each operation was done.
#[derive(Default)]
struct Counted(BTreeMap<&'static str, u64>);

impl Listener for Counted {
    fn head(&mut self, _head: &Head) {}
    fn event(&mut self, event: &Event, _texts: &[u8]) {
        let name = Operation::of_number(event.operation).map_or("unknown", Operation::name);
        *self.0.entry(name).or_default() += 1;
    }
    fn moment(&mut self, _moment: &Moment) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(path), Some(program)) = (arguments.next(), arguments.next()) else {
        return Err("record FILE PROGRAM [ARGUMENT…]".into());
    };
    let path = Path::new(&path);
    let source = Box::new(Kernel::attach(false)?);
    let mut recorder = Recorder::new(source, TraceFile::create(path)?, Privacy::none(), Head::default())?;
    let mut command = Command::new(program);
    command.args(arguments);
    let mut child = recorder.source().start(command)?;
    while child.try_wait()?.is_none() {
        let pause = recorder.step()?;
        thread::sleep(pause);
    }
    for lack in recorder.source().lacks() {
        println!("it does not see {lack}");
    }
    let summary = recorder.finish()?;
    let own = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let mut counted = Counted::default();
    read_trace(BufReader::new(File::open(path)?), &mut counted)?;
    println!(
        "{} events in {} bytes, {} lost: {:?}",
        summary.written, summary.bytes, summary.counters.lost, counted.0
    );
    println!("the recorder's own time: {}.{:09} s", own.tv_sec, own.tv_nsec);
    Ok(())
}
