//! The machine around a program: what its kernel is asked for before the program can run, and what begins anew when it has.

#![expect(
    unsafe_code,
    reason = "modules are loaded, and descriptors inherited, by calls that have no safe form"
)]

use std::ffi::{CStr, c_int};
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use comb_guest::agent::{serve_by, use_all_processors};
use comb_guest::wire::PORT;
use rustix::io::FdFlags;

use crate::memory;
use crate::program::{Program, put_in_place_of};

/// The first word of a process that continues where this has stopped: descriptors are behind it.
const AGAIN: &str = "again";

const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// Where a process stands that continues.
struct Stand {
    port: File,
    /// What the host has said, and nobody has heard.
    came: Vec<u8>,
}

/// Serves the host, for as long as the machine lives.
pub(crate) fn serve() -> c_int {
    let stand = match inherited() {
        Some(stand) => stand,
        None => begin(),
    };
    let failed = stand.and_then(|stand| {
        memory::take();
        let mut program = Program::new()?;
        let came = serve_by(&stand.port, &mut program, &stand.came)?;
        again(&stand.port, &came)
    });
    if let Err(error) = failed {
        eprintln!("there is no line to the host: {error}");
    }
    // The end of the first process is the machine's.
    1
}

/// In a machine that has just begun.
fn begin() -> io::Result<Stand> {
    for (what, place) in [(c"devtmpfs", c"/dev"), (c"proc", c"/proc"), (c"sysfs", c"/sys")] {
        mount(what, place)?;
    }
    use_all_processors();
    // There was no console when this began. What is opened next would be taken for standard input, output or error.
    while File::options().read(true).write(true).open("/dev/null")?.into_raw_fd() < 2 {}
    let mut modules: Vec<PathBuf> =
        fs::read_dir("/lib")?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    modules.sort();
    for module in modules {
        load(&module)?;
    }
    loop {
        if let Some(port) = port()? {
            return Ok(Stand { port, came: Vec::new() });
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

fn mount(what: &CStr, place: &CStr) -> io::Result<()> {
    fs::create_dir_all(place.to_str().expect("it is plain text"))?;
    let nothing = std::ptr::null();
    // SAFETY: texts that end, and no options.
    let done = unsafe { libc::mount(c"none".as_ptr(), place.as_ptr(), what.as_ptr(), 0, nothing) };
    let error = io::Error::last_os_error();
    if done == 0 || error.raw_os_error() == Some(libc::EBUSY) { Ok(()) } else { Err(error) }
}

fn load(module: &Path) -> io::Result<()> {
    let file = File::open(module)?;
    // SAFETY: a descriptor of a file, and a text without an option.
    let done = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
    let error = io::Error::last_os_error();
    if done == 0 || error.raw_os_error() == Some(libc::EEXIST) { Ok(()) } else { Err(error) }
}

/// The port to the host, once its driver has it.
fn port() -> io::Result<Option<File>> {
    let Ok(ports) = fs::read_dir("/sys/class/virtio-ports") else { return Ok(None) };
    for port in ports.filter_map(Result::ok) {
        if fs::read_to_string(port.path().join("name")).is_ok_and(|name| name.trim() == PORT) {
            let device = Path::new("/dev").join(port.file_name());
            let opened = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(device);
            return match opened {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                opened => opened.map(Some),
            };
        }
    }
    Ok(None)
}

/// The process that this one is anew has left its port, and what came over it.
fn inherited() -> Option<io::Result<Stand>> {
    let mut words = std::env::args().skip(1);
    let ours = words.next().is_some_and(|word| word == AGAIN);
    let mut descriptor = || {
        let number: RawFd = words.next()?.parse().ok()?;
        // SAFETY: it was left open for this.
        Some(unsafe { OwnedFd::from_raw_fd(number) })
    };
    let (port, left) = if ours { (descriptor()?, descriptor()?) } else { return None };
    let mut left = File::from(left);
    let mut came = Vec::new();
    let read = left.rewind().and_then(|()| left.read_to_end(&mut came));
    Some(read.map(|_| Stand { port: port.into(), came }))
}

/// Has this process begin anew, with an address space that nothing has touched; all threads are gone with the one that there was.
fn again(port: &File, came: &[u8]) -> io::Result<()> {
    let mut left = File::from(rustix::fs::memfd_create("left", rustix::fs::MemfdFlags::empty())?);
    left.write_all(came)?;
    rustix::io::fcntl_setfd(port, FdFlags::empty())?;
    // What the program wrote to is no console.
    let console = File::options().read(true).write(true).open("/dev/console")?;
    for number in 0..3 {
        put_in_place_of(number, &console)?;
    }
    let own = std::env::current_exe()?;
    let descriptors = [port.as_fd(), left.as_fd()].map(|descriptor| descriptor.as_raw_fd().to_string());
    Err(std::process::Command::new(own).arg(AGAIN).args(descriptors).env_clear().exec())
}
