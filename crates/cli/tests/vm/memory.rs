//! Memory that is taken from machines and given to them, by hand and by itself; pages that are merged; cores; and what `comb vm top` shows.

use super::*;

const MB: u64 = 1 << 20;

/// What a process has of the host's memory.
fn resident_mb(process: &Value) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/statm")).unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096 / MB
}

fn meminfo_mb(place: &Place, machine: &str, field: &str) -> u64 {
    let script = format!("sed -n 's/^{field}: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo");
    place.within(machine, &script).parse::<u64>().unwrap() / 1024
}

/// All that a guest's kernel has to do with: what is in its balloon as well, which it could take out again.
fn total_mb(place: &Place, machine: &str) -> u64 {
    meminfo_mb(place, machine, "MemTotal")
}

/// What its programs could have.
fn available_mb(place: &Place, machine: &str) -> u64 {
    meminfo_mb(place, machine, "MemAvailable")
}

/// Has a guest keep so much in files of its memory, in steps, so that it can be given more meanwhile.
fn keep(place: &Place, machine: &str, mb: u64) {
    let steps = format!(
        "mount -o remount,size=2G /dev/shm; at=0; while [ $at -lt {mb} ]; do dd if=/dev/zero of=/dev/shm/kept-$at bs=1M count=4 2>/dev/null || exit 1; at=$((at + 4)); sleep 0.05; done; ls /dev/shm | wc -l"
    );
    assert_eq!(place.within(machine, &steps), (mb / 4).to_string());
}

fn forget(place: &Place, machine: &str) {
    place.within(machine, "rm /dev/shm/kept-*");
}

fn has(mb: u64) -> impl Fn(&Value) -> bool {
    move |machine| machine["memory_bytes"] == mb * MB && machine["wanted_bytes"] == mb * MB
}

#[test]
fn a_machine_gives_memory_back_and_gets_it_again() {
    let Some(state) = state() else { return };
    let place = Place::new("mem", state);
    place.says(&["vm", "clone", "small", "--as", "one"]);
    let engine = place.await_machine("one", has(256))["engine"].clone();
    let before = available_mb(&place, "one");
    keep(&place, "one", 120);
    let full = resident_mb(&engine);
    forget(&place, "one");
    place.says(&["vm", "mem", "one", "128M"]);
    place.await_machine("one", has(128));
    let less = available_mb(&place, "one");
    assert!((112..=144).contains(&before.saturating_sub(less)), "{before} and then {less}");
    let given = resident_mb(&engine);
    assert!(full >= given + 100, "the host had given {full} MB, and then {given}");
    let said = place.says(&["vm", "ls"]);
    assert!(said.contains("of 128 MiB"), "{said}");

    place.says(&["vm", "mem", "one", "256M"]);
    place.await_machine("one", has(256));
    let again = available_mb(&place, "one");
    assert!(again + 16 > before, "{before} and then {again}");
    keep(&place, "one", 120);
    assert!(resident_mb(&engine) >= given + 100);
    for beyond in ["257M", "32M"] {
        let (said, _) = place.fails(&["vm", "mem", "one", beyond]);
        assert!(said.contains("it may have 64 to 256 MiB"), "{said}");
    }
}

