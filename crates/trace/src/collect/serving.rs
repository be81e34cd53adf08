//! The collector: agents' streams, a thread each, and the directory behind them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use thiserror::Error;

use super::folder::{Folder, RecordingFile};
use super::refusal::{PeerFault, Refusal};
use super::session::{Action, Session};
use super::stream::{Outgoing, read};
use super::{Limits, OpenFolderError, Stream};
use crate::trace_file::kind;

/// So long a read or write waits, at most. Between two, the time is looked at.
const PATIENCE: Duration = Duration::from_millis(50);

/// So much is read at once.
const PIECE_BYTES: usize = 64 << 10;

/// Who is refused may still be sending; if the connection were closed at once, the reason would be lost with it. So long, and for so many bytes, it is listened to.
const PARTING: Duration = Duration::from_secs(1);
const MOST_PARTING_BYTES: usize = 64 << 20;

/// Writes what agents send into a directory.
pub struct Collector {
    folder: Folder,
    limits: Limits,
    agents: AtomicUsize,
    is_stopping: AtomicBool,
}

/// What a collector may tell of a connection while there is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServeEvent<'a> {
    /// The agent was taken.
    Connected {
        /// The machine's name, as its agent says.
        machine: &'a str,
    },
    /// This file is written to from now on.
    Opened(&'a Path),
    /// A recording is on the disk, from its head to its end.
    Delivered(&'a Path),
}

/// What came through one connection.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Served {
    /// The machine's name, as its agent says.
    pub machine: String,
    /// The files that were written to, the last one last.
    pub recordings: Vec<PathBuf>,
    /// Frames that were written.
    pub frames: u64,
    /// And their bytes.
    pub bytes: u64,
}

/// Why a connection ended otherwise than by the agent's will. Recordings are good as far as they were written.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The agent, or who says to be one, is wrong. Nothing of what was wrong was written.
    #[error("{peer}: {fault}")]
    Peer {
        /// Who.
        peer: String,
        /// What it did.
        fault: PeerFault,
    },
    /// No more is taken.
    #[error("{peer} was refused: {refusal}")]
    Refused {
        /// Who.
        peer: String,
        /// Why, as the agent was told.
        refusal: Refusal,
    },
    /// Our own disk fails.
    #[error("{directory}: {error}")]
    Disk {
        /// Where.
        directory: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The connection broke.
    #[error("{peer}: {error}")]
    Stream {
        /// To whom.
        peer: String,
        /// How.
        error: io::Error,
    },
}

impl Collector {
    /// Begins to write to a directory, which is made if need be, and to which nobody else writes for as long as this is there.
    pub fn new(directory: &Path, limits: Limits) -> Result<Self, OpenFolderError> {
        let folder = Folder::open(directory, limits)?;
        Ok(Self { folder, limits, agents: AtomicUsize::new(0), is_stopping: AtomicBool::new(false) })
    }

