//! Files that machines have in common.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;

use crate::{Place, state};

/// What no page of zeroes is, and no page twice.
fn content(bytes: usize) -> Vec<u8> {
    let mut word = 7_u64;
    let words = std::iter::repeat_with(|| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        word.to_le_bytes()
    });
    words.take(bytes.div_ceil(8)).flatten().take(bytes).collect()
}

fn listed(place: &Place, name: &str) -> Value {
    let all: Vec<Value> = serde_json::from_str(&place.says(&["vm", "files", "ls", "--json"])).unwrap();
    all.into_iter().find(|files| files["name"] == name).unwrap()
}

fn update(place: &Place, words: &[&str]) -> Value {
    let words = [&["vm", "files", "update"], words, &["--json"]].concat();
    serde_json::from_str(&place.says(&words)).unwrap()
}

/// So much the guest has of files in memory of its own, in kilobytes.
fn cached_kb(place: &Place, machine: &str) -> u64 {
    let said = place.within(machine, "sed -n 's/^Cached: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo");
    said.parse().unwrap()
}

const DATA_BYTES: usize = 24 << 20;

/// A directory with a word, a program, a link and much data.
fn directory(place: &Place) -> std::path::PathBuf {
    let directory = place.directory.join("docs");
    fs::create_dir_all(directory.join("a/b")).unwrap();
    fs::write(directory.join("a/b/word"), "first\n").unwrap();
    fs::write(directory.join("data"), content(DATA_BYTES)).unwrap();
    fs::copy("/bin/busybox", directory.join("a/busybox")).unwrap();
    std::os::unix::fs::symlink("b/word", directory.join("a/link")).unwrap();
    directory
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn files_in_common_are_read_where_they_lie_and_change_for_all_machines() {
    let Some(state) = state() else { return };
    let place = Place::new("files", state);
    let directory = directory(&place);
    let (said, code) = place.fails(&["vm", "clone", "small", "--files", "common"]);
    assert!(said.contains("`comb vm files update common DIRECTORY` brings some out") && code == 4, "{said}");
    let first = update(&place, &["common", text(&directory)]);
    assert_eq!((&first["edition"], &first["machines"]), (&Value::from(1), &Value::from(0)));
    place.says(&["vm", "clone", "small", "-n", "2", "--files", "common"]);
    place.says(&["vm", "run", "small", "--as", "cold", "--files", "common"]);
    let machines = ["small-1", "small-2", "cold"];

    let sum = place.says(&["vm", "exec", "small-1", "--", "md5sum", "/files/common/data"]);
    for machine in machines {
        place.within(machine, "cat /files/common/a/link > /dev/null; sleep 0");
        let before = cached_kb(&place, machine);
        assert_eq!(place.within(machine, "md5sum /files/common/data"), sum.trim());
        assert!(cached_kb(&place, machine) < before + 2048, "{machine} has a copy of its own");
        let runs = "cd /files/common/a; cat link; ./busybox sh -c 'echo runs'; stat -c %s ../data";
        assert_eq!(place.within(machine, runs), format!("first\nruns\n{DATA_BYTES}"));
        let refused = "echo x > /files/common/a/b/word || rm /files/common/data || echo refused";
        assert!(place.within(machine, &format!("({refused}) 2> /dev/null")).ends_with("refused"));
    }
    // A guest's system may do what it likes with the device: nobody else sees it.
    let device = Path::new(listed(&place, "common")["directory"].as_str().unwrap()).join("device");
    let before = fs::read(&device).unwrap();
    let writes = "d=/dev/$(cd /sys/block; echo pmem* | tr ' ' '\\n' | tail -1); \
                  dd if=/dev/zero of=$d bs=1M count=48 oflag=direct 2> /dev/null; echo wrote";
    assert!(place.within("small-1", writes).ends_with("wrote"));
    assert!(fs::read(&device).unwrap() == before, "a guest has written what others read");
    assert_eq!(place.within("small-2", "md5sum /files/common/data"), sum.trim());

    // Who has a file open keeps it, however often all is changed.
    let keeps = "(exec 3< /files/common/a/b/word; exec sleep 1000) > /dev/null 2>&1 & echo $! > /run/keeper";
    place.within("small-2", keeps);
    place
        .within("small-2", "until readlink /proc/$(cat /run/keeper)/fd/3 | grep -q word; do sleep 0.1; done");
    for (number, word) in (2..).zip(["second", "third", "fourth", "fifth", "sixth"]) {
        fs::write(directory.join("a/b/word"), format!("{word}\n")).unwrap();
        let _ = fs::remove_file(directory.join("a/busybox"));
        let more = update(&place, &["common", text(&directory)]);
        assert_eq!((&more["edition"], &more["machines"]), (&Value::from(number), &Value::from(3)));
        assert_eq!(more["new_bytes"], word.len() + 1, "what is the same is not written again");
        for machine in machines {
            let seen = "cat /files/common/a/b/word; ls /files/common/a";
            assert_eq!(place.within(machine, seen), format!("{word}\nb\nlink"), "{machine}");
        }
    }
    assert_eq!(place.within("small-2", "cat /proc/$(cat /run/keeper)/fd/3"), "first");

    let (said, _) = place.fails(&["vm", "snapshot", "small-1", "with-files"]);
    assert!(said.contains("it has files in common with others"), "{said}");
    let (said, _) = place.fails(&["vm", "files", "remove", "common"]);
    assert!(said.contains("a machine has the files `common`"), "{said}");
    place.says(&["vm", "kill", "--all"]);
    place.says(&["vm", "files", "remove", "common"]);
    assert!(!device.exists());
}

#[test]
fn a_machine_serves_its_files_to_others() {
    let Some(state) = state() else { return };
    let place = Place::new("served", state);
    let directory = directory(&place);
    update(&place, &["served", text(&directory)]);
    place.says(&["vm", "clone", "small", "--as", "server", "--files", "served:rw"]);
    place.says(&["vm", "clone", "small", "--as", "client", "--files", "served"]);
    let (said, _) = place.fails(&["vm", "clone", "small", "--as", "other", "--files", "served:rw"]);
    assert!(said.contains("another machine may write the files `served`"), "{said}");

    let word = "cat /files/served/a/b/word";
    place.within(
        "server",
        "cd /files/served; echo second > a/b/word; rm a/busybox; mkdir new; echo 1 > new/one",
    );
    assert_eq!(
        (place.within("server", word), place.within("client", word)),
        ("second".into(), "first".into())
    );
    let update_from = |from: &str| update(&place, &["served", "--from", from]);
    let second = update_from("server");
    assert_eq!((&second["edition"], &second["machines"]), (&Value::from(2), &Value::from(2)));
    // What has not been changed is not even said again.
    assert_eq!(second["new_bytes"], 9);
    let all =
        "cat /files/served/a/b/word /files/served/new/one; ls /files/served/a; md5sum < /files/served/data";
    let seen = place.within("client", all);
    assert!(seen.starts_with("second\n1\nb\nlink\n"), "{seen}");
    assert_eq!(place.within("server", all), seen);
    // Nothing that has been brought out is in the server's own memory any more.
    assert_eq!(place.within("server", "find /var/lib/comb-files -type f"), "");

    // While somebody writes, what is half written is not brought out.
    let writes = "(exec 3> /files/served/half; exec sleep 1000) > /dev/null 2>&1 & echo $! > /run/writer";
    place.within("server", writes);
    place.within("server", "until [ -e /files/served/half ]; do sleep 0.1; done");
    let (said, _) = place.fails(&["vm", "files", "update", "served", "--from", "server"]);
    assert!(said.contains("server: somebody writes in /files/served"), "{said}");
    place
        .within("server", "p=$(cat /run/writer); kill -9 $p; while [ -e /proc/$p/fd/3 ]; do sleep 0.1; done");
    assert_eq!(update_from("server")["edition"], 3);

    // Two have changed them: the server keeps what it has, until it is asked for all of it.
    place.within("server", "echo server > /files/served/a/b/word");
    fs::write(directory.join("a/b/word"), "host\n").unwrap();
    assert_eq!(update(&place, &["served", text(&directory)])["behind"], Value::from(vec!["server"]));
    assert_eq!(
        (place.within("server", word), place.within("client", word)),
        ("server".into(), "host".into())
    );
    let (said, _) = place.fails(&["vm", "files", "update", "served", "--from", "server"]);
    assert!(said.contains("bring out all that it has, with --from server:/files/served"), "{said}");
    place.within("server", "echo more >> /files/served/a/b/word");
    assert_eq!(update_from("server:/files/served")["edition"], 5);
    assert_eq!(place.within("client", word), "server\nmore");

    // Any directory of a guest's.
    place.within("client", "mkdir /srv; echo from a guest > /srv/letter");
    update(&place, &["letters", "--from", "client:/srv", "--room", "8"]);
    let listed = listed(&place, "letters");
    let device = fs::File::open(Path::new(listed["directory"].as_str().unwrap()).join("device")).unwrap();
    let mut head = [0; 18];
    device.read_exact_at(&mut head, 0).unwrap();
    assert_eq!(&head, b"comb shelf letters");
    let (said, _) = place.fails(&["vm", "files", "update", "letters", "--from", "client:/no/such"]);
    assert!(said.contains("client: No such file"), "{said}");
    place.says(&["vm", "kill", "--all"]);
    for name in ["served", "letters"] {
        place.says(&["vm", "files", "remove", name]);
    }
}
