//! When sessions end, and how, where programs say it themselves: by closes of all kinds, exits, executions, and what processes share.

use comb_trace::Operation;
use comb_trace::history::Ending;
use comb_trace::kernel::Options;

use crate::scene::{Scene, attach, command, run};

#[test]
fn sessions_end_as_the_programs_say_and_when() {
    let Some(mut kernel) = attach(Options::default()) else { return };
    let scene = Scene::new();
    let program = scene.compile("sessions.c");
    let place = scene.place("place");
    let (mut recording, lines) = run(&mut kernel, command(program, &[&place]));
    recording.history.finish();
    let sessions = &recording.history.chronicler.instances;
    let of = |name: &str| {
        let path = place.join(name).into_os_string().into_encoded_bytes();
        sessions.iter().filter(move |(_, its)| *its == path).map(|(session, _)| session).collect::<Vec<_>>()
    };
    let mut wrong = String::new();
    for line in lines.lines() {
        let [name, ending, not_before, not_after, seen] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let [not_before, not_after] = [not_before, not_after].map(|time| time.parse::<u64>().unwrap());
        let sessions = of(name);
        let wanted = lines.lines().filter(|line| line.split(' ').next() == Some(name)).count();
        let session = sessions.iter().find(|session| session.is_seen_from_its_open == (seen == "open"));
        let Some(session) = session.filter(|_| sessions.len() == wanted) else {
            wrong += &format!("{name}: has {} sessions\n", sessions.len());
            continue;
        };
        if format!("{:?}", session.ending) != ending {
            wrong += &format!("{name}: ended by {:?} and not {ending}\n", session.ending);
        }
        if !(not_before..=not_after).contains(&session.closed_ns) {
            let (late, early) =
                (session.closed_ns.saturating_sub(not_after), not_before.saturating_sub(session.closed_ns));
            wrong += &format!("{name}: {late} ns too late, or {early} ns too early\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(lines.lines().count() > 25);
    let [last] = of("at-last")[..] else { panic!("one session") };
    assert_eq!(last.ending, Ending::Exit);
    // No program has been taken for two, or two for one: as many ended as there were.
    let programs = recording.history.processes.programs();
    let processes =
        recording.of(Operation::ProcessBegins).filter(|seen| seen.event.thread == seen.event.process);
    let executions = recording.of(Operation::Execute).filter(|seen| seen.event.result == 0).count();
    let started = 1 + processes.count() + executions;
    let of_kernel = programs.iter().filter(|program| program.process == 0).count();
    assert_eq!(programs.len() - of_kernel, started);
    assert!(programs.iter().all(|program| program.process == 0 || program.ended_ns.is_some()));
}
