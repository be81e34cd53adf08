//! A guest's place on a network.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::wire::Network;

/// A device that is plugged in is there by then, with a driver.
const LIMIT: Duration = Duration::from_secs(10);

/// How soon that is seen.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Takes its place, as far as this guest's kernel permits.
pub(super) fn join(network: &Network) {
    let until = Instant::now() + LIMIT;
    let device = loop {
        match device_with(network.mac) {
            Some(device) => break device,
            None if Instant::now() > until => return,
            None => std::thread::sleep(BETWEEN_LOOKS),
        }
    };
    let address = format!("{}/24", Ipv4Addr::from(network.address));
    ip(&["addr", "flush", "dev", &device]);
    ip(&["addr", "add", &address, "broadcast", "+", "dev", &device]);
    ip(&["link", "set", &device, "up"]);
    if let Some([gateway, resolver]) = network.outside.map(|outside| outside.map(Ipv4Addr::from)) {
        ip(&["route", "add", "default", "via", &gateway.to_string()]);
        let _ = std::fs::write("/etc/resolv.conf", format!("nameserver {resolver}\n"));
    }
}

fn device_with(mac: [u8; 6]) -> Option<String> {
    let wanted: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    let wanted = wanted.join(":");
    let mut devices = std::fs::read_dir("/sys/class/net").ok()?.filter_map(|device| device.ok());
    let has = |path: std::path::PathBuf| {
        std::fs::read_to_string(path.join("address")).is_ok_and(|has| has.trim() == wanted)
    };
    devices.find(|device| has(device.path())).and_then(|device| device.file_name().into_string().ok())
}

/// Every image has this program.
fn ip(arguments: &[&str]) {
    let mut command = Command::new("/bin/busybox");
    command.arg("ip").args(arguments);
    let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// Knows others on its network by name.
pub(super) fn know(names: &[(String, [u8; 4])]) {
    let mut text = String::from("127.0.0.1 localhost\n");
    // A name is one for a host, whatever the host of this guest says.
    let fits = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    for (name, address) in names.iter().filter(|(name, _)| fits(name)) {
        text.push_str(&format!("{} {name}\n", Ipv4Addr::from(*address)));
    }
    let _ = std::fs::write("/etc/hosts", text);
}
