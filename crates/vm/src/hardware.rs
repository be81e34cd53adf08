//! A machine's hardware, as an engine is told of it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::attached::{Attached, Devices, with_path};
use crate::image::Image;

/// The engine's program.
pub const QEMU: &str = "qemu-system-x86_64";

/// Where a machine's memory can be, beside what it has: 32 slots for what is plugged in later, and its root.
const ROOM_FOR_MORE_BYTES: u64 = 64 << 30;

/// What runs the processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Accelerator {
    /// The host's processor, by its kernel.
    Kvm,
    /// A translator: several times slower, and everywhere.
    Tcg,
}

impl Accelerator {
    /// The best that this host permits this user.
    pub fn of_host() -> Self {
        let can = std::fs::File::options().read(true).write(true).open("/dev/kvm").is_ok();
        if can && kvm_works() { Self::Kvm } else { Self::Tcg }
    }

    /// As the engine calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

/// Whether the host's processor has what its kernel would use: a machine in a machine may have the device alone.
fn kvm_works() -> bool {
    let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    flags.split_whitespace().any(|flag| flag == "vmx" || flag == "svm")
}

/// What a file under memory becomes when it is written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Under {
    /// It stays: what is written is the machine's own.
    Private,
    /// It is written.
    Shared,
}

/// A machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hardware {
    /// Its memory.
    pub memory_bytes: u64,
    /// Its processors.
    pub processors: u32,
    /// Who runs them.
    pub accelerator: Accelerator,
    /// Have the host's kernel look for pages that are alike in machines, and keep one. Whoever runs in one machine can find out by the time that a store takes what another has.
    pub merges: bool,
    /// What is attached to it.
    #[serde(default)]
    pub attached: Attached,
}

impl Default for Hardware {
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
            processors: 1,
            accelerator: Accelerator::of_host(),
            merges: false,
            attached: Attached::default(),
        }
    }
}

/// A machine's root disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Root {
    /// Memory over a file, which guests see without a copy of their own.
    Memory(PathBuf),
    /// A disk as the engine has them, of which each guest has its own copy of what it reads. (To compare with.)
    Drive(PathBuf),
}

/// What is under a machine's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Backing {
    /// A file under its main memory; none: it is nobody else's.
    pub ram: Option<PathBuf>,
    /// Its root.
    pub root: Root,
    /// What becomes of files under memory.
    pub under: Under,
    /// Who else has it, without files.
    pub devices: Devices,
}

/// Numbers of descriptors that the engine inherits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lines {
    /// Its own protocol.
    pub qmp: i32,
    /// The machine's console.
    pub console: i32,
    /// The agent in the guest.
    pub agent: i32,
}

/// What a translator keeps of its work is the host's memory as well: at most this part of what the guest has.
const TRANSLATED_PART: u64 = 8;

impl Hardware {
    fn accelerator_option(&self) -> String {
        match self.accelerator {
            Accelerator::Kvm => "kvm".to_owned(),
            Accelerator::Tcg => {
                let megabytes = (self.memory_bytes >> 20).div_ceil(TRANSLATED_PART).clamp(16, 1024);
                format!("tcg,tb-size={megabytes}")
            }
        }
    }

