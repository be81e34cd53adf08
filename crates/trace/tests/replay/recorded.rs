//! A shell script is recorded by the kernel, and replayed.

use std::fs::File;
use std::io::BufReader;
use std::process::{Command, Stdio};
use std::thread;

use comb_trace::event::{Event, flag};
use comb_trace::kernel::Kernel;
use comb_trace::privacy::Privacy;
use comb_trace::recorder::{Recorder, TraceFile};
use comb_trace::replay::{Fill, MOST_WORKERS, Pace, Plan, Sandbox, replay};
use comb_trace::trace_file::{Head, Listener, Moment, read_trace};
use comb_trace::{Operation, file_type};

use crate::temporary_folder::TemporaryFolder;
use crate::tree;

const SCRIPT: &str = "
mkdir a
echo hello > a/one
cat a/one > a/two
cp a/two a/three
mv a/three b
mkdir c
mv a/two c/
rm a/one
ln -s c/two link
ln b hard
cat link > /dev/null
rmdir a
mkdir x y
mv y x/
touch x/y/z
head -c 100000 /dev/zero > big
truncate -s 50000 big
dd if=big of=big2 bs=4096 conv=fsync 2> /dev/null
(for number in 1 2 3 4 5; do echo $number >> log; done) &
(for number in 1 2 3 4 5; do cat big > copy$number; rm copy$number; done) &
wait
cat there-before > /dev/null
rm -r x
";

/// Bytes that were written to files, by what the trace says.
#[derive(Default)]
struct Written {
    bytes: u64,
    kernel_devices: Vec<u32>,
}

impl Listener for Written {
    fn head(&mut self, head: &Head) {
        let of_kernel = head.mounts.iter().filter(|mount| file_type::is_of_kernel(&mount.kind));
        self.kernel_devices = of_kernel.map(|mount| mount.device).collect();
    }
    fn event(&mut self, event: &Event, _texts: &[u8]) {
        let is_output = event.operation == Operation::Transfer as u8 && event.flags & flag::SECOND != 0;
        let is_write = event.operation == Operation::Write as u8 || is_output;
        if is_write && event.file.is_some() && !self.kernel_devices.contains(&event.file.device) {
            self.bytes += u64::try_from(event.result).unwrap_or(0);
        }
    }
    fn moment(&mut self, _moment: &Moment) {}
}

#[test]
fn a_recorded_script_leaves_the_same_tree_when_it_is_replayed() {
    let kernel = match Kernel::attach(false) {
        Ok(kernel) => kernel,
        Err(error) => return eprintln!("did not run: nothing can be recorded here ({error})"),
    };
    let (original, elsewhere) = (TemporaryFolder::new(), TemporaryFolder::new());
    std::fs::write(original.path().join("there-before"), "x".repeat(7000)).unwrap();
    let trace = elsewhere.path().join("trace");
    let output = TraceFile::create(&trace).unwrap();
    let mut recorder = Recorder::new(Box::new(kernel), output, Privacy::none(), Head::default()).unwrap();
    let mut command = Command::new("sh");
    command.args(["-ec", SCRIPT]).current_dir(original.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = recorder.source().start(command).unwrap();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        thread::sleep(recorder.step().unwrap());
    };
    assert!(status.success());
    assert_eq!(recorder.finish().unwrap().counters.lost, 0);

    let open = || BufReader::new(File::open(&trace).unwrap());
    let mut written = Written::default();
    read_trace(open(), &mut written).unwrap();
    let plan = Plan::read(open(), MOST_WORKERS).unwrap();
    let sandbox = Sandbox::prepare(&elsewhere.path().join("sandbox"), &plan, Fill::Holes).unwrap();
    let summary = replay(&plan, &sandbox, Pace::AsFastAsPossible);
    let replayed = sandbox.path().join(original.path().strip_prefix("/").unwrap());
    assert_eq!(tree(&replayed), tree(original.path()));
    assert_eq!(summary.written_bytes, written.bytes);
    assert!(summary.written_bytes >= 100_000 + 50_000 + 5 * 50_000);
    // Of what the script did itself, all comes out as it did. What libraries and shells look for elsewhere may lie behind links.
    let own = original.path().strip_prefix("/").unwrap().as_os_str().as_encoded_bytes();
    let differs: Vec<_> =
        summary.first_differences.iter().filter(|difference| difference.path.starts_with(own)).collect();
    assert!(differs.is_empty(), "{differs:?}");
    assert_eq!(sandbox.clean(&plan), 0);
    assert!(!elsewhere.path().join("sandbox").exists());
}
