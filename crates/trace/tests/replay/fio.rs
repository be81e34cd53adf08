//! What is written for `fio` is what was in the trace, and `fio` takes it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use comb_trace::Operation;
use comb_trace::replay::fio::{LogVersion, iolog, job_file, jobs, make_files};

use crate::made_trace::{CREATE, MadeTrace, READ_WRITE, file, none};
use crate::plan;
use crate::temporary_folder::TemporaryFolder;

/// One process that copies a file in blocks, with a pause; and one that reads here and there.
fn trace() -> MadeTrace {
    let mut trace = MadeTrace::new();
    trace.name(file(1), "/from");
    trace.name(file(2), "/to");
    let from = trace.open(file(1), 3, 0, 20_000, false);
    let to = trace.open(file(2), 4, CREATE | READ_WRITE, 0, true);
    for offset in [0, 8192, 16_384] {
        trace.read(from, offset, 8192, 20_000);
        trace.write(to, offset, if offset == 16_384 { 3616 } else { 8192 });
        trace.pause(2_000_000);
    }
    trace.on(Operation::Sync, to, none());
    trace.close(from);
    trace.close(to);
    trace.by(2);
    let from = trace.open(file(1), 3, 0, 20_000, false);
    for offset in [12_288, 0, 4096, 16_000] {
        trace.read(from, offset, 4000, 20_000);
    }
    trace.close(from);
    trace
}

#[test]
fn jobs_are_what_processes_did() {
    let jobs = jobs(&plan(&trace().finish()));
    assert_eq!(jobs.len(), 2);
    let (copy, random) = (&jobs[0], &jobs[1]);
    assert_eq!(
        (copy.read.requests, copy.read.bytes, copy.written.requests, copy.written.bytes),
        (3, 20_000, 3, 20_000)
    );
    assert_eq!(
        (copy.sequential_share(), copy.files, copy.file_bytes, copy.syncs),
        (1.0, 2, (20_000, 20_000), 1)
    );
    assert_eq!(
        copy.written.sizes.iter().map(|(size, count)| (*size, *count)).collect::<Vec<_>>(),
        [(4096, 1), (8192, 2)]
    );
    assert!((700_000..900_000).contains(&copy.pause_ns), "four of five pauses are none: {}", copy.pause_ns);
    assert_eq!((random.process, random.read.requests, random.read.sequential), (2, 4, 0));
}

#[test]
fn a_log_has_all_requests_in_their_order() {
    let plan = plan(&trace().finish());
    let mut log = Vec::new();
    iolog(&plan, "/mnt/x/", LogVersion::Two, &mut log).unwrap();
    let log = String::from_utf8(log).unwrap();
    assert!(log.starts_with("fio version 2 iolog\n/mnt/x/file-"), "{log}");
    let requests: Vec<&str> = log
        .lines()
        .filter_map(|line| line.split_once(' ').map(|(_, rest)| rest))
        .filter(|rest| rest.starts_with("read") || rest.starts_with("write ") || rest.starts_with("sync"))
        .collect();
    assert_eq!(requests[..4], ["read 0 8192", "write 0 8192", "read 8192 8192", "write 8192 8192"]);
    assert_eq!(requests[4..8], ["read 16384 3616", "write 16384 3616", "sync 0 0", "read 12288 4000"]);
    let waits: Vec<&str> =
        log.lines().filter_map(|line| line.split_once(" wait ")).map(|(_, rest)| rest).collect();
    assert_eq!(waits, ["2 0", "4 0", "6 0"]);
    assert!(iolog(&plan, "/mnt/my disk", LogVersion::Two, &mut Vec::new()).is_err());
    let mut log = Vec::new();
    iolog(&plan, "/mnt/x", LogVersion::Three, &mut log).unwrap();
    let log = String::from_utf8(log).unwrap();
    let times: Vec<u64> =
        log.lines().skip(1).map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
    assert!(times.is_sorted() && *times.last().unwrap() > 6000, "{log}");
}

/// Nothing if it is not installed.
fn fio(arguments: &[&str], at: &Path) -> Option<Output> {
    match Command::new("fio").args(arguments).current_dir(at).output() {
        Ok(output) => Some(output),
        Err(_) => {
            eprintln!("did not run: there is no fio here");
            None
        }
    }
}

#[test]
fn fio_takes_the_jobs() {
    let folder = TemporaryFolder::new();
    let mut file = fs::File::create(folder.path().join("jobs.fio")).unwrap();
    job_file(&plan(&trace().finish()), &mut file).unwrap();
    let Some(output) = fio(&["--parse-only", "jobs.fio"], folder.path()) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = fio(&["--directory=.", "--output-format=terse", "jobs.fio"], folder.path()).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn fio_replays_the_logs_request_by_request() {
    let folder = TemporaryFolder::new();
    let plan = plan(&trace().finish());
    make_files(&plan, folder.path()).unwrap();
    assert!(make_files(&plan, folder.path()).is_err(), "what is there stays");
    for (version, name) in [(LogVersion::Two, "two.log"), (LogVersion::Three, "three.log")] {
        let mut file = fs::File::create(folder.path().join(name)).unwrap();
        iolog(&plan, &folder.path().display().to_string(), version, &mut file).unwrap();
        let log = format!("--read_iolog={name}");
        let arguments = ["--name=replay", "--ioengine=psync", "--output-format=json", &log];
        let Some(output) = fio(&arguments, folder.path()) else { return };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let job = &told["jobs"][0];
        assert_eq!(job["read"]["io_bytes"], 20_000 + 4 * 4000, "{version:?}");
        assert_eq!(job["write"]["io_bytes"], 20_000, "{version:?}");
    }
}
