//! Unmodified programs of several cells, each under an emulator and a supervisor of its own, that have memory in common.

use comb_kernel::calls::Direct;
use comb_kernel::objects::Sizes;
use comb_kernel::supervisor::Supervisor;
use comb_kernels::shared::{Block, Letter, Stream, Wake};
use comb_types::{CellId, Dice};
use comb_unix::supervised::Supervised;
use comb_unix::{ExitStatus, Options, Sharing, Unix};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Nothing that goes well takes as long.
const LIMIT: Duration = Duration::from_secs(300);

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("comb-unix-sharing-{}-{name}", std::process::id()))
}

/// Lines between so many cells.
fn streams(cells: u32) -> Vec<Stream> {
    let mut lines: Vec<Vec<(CellId, UnixStream)>> = (0..cells).map(|_| Vec::new()).collect();
    for a in 0..cells {
        for b in a + 1..cells {
            let (one, other) = UnixStream::pair().expect("a pair");
            lines[a as usize].push((CellId(b), one));
            lines[b as usize].push((CellId(a), other));
        }
    }
    lines.into_iter().map(|lines| Stream::new(lines).expect("lines")).collect()
}

/// Runs a program in a cell: how it ended, what it wrote, and which cells had died.
fn run_one(
    name: &str,
    [me, cells]: [u32; 2],
    stream: Stream,
    arguments: &[&str],
) -> (ExitStatus, String, Vec<CellId>) {
    let path = temporary(&format!("{name}-{me}-out"));
    let mut out =
        File::options().read(true).write(true).create(true).truncate(true).open(&path).expect("a file");
    std::fs::remove_file(&path).expect("just made");
    let copy = || Some(OwnedFd::from(out.try_clone().expect("a copy")));
    let null = File::open("/dev/null").expect("there is one");
    let options = Options {
        root: "/".into(),
        working_directory: "/tmp".into(),
        arguments: arguments.iter().map(Into::into).collect(),
        environment: ["PATH=/usr/bin:/bin"].iter().map(Into::into).collect(),
        standard: [Some(null.into()), copy(), copy()],
        swap: 0,
        sharing: Some(Sharing { me: CellId(me), cells, stream, files: vec![("board".to_owned(), 1 << 16)] }),
        signals: None,
    };
    let sizes = Sizes::default();
    let (supervisor, kernel) = Supervisor::new(sizes, 256).expect("a supervisor");
    let machine = Supervised::new(Direct::new(supervisor, kernel), sizes, 0);
    let mut unix = Unix::new(machine, options).expect("a program that can be started");
    let status = unix.run();
    assert!(unix.serve_others(LIMIT), "others never end");
    let mut text = String::new();
    out.rewind().expect("a regular file");
    out.read_to_string(&mut text).expect("text");
    (status, text, unix.dead_cells().to_vec())
}

/// Runs a program in each cell: how it ended, and what it wrote.
fn run(name: &str, programs: &[Vec<&str>]) -> Vec<(ExitStatus, String)> {
    let cells = u32::try_from(programs.len()).expect("few");
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..cells)
            .zip(streams(cells))
            .zip(programs)
            .map(|((me, stream), arguments)| {
                scope.spawn(move || run_one(name, [me, cells], stream, arguments))
            })
            .collect();
        let ended = running.into_iter().map(|one| one.join().expect("it ends"));
        ended
            .map(|(status, text, dead)| {
                assert_eq!(dead, []);
                (status, text)
            })
            .collect()
    })
}