    /// How an engine is started for it. `waits`: it begins only when its state has come.
    pub fn command_line(&self, image: &Image, backing: &Backing, lines: Lines, waits: bool) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        let mut add = |option: &str, value: OsString| {
            words.push(option.into());
            if !value.is_empty() {
                words.push(value);
            }
        };
        let (ram, root) = (self.memory_bytes, image.root_bytes);
        let merge = if self.merges { "on" } else { "off" };
        add("-no-user-config", OsString::new());
        add("-nodefaults", OsString::new());
        add("-no-reboot", OsString::new());
        add("-display", "none".into());
        add("-machine", "pc,memory-backend=ram".into());
        add("-accel", self.accelerator_option().into());
        add("-cpu", if self.accelerator == Accelerator::Kvm { "host" } else { "max" }.into());
        add("-smp", self.processors.to_string().into());
        add("-m", format!("size={ram}B,maxmem={}B,slots=32", ram + root + ROOM_FOR_MORE_BYTES).into());
        let share = if backing.under == Under::Shared { "on" } else { "off" };
        match &backing.ram {
            Some(path) => add("-object", memory("ram", ram, path, &format!("share={share},merge={merge}"))),
            None if backing.devices != Devices::default() => {
                add("-object", format!("memory-backend-memfd,id=ram,size={ram},share=on,merge=off").into());
            }
            None => {
                add("-object", format!("memory-backend-ram,id=ram,size={ram},merge={merge}").into());
            }
        }
        match &backing.root {
            _ if root == 0 => {}
            Root::Memory(path) => {
                add("-object", memory("root", root, path, &format!("share={share}")));
                add("-device", "virtio-pmem-pci,memdev=root,id=root-disk".into());
            }
            Root::Drive(path) => {
                let options = "if=none,id=root,format=raw,file=";
                add("-drive", with_path(options.into(), path));
                add("-device", "virtio-blk-pci,drive=root".into());
            }
        }
        add("-kernel", image.directory.join("kernel").into());
        add("-initrd", image.directory.join("initrd").into());
        let mut begins =
            String::from("console=hvc0 quiet panic=-1 swiotlb=noforce transparent_hugepage=never");
        if self.accelerator == Accelerator::Tcg {
            begins.push_str(" tsc=reliable no_timer_check");
        }
        add("-append", begins.into());
        add("-device", "virtio-serial-pci,max_ports=4".into());
        let mut chardev = |id: &str, descriptor: i32| {
            add("-chardev", format!("socket,id={id},fd={descriptor}").into());
        };
        chardev("qmp", lines.qmp);
        chardev("console", lines.console);
        chardev("agent", lines.agent);
        add("-mon", "chardev=qmp,mode=control".into());
        add("-device", "virtconsole,chardev=console".into());
        add("-device", format!("virtserialport,chardev=agent,name={}", comb_guest::wire::PORT).into());
        add("-device", "virtio-balloon-pci,id=balloon,free-page-reporting=on,deflate-on-oom=on".into());
        add("-device", "virtio-rng-pci".into());
        add("-device", "pvpanic-pci".into());
        let mut options = backing.devices.options().into_iter();
        while let (Some(option), Some(value)) = (options.next(), options.next()) {
            add(&option.to_string_lossy(), value);
        }
        if waits {
            add("-incoming", "defer".into());
        }
        words
    }
}

fn memory(id: &str, bytes: u64, path: &Path, rest: &str) -> OsString {
    with_path(format!("memory-backend-file,id={id},size={bytes},{rest},mem-path=").into(), path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(backing: &Backing, hardware: &Hardware, waits: bool) -> String {
        let image = Image {
            name: "small".parse().unwrap(),
            directory: "/images/small".into(),
            kernel_version: "6.1".into(),
            root_bytes: 16 << 20,
        };
        let words = hardware.command_line(&image, backing, Lines { qmp: 3, console: 4, agent: 5 }, waits);
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn files_under_memory_are_private_or_shared_together() {
        let hardware = Hardware { accelerator: Accelerator::Tcg, ..Hardware::default() };
        let mut backing = Backing {
            ram: Some("/t/ram".into()),
            root: Root::Memory("/t/a,b".into()),
            under: Under::Private,
            devices: Devices::default(),
        };
        let private = line(&backing, &hardware, true);
        assert!(private.contains("id=ram,size=268435456,share=off,merge=off,mem-path=/t/ram"), "{private}");
        assert!(private.contains("id=root,size=16777216,share=off,mem-path=/t/a,,b -device"), "{private}");
        assert!(private.ends_with("-incoming defer"), "{private}");
        assert!(private.contains("-accel tcg,tb-size=32 "), "{private}");
        backing.under = Under::Shared;
        let shared = line(&backing, &Hardware { merges: true, ..hardware }, false);
        assert_eq!(shared.matches("share=on").count(), 2);
        assert!(shared.contains("merge=on") && !shared.contains("incoming"), "{shared}");
    }
}