    /// Takes what comes through one connection until it ends. To be called by as many threads as there are connections: who comes when
    /// the limit is reached is told so. `peer` is who is at the other end, as far as that was proven: it is in errors, and what it may send is counted by it.
    pub fn serve(
        &self,
        mut stream: impl Stream,
        peer: &str,
        mut report: impl FnMut(ServeEvent<'_>),
    ) -> Result<Served, ServeError> {
        let broken = |error| ServeError::Stream { peer: peer.to_owned(), error };
        stream.set_patience(PATIENCE).map_err(broken)?;
        let agents = Place::take(&self.agents);
        let admission = if agents.number > self.limits.most_agents {
            Err(Refusal::Busy)
        } else {
            self.folder.has_room(peer)
        };
        let began = Instant::now();
        let mut session = Session::new(Duration::ZERO, self.limits.most_frame_bytes, admission);
        let mut desk = Desk::new(&self.folder, peer);
        let mut outgoing = Outgoing::default();
        let mut piece = vec![0; PIECE_BYTES];
        let mut is_connected = false;
        let ended = loop {
            let now = began.elapsed();
            if self.is_stopping.load(Ordering::Relaxed) {
                break Err((session.refuse(Refusal::Stopping), None));
            }
            if !is_connected && session.is_admitted() {
                is_connected = true;
                report(ServeEvent::Connected { machine: session.machine() });
            }
            if let Err(refusal) = desk.work(&mut session, now, &mut report) {
                break Err(refusal);
            }
            if let Err(error) = outgoing.write(&mut stream, &mut || session.poll_transmit(now), 16) {
                break Ok(Err(error));
            }
            match read(&mut stream, &mut piece) {
                Ok(None) => {}
                Ok(Some(0)) => break Ok(Ok(())),
                Ok(Some(bytes)) => {
                    if let Err(refusal) = session.received(began.elapsed(), &piece[..bytes]) {
                        break Err((refusal, None));
                    }
                }
                Err(error) => break Ok(Err(error)),
            }
        };
        let machine = session.machine().to_owned();
        if ended.is_err() {
            part(&mut stream, &mut session, &mut outgoing, &mut piece);
        }
        let finished = desk.finish();
        match ended {
            Ok(Ok(())) => Ok(Served { machine, ..finished }),
            Ok(Err(error)) => Err(broken(error)),
            Err((_, Some(error))) => {
                Err(ServeError::Disk { directory: self.folder.directory().to_owned(), error })
            }
            Err((Refusal::Fault(fault), None)) => Err(ServeError::Peer { peer: peer.to_owned(), fault }),
            Err((refusal, None)) => Err(ServeError::Refused { peer: peer.to_owned(), refusal }),
        }
    }

    /// Ends all connections soon; agents are told, and try again later.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// How many connections there are.
    pub fn agents(&self) -> usize {
        self.agents.load(Ordering::Relaxed)
    }
}

/// Says what is still to be said, and waits until it has been heard.
fn part(stream: &mut impl Stream, session: &mut Session, outgoing: &mut Outgoing, piece: &mut [u8]) {
    let began = Instant::now();
    let mut bytes = 0;
    while began.elapsed() < PARTING && bytes < MOST_PARTING_BYTES {
        if outgoing.write(stream, &mut || session.poll_transmit(Duration::ZERO), 16).is_err() {
            return;
        }
        match read(stream, piece) {
            Ok(Some(0)) | Err(_) => return,
            Ok(read) => bytes += read.unwrap_or(0),
        }
    }
}

/// A place among the agents that may be here.
struct Place<'a> {
    agents: &'a AtomicUsize,
    number: usize,
}

impl<'a> Place<'a> {
    fn take(agents: &'a AtomicUsize) -> Self {
        let number = agents.fetch_add(1, Ordering::Relaxed) + 1;
        Self { agents, number }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.agents.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Does what a session asks for, with files.
pub(super) struct Desk<'a> {
    folder: &'a Folder,
    peer: &'a str,
    file: Option<RecordingFile<'a>>,
    /// The last frame of all was written, and may not be on the disk.
    is_ended: bool,
    served: Served,
}

type Denied = (Refusal, Option<io::Error>);

impl<'a> Desk<'a> {
    pub(super) fn new(folder: &'a Folder, peer: &'a str) -> Self {
        Self { folder, peer, file: None, is_ended: false, served: Served::default() }
    }

    /// All that is to be done now. After an error the session has said why to the agent.
    pub(super) fn work(
        &mut self,
        session: &mut Session,
        now: Duration,
        report: &mut dyn FnMut(ServeEvent<'_>),
    ) -> Result<(), Denied> {
        session.tick(now).map_err(|refusal| (refusal, None))?;
        while let Some(action) = session.poll_action() {
            match action {
                Action::Open { machine, open } => {
                    self.file = None;
                    match self.folder.recording(&machine, open, self.peer) {
                        Ok((file, order)) => {
                            if self.served.recordings.last() != Some(&file.path) {
                                self.served.recordings.push(file.path.clone());
                            }
                            report(ServeEvent::Opened(&file.path));
                            if order.is_ended() {
                                report(ServeEvent::Delivered(&file.path));
                            }
                            self.file = Some(file);
                            session.opened(now, Ok(order)).map_err(|refusal| (refusal, None))?;
                        }
                        Err((refusal, error)) => {
                            let _ = session.opened(now, Err(refusal));
                            return Err((refusal, error));
                        }
                    }
                }
                Action::Write(frame) => {
                    let file = self.file.as_mut().expect("a recording is opened before it is written to");
                    file.write(&frame).map_err(|(refusal, error)| (session.refuse(refusal), error))?;
                    self.served.frames += 1;
                    self.served.bytes += frame.len() as u64;
                    self.is_ended = frame[0] == kind::END;
                }
                Action::Sync => {
                    if let Some(file) = &self.file {
                        file.sync().map_err(|(refusal, error)| (session.refuse(refusal), error))?;
                        if std::mem::take(&mut self.is_ended) {
                            report(ServeEvent::Delivered(&file.path));
                        }
                    }
                    session.synced();
                }
            }
        }
        Ok(())
    }

    /// The file that is written to.
    #[cfg(test)]
    pub(super) fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.path.as_path())
    }

    fn finish(self) -> Served {
        // Nobody waits for it, but there is no reason to leave it to chance.
        let _ = self.file.as_ref().map(RecordingFile::sync);
        self.served
    }
}
