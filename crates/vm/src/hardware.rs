//! A machine's hardware, as an engine is told of it.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::attached::{Attached, Devices, with_path};
use crate::image::Image;

/// The device through which memory comes and goes.
pub(crate) const ROOM: &str = "room-memory";

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
    /// The host's processor, by user-mode Linux: programs as fast as the host's, their system calls and faults several times slower. Such a machine has one processor, and its state is not saved.
    Uml,
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
            Self::Uml => "uml",
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
    /// So much it may come to have, and never less than it begins with. Zero: what it has is its own.
    #[serde(default)]
    pub most_bytes: u64,
    /// Its processors.
    pub processors: u32,
    /// Nodes that its memory and its processors are shared out to. A processor has farther to the memory of others than to its own.
    #[serde(default = "one_node")]
    pub nodes: u32,
    /// Who runs them.
    pub accelerator: Accelerator,
    /// Have the host's kernel look for pages that are alike in machines, and keep one. Whoever runs in one machine can find out by the time that a store takes what another has.
    pub merges: bool,
    /// What is attached to it.
    #[serde(default)]
    pub attached: Attached,
    /// A plug-in of the translator's that sees what its processors do, with its options. (To measure with.)
    #[serde(skip)]
    pub watcher: Option<String>,
}

impl Default for Hardware {
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
            most_bytes: 0,
            processors: 1,
            nodes: one_node(),
            accelerator: Accelerator::of_host(),
            merges: false,
            attached: Attached::default(),
            watcher: None,
        }
    }
}

fn one_node() -> u32 {
    1
}

/// How much farther memory of another node is, by that of one's own, in tenths: a miss took FLASH 900 ns instead of 300. (Disco §5.1)
const OTHER_NODE: u32 = 30;

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

/// Numbers of descriptors that the engine inherits, each the end of a line.
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

/// With less no guest begins.
pub const LEAST_BYTES: u64 = 64 << 20;

/// What a guest can be given is a multiple of this: it has it in blocks of as much.
const ROOM_BLOCK_BYTES: u64 = 128 << 20;

impl Hardware {
    /// Whether its memory comes and goes.
    pub fn has_room(&self) -> bool {
        self.most_bytes > self.memory_bytes
    }

    /// What it may be told to have.
    pub fn may_have(&self) -> RangeInclusive<u64> {
        if self.has_room() {
            self.memory_bytes..=self.most_bytes
        } else {
            LEAST_BYTES.min(self.memory_bytes)..=self.memory_bytes
        }
    }

    /// Where memory is that it may come to have.
    fn room_bytes(&self) -> u64 {
        self.most_bytes.saturating_sub(self.memory_bytes).next_multiple_of(ROOM_BLOCK_BYTES)
    }

    fn accelerator_option(&self) -> String {
        if self.accelerator != Accelerator::Tcg {
            return self.accelerator.as_str().to_owned();
        }
        let megabytes = (self.memory_bytes >> 20).div_ceil(TRANSLATED_PART).clamp(16, 1024);
        format!("tcg,tb-size={megabytes}")
    }

    /// How much each node has.
    pub fn memory_of_nodes(&self) -> Vec<u64> {
        let (all, count) = (self.memory_bytes / LEAST_MEMORY, u64::from(self.nodes));
        let begin = |node| if node == count { self.memory_bytes } else { all * node / count * LEAST_MEMORY };
        (0..count).map(|node| begin(node + 1) - begin(node)).collect()
    }

    /// A translator leaves out what keeps loads behind stores, and additions whole, where there is one processor and never another: it is faster so. But who else
    /// is at the machine's memory, a device's process or another machine, would miss what it is told then, or not be told. So there could be another.
    fn processors_option(&self, devices: &Devices) -> String {
        match self.accelerator {
            Accelerator::Tcg if self.processors == 1 && self.nodes <= 1 && devices.meet_processors() => {
                "1,maxcpus=2".to_owned()
            }
            _ => self.processors.to_string(),
        }
    }

