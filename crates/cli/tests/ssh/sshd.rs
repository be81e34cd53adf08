//! Several hosts that this machine plays by one sshd: each has a home of its own, and nothing of Comb.
//!
//! All that they share with the launcher's host is what is not hidden from them: a host sees an empty directory where the launcher's comb is, in a mount
//! namespace of its own. That takes root.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// For what takes milliseconds on an idle machine. A test that runs into this has failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
const SSHD: &str = "/usr/sbin/sshd";
/// sshd does not start without it, and who starts it by hand has to make it.
const SEPARATION: &str = "/run/sshd";
/// What it says when somebody else has taken its port.
const TAKEN: &str = "Address already in use";

/// What every command runs in that a host is asked for.
const ENTRY: &str = r#"#!/bin/sh
# sshd hands on which host it is meant to be, and the client's command.
root=@ROOT@/hosts/$COMB_TEST_HOST
export HOME="$root/home" TMPDIR="$root/tmp" XDG_RUNTIME_DIR="$root/run"
unset XDG_CACHE_HOME
exec unshare --mount sh -c '
  mount -t tmpfs none @ROOT@/private || exit 99
  if [ -f "$0/mounts" ]; then . "$0/mounts"; fi
  if [ -f "$0/noise" ]; then cat "$0/noise"; fi
  PATH=$0/bin:$PATH
  exec sh -c "$SSH_ORIGINAL_COMMAND"
' "$root"
"#;

/// One test's hosts. They end with it.
pub(crate) struct Hosts {
    pub(crate) root: PathBuf,
    sshd: Child,
}

impl Hosts {
    /// `Err`: this machine cannot play them, and why.
    pub(crate) fn start(name: &str, hosts: &[&str]) -> Result<Self, String> {
        if !Path::new(SSHD).exists() {
            return Err("there is no sshd (scripts/setup-test.sh installs it)".to_owned());
        }
        let unshare = Command::new("unshare").args(["--mount", "true"]).stderr(Stdio::null()).status();
        if !unshare.is_ok_and(|status| status.success()) {
            return Err("a mount namespace takes root".to_owned());
        }
        let _ = std::fs::create_dir_all(SEPARATION);
        let root = std::env::temp_dir().join(format!("comb-ssh-test-{}-{name}", std::process::id()));
        std::fs::create_dir(&root).unwrap();
        std::fs::set_permissions(&root, PermissionsExt::from_mode(0o755)).unwrap();
        for directory in ["private", "work", "launcher"] {
            std::fs::create_dir(root.join(directory)).unwrap();
        }
        // What is beside comb is what it brings.
        let built = Path::new(env!("CARGO_BIN_EXE_comb"));
        for file in ["comb", "libcomb.so"] {
            let from = built.with_file_name(file);
            if from.exists() {
                bring(&from, &root.join("private").join(file));
            }
        }
        for key in ["host_key", "user_key", "strange_key"] {
            let mut made = Command::new("ssh-keygen");
            made.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(root.join(key));
            assert!(made.status().unwrap().success());
        }
        write(&root.join("entry"), &ENTRY.replace("@ROOT@", root.to_str().unwrap()), 0o755);
        let mut port = 0;
        let mut sshd = None;
        while sshd.is_none() {
            port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            sshd = serve(&root, port);
        }
        let this = Self { root, sshd: sshd.expect("it was just started") };
        this.write_client_config(port);
        hosts.iter().for_each(|host| this.add(host));
        Ok(this)
    }

    fn write_client_config(&self, port: u16) {
        let (root, user) = (self.root.display(), user());
        write(&self.root.join("aliases"), "", 0o600);
        let text = format!(
            "Include {root}/aliases\nHost nowhere\nHostName nowhere.invalid\nHost stranger\nIdentityFile {root}/strange_key\n\
             Host * !stranger\nIdentityFile {root}/user_key\nHost *\nHostName 127.0.0.1\nPort {port}\nUser {user}\n\
             UserKnownHostsFile {root}/known_hosts\nStrictHostKeyChecking no\nIdentitiesOnly yes\nBatchMode yes\n\
             SendEnv COMB_TEST_*\nControlPath none\nLogLevel VERBOSE\n"
        );
        write(&self.root.join("config"), &text, 0o600);
    }

    /// One more, which is as new.
    fn add(&self, host: &str) {
        for directory in ["home", "tmp", "run", "bin"] {
            std::fs::create_dir_all(self.host(host).join(directory)).unwrap();
        }
        let aliases = self.root.join("aliases");
        let mut text = std::fs::read_to_string(&aliases).unwrap();
        text.push_str(&format!("Host {host}\nSetEnv COMB_TEST_HOST={host}\n"));
        write(&aliases, &text, 0o600);
    }

    /// All that is a host's own.
    pub(crate) fn host(&self, host: &str) -> PathBuf {
        self.root.join("hosts").join(host)
    }

