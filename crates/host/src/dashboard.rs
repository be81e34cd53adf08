//! The dashboard's process, which the agent keeps running. The sockets that it listens on are the agent's: a page that is open goes on when that process
//! is started anew, and a port that is taken is known before anything else begins.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{RuntimeDirectory, process};

/// From the beginning of a process that ended at once to the next.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
/// Told to end, it says one word more.
const END_LIMIT: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// What an agent has started notices its end, and lets go of what it had from it.
const LETTING_GO: Duration = Duration::from_secs(1);
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// What `dashboard.json` says, to the user alone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// Where the page is.
    pub address: SocketAddr,
    /// Who knows this sees and acts.
    pub token: String,
    /// Who knows this sees.
    pub view_token: String,
    /// Where metrics are for whoever asks; none: nowhere.
    pub metrics: Option<SocketAddr>,
}

impl Place {
    /// Where the dashboard of a running agent is; none: it has none.
    pub fn find(directory: &RuntimeDirectory) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(directory.dashboard_file()).ok()?).ok()
    }

    /// What to type into a browser. Behind the mark it is told to no server.
    pub fn url(&self, may_act: bool) -> String {
        let token = if may_act { &self.token } else { &self.view_token };
        format!("http://{}/#token={token}", self.address)
    }

    fn write(&self, directory: &RuntimeDirectory) -> std::io::Result<()> {
        let path = directory.dashboard_file();
        let _ = std::fs::remove_file(&path);
        let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(&serde_json::to_vec(self).expect("plain data"))
    }
}

/// Where there is to be one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Where the page is served; none: there is none.
    pub listen: Option<SocketAddr>,
    /// Where metrics are served besides; none: nowhere.
    pub metrics: Option<SocketAddr>,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Dashboard {
    listener: TcpListener,
    metrics: Option<TcpListener>,
    running: Option<(Child, OwnedFd)>,
    not_before: Instant,
    pause: Duration,
}

impl Dashboard {
    /// Listens; where an agent before it did, at the same place with the same tokens, so that what is open stays so.
    pub(crate) fn open(directory: &RuntimeDirectory, wanted: Wanted) -> std::io::Result<Option<Self>> {
        let Some(listen) = wanted.listen else { return Ok(None) };
        let before = Place::find(directory);
        let bind = |wanted: SocketAddr, before: Option<SocketAddr>| {
            let before = before
                .filter(|before| before.ip() == wanted.ip() && [0, before.port()].contains(&wanted.port()));
            let again = before.and_then(bind_again);
            let named =
                |error: std::io::Error| std::io::Error::new(error.kind(), format!("{wanted}: {error}"));
            again.map_or_else(|| TcpListener::bind(wanted), Ok).map_err(named)
        };
        let listener = bind(listen, before.as_ref().map(|before| before.address))?;
        let metrics_before = before.as_ref().and_then(|before| before.metrics);
        let metrics = wanted.metrics.map(|metrics| bind(metrics, metrics_before)).transpose()?;
        let (token, view_token) = match before {
            Some(before) => (before.token, before.view_token),
            None => (secret()?, secret()?),
        };
        let metrics_at = metrics.as_ref().map(TcpListener::local_addr).transpose()?;
        Place { address: listener.local_addr()?, token, view_token, metrics: metrics_at }.write(directory)?;
        let (not_before, pause) = (Instant::now(), SHORTEST_PAUSE);
        Ok(Some(Self { listener, metrics, running: None, not_before, pause }))
    }

    /// When it could be started; none: it runs.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.running.is_none().then_some(self.not_before)
    }

    /// Starts it: the descriptor by which its end is seen. It finds its sockets where others have their input and output.
    pub(crate) fn start(&mut self, directory: &RuntimeDirectory) -> std::io::Result<&OwnedFd> {
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("comb")
            .args(["dashboard", "--serve", &std::process::id().to_string()])
            .env("COMB_RUNTIME_DIR", directory.path());
        command.stdin(OwnedFd::from(self.listener.try_clone()?));
        command.stdout(match &self.metrics {
            Some(metrics) => Stdio::from(OwnedFd::from(metrics.try_clone()?)),
            None => Stdio::null(),
        });
        self.not_before = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        let mut child = command.spawn()?;
        let Some(process) = process::open_number(child.id()) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(std::io::Error::other("the new process cannot be watched"));
        };
        Ok(&self.running.insert((child, process)).1)
    }

    pub(crate) fn process(&self) -> Option<&OwnedFd> {
        self.running.as_ref().map(|(_, process)| process)
    }

    /// Its process has ended: how. `None`: not yet.
    pub(crate) fn take_end(&mut self) -> Option<String> {
        let status = self.running.as_mut()?.0.try_wait().ok().flatten()?;
        self.running = None;
        Some(status.to_string())
    }

    /// Its process is to end at once; whoever looks tries again.
    pub(crate) fn kill(&mut self) {
        if let Some((mut child, process)) = self.running.take() {
            process::kill(&process);
            let _ = child.wait();
        }
    }

    /// It is not needed any more, and says so to those who look.
    pub(crate) fn end(&mut self) {
        if let Some((mut child, process)) = self.running.take() {
            process::tell_to_end(&process);
            if !process::wait_for_end(&process, END_LIMIT) {
                process::kill(&process);
            }
            let _ = child.wait();
        }
    }
}

/// Where the agent before listened, as soon as what it had started has ended. None: somebody else is there by now.
fn bind_again(address: SocketAddr) -> Option<TcpListener> {
    let until = Instant::now() + LETTING_GO;
    loop {
        match TcpListener::bind(address) {
            Ok(listener) => return Some(listener),
            Err(error) if error.kind() != ErrorKind::AddrInUse || Instant::now() > until => return None,
            Err(_) => std::thread::sleep(BETWEEN_TRIES),
        }
    }
}

/// Nobody guesses it.
fn secret() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_agent_has_the_same_place_and_tokens() {
        let path = std::env::temp_dir().join(format!("comb-place-{}", std::process::id()));
        let directory = RuntimeDirectory::at(path).unwrap();
        directory.create().unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let wanted = Wanted { listen: Some(any), metrics: None };
        let first = Dashboard::open(&directory, wanted).unwrap().unwrap();
        let place = Place::find(&directory).unwrap();
        assert_eq!((place.token.len(), place.token == place.view_token), (32, false));
        assert!(place.url(true).ends_with(&place.token) && place.url(false).ends_with(&place.view_token));
        // As long as somebody has the port, another is taken; and who wants that very one is told.
        let taken = Wanted { listen: Some(place.address), metrics: None };
        let refused = Dashboard::open(&directory, taken).unwrap_err().to_string();
        assert!(refused.contains(&place.address.to_string()), "{refused}");
        // What still has it lets go of it meanwhile.
        let letting_go = std::thread::spawn(move || {
            std::thread::sleep(10 * BETWEEN_TRIES);
            drop(first);
        });
        Dashboard::open(&directory, wanted).unwrap().unwrap();
        letting_go.join().unwrap();
        assert_eq!(Place::find(&directory).unwrap(), place);
        assert!(Dashboard::open(&directory, Wanted::default()).unwrap().is_none());
        directory.remove().unwrap();
    }
}
