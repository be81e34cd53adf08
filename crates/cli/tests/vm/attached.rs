//! Disks and networks of machines.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;

use rustix::process::Signal;
use serde_json::Value;

use super::{Place, signal, state};

/// Writes blocks that say which they are, and says so of each that is on the disk.
const WRITER: &str = "n=0; while [ $n -lt 300 ]; do yes $n | head -c 4096 | \
    dd of=/dev/vda bs=4096 seek=$n conv=notrunc,fsync 2>/dev/null || exit 1; echo $n; n=$((n+1)); done";

/// Says which of these are not as they were written.
const CHECKER: &str = "n=0; while [ $n -lt 300 ]; do \
    want=$(yes $n | head -c 4096 | md5sum); is=$(dd if=/dev/vda iflag=direct bs=4096 skip=$n count=1 2>/dev/null | md5sum); \
    [ \"$want\" = \"$is\" ] || echo block $n; n=$((n+1)); done";

#[test]
fn what_a_disk_has_acknowledged_outlives_the_processes_that_serve_it() {
    let Some(state) = state() else { return };
    let place = Place::new("disk", state);
    let (base, overlay) = (place.directory.join("base"), place.directory.join("changes"));
    let content = b"as it was".repeat(1 << 18);
    fs::write(&base, &content[..2 << 20]).unwrap();
    let disk = format!("{}:overlay={}", base.display(), overlay.display());
    place.says(&["vm", "run", "small", "--as", "one", "--disk", &disk, "--disk", base.to_str().unwrap()]);
    let disks = "cat /sys/block/vda/size /sys/block/vdb/size";
    assert_eq!(place.within("one", disks).split_whitespace().collect::<Vec<_>>(), ["4096", "4096"]);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| place.within("one", WRITER));
        for restarts in 1..=3 {
            let servers = place.await_machine("one", |machine| machine["disk_restarts"] == restarts - 1);
            signal(&servers["disk_servers"][0], Signal::KILL);
        }
        let wrote: Vec<u32> = writer.join().unwrap().lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(wrote, (0..300).collect::<Vec<_>>());
    });
    place.await_machine("one", |machine| machine["disk_restarts"] == 3);
    assert_eq!(place.within("one", CHECKER), "");
    // Its engine is killed with no warning, and another machine has what it wrote.
    place.says(&["vm", "kill", "one"]);
    place.says(&["vm", "run", "small", "--as", "two", "--disk", &disk]);
    assert_eq!(place.within("two", CHECKER), "");
    assert!(fs::read(&base).unwrap() == content[..2 << 20], "the base is never written to");
    // And what must not be is refused, with a reason.
    let (said, _) = place.fails(&["vm", "run", "small", "--as", "three", "--disk", &disk]);
    assert!(said.contains("in use by another virtual machine"), "{said}");
    let (said, _) = place.fails(&["vm", "run", "small", "--as", "three", "--disk", "/nowhere/disk"]);
    assert!(said.contains("/nowhere/disk"), "{said}");
    let (said, _) = place.fails(&["vm", "snapshot", "two", "saved"]);
    assert!(said.contains("disks or a network"), "{said}");
    let (said, status) = place.fails(&["vm", "run", "small", "--disk", "x:whatever"]);
    assert!(said.contains("FILE:read-only") && status == 2, "{said}");
}

#[test]
fn machines_on_a_subnet_find_each_other_and_are_nobody_else() {
    let Some(state) = state() else { return };
    let place = Place::new("net", state);
    place.says(&["vm", "run", "small", "--as", "boots", "--net", "lab"]);
    place.says(&["vm", "clone", "small", "--as", "continues", "--net", "lab"]);
    // Both by name, and with all that is sent.
    let reaches = |from: &str, to: &str| {
        let waits = format!(
            "for n in 1 2 3 4 5 6 7 8 9 10; do ping -c 1 -W 2 {to} >/dev/null && echo there && exit; sleep 0.5; done"
        );
        assert_eq!(place.within(from, &waits), "there", "{from} reaches {to}");
    };
    reaches("boots", "continues");
    reaches("continues", "boots");
    let give =
        "dd if=/dev/urandom of=/tmp/given bs=1M count=8 2>/dev/null; httpd -p 80 -h /tmp; md5sum </tmp/given";
    for (from, to) in [("boots", "continues"), ("continues", "boots")] {
        let sum = place.within(from, give);
        assert_eq!(place.within(to, &format!("wget -q -O - http://{from}/given | md5sum")), sum);
    }
    // Whoever says to be another is not heard, and that is counted.
    let forge = "ip link set eth0 down; ip link set eth0 address 52:54:00:11:22:33; ip link set eth0 up; ping -c 2 -W 1 boots";
    let said = place.run(&["vm", "exec", "continues", "--", "sh", "-c", forge]);
    assert!(!said.status.success(), "{said:?}");
    let nets: Vec<Value> = serde_json::from_str(&place.says(&["vm", "nets", "--json"])).unwrap();
    let port = nets.iter().find(|port| port["port"] == "continues").unwrap();
    assert!(port["counters"]["forged"].as_u64().unwrap() > 0, "{nets:?}");
    place.says(&["vm", "kill", "continues"]);
    // The switch is killed: it is there again, and all have the addresses that they had.
    place.says(&["vm", "clone", "small", "--as", "other", "--net", "lab"]);
    reaches("boots", "other");
    let before = place.await_machine("other", |_| true)["address"].clone();
    let switch = fs::read_dir("/proc").unwrap().find_map(|entry| {
        let entry = entry.unwrap();
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words);
        let is_ours = words.contains("vm-switch") && words.contains(place.directory.to_str().unwrap());
        is_ours.then(|| entry.file_name().to_str().unwrap().parse::<i64>().unwrap())
    });
    signal(&Value::from(switch.unwrap()), Signal::KILL);
    let other_is_back = "until ping -c 1 -W 2 boots >/dev/null; do sleep 0.2; done; echo there";
    assert_eq!(place.within("other", other_is_back), "there");
    reaches("boots", "other");
    assert_eq!(place.await_machine("other", |_| true)["address"], before);
    // The last machine leaves nothing.
    place.says(&["vm", "stop", "--all"]);
    let until = std::time::Instant::now() + super::LIMIT;
    while place.says(&["vm", "nets", "--json"]).trim() != "[]" {
        assert!(std::time::Instant::now() < until);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn a_machine_reaches_what_its_user_does_if_it_is_to() {
    let Some(state) = state() else { return };
    let place = Place::new("nat", state);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    place.says(&["vm", "clone", "small", "--as", "out", "--net", "lab:nat"]);
    std::thread::scope(|scope| {
        let host = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut said = [0; 6];
            stream.read_exact(&mut said).unwrap();
            stream.write_all(b"heard\n").unwrap();
            said
        });
        let script = format!(
            "gateway=$(ip route | sed -n 's/^default via \\([0-9.]*\\).*/\\1/p'); echo hello | nc $gateway {port}"
        );
        assert_eq!(place.within("out", &script), "heard");
        assert_eq!(host.join().unwrap(), *b"hello\n");
    });
    // One on the same subnet that has not asked for it does not, and one that wants another way is told.
    place.says(&["vm", "clone", "small", "--as", "inside", "--net", "lab"]);
    assert_eq!(place.within("inside", "ip route | grep -c default || true"), "0");
    let (said, _) = place.fails(&["vm", "clone", "small", "--as", "tap", "--net", "lab:tap=tap0"]);
    assert!(said.contains("the way out of this subnet is nat"), "{said}");
}
