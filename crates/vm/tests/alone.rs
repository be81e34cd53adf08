//! Programs that are alone in machines: linked with the library operating system, run by engines, and with memory in common.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use comb_guest::wire::{Become, Command as WireCommand, Ended, FromGuest, ToGuest};
use comb_vm::attached::Devices;
use comb_vm::engine::Engine;
use comb_vm::hardware::{Accelerator, Backing, Hardware, Root, Under};
use comb_vm::image::{Image, Images, Recipe};
use comb_vm::segment::Segments;
use comb_vm::template::Template;

#[path = "../../cli/tests/vm/guest_kernel.rs"]
mod guest_kernel;

use guest_kernel::guest_kernel;

/// Nothing that goes well takes as long.
const LIMIT: Duration = Duration::from_secs(240);

/// A directory with images of one program; nothing where machines cannot be run or made.
struct Place {
    directory: PathBuf,
    kernel: PathBuf,
}

impl Place {
    fn new(name: &str) -> Option<Self> {
        let kernel = guest_kernel()?;
        let directory = std::env::temp_dir().join(format!("comb-vm-alone-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        Some(Self { directory, kernel })
    }

    /// A program in C, linked with the library.
    fn link(&self, sources: &[&str]) -> PathBuf {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR"));
        let sources: Vec<PathBuf> = sources.iter().map(|source| crates.join(source)).collect();
        let program = self.directory.join(sources[0].file_stem().unwrap());
        let done = Command::new("cc")
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-static"])
            .arg("-Wl,--wrap=main,--wrap=exit,--wrap=pthread_create,--wrap=open,--wrap=open64,--wrap=fopen,--wrap=fopen64,--gc-sections,--no-warnings")
            .args(["-ffp-contract=off", "-pthread", "-I"])
            .arg(crates.join("../../apps/program"))
            .arg("-o")
            .arg(&program)
            .args(sources)
            .args([library(), "-lm".into()])
            .output()
            .expect("a compiler");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        program
    }

    fn recipe(&self, program: PathBuf) -> Recipe {
        Recipe { kernel: Some(self.kernel.clone()), program: Some(program), ..Recipe::default() }
    }

    fn image(&self, sources: &[&str]) -> Image {
        let program = self.link(sources);
        let name = program.file_name().unwrap().to_str().unwrap().parse().unwrap();
        Images::at(self.directory.join("images")).build(&name, &self.recipe(program), |_| ()).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// The library, which cargo has built for this test: the last, if others are there of before.
fn library() -> PathBuf {
    let beside = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let mut all: Vec<PathBuf> =
        std::fs::read_dir(beside).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| {
        let name = path.file_name().unwrap().to_str().unwrap_or_default();
        name.starts_with("libcomb_library_os") && name.ends_with(".a")
    });
    all.sort_by_key(|path| std::fs::metadata(path).unwrap().modified().unwrap());
    all.pop().expect("the library")
}

fn hardware() -> Hardware {
    with_memory(128 << 20)
}

fn with_memory(memory_bytes: u64) -> Hardware {
    Hardware { memory_bytes, processors: 2, accelerator: Accelerator::of_host(), ..Hardware::default() }
}

fn boot(image: &Image) -> Engine {
    boot_with(image, Devices::default())
}

fn boot_with(image: &Image, devices: Devices) -> Engine {
    begin(image, &hardware(), devices)
}

fn begin(image: &Image, hardware: &Hardware, devices: Devices) -> Engine {
    let root = Root::Memory(image.directory.join("root"));
    let backing = Backing { ram: None, root, under: Under::Private, devices };
    let mut engine = Engine::start(hardware, image, &backing, false, None).unwrap();
    engine.become_who(who(image), LIMIT).unwrap();
    engine
}

fn who(image: &Image) -> Become {
    Become { name: image.name.to_string(), ..Become::default() }
}

fn command(words: &[&str]) -> WireCommand {
    let arguments = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    WireCommand { arguments, ..WireCommand::default() }
}

#[track_caller]
fn run(engine: &mut Engine, words: &[&str]) -> (String, Ended) {
    let (said, how) = engine.run(command(words), LIMIT).unwrap();
    (String::from_utf8_lossy(&said).into_owned(), how)
}

const FIRST: &str = "this address space has seen 1 run\n";

#[test]
fn a_program_is_alone_and_each_run_of_it_is_the_first() {
    let Some(place) = Place::new("hello") else { return };
    let image = place.image(&["../library-os/examples/hello.c"]);
    assert_eq!(image.root_bytes, 0);
    let mut engine = boot(&image);
    assert_eq!(run(&mut engine, &["hello", "ann"]), (FIRST.into(), Ended::Exited(0)));
    assert_eq!(run(&mut engine, &["hello", "exit"]).1, Ended::Exited(3));
    // It dies of itself, and the machine does not.
    assert_eq!(run(&mut engine, &["hello", "fail"]).1, Ended::Killed(libc::SIGABRT));
    assert_eq!(run(&mut engine, &["/bin/hello"]), (FIRST.into(), Ended::Exited(0)));
    let (_, how) = run(&mut engine, &["sh", "-c", "true"]);
    assert!(matches!(&how, Ended::NotRun(why) if why.contains("this machine is `hello` alone")), "{how:?}");
    // What it reads comes over the line, and a signal ends it.
    engine.say(&ToGuest::Exec { exec: 9, command: command(&["hello", "ann"]) }).unwrap();
    engine.say(&ToGuest::Input { exec: 9, bytes: b"good day\n".to_vec() }).unwrap();
    engine.say(&ToGuest::Signal { exec: 9, signal: libc::SIGTERM }).unwrap();
    let until = std::time::Instant::now() + LIMIT;
    loop {
        match engine.hear(until).unwrap().expect("it ends") {
            FromGuest::Ended { exec: 9, how } => break assert_eq!(how, Ended::Killed(libc::SIGTERM)),
            FromGuest::Output { .. } | FromGuest::Taken { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    engine.say(&ToGuest::Exec { exec: 1, command: command(&["hello", "ann"]) }).unwrap();
    engine.say(&ToGuest::Input { exec: 1, bytes: b"good day\n".to_vec() }).unwrap();
    engine.say(&ToGuest::Input { exec: 1, bytes: Vec::new() }).unwrap();
    let mut said = Vec::new();
    loop {
        match engine.hear(until).unwrap().expect("it ends") {
            FromGuest::Output { bytes, .. } => said.extend(bytes),
            FromGuest::Ended { exec: 1, how } => break assert_eq!(how, Ended::Exited(0)),
            FromGuest::Taken { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(String::from_utf8(said).unwrap(), format!("ann says good day\n{FIRST}"));
    // A file of the host's comes piece by piece.
    let pieces = [b"good ".to_vec(), b"night\n".to_vec(), Vec::new()];
    engine.say(&ToGuest::Exec { exec: 2, command: command(&["hello", "ann", "/host/a/word"]) }).unwrap();
    let mut said = Vec::new();
    loop {
        match engine.hear(until).unwrap().expect("it ends") {
            FromGuest::File { number, path, at } => {
                assert_eq!(path, b"a/word");
                let piece = pieces.iter().scan(0, |next, piece| {
                    *next += piece.len() as u64;
                    Some((*next - piece.len() as u64, piece))
                });
                let (_, piece) =
                    piece.into_iter().find(|(first, _)| *first == at).expect("behind what it has");
                engine.say(&ToGuest::File { number, found: Ok(piece.clone()) }).unwrap();
            }
            FromGuest::Output { bytes, .. } => said.extend(bytes),
            FromGuest::Ended { exec: 2, how } => break assert_eq!(how, Ended::Exited(0)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(String::from_utf8(said).unwrap(), format!("ann says good night\n{FIRST}"));
    // One that continues where another stood is no other.
    let template = Template::of(&image, &hardware(), &mut |_| ()).unwrap();
    let mut clone = Engine::start(&hardware(), &image, &template.backing(), true, None).unwrap();
    clone.take_up(&template.state(), true).unwrap();
    clone.become_who(who(&image), LIMIT).unwrap();
    assert_eq!(run(&mut clone, &["hello"]), (FIRST.into(), Ended::Exited(0)));
    // It ends in good order.
    engine.say(&ToGuest::PowerOff).unwrap();
    while engine.hear(until).is_ok_and(|said| said.is_some()) {}
    assert!(engine.qmp.poll_event().is_ok_and(|event| event.is_some_and(|event| event.name == "SHUTDOWN")));
}

#[test]
fn a_parallel_program_has_processors_and_memory_for_itself() {
    let Some(place) = Place::new("parallel") else { return };
    for program in ["radix", "ocean"] {
        let image =
            place.image(&[&format!("../../apps/{program}/{program}.c"), "../../apps/program/program.c"]);
        let mut engine = boot(&image);
        for _ in 0..2 {
            let environment = vec![b"COMB_USAGE=1".to_vec()];
            let wanted = command(&[program, "-p", "2", "-s", "small", "--check"]);
            let (said, how) = engine.run(WireCommand { environment, ..wanted }, LIMIT).unwrap();
            let said = String::from_utf8(said).unwrap();
            assert!(how == Ended::Exited(0) && said.contains(&format!("{program}: ok\n")), "{said}");
            // All was there: what it allocates are hundreds of pages, and its threads' stacks.
            let faults = said.trim().strip_suffix(" page faults").and_then(|said| said.rsplit(' ').next());
            assert!(faults.unwrap().parse::<u32>().unwrap() < 100, "{said}");
        }
    }
}

#[test]
fn each_thread_has_the_next_processor_for_itself() {
    let Some(place) = Place::new("threads") else { return };
    let image = place.image(&["../library-os/examples/threads.c"]);
    // What is taken before the program begins is the rest of the memory, however much there is.
    for memory_mb in [128, 320] {
        let mut engine = begin(&image, &with_memory(memory_mb << 20), Devices::default());
        for _ in 0..2 {
            assert_eq!(run(&mut engine, &["threads"]), ("0 1 0\n".into(), Ended::Exited(0)), "{memory_mb}");
        }
    }
}

#[test]
fn programs_of_two_machines_take_turns_at_memory_that_both_have() {
    let Some(place) = Place::new("turns") else { return };
    let image = place.image(&["examples/turns.c"]);
    let segments = Segments::at(PathBuf::from(format!("/dev/shm/comb-vm-alone-{}", std::process::id())));
    let held = segments.hold(&"both".parse().unwrap(), Some(8 << 20)).unwrap();
    let boot = || boot_with(&image, Devices { has_company: true, ..Devices::default() });
    let mut machines = [boot(), boot()];
    let until = std::time::Instant::now() + LIMIT;
    for machine in &mut machines {
        held.plug(machine, 0).unwrap();
        machine.say(&ToGuest::Segments { names: vec!["both".into()] }).unwrap();
        assert_eq!(machine.hear(until).unwrap(), Some(FromGuest::Segments { missing: Vec::new() }));
    }
    let turns = |machine: &mut Engine, own: &str| run(machine, &["turns", "/dev/segments/both", own, "50"]);
    let [one, other] = &mut machines;
    let (said, others) = std::thread::scope(|scope| {
        let second = scope.spawn(move || turns(other, "1"));
        (turns(one, "0"), second.join().unwrap())
    });
    assert_eq!((said.1, &others.1), (Ended::Exited(0), &Ended::Exited(0)), "{}{}", said.0, others.0);
    // The last turn was the second one's.
    assert!(others.0.contains("the number is 100\n"), "{}{}", said.0, others.0);
    assert!(others.0.ends_with("2000000 additions, 0 were lost\n"), "{}{}", said.0, others.0);
    drop(machines);
}

#[test]
fn what_cannot_be_alone_is_said() {
    let Some(place) = Place::new("said") else { return };
    let images = Images::at(place.directory.join("images"));
    let refused = |program: &Path| {
        let recipe = place.recipe(program.to_owned());
        images.build(&"none".parse().unwrap(), &recipe, |_| ()).unwrap_err().to_string()
    };
    assert!(refused(Path::new("/bin/sh")).contains("it is not linked with libcomb_library_os.a"));
    let text = place.directory.join("text");
    std::fs::write(&text, "no program").unwrap();
    assert!(refused(&text).contains("it is no program for this kind of machine"));
    let program = place.link(&["../library-os/examples/hello.c"]);
    let whole = std::fs::read(&program).unwrap();
    std::fs::write(&program, &whole[..4096]).unwrap();
    let said = refused(&program);
    assert!(said.contains("it is no whole program") || said.contains("it is not linked"), "{said}");
    assert!(images.list().is_empty());
}
