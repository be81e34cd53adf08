use super::*;
use crate::event::{Identity, append_text};

#[derive(Default)]
struct Taken {
    facts: Vec<Fact>,
    instances: Vec<Instance>,
}

impl Chronicler for Taken {
    fn operation(&mut self, fact: &Fact, _known: Known<'_>) {
        self.facts.push(*fact);
    }
    fn instance(&mut self, instance: &Instance, _known: Known<'_>) {
        self.instances.push(*instance);
    }
}

fn history() -> History<Taken> {
    History::new(Taken::default())
}

/// Events of process 1, each 10 ns after the one before.
struct Script(History<Taken>, u64);

impl Script {
    fn new() -> Self {
        Self(history(), 0)
    }

    fn event(&mut self, operation: Operation, change: impl FnOnce(&mut Event)) {
        self.1 += 10;
        let mut event = Event {
            operation: operation as u8,
            process: 1,
            thread: 1,
            descriptor: -1,
            start_ns: self.1,
            duration_ns: 1,
            ..Event::default()
        };
        change(&mut event);
        self.0.event(&event, &[]);
    }

    fn on(&mut self, operation: Operation, handle: u64, descriptor: i32, change: impl FnOnce(&mut Event)) {
        self.event(operation, |event| {
            event.handle = handle;
            event.descriptor = descriptor;
            event.file = Identity { inode: 100 + handle, device: 1, generation: 1 };
            event.mode = 0o100_644;
            event.size = 1000;
            change(event);
        });
    }

    fn open(&mut self, handle: u64, descriptor: i32, flags: u64) {
        self.on(Operation::Open, handle, descriptor, |event| {
            event.argument = flags;
            event.result = descriptor.into();
        });
    }

    fn read(&mut self, handle: u64, descriptor: i32, offset: u64, bytes: i64) {
        self.on(Operation::Read, handle, descriptor, |event| {
            event.offset = offset;
            event.result = bytes;
            event.asked = bytes.unsigned_abs();
        });
    }

    fn ended(&mut self) -> Vec<Instance> {
        std::mem::take(&mut self.0.chronicler.instances)
    }
}

#[test]
fn a_session_is_summed_up_when_its_last_descriptor_is_closed() {
    let mut script = Script::new();
    script.open(5, 3, 0);
    script.read(5, 3, 0, 600);
    script.read(5, 3, 600, 400);
    script.read(5, 3, 1000, 0);
    script.on(Operation::Duplicate, 5, 3, |event| event.result = 4);
    script.on(Operation::Close, 5, 3, |_| {});
    assert!(script.ended().is_empty(), "another descriptor stands for it");
    script.on(Operation::Close, 5, 4, |_| {});
    let [instance] = script.ended()[..] else { panic!("one session") };
    assert_eq!(
        (instance.reads, instance.read_bytes, instance.runs, instance.pattern),
        (3, 1000, 1, Pattern::WholeFile)
    );
    assert_eq!((instance.ending, instance.access(), instance.controls), (Ending::Close, Access::ReadOnly, 1));
    assert!(instance.closed_ns > instance.opened_ns);
}

#[test]
fn patterns_are_told_apart() {
    let pattern = |reads: &[(u64, i64)]| {
        let mut script = Script::new();
        script.open(5, 3, 0);
        reads.iter().for_each(|&(offset, bytes)| script.read(5, 3, offset, bytes));
        script.on(Operation::Close, 5, 3, |_| {});
        script.ended()[0].pattern
    };
    assert_eq!(pattern(&[]), Pattern::None);
    assert_eq!(pattern(&[(0, 1000)]), Pattern::WholeFile);
    assert_eq!(pattern(&[(0, 999)]), Pattern::Sequential);
    assert_eq!(pattern(&[(10, 500), (510, 490)]), Pattern::Sequential);
    assert_eq!(pattern(&[(0, 500), (501, 499)]), Pattern::Random);
}

#[test]
fn children_inherit_and_executions_and_exits_close() {
    let mut script = Script::new();
    script.open(5, 3, 0);
    script.open(6, 4, open_flag::CLOSE_ON_EXECUTE);
    script.event(Operation::ProcessBegins, |event| {
        (event.process, event.thread, event.argument) = (2, 2, 1);
    });
    script.on(Operation::Close, 5, 3, |_| {});
    script.on(Operation::Close, 6, 4, |_| {});
    assert!(script.ended().is_empty(), "the child has them");
    script.event(Operation::Execute, |event| (event.process, event.thread) = (2, 2));
    let [instance] = script.ended()[..] else { panic!("one session") };
    assert_eq!((instance.id, instance.ending), (2, Ending::Execute));
    script.event(Operation::ProcessEnds, |event| (event.process, event.thread) = (2, 2));
    let [instance] = script.ended()[..] else { panic!("one session") };
    assert_eq!((instance.id, instance.ending), (1, Ending::Exit));
    let programs = script.0.processes.programs();
    assert_eq!(programs.iter().map(|program| program.process).collect::<Vec<_>>(), [1, 2, 2]);
    assert_eq!(programs[2].parent, Some(ProgramId(1)));
    assert!(programs[1].ended_ns.is_some() && programs[2].ended_ns.is_some());
}

#[test]
fn what_was_open_before_and_what_is_open_still_are_sessions_as_well() {
    let mut script = Script::new();
    script.read(5, 3, 100, 50);
    script.open(6, 4, 0);
    script.0.finish();
    let [first, second] = script.ended()[..] else { panic!("two sessions") };
    assert!(!first.is_seen_from_its_open && second.is_seen_from_its_open);
    assert_eq!(
        (first.ending, second.ending, first.pattern),
        (Ending::None, Ending::None, Pattern::Sequential)
    );
}

#[test]
fn an_address_that_is_given_anew_ends_the_session_whose_close_was_lost() {
    let mut script = Script::new();
    script.open(5, 3, 0);
    script.open(5, 4, 0);
    let [instance] = script.ended()[..] else { panic!("one session") };
    assert_eq!((instance.id, instance.ending), (1, Ending::Unseen));
}

#[test]
fn ranges_of_descriptors_are_closed() {
    let mut script = Script::new();
    (3..6).for_each(|descriptor| script.open(descriptor as u64, descriptor, 0));
    script.event(Operation::Close, |event| {
        event.descriptor = 4;
        event.argument = u32::MAX.into();
    });
    assert_eq!(script.ended().iter().map(|instance| instance.id).collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn paths_are_put_together_from_the_directory_that_was_named() {
    let mut history = history();
    let base = Identity { inode: 2, device: 1, generation: 9 };
    let mut name = Vec::new();
    append_text(&mut name, Identity::default(), b"ann\0home\0");
    history.event(
        &Event { operation: Operation::Name as u8, file: base, mode: 0o040_755, ..Event::default() },
        &name,
    );
    let mut path = Vec::new();
    append_text(&mut path, base, b"src/../a.rs");
    let failed =
        Event { operation: Operation::Open as u8, result: -2, process: 1, thread: 1, ..Event::default() };
    history.event(&failed, &path);
    let fact = history.chronicler.facts[0];
    assert_eq!((fact.error, fact.result), (2, 0));
    assert_eq!(history.files.files()[fact.file.unwrap().0 as usize].path, b"/home/ann/a.rs");
}
