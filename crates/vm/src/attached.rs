//! What is attached to a machine besides its memory and its root: disks, and a place on a subnet. (Disco §4.2.4)

mod disk_server;

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use self::disk_server::{DiskError, DiskServer};
use crate::devices::disk::Writes;
use crate::devices::switch::control::WayOut;
use crate::names::Name;

/// A disk that a machine is to have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DiskOf {
    /// The file with its content.
    pub base: PathBuf,
    /// What becomes of what the machine writes.
    pub writes: Writes,
}

/// What is said after a file's name, and what it means.
const WRITES: &str = "FILE, FILE:temporary, FILE:exclusive, FILE:read-only or FILE:overlay=OTHER-FILE";

impl FromStr for DiskOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (base, writes) = match text.rsplit_once(':') {
            None => (text, Writes::Temporary),
            Some((base, "temporary")) => (base, Writes::Temporary),
            Some((base, "exclusive")) => (base, Writes::Exclusive),
            Some((base, "read-only")) => (base, Writes::Refused),
            Some((base, how)) => match how.strip_prefix("overlay=") {
                Some(overlay) if !overlay.is_empty() => (base, Writes::Overlay(overlay.into())),
                _ => return Err(format!("say {WRITES}")),
            },
        };
        if base.is_empty() {
            return Err(format!("say {WRITES}"));
        }
        Ok(Self { base: base.into(), writes })
    }
}

impl DiskOf {
    /// The same, from whichever directory.
    pub fn absolute(mut self) -> io::Result<Self> {
        self.base = std::path::absolute(&self.base)?;
        if let Writes::Overlay(overlay) = &mut self.writes {
            *overlay = std::path::absolute(&*overlay)?;
        }
        Ok(self)
    }
}

/// A place on a subnet that a machine is to have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SubnetOf {
    /// What it is called.
    pub name: String,
    /// What the machine is to reach besides.
    pub way: WayOut,
}

impl FromStr for SubnetOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, way) = match text.split_once(':') {
            None => (text, WayOut::Inside),
            Some((name, way)) => (name, way.parse()?),
        };
        let name: Name = name.parse().map_err(|error| format!("{error}"))?;
        Ok(Self { name: name.to_string(), way })
    }
}

/// All that a machine is to have.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Attached {
    /// Disks.
    pub disks: Vec<DiskOf>,
    /// A place on a subnet.
    pub subnet: Option<SubnetOf>,
}

impl Attached {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Where what is attached to a machine from its beginning is: its engine shows it the machine's memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Devices {
    /// The sockets of its disks.
    pub disks: Vec<PathBuf>,
    /// Its port, and the address of the device there.
    pub port: Option<(PathBuf, [u8; 6])>,
    /// More that the device at the port is told.
    pub port_options: String,
    /// The engine's own, as it is told of them. (To compare with.)
    pub own: Vec<OsString>,
    /// Other machines have memory in common with it.
    pub has_company: bool,
}

impl Devices {
    /// Whether others load and store where its processors do.
    pub(crate) fn meet_processors(&self) -> bool {
        self.see_memory() || self.has_company
    }

    /// Whether the engine shows them the machine's memory.
    pub(crate) fn see_memory(&self) -> bool {
        !self.disks.is_empty() || self.port.is_some()
    }

    /// How an engine is told of them.
    pub(crate) fn options(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        let mut socket = |id: &str, path: &Path| {
            words.push("-chardev".into());
            words.push(with_path(format!("socket,id={id},reconnect=1,path=").into(), path));
        };
        for (number, path) in self.disks.iter().enumerate() {
            socket(&format!("disk-{number}"), path);
        }
        if let Some((path, _)) = &self.port {
            socket("port", path);
        }
        // Interrupts are of the old kind: what the engine has for others does not pass a translated processor.
        let mut add = |option: &str, value: String| words.extend([option.into(), value.into()]);
        for number in 0..self.disks.len() {
            let device = "vhost-user-blk-pci,num-queues=1,vectors=0";
            add("-device", format!("{device},id=disk-{number}-device,chardev=disk-{number}"));
        }
        if let Some((_, mac)) = &self.port {
            add("-netdev", "type=vhost-user,id=subnet,chardev=port".into());
            let more = &self.port_options;
            add("-device", format!("virtio-net-pci,netdev=subnet,vectors=0,mac={}{more}", mac_text(*mac)));
        }
        words.extend(self.own.iter().cloned());
        words
    }
}

/// As people write it.
pub fn mac_text(mac: [u8; 6]) -> String {
    crate::devices::switch::subnet::Address(mac).to_string()
}

/// A path at the end of an engine's option.
pub(crate) fn with_path(mut options: OsString, path: &Path) -> OsString {
    // A comma ends a value, and two are one that does not.
    let mut parts = path.as_os_str().as_encoded_bytes().split(|&byte| byte == b',');
    let mut escaped = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        escaped.extend_from_slice(b",,");
        escaped.extend_from_slice(part);
    }
    options.push(OsString::from_vec(escaped));
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_a_file_and_what_becomes_of_writes() {
        let writes = |text: &str| text.parse::<DiskOf>().map(|disk| disk.writes);
        assert_eq!(writes("a.img"), Ok(Writes::Temporary));
        assert_eq!(writes("a.img:exclusive"), Ok(Writes::Exclusive));
        assert_eq!(writes("a:b.img:read-only"), Ok(Writes::Refused));
        assert_eq!(writes("a.img:overlay=b.over"), Ok(Writes::Overlay("b.over".into())));
        for text in ["", ":exclusive", "a.img:", "a.img:overlay=", "a.img:mine"] {
            assert!(text.parse::<DiskOf>().unwrap_err().contains("FILE:read-only"), "{text}");
        }
    }

    #[test]
    fn a_subnet_is_a_name_and_a_way_out() {
        let subnet = |text: &str| text.parse::<SubnetOf>().map(|subnet| subnet.way);
        assert_eq!(subnet("lab"), Ok(WayOut::Inside));
        assert_eq!(subnet("lab:nat"), Ok(WayOut::Nat));
        assert_eq!(subnet("lab:tap=tap0"), Ok(WayOut::Tap("tap0".into())));
        for text in ["", ":nat", "../lab", "lab:", "lab:host"] {
            assert!(subnet(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_engine_is_told_of_each() {
        let port = Some(("/s/0.socket".into(), [0x52, 0x54, 0, 1, 2, 3]));
        let disks = vec!["/m/a,b".into(), "/m/c".into()];
        let devices = Devices { disks, port, ..Devices::default() };
        let words: Vec<_> = devices.options().iter().map(|word| word.to_str().unwrap().to_owned()).collect();
        assert_eq!(words[1], "socket,id=disk-0,reconnect=1,path=/m/a,,b");
        assert!(words.iter().any(|word| word.ends_with("chardev=disk-1")));
        assert_eq!(words.last().unwrap(), "virtio-net-pci,netdev=subnet,vectors=0,mac=52:54:00:01:02:03");
    }
}