#[test]
fn memory_comes_to_a_machine_with_a_range_and_goes_again() {
    let Some(state) = state() else { return };
    let place = Place::new("range", state);
    place.says(&["vm", "clone", "small", "--as", "clone", "--memory", "128M..512M"]);
    place.says(&["vm", "run", "small", "--as", "boots", "--memory", "128M..512M"]);
    for name in ["clone", "boots"] {
        let engine = place.await_machine(name, has(128))["engine"].clone();
        let before = total_mb(&place, name);
        place.says(&["vm", "mem", name, "512M"]);
        place.await_machine(name, has(512));
        assert!(total_mb(&place, name) >= before + 380);
        keep(&place, name, 240);
        let full = resident_mb(&engine);
        assert!(full > 240, "{full}");
        for beyond in ["514M", "126M"] {
            let (said, _) = place.fails(&["vm", "mem", name, beyond]);
            assert!(said.contains("it may have 128 to 512 MiB"), "{said}");
        }
        if name == "clone" {
            continue;
        }
        forget(&place, name);
        // Once the guest has said that it does not need it: whoever seems short is given it back.
        place.await_machine(name, |machine| machine["guest_available_bytes"].as_u64() > Some(400 * MB));
        place.says(&["vm", "mem", name, "128M"]);
        place.await_machine(name, has(128));
        assert_eq!(total_mb(&place, name), before);
        let given = resident_mb(&engine);
        assert!(full >= given + 200, "the host had given {full} MB, and then {given}");
    }
    // What has come to it is saved with it.
    place.within("clone", "echo kept > /dev/shm/word");
    place.says(&["vm", "snapshot", "clone", "grown"]);
    place.says(&["vm", "kill", "--all"]);
    place.says(&["vm", "restore", "grown", "--as", "again"]);
    place.await_machine("again", has(512));
    assert_eq!(place.within("again", "cat /dev/shm/word; ls /dev/shm | wc -l"), "kept\n61");
    place.says(&["vm", "snapshots", "--remove", "grown"]);
    for (memory, why) in [("128M..2G", "up to eight times as much"), ("256M..128M", "no less than the least")]
    {
        let (said, code) = place.fails(&["vm", "run", "small", "--memory", memory]);
        assert!(said.contains(why) && code == 2, "{said}");
    }
}

#[test]
fn memory_moves_from_a_machine_that_has_plenty_to_one_that_is_short() {
    let Some(state) = state() else { return };
    let mut place = Place::new("moves", state);
    place.environment.push(("COMB_VM_MEMORY", "640M"));
    place.says(&["vm", "clone", "small", "--as", "plenty", "--memory", "128M..512M"]);
    place.says(&["vm", "clone", "small", "--as", "short", "--memory", "128M..512M"]);
    place.says(&["vm", "mem", "plenty", "512M"]);
    // It has had it, even if some of it is nobody's again by now.
    place.await_machine("plenty", |machine| machine["came_bytes"].as_u64() >= Some(384 * MB));
    let looked = std::thread::scope(|threads| {
        let takes = threads.spawn(|| keep(&place, "short", 200));
        let mut looked = 0;
        while !takes.is_finished() {
            let of = |machine: &Value, key: &str| machine[key].as_u64().unwrap();
            let machines = place.machines();
            assert!(machines.iter().all(|machine| of(machine, "memory_bytes") >= 128 * MB), "{machines:?}");
            looked += 1;
        }
        takes.join().unwrap();
        looked
    });
    assert!(looked > 0);
    let short = place.await_machine("short", |machine| machine["memory_bytes"].as_u64() >= Some(256 * MB));
    let plenty = place.await_machine("plenty", |machine| machine["memory_bytes"].as_u64() <= Some(384 * MB));
    let sum = |key: &str| short[key].as_u64().unwrap() + plenty[key].as_u64().unwrap();
    assert!(sum("memory_bytes") <= 640 * MB, "{short} {plenty}");
    assert!(
        short["came_bytes"].as_u64() >= Some(128 * MB) && plenty["went_bytes"].as_u64() >= Some(128 * MB)
    );
    // And back, when it is the other that is short.
    forget(&place, "short");
    keep(&place, "plenty", 320);
    place.await_machine("plenty", |machine| machine["memory_bytes"].as_u64() >= Some(400 * MB));
    place.await_machine("short", |machine| machine["memory_bytes"].as_u64() <= Some(240 * MB));
    assert_eq!(place.within("short", "echo there"), "there");

    let seen = place.says(&["vm", "top", "--once", "--json"]);
    let seen: Vec<Value> = serde_json::from_str(&seen).unwrap();
    assert_eq!(seen.len(), 2);
    for (machine, name) in seen.iter().zip(["plenty", "short"]) {
        assert_eq!((&machine["name"], &machine["most_bytes"]), (&name.into(), &(512 * MB).into()));
        assert!(machine["went_bytes"].as_u64() > Some(0) && machine["cpu_share"].as_f64().is_some());
        assert!((0.0..=1.0).contains(&machine["idle_share"].as_f64().unwrap()), "{machine}");
    }
    assert_eq!(place.says(&["vm", "top", "-n", "2", "-d", "0.1", "--json"]).lines().count(), 2);
    let page = place.says(&["vm", "top"]);
    assert!(page.starts_with("2 machines with ") && page.contains("128 MiB..512 MiB"), "{page}");
}

