//! The quorum resource of a group, asked in a thread of its own: a slow one never keeps the group from its messages.

use std::fmt;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use comb_membership::{Member, ViewEpoch};

use crate::quorum_file::QuorumFile;

/// A resource that could not be asked is asked again after so long.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(200);

/// Why a quorum resource could not be asked. Whether it has granted anything is not known.
pub type QuorumError = Box<dyn std::error::Error + Send + Sync>;

/// An arbiter between two members that do not hear each other. (MSCS §7.7.2)
pub trait Quorum: Send {
    /// Whether `member` may go on alone with `epoch`: no other was granted this epoch, and nobody a later one. To be asked again
    /// gives the same answer. It may take its time.
    fn acquire(&mut self, epoch: ViewEpoch, member: Member) -> Result<bool, QuorumError>;
}

impl Quorum for QuorumFile {
    fn acquire(&mut self, epoch: ViewEpoch, member: Member) -> Result<bool, QuorumError> {
        Ok(QuorumFile::acquire(self, epoch, member)?)
    }
}

#[cfg(feature = "etcd")]
impl Quorum for crate::quorum_etcd::QuorumEtcd {
    fn acquire(&mut self, epoch: ViewEpoch, member: Member) -> Result<bool, QuorumError> {
        Ok(crate::quorum_etcd::QuorumEtcd::acquire(self, epoch, member)?)
    }
}

type Question = (ViewEpoch, Member);

/// The group's end of the thread that asks.
pub(crate) struct Asker {
    questions: Sender<Question>,
    answers: Receiver<(ViewEpoch, Result<bool, QuorumError>)>,
    /// The last that was asked for and is not answered.
    open: Option<ViewEpoch>,
    /// Why it is not, if that is known.
    error: Option<QuorumError>,
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Asker for {:?}", self.open)
    }
}

impl Asker {
    pub(crate) fn start(quorum: Box<dyn Quorum>) -> Self {
        let (questions, asked) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        // It ends when the group does, as soon as the resource lets it.
        std::thread::spawn(move || ask(quorum, &asked, &answer));
        Self { questions, answers, open: None, error: None }
    }

    pub(crate) fn ask(&mut self, epoch: ViewEpoch, member: Member) {
        if self.open != Some(epoch) {
            self.open = Some(epoch);
            let _ = self.questions.send((epoch, member));
        }
    }

    /// The next answer.
    pub(crate) fn answered(&mut self) -> Option<(ViewEpoch, bool)> {
        while let Ok((epoch, answer)) = self.answers.try_recv() {
            match answer {
                Ok(granted) => {
                    self.error = None;
                    if self.open == Some(epoch) {
                        self.open = None;
                    }
                    return Some((epoch, granted));
                }
                Err(error) => self.error = Some(error),
            }
        }
        None
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.open.is_some()
    }

    pub(crate) fn error(&self) -> Option<&QuorumError> {
        self.error.as_ref()
    }
}

/// Asks until there is an answer, or another question.
fn ask(
    mut quorum: Box<dyn Quorum>,
    questions: &Receiver<Question>,
    answers: &Sender<(ViewEpoch, Result<bool, QuorumError>)>,
) {
    let mut next = questions.recv().ok();
    while let Some((epoch, member)) = next {
        let answer = quorum.acquire(epoch, member);
        let is_open = answer.is_err();
        if answers.send((epoch, answer)).is_err() {
            return;
        }
        next = match questions.recv_timeout(BETWEEN_ATTEMPTS) {
            Ok(question) => Some(question),
            Err(RecvTimeoutError::Timeout) if is_open => Some((epoch, member)),
            Err(RecvTimeoutError::Timeout) => questions.recv().ok(),
            Err(RecvTimeoutError::Disconnected) => None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comb_membership::{Incarnation, NodeId};
    use std::time::Instant;

    const SOON: Duration = Duration::from_secs(20);

    /// Says what it is asked, and answers when it is told to.
    struct Told(Sender<ViewEpoch>, Receiver<bool>);

    impl Quorum for Told {
        fn acquire(&mut self, epoch: ViewEpoch, _: Member) -> Result<bool, QuorumError> {
            self.0.send(epoch)?;
            Ok(self.1.recv_timeout(SOON)?)
        }
    }

    fn answer(asker: &mut Asker) -> (ViewEpoch, bool) {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(answer) = asker.answered() {
                return answer;
            }
            assert!(Instant::now() < deadline, "it never answers");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn each_epoch_is_asked_for_once_and_the_last_is_waited_for() {
        let ((tell, asked), (answers, told)) = (mpsc::channel(), mpsc::channel());
        let mut asker = Asker::start(Box::new(Told(tell, told)));
        let member = Member { node: NodeId(1), incarnation: Incarnation(1) };
        assert!(!asker.is_busy());
        [1, 1, 2, 2].iter().for_each(|&epoch| asker.ask(ViewEpoch(epoch), member));
        answers.send(false).expect("it waits");
        assert_eq!(answer(&mut asker), (ViewEpoch(1), false));
        assert!(asker.is_busy(), "that was not the last");
        answers.send(true).expect("it waits");
        assert_eq!(answer(&mut asker), (ViewEpoch(2), true));
        assert!(!asker.is_busy());
        assert_eq!(asked.try_iter().collect::<Vec<_>>(), [ViewEpoch(1), ViewEpoch(2)]);
    }
}
