//! Disks and networks of machines, beside those of plain QEMU (Disco §4.2.4 to §4.2.6).

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use comb_guest::wire::{Become, Network};
use comb_vm::attached::{Devices, DiskOf, DiskServer, mac_text};
use comb_vm::devices::disk::Writes;
use comb_vm::engine::Engine;
use comb_vm::hardware::{Backing, Root, Under};

use super::{LIMIT, Outcome, World, within};
use crate::net::median;
use crate::report::{Goal, Row};

/// How long each is measured at a time, in seconds.
const WINDOW: &str = "1.5";

/// As large as a disk is that is read from.
const DISK_MB: u64 = 256;

/// Without these a driver sends each segment of TCP by itself, summed up.
const SMALL: &str = ",csum=off,gso=off,host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off";

/// What guests run, for the image.
pub(super) fn make_load(into: &Path) -> Outcome<()> {
    let source = into.with_file_name("load.c");
    std::fs::write(&source, include_str!("load.c"))?;
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-static", "-pthread", "-o"]).arg(into.join("load")).arg(&source);
    if !compiler.status()?.success() {
        return Err("what guests run cannot be compiled: `make setup-bench` brings a compiler".into());
    }
    Ok(())
}

pub(super) fn network_rows(world: &World, rounds: usize, say: &dyn Fn(&str)) -> Outcome<Vec<Row>> {
    let mut rows = sending(world, rounds, say)?;
    rows.extend(flooding(world, rounds, say)?);
    Ok(rows)
}

/// A machine with these devices; at its place on a network, if it has one.
fn machine(world: &World, name: &str, devices: Devices, place: Option<u8>) -> Outcome<Engine> {
    let backing = Backing { ram: None, root: Root::Memory(world.own_root()), under: Under::Private, devices };
    let mut engine = Engine::start(&world.hardware, &world.image, &backing, false, None)?;
    let network = place.map(|place| Network { mac: mac(place), address: [10, 0, 0, place], outside: None });
    engine.become_who(Become { name: name.to_owned(), network, ..Become::default() }, LIMIT)?;
    Ok(engine)
}

fn mac(place: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0, place]
}

fn number(said: &str) -> Outcome<f64> {
    said.trim().parse().map_err(|_| format!("{said:?} is no number").into())
}

fn own(words: &[&str]) -> Devices {
    Devices { own: words.iter().map(OsString::from).collect(), ..Devices::default() }
}

/// Ours by theirs, round for round, and what each had in the middle; the ratio is to be so much at least.
fn against(claim: &str, unit: &'static str, peer: &str, pairs: &[(f64, f64)], least: Option<f64>) -> Row {
    let of = |take: fn(&(f64, f64)) -> f64| median(&pairs.iter().map(take).collect::<Vec<_>>());
    Row {
        claim: claim.to_owned(),
        ours: of(|pair| pair.0),
        unit,
        peer: peer.to_owned(),
        theirs: of(|pair| pair.1),
        ratio: of(|pair| pair.0 / pair.1),
        goal: least.map_or(Goal::None, Goal::AtLeast),
        note: String::new(),
    }
}

/// Random reads of a disk in the host's memory: ours, and QEMU's own in each way that it has.
pub(super) fn disk_rows(world: &World, rounds: usize, say: &dyn Fn(&str)) -> Outcome<Vec<Row>> {
    let path = world.place.0.join("disk-to-read");
    let mut file = File::create_new(&path)?;
    let mut word = 1_u64;
    for _ in 0..DISK_MB {
        let block: Vec<u8> = (0..1 << 17)
            .flat_map(|_| {
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                word.to_le_bytes()
            })
            .collect();
        file.write_all(&block)?;
    }
    file.sync_all()?;
    say("machines with disks");
    let program = std::env::current_exe()?;
    let socket = world.place.0.join("disk.socket");
    let disk = DiskOf { base: path.clone(), writes: Writes::Temporary };
    let _server = DiskServer::start(&program, &disk, &socket, None)?;
    let devices = Devices { disks: vec![socket], ..Devices::default() };
    let mut ours = machine(world, "ours", devices, None)?;
    let name = path.to_str().ok_or("a path is no text")?;
    let mut theirs = Vec::new();
    for how in ["aio=threads", "aio=io_uring", "cache=none,aio=native"] {
        let drive = format!("if=none,id=disk,format=raw,snapshot=on,{how},file={name}");
        let words = ["-drive", &drive, "-device", "virtio-blk-pci,drive=disk"];
        theirs.push((how, machine(world, "theirs", own(&words), None)?));
    }
    let mut rows = Vec::new();
    for at_once in [1, 4, 16] {
        let script = format!("/load reads /dev/vda {at_once} {WINDOW}");
        let mut best = Vec::new();
        for (how, engine) in &mut theirs {
            say(&format!("random reads, {at_once} at once, QEMU with {how}"));
            best.push((number(&within(engine, &script)?)?, *how));
        }
        best.sort_by(|one, other| one.0.total_cmp(&other.0));
        let how = best.last().ok_or("QEMU has no disk")?.1;
        let engine = &mut theirs.iter_mut().find(|(other, _)| *other == how).ok_or("QEMU has no disk")?.1;
        let mut pairs = Vec::new();
        for round in 1..=rounds {
            say(&format!("random reads, {at_once} at once, round {round} of {rounds}"));
            pairs.push((number(&within(&mut ours, &script)?)?, number(&within(engine, &script)?)?));
        }
        let claim = format!("random reads of 4 KB, {at_once} at once");
        rows.push(against(&claim, "/s", &format!("its best: {how}"), &pairs, Some(1.0)));
    }
    std::fs::remove_file(path)?;
    Ok(rows)
}