/// The host's merging of pages as it was, when this is dropped.
struct Merging(Vec<(PathBuf, String)>);

impl Merging {
    fn begin() -> Option<Self> {
        let settings = [("run", "1"), ("pages_to_scan", "20000"), ("sleep_millisecs", "10")];
        let mut before = Self(Vec::new());
        for (name, value) in settings {
            let path = Path::new("/sys/kernel/mm/ksm").join(name);
            let was = fs::read_to_string(&path).ok()?;
            fs::write(&path, value).ok()?;
            before.0.push((path, was));
        }
        Some(before)
    }
}

impl Drop for Merging {
    fn drop(&mut self) {
        for (path, value) in self.0.iter().rev() {
            let _ = fs::write(path, value.trim());
        }
    }
}

#[test]
fn pages_that_are_alike_are_merged_where_that_is_wanted() {
    let Some(state) = state() else { return };
    let place = Place::new("merge", state);
    let merged = |machine: &Value| {
        let path = format!("/proc/{}/ksm_merging_pages", machine["engine"]);
        fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
    };
    let Some(_merging) = Merging::begin() else {
        eprintln!("this host merges no pages, or not for this user");
        return;
    };
    place.says(&["vm", "run", "small", "--as", "plain", "--memory", "128M"]);
    for name in ["one", "other"] {
        place.says(&["vm", "run", "small", "--as", name, "--memory", "128M", "--merge"]);
    }
    if merged(&place.machines()[0]).is_none() {
        eprintln!("this host's kernel does not say what it has merged");
        return;
    }
    // Their kernels alone are 20 MB.
    for name in ["one", "other"] {
        place.await_machine(name, |machine| merged(machine) > Some(1000));
    }
    let plain = place.await_machine("plain", |_| true);
    assert_eq!(merged(&plain), Some(0), "nobody has asked for it");
    assert_eq!(place.within("one", "echo there"), "there");
}

#[test]
fn a_machine_with_cores_stays_on_them() {
    let Some(state) = state() else { return };
    let place = Place::new("cores", state);
    let (said, _) = place.fails(&["vm", "clone", "small", "--cores", "1"]);
    assert!(said.contains("--cores is about machines in cells, and there are none: `comb up`"), "{said}");
    let (said, code) = place.fails(&["vm", "clone", "small", "--cores", "1", "--cells", "none"]);
    assert!(said.contains("--cells none is outside of them") && code == 2, "{said}");
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("of one core nobody has it alone");
        return;
    }
    place.says(&["up", "--cells", "2"]);
    place.says(&["vm", "clone", "small", "--as", "own", "--cells", "1", "--cores", "1"]);
    place.says(&["vm", "clone", "small", "--as", "other", "--cells", "2"]);
    let allowed = |name: &str| {
        let engine = place.await_machine(name, |_| true)["engine"].clone();
        let threads = fs::read_dir(format!("/proc/{engine}/task")).unwrap();
        let lists = threads.filter_map(|thread| {
            let text = fs::read_to_string(thread.ok()?.path().join("status")).ok()?;
            text.lines().find_map(|line| Some(line.strip_prefix("Cpus_allowed_list:")?.trim().to_owned()))
        });
        lists.collect::<std::collections::BTreeSet<String>>()
    };
    let until = Instant::now() + LIMIT;
    loop {
        let (own, other) = (allowed("own"), allowed("other"));
        let is_one = own.len() == 1 && own.iter().all(|list| list.parse::<u32>().is_ok());
        if is_one && other.len() == 1 && own != other {
            break;
        }
        assert!(Instant::now() < until, "{own:?} {other:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    place.says(&["down"]);
}
