//! Managers of two cells, of which one asks the other.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{TryRecvError, channel};

use comb_kernels::resources::desk::Desk;
use comb_kernels::resources::peers::{Address, PeerError, Programs, ask};
use comb_kernels::resources::words::{Key, MOST_BYTES, Question, Reply};

use super::*;

const KEY: Key = Key([3; 32]);

/// What somebody else finds out, while a cell answers.
fn meanwhile<T: Send + 'static>(
    cell: &mut Cell,
    desk: &mut Desk,
    programs: &Programs,
    other: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (tells, told) = channel();
    let thread = std::thread::spawn(move || tells.send(other()).unwrap());
    let since = Instant::now();
    loop {
        desk.turn(|question| cell.manager().answer(question, programs));
        match told.try_recv() {
            Ok(told) => return told,
            Err(TryRecvError::Disconnected) => panic!("{:?}", thread.join()),
            Err(TryRecvError::Empty) => std::thread::sleep(Duration::from_millis(1)),
        }
        assert!(since.elapsed() < LIMIT, "it has no answer");
    }
}

fn take(program: &str, groups: u32) -> Question {
    let maximum_priority = USUAL_PRIORITY;
    let allotment =
        Allotment { groups, processor_shares: vec![10, 10], maximum_priority, ..Allotment::default() };
    Question::Take { program: program.to_owned(), arguments: arguments("counts"), allotment }
}

#[test]
fn a_manager_is_asked_by_another_what_it_has_and_to_take_a_kernel() {
    let mut cell = Cell::new("peers");
    let programs: Programs = [("counts".to_owned(), std::env::current_exe().unwrap())].into();
    let path = cell.directory.join("desk");
    let by_path = (Desk::at_path(&path, KEY, LIMIT).unwrap(), Address::Path(path));
    let (desk, port) = Desk::at_port(KEY, LIMIT).unwrap();
    for (groups, (mut desk, address)) in [(3, by_path), (2, (desk, Address::Port(port)))] {
        let mut asked = |cell: &mut Cell, question: Question| {
            let address = address.clone();
            meanwhile(cell, &mut desk, &programs, move || ask(&address, &KEY, &question, LIMIT))
        };
        let before = cell.manager().book().free();
        assert_eq!(asked(&mut cell, Question::Free).unwrap(), Reply::Free(before));
        let Reply::Taken(kernel) = asked(&mut cell, take("counts", groups)).unwrap() else {
            panic!("it is taken")
        };
        cell.wait_for_count(kernel, 10);
        let Reply::Running(running) = asked(&mut cell, Question::Running).unwrap() else {
            panic!("it tells what runs")
        };
        assert_eq!(running, cell.manager().running());
        assert_eq!(running.last().map(|last| (last.kernel, last.allotment.groups)), Some((kernel, groups)));
        let refused = asked(&mut cell, take("counts", CAPACITY)).unwrap();
        let free = cell.manager().book().free().groups;
        assert_eq!(
            refused,
            Reply::Refused(format!("{CAPACITY} page groups are asked for, and {free} are free"))
        );
        let refused = asked(&mut cell, take("/bin/sh", 1)).unwrap();
        assert_eq!(refused, Reply::Refused("there is no program \"/bin/sh\"".to_owned()));
        assert_eq!(cell.manager().book().free().groups, free);
    }
}

#[test]
fn who_asks_wrongly_or_slowly_goes_and_others_are_answered() {
    let mut cell = Cell::new("guests");
    let path = cell.directory.join("desk");
    let limit = Duration::from_secs(2);
    let mut desk = Desk::at_path(&path, KEY, limit).unwrap();
    let programs = Programs::new();
    // Many come, and say nothing, or too little.
    let mut idle: Vec<UnixStream> = (0..100).map(|_| UnixStream::connect(&path).unwrap()).collect();
    idle.iter_mut().step_by(2).for_each(|stream| stream.write_all(b"csrm\x01").unwrap());
    let address = Address::Path(path.clone());
    let ask_free = |address: &Address, key: Key| {
        let address = address.clone();
        move || ask(&address, &key, &Question::Free, LIMIT)
    };
    let reply = meanwhile(&mut cell, &mut desk, &programs, ask_free(&address, KEY)).unwrap();
    assert_eq!(reply, Reply::Free(cell.manager().book().free()));
    let since = Instant::now();
    while desk.guests() > 0 {
        assert!(since.elapsed() < LIMIT, "who says nothing goes");
        desk.turn(|_| panic!("nobody has asked"));
        std::thread::sleep(Duration::from_millis(1));
    }
    for mut stream in idle {
        let mut told = Vec::new();
        let _ = stream.read_to_end(&mut told);
        assert_eq!(told, []);
    }
    // Another key, other words, and too much.
    let refused = meanwhile(&mut cell, &mut desk, &programs, ask_free(&address, Key([4; 32])));
    assert!(matches!(refused, Err(PeerError::Host(_))), "{refused:?}");
    for words in [b"GET / HTTP/1.1".to_vec(), vec![0xff; 2 * MOST_BYTES as usize]] {
        let to: PathBuf = path.clone();
        let told = meanwhile(&mut cell, &mut desk, &programs, move || {
            let mut stream = UnixStream::connect(to).unwrap();
            let _ = stream.write_all(&words);
            let mut told = Vec::new();
            let _ = stream.read_to_end(&mut told);
            told
        });
        assert_eq!(told, []);
    }
    // Who is asked and does nothing is not waited for without end.
    let late = ask(&address, &KEY, &Question::Free, Duration::from_millis(50));
    assert!(matches!(late, Err(PeerError::Late)), "{late:?}");
    let elsewhere = ask(&Address::Port(([192, 0, 2, 1], 9).into()), &KEY, &Question::Free, LIMIT);
    assert!(matches!(elsewhere, Err(PeerError::Elsewhere(_))), "{elsewhere:?}");
    let reply = meanwhile(&mut cell, &mut desk, &programs, ask_free(&address, KEY));
    assert!(matches!(reply, Ok(Reply::Free(_))), "{reply:?}");
}
