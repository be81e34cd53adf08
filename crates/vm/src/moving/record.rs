//! What became of a machine that was on its way to this host: written down before it runs, so that whoever sent it can ask.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::hexadecimal;

/// One move of one machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Token([u8; 16]);

impl Token {
    /// A new one.
    pub fn new() -> io::Result<Self> {
        let mut bytes = [0; 16];
        io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut bytes)?;
        Ok(Self(bytes))
    }
}

/// Whether a machine is this host's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It is, or was.
    Runs,
    /// It is not and never will be.
    Never,
}

impl Fate {
    fn as_str(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Never => "never",
        }
    }
}

/// Who sent a machine asks long before.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// What was written down on this host.
#[derive(Clone, Debug)]
pub struct Records {
    directory: PathBuf,
}

impl Records {
    /// In a directory, which is made when it is needed.
    pub fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    fn file(&self, token: Token) -> PathBuf {
        self.directory.join(hexadecimal(&token.0))
    }

    /// Decides a machine's fate, if it is open: whoever comes first decides for all, and it is on disk when this returns.
    pub fn decide(&self, token: Token, fate: Fate) -> io::Result<Fate> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let draft = self.directory.join(format!(".{}-{}", hexadecimal(&token.0), std::process::id()));
        let mut file = File::create(&draft)?;
        let written = file.write_all(fate.as_str().as_bytes()).and_then(|()| file.sync_all());
        let linked = written.and_then(|()| std::fs::hard_link(&draft, self.file(token)));
        std::fs::remove_file(&draft)?;
        match linked {
            Ok(()) => {
                File::open(&self.directory)?.sync_all()?;
                Ok(fate)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let text = std::fs::read_to_string(self.file(token))?;
                Ok(if text == Fate::Runs.as_str() { Fate::Runs } else { Fate::Never })
            }
            Err(error) => Err(error),
        }
    }

    /// A machine that was to run here could not, and nobody was told that it does.
    pub(crate) fn regret(&self, token: Token) {
        let draft = self.directory.join(format!(".{}-regret", hexadecimal(&token.0)));
        let _ = std::fs::write(&draft, Fate::Never.as_str())
            .and_then(|()| std::fs::rename(&draft, self.file(token)));
    }

    /// Who sent it knows.
    pub(crate) fn forget(&self, token: Token) {
        let _ = std::fs::remove_file(self.file(token));
    }

    /// Forgets what nobody has asked for in a month.
    pub fn tidy(&self) {
        for entry in std::fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let age =
                entry.metadata().and_then(|found| found.modified()).ok().and_then(|at| at.elapsed().ok());
            if age.is_some_and(|age| age > KEPT) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_first_decides_and_all_hear_the_same() {
        let directory = std::env::temp_dir().join(format!("comb-vm-record-{}", std::process::id()));
        let records = Records::at(directory.clone());
        let (one, other) = (Token::new().unwrap(), Token::new().unwrap());
        assert_ne!(one, other);
        assert_eq!(records.decide(one, Fate::Runs).unwrap(), Fate::Runs);
        assert_eq!(records.decide(one, Fate::Never).unwrap(), Fate::Runs);
        assert_eq!(records.decide(other, Fate::Never).unwrap(), Fate::Never);
        assert_eq!(records.decide(other, Fate::Runs).unwrap(), Fate::Never);
        records.regret(one);
        assert_eq!(records.decide(one, Fate::Runs).unwrap(), Fate::Never);
        records.tidy();
        records.forget(one);
        assert_eq!(records.decide(one, Fate::Runs).unwrap(), Fate::Runs);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