/// A switch of ours with so many ports.
struct Switch {
    child: Child,
    directory: PathBuf,
}

impl Switch {
    fn new(world: &World, ports: u8) -> Outcome<Self> {
        let directory = world.place.0.join("switch");
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("vm-switch").arg("--directory").arg(&directory);
        for place in 1..=ports {
            command.args(["--port", &format!("{place}={}", mac_text(mac(place)))]);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let switch = Self { child, directory };
        let until = Instant::now() + LIMIT;
        while !switch.port(ports).exists() {
            if Instant::now() > until {
                return Err("a switch does not begin".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(switch)
    }

    fn port(&self, place: u8) -> PathBuf {
        self.directory.join(format!("{place}.socket"))
    }

    fn machine(&self, world: &World, place: u8, options: &str) -> Outcome<Engine> {
        let port = Some((self.port(place), mac(place)));
        let devices = Devices { port, port_options: options.to_owned(), ..Devices::default() };
        machine(world, "ours", devices, Some(place))
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// What goes from one to the other, in megabytes a second.
fn sent(from: &mut Engine, to: &mut Engine, address: &str) -> Outcome<f64> {
    let send = format!("/load send {address} 7 {WINDOW}");
    std::thread::scope(|scope| {
        let taker = scope.spawn(|| within(to, "/load take 7").map_err(|error| error.to_string()));
        within(from, &send)?;
        number(&taker.join().map_err(|_| "a thread has failed")??)
    })
}

/// From guest to guest by TCP: through our switch, and by the stream that joins two engines.
fn sending(world: &World, rounds: usize, say: &dyn Fn(&str)) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    let peers = |options: &str| -> Outcome<[Engine; 2]> {
        let socket = world.place.0.join("stream.socket");
        let _ = std::fs::remove_file(&socket);
        let one = |place: u8| {
            let role = if place == 1 { "on" } else { "off" };
            let path = socket.display();
            let netdev = format!("stream,id=net,server={role},addr.type=unix,addr.path={path}");
            let mac = mac_text(mac(place));
            let device = format!("virtio-net-pci,netdev=net,mac={mac}{options}");
            machine(world, "theirs", own(&["-netdev", &netdev, "-device", &device]), Some(place))
        };
        Ok([one(1)?, one(2)?])
    };
    for (claim, options, least) in
        [("TCP from guest to guest, a packet at a time", SMALL, 1.0), ("… with large segments", "", 1.5)]
    {
        say("machines on a network");
        let switch = Switch::new(world, 2)?;
        let mut ours = [switch.machine(world, 1, options)?, switch.machine(world, 2, options)?];
        let mut theirs = peers(options)?;
        let mut pairs = Vec::new();
        for round in 1..=rounds {
            say(&format!("{claim}, round {round} of {rounds}"));
            let of = |[from, to]: &mut [Engine; 2]| sent(from, to, "10.0.0.2");
            pairs.push((of(&mut ours)?, of(&mut theirs)?));
        }
        rows.push(against(claim, "MB/s", "its stream netdev", &pairs, Some(least)));
    }
    Ok(rows)
}

/// What two keep of their rate beside one that floods, by what they have beside one that only uses its processor as much.
fn flooding(world: &World, rounds: usize, say: &dyn Fn(&str)) -> Outcome<Vec<Row>> {
    say("machines on a network, one of them hostile");
    let switch = Switch::new(world, 3)?;
    let mut two = [switch.machine(world, 1, "")?, switch.machine(world, 2, "")?];
    let mut hostile = switch.machine(world, 3, "")?;
    let mut rows = Vec::new();
    for (claim, kind) in [
        ("kept beside a guest that floods: forged addresses", "forged"),
        ("… frames for everybody", "everybody"),
        ("… frames for nobody", "unknown"),
    ] {
        let mut pairs = Vec::new();
        for round in 1..=rounds {
            say(&format!("{claim}, round {round} of {rounds}"));
            let mut beside = |script: &str| -> Outcome<f64> {
                let [from, to] = &mut two;
                std::thread::scope(|scope| {
                    let other =
                        scope.spawn(|| within(&mut hostile, script).map_err(|error| error.to_string()));
                    let sent = sent(from, to, "10.0.0.2");
                    other.join().map_err(|_| "a thread has failed")??;
                    sent
                })
            };
            let flooded = beside(&format!("/load flood eth0 {kind} 2.5"))?;
            pairs.push((flooded, beside("/load spin 2.5")?));
        }
        rows.push(against(claim, "MB/s", "beside one that is busy", &pairs, Some(0.9)));
    }
    Ok(rows)
}