    /// Runs when somebody logs in there, as root of a mount namespace.
    pub(crate) fn on_entry(&self, host: &str, script: &str) {
        write(&self.host(host).join("mounts"), script, 0o644);
    }

    pub(crate) fn shell(&self) -> String {
        format!("ssh -F {}/config {{host}}", self.root.display())
    }

    /// `comb run` of the launcher's host, which begins in `work`.
    pub(crate) fn command(&self, hosts: &[&str], arguments: &[&str]) -> Command {
        let hosts: Vec<String> = hosts.iter().map(|host| format!("{host}=127.0.0.1")).collect();
        let mut command = Command::new(self.root.join("private/comb"));
        command.args(["run", "--limit", "300", "--hosts", &hosts.join(","), "--shell", &self.shell()]);
        command.args(arguments).current_dir(self.root.join("work"));
        command.env("XDG_RUNTIME_DIR", self.root.join("launcher")).env("COMB_TEST_SCENE", &self.root);
        command.env_remove("COMB_WITHOUT").env_remove("XDG_CACHE_HOME").stdin(Stdio::null());
        command
    }

    /// When it is over nothing is left anywhere but copies of comb.
    #[track_caller]
    pub(crate) fn run(&self, hosts: &[&str], arguments: &[&str]) -> Output {
        let output = self.command(hosts, arguments).output().unwrap();
        self.assert_gone();
        output
    }

    #[track_caller]
    pub(crate) fn ok(&self, hosts: &[&str], arguments: &[&str]) -> (String, String) {
        let output = self.run(hosts, arguments);
        let [said, errors] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(output.status.success(), "{}: {said}{errors}", output.status);
        (said, errors)
    }

    #[track_caller]
    pub(crate) fn fails(&self, hosts: &[&str], arguments: &[&str], status: i32) -> String {
        let output = self.run(hosts, arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{errors}");
        errors
    }

    /// Processes of this test's tasks.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mark = format!("COMB_TEST_SCENE={}\0", self.root.display()).into_bytes();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let ours = |pid: &u32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.windows(mark.len()).any(|part| part == mark)
        };
        pids.filter(ours).collect()
    }

    /// Files that tasks have left on a host: none, but for whole copies of comb.
    pub(crate) fn left(&self) -> Vec<PathBuf> {
        let mut left = entries(&self.root.join("launcher"));
        for host in entries(&self.root.join("hosts")) {
            left.extend(["tmp", "run"].iter().flat_map(|directory| entries(&host.join(directory))));
            // Not what a test has put there.
            let cache = Some(host.join("home/.cache/comb")).filter(|cache| !cache.is_symlink());
            let copies = cache.iter().flat_map(|cache| entries(cache));
            left.extend(copies.filter(|copy| !copy.join("comb").exists()));
        }
        left
    }

    #[track_caller]
    pub(crate) fn assert_gone(&self) {
        wait(
            || self.processes().is_empty() && self.left().is_empty(),
            || format!("left: {:?}, {:?}", self.processes(), self.left()),
        );
    }

    /// The copies of comb that a host has.
    pub(crate) fn copies(&self, host: &str) -> Vec<PathBuf> {
        entries(&self.host(host).join("home/.cache/comb"))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for pid in self.processes() {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        }
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// Nothing: somebody else has the port.
fn serve(root: &Path, port: u16) -> Option<Child> {
    let here = root.display();
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {here}/host_key\nPidFile {here}/sshd.pid\nAuthorizedKeysFile {here}/user_key.pub\n\
         StrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\nPermitRootLogin yes\nAcceptEnv COMB_TEST_*\n\
         ForceCommand {here}/entry\nMaxStartups 100\nMaxSessions 100\nPrintMotd no\n"
    );
    write(&root.join("sshd_config"), &config, 0o600);
    let (config, log) = (root.join("sshd_config"), root.join("sshd.log"));
    let _ = std::fs::remove_file(&log);
    let mut sshd = Command::new(SSHD)
        .arg("-D")
        .arg("-f")
        .arg(config)
        .arg("-E")
        .arg(&log)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    let is_there = || said().contains("Server listening");
    while !is_there() {
        if sshd.try_wait().unwrap().is_some() {
            assert!(said().contains(TAKEN), "sshd: {}", said());
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(sshd)
}

#[track_caller]
pub(crate) fn wait(what: impl Fn() -> bool, failure: impl Fn() -> String) {
    let started = Instant::now();
    while !what() {
        assert!(started.elapsed() < LIMIT, "{}", failure());
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn entries(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

pub(crate) fn write(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn bring(from: &Path, to: &Path) {
    if std::fs::hard_link(from, to).is_err() {
        std::fs::copy(from, to).unwrap();
    }
}

fn user() -> String {
    String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap().trim().to_owned()
}