    /// Which processors each has, what memory, and how far it is from one to another.
    fn node_options(&self) -> Vec<String> {
        if self.nodes == 1 {
            return Vec::new();
        }
        let nodes = || 0..self.nodes;
        let mut options: Vec<String> = nodes()
            .map(|node| {
                let first = self.processors * node / self.nodes;
                let next = self.processors * (node + 1) / self.nodes;
                let own = if first < next { format!(",cpus={first}-{}", next - 1) } else { String::new() };
                format!("node,nodeid={node},memdev=ram{node}{own}")
            })
            .collect();
        let pairs = nodes().flat_map(|one| nodes().map(move |other| (one, other)));
        let apart = pairs.filter(|(one, other)| one != other);
        options.extend(apart.map(|(one, other)| format!("dist,src={one},dst={other},val={OTHER_NODE}")));
        options
    }

    /// How QEMU is started for it. `waits`: it begins only when its state has come.
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
        // All memory of an engine could be merged if this were not said: what is said of its parts only adds to that.
        let one = if self.nodes > 1 { "" } else { ",memory-backend=ram" };
        add("-machine", format!("pc{one},mem-merge={merge}").into());
        add("-accel", self.accelerator_option().into());
        add("-cpu", if self.accelerator == Accelerator::Kvm { "host" } else { "max" }.into());
        add("-smp", self.processors_option(&backing.devices).into());
        add(
            "-m",
            format!("size={ram}B,maxmem={}B,slots=32", ram + root + self.room_bytes() + ROOM_FOR_MORE_BYTES)
                .into(),
        );
        let share = if backing.under == Under::Shared { "on" } else { "off" };
        for (node, bytes) in (0..).zip(self.memory_of_nodes()) {
            let id = if self.nodes > 1 { format!("ram{node}") } else { "ram".to_owned() };
            add(
                "-object",
                match &backing.ram {
                    Some(path) => {
                        let rest = format!("share={share},merge={merge}");
                        memory(&id, bytes, &memory_file(path, node), &rest)
                    }
                    None if backing.devices.see_memory() => {
                        format!("memory-backend-memfd,id={id},size={bytes},share=on,merge=off").into()
                    }
                    None => format!("memory-backend-ram,id={id},size={bytes},merge={merge}").into(),
                },
            );
        }
        for option in self.node_options() {
            add("-numa", option.into());
        }
        if let Some(watcher) = &self.watcher {
            // Time passes by instructions: to a guest that is watched, and so much slower, processes would seem to take turns all the time.
            add("-icount", "shift=0,sleep=off".into());
            add("-plugin", watcher.into());
        }
        if self.has_room() {
            // Before its root: the guest takes only what begins at a multiple of a block.
            let room = self.room_bytes();
            let kind = if backing.ram.is_none() && backing.devices.see_memory() {
                "memory-backend-memfd,share=on"
            } else {
                "memory-backend-ram"
            };
            add("-object", format!("{kind},id=room,size={room},reserve=off,merge={merge}").into());
            add("-device", format!("virtio-mem-pci,memdev=room,id={ROOM},requested-size=0").into());
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
        if self.has_room() {
            // What comes can go again.
            begins.push_str(" memhp_default_state=online_movable");
        }
        if self.accelerator == Accelerator::Tcg {
            // A timer that is late on a busy host is no broken one, for which a kernel gives up.
            begins.push_str(" tsc=reliable no_timer_check");
            if self.processors > 1 {
                // While a kernel begins it changes its own code, and a translator may miss that of what another processor runs just then: the guest brings the others in.
                begins.push(' ');
                begins.push_str(comb_guest::wire::BEGINS_WITH_ONE);
            }
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

/// Memory comes in pieces of this.
const LEAST_MEMORY: u64 = 2 << 20;

/// The file under a node's memory, where there is one under the first's.
pub(crate) fn memory_file(ram: &Path, node: u32) -> PathBuf {
    if node == 0 {
        return ram.to_owned();
    }
    let mut path = ram.as_os_str().to_owned();
    path.push(format!(".{node}"));
    path.into()
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
        assert!(private.contains(",mem-merge=off") && shared.contains(",mem-merge=on"), "{private} {shared}");
        assert!(shared.contains("merge=on") && !shared.contains("incoming"), "{shared}");
        assert!(!shared.contains("virtio-mem") && !shared.contains("online_movable"), "{shared}");
    }

    #[test]
    fn a_kernel_that_is_translated_begins_with_one_processor() {
        let (root, under) = (Root::Memory("/t/root".into()), Under::Private);
        let backing = Backing { ram: None, root, under, devices: Devices::default() };
        let begins_with_one = |accelerator, processors| {
            let hardware = Hardware { processors, accelerator, ..Hardware::default() };
            line(&backing, &hardware, false).contains(" maxcpus=1")
        };
        assert!(begins_with_one(Accelerator::Tcg, 2));
        assert!(!begins_with_one(Accelerator::Tcg, 1) && !begins_with_one(Accelerator::Kvm, 2));
    }

    #[test]
    fn room_for_more_lies_before_the_root_in_whole_blocks() {
        let hardware = Hardware { most_bytes: 600 << 20, ..Hardware::default() };
        assert_eq!(hardware.may_have(), 256 << 20..=600 << 20);
        assert_eq!(Hardware::default().may_have(), LEAST_BYTES..=256 << 20);
        let mut backing = Backing {
            ram: None,
            root: Root::Memory("/t/root".into()),
            under: Under::Private,
            devices: Devices::default(),
        };
        let line = |backing: &Backing| line(backing, &hardware, false);
        backing.devices.disks = vec!["/d".into()];
        assert!(line(&backing).contains("memory-backend-memfd,share=on,id=room,"), "others see it all");
        assert!(line(&backing).contains("-smp 1,maxcpus=2 "), "and meet its processor");
        backing.devices = Devices { has_company: true, ..Devices::default() };
        assert!(line(&backing).contains("-smp 1,maxcpus=2 "));
        backing.devices = Devices::default();
        let line = line(&backing);
        assert!(line.contains("memory-backend-ram,id=room,size=402653184,reserve=off,"), "{line}");
        let at = |what: &str| line.find(what).unwrap();
        assert!(at("virtio-mem-pci,memdev=room") < at("virtio-pmem-pci"));
        assert!(line.contains("online_movable") && line.contains("-smp 1 "), "{line}");
    }

    #[test]
    fn nodes_share_memory_and_processors_out() {
        let hardware = Hardware {
            accelerator: Accelerator::Tcg,
            memory_bytes: 254 << 20,
            processors: 4,
            nodes: 3,
            ..Hardware::default()
        };
        assert_eq!(hardware.memory_of_nodes(), [42, 42, 43].map(|pieces| pieces * (2 << 20)));
        let mut backing = Backing {
            ram: None,
            root: Root::Memory("/t/root".into()),
            under: Under::Private,
            devices: Devices::default(),
        };
        let said = line(&backing, &hardware, false);
        for part in [
            "-machine pc,mem-merge=off -accel",
            "id=ram2,size=90177536,merge=off",
            "node,nodeid=0,memdev=ram0,cpus=0-0 -numa node,nodeid=1,memdev=ram1,cpus=1-1 -numa node,nodeid=2,memdev=ram2,cpus=2-3",
            "dist,src=2,dst=0,val=30",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        backing.ram = Some("/t/ram".into());
        let said = line(&backing, &hardware, false);
        assert!(said.contains("id=ram0") && said.contains("mem-path=/t/ram -object"), "{said}");
        assert!(said.contains("mem-path=/t/ram.2 "), "{said}");
        let watched = Hardware { watcher: Some("see.so,into=/t/seen".into()), ..hardware.clone() };
        assert!(
            line(&backing, &watched, true).contains("-icount shift=0,sleep=off -plugin see.so,into=/t/seen ")
        );
        let fewer = Hardware { processors: 1, nodes: 2, ..hardware };
        assert!(
            line(&backing, &fewer, false).contains("node,nodeid=0,memdev=ram0 -numa"),
            "a node of memory alone"
        );
    }
}
