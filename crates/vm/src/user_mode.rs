//! User-mode Linux: a guest's kernel that is a program of the host's, for computing where the host's own runs no machines. Its processes are the host's, which it stops at each
//! system call. It has a kernel of its own in the place of the image's, and no protocol: what is known of it is its process.
//!
//! `user_mode/registers.c` goes in front of its C library: without it, 6.1 runs no program on a processor that has more registers than it keeps (those with AMX).

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;

use crate::control::started_by;
use crate::hardware::{Hardware, Lines};

/// The engine's program.
pub(crate) const UML: &str = "linux.uml";

/// A disk is told of in these.
const SECTOR_BYTES: u64 = 512;

/// What is written to it lies behind what says which of it was, and begins at such a place.
const ALIGNED_BYTES: u64 = 4096;

/// A name in the head of what is written.
const NAME_BYTES: usize = 4096;

/// Empty if no C compiler was there when this was built.
const REGISTERS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/registers.so"));

/// The first process of the namespace, which is another than the engine: that ends by a signal when its guest's kernel gives up, and a first process is spared those that it sends itself.
const FIRST: &str = "\"$@\"; exit $?";

/// How that ends then.
pub(crate) const GAVE_UP: i32 = 128 + libc::SIGABRT;

/// A machine of it.
pub(crate) struct UserMode {
    /// What it writes to its root: nobody else's, and gone with it.
    written: OwnedFd,
    /// A library that goes in front of its own.
    registers: Option<OwnedFd>,
    place: Place,
}

/// Where it says that it has begun; gone as soon as that has been heard.
struct Place(PathBuf);

impl Place {
    fn new() -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("comb-uml-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                // Of one that was killed and had the same number.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl UserMode {
    /// One over the root of an image, which is never written to.
    pub(crate) fn over(root: &Path) -> io::Result<Self> {
        let registers = (!REGISTERS.is_empty()).then(|| -> io::Result<OwnedFd> {
            let mut file = memory("registers")?;
            file.write_all(REGISTERS)?;
            Ok(file.into())
        });
        Ok(Self { written: nothing_written(root)?, registers: registers.transpose()?, place: Place::new()? })
    }

    /// How it is started. In a process namespace of its own: whatever ends its kernel ends its programs, too, which nobody would stop at system calls any more.
    pub(crate) fn command(&self, hardware: &Hardware, lines: Lines) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-current-user", "--pid", "--net", "--ipc", "--fork"]);
        command.args(["--kill-child", "--", "sh", "-c", FIRST, "sh", UML]);
        if let Some(registers) = &self.registers {
            command.env("LD_PRELOAD", format!("/proc/self/fd/{}", registers.as_raw_fd()));
        }
        command.arg(format!("mem={}M", hardware.memory_bytes >> 20));
        command.arg(format!("ubd0=/proc/self/fd/{}", self.written.as_raw_fd()));
        command.args(["root=/dev/ubda", "rootfstype=ext4", "rw", "init=/sbin/init"]);
        command.args(["con=null", "ssl=null"]);
        command.arg(format!("con0=fd:{}", lines.console)).arg(format!("ssl0=fd:{}", lines.agent));
        command.args(["console=tty0", "quiet", "panic=-1", "noreboot", "umid=machine"]);
        let mut place = OsString::from("uml_dir=");
        place.push(&self.place.0);
        command.arg(place);
        command
    }

    /// Waits until its kernel has begun, whose process that is; none: it has not, or has ended.
    pub(crate) fn await_begin(self, child: &mut Child, limit: Duration, between: Duration) -> Option<u32> {
        let until = Instant::now() + limit;
        let said = self.place.0.join("machine/pid");
        while Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
            if said.exists() {
                let first = started_by(child.id()).first().copied()?;
                return started_by(first).first().copied();
            }
            std::thread::sleep(between);
        }
        None
    }
}

/// What the engine finds as a disk of which nothing was written yet: a head that names what is below, then a bit for each sector, then room for all of them. It is memory, and inherited.
fn nothing_written(root: &Path) -> io::Result<OwnedFd> {
    let root = std::path::absolute(root)?;
    let below = std::fs::metadata(&root)?;
    let name = root.as_os_str().as_bytes();
    if name.len() >= NAME_BYTES {
        return Err(ErrorKind::InvalidFilename.into());
    }
    let mut head = b"OOOM".to_vec();
    let seconds = u32::try_from(below.mtime()).map_err(|_| ErrorKind::InvalidData)?;
    head.extend(3_u32.to_be_bytes());
    head.extend(seconds.to_be_bytes());
    head.extend(below.len().to_be_bytes());
    for word in [SECTOR_BYTES, ALIGNED_BYTES, 0] {
        head.extend(u32::try_from(word).expect("it is short").to_be_bytes());
    }
    head.extend(name);
    let bits_at = ((head.len() - name.len() + NAME_BYTES) as u64).next_multiple_of(ALIGNED_BYTES);
    let bits_bytes = below.len().div_ceil(SECTOR_BYTES).div_ceil(8);
    let all = (bits_at + bits_bytes).next_multiple_of(ALIGNED_BYTES) + below.len();
    let mut file = memory("written")?;
    file.set_len(all)?;
    file.write_all(&head)?;
    Ok(file.into())
}

/// A file that is nowhere, and inherited.
fn memory(name: &str) -> io::Result<File> {
    Ok(File::from(rustix::fs::memfd_create(name, MemfdFlags::empty())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn the_head_is_what_the_engine_writes_itself() {
        let root = std::env::temp_dir().join(format!("comb-vm-user-mode-{}", std::process::id()));
        File::create_new(&root).unwrap().set_len(64 << 20).unwrap();
        let seconds = u32::try_from(std::fs::metadata(&root).unwrap().mtime()).unwrap();
        let file = File::from(nothing_written(&root).unwrap());
        std::fs::remove_file(&root).unwrap();
        // As `linux.uml ubd0=written,root` 6.1 makes it of a file of 64 MB.
        assert_eq!(file.metadata().unwrap().len(), 67_133_440);
        let mut head = [0; 4128];
        file.read_exact_at(&mut head, 0).unwrap();
        let words: Vec<u32> =
            head[..32].chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words, [0x4f4f_4f4d, 3, seconds, 0, 64 << 20, 512, 4096, 0]);
        let name = head[32..].split(|&byte| byte == 0).next().unwrap();
        assert_eq!(name, root.as_os_str().as_bytes());
    }
}