/// The program that adds, built; nothing if there is no compiler.
fn adding(name: &str) -> Option<PathBuf> {
    if !Path::new("/usr/bin/gcc").exists() {
        eprintln!("there is no compiler here");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs_in_c/sharing.c");
    let program = temporary(name);
    let built = std::process::Command::new("/usr/bin/gcc")
        .args(["-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(&source)
        .arg("-lrt")
        .status()
        .expect("a compiler that runs");
    assert!(built.success());
    Some(program)
}

fn all_add(name: &str, cells: usize, times: u64) {
    let Some(program) = adding(name) else { return };
    let (path, count, times_text) =
        (program.to_str().expect("a name of ours").to_owned(), cells.to_string(), times.to_string());
    let arguments = vec![path.as_str(), "/board", &count, &times_text];
    let all = 2 * cells as u64 * times;
    let expected = (ExitStatus::Exited(0), format!("{all} {all} 0\n"));
    assert_eq!(run(name, &vec![arguments; cells]), vec![expected; cells]);
    std::fs::remove_file(program).expect("it was built");
}

#[test]
fn programs_of_two_cells_lock_add_and_take_turns() {
    all_add("two", 2, 2_000);
}

#[test]
fn and_of_three() {
    all_add("three", 3, 300);
}

#[test]
fn what_one_cell_writes_by_calls_another_reads_by_calls() {
    let busybox = "/usr/bin/busybox";
    if !Path::new(busybox).exists() {
        eprintln!("busybox is not installed here");
        return;
    }
    let writes = "printf hello | dd of=/dev/shm/board bs=1 seek=8190 conv=notrunc 2>/dev/null; \
                  until [ \"$(head -c 2 /dev/shm/board)\" = ok ]; do sleep 0.01; done; ls -l /dev/shm/board | wc -l";
    let reads = "until tail -c +8191 /dev/shm/board | head -c 5 | grep -q hello; do sleep 0.01; done; \
                 printf ok | dd of=/dev/shm/board conv=notrunc 2>/dev/null; stat -c %s /dev/shm/board";
    let ran = run("calls", &[vec![busybox, "sh", "-c", writes], vec![busybox, "sh", "-c", reads]]);
    let exited = ExitStatus::Exited(0);
    assert_eq!(ran, [(exited, "1\n".to_owned()), (exited, "65536\n".to_owned())]);
}

#[test]
fn a_cell_that_says_anything_harms_no_program() {
    let busybox = "/usr/bin/busybox";
    if !Path::new(busybox).exists() {
        eprintln!("busybox is not installed here");
        return;
    }
    // It reads from and writes to all of it, and says then how much it is.
    let uses = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); cat /dev/shm/board > $0; \
                dd if=$0 of=/dev/shm/board bs=4k conv=notrunc; done 2> /dev/null; rm $0; wc -c < /dev/shm/board";
    for seed in 0..6 {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let hostile = std::thread::spawn(move || {
            let mut dice = Dice::new(seed);
            let mut line = &theirs;
            theirs.set_read_timeout(Some(Duration::from_millis(1))).expect("a time");
            for _ in 0..3_000 {
                let content = vec![7; [0, 256, 256, 17, 4096][dice.below(5) as usize]];
                let (kind, word) = (dice.below(14).try_into().expect("it is small"), dice.below(3).into());
                let mut letter = Letter { kind, block: Block(dice.below(260).into()), word, content };
                if dice.below(10) == 0 {
                    let [page, offset] = [17, 4100].map(|most| dice.below(most));
                    letter = Wake { page, offset, most: u32::MAX, bits: u32::MAX }.to_letter();
                    letter.content.truncate(16 - dice.below(100).saturating_sub(90) as usize);
                }
                let mut bytes = letter.to_bytes();
                if dice.below(500) == 0 {
                    bytes.truncate(dice.below(21) as usize);
                }
                let length = u32::try_from(bytes.len()).expect("it is short").to_le_bytes();
                if line.write_all(&[&length[..], &bytes].concat()).is_err() {
                    return;
                }
                let _ = line.read(&mut [0; 4096]);
            }
        });
        let stream = Stream::new([(CellId(1), ours)]).expect("a line");
        let name = format!("hostile-{seed}");
        let copy = temporary(&format!("{name}-copy"));
        let copy = copy.to_str().expect("a name of ours");
        let (status, text, dead) = run_one(&name, [0, 2], stream, &[busybox, "sh", "-c", uses, copy]);
        assert_eq!((status, text.as_str(), dead), (ExitStatus::Exited(0), "65536\n", vec![CellId(1)]));
        hostile.join().expect("it ends");
    }
}
