//! Shelves that a machine has, as its monitor sees to it: which edition the guest sees, and which it still has open.

use std::collections::VecDeque;
use std::fs::File;

use comb_guest::files::SLOTS;
use comb_guest::wire::{Command, Ended};
use serde::{Deserialize, Serialize};

use super::shelf::{Record, Shelf, ShelfError};
use crate::control::Answer;
use crate::engine::{Engine, EngineError};

/// Each is a device: there are no more places for those.
pub const MOST_SHELVES: usize = 8;

/// Where the agent's program is in a guest.
const PROGRAM: &str = "/sbin/comb-guest";

/// What the agent's program says is short.
const MOST_SAID_BYTES: usize = 4096;

/// A shelf that a machine is to have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Use {
    /// Which.
    pub shelf: Shelf,
    /// The guest may change it, for itself until that is brought out.
    pub is_writer: bool,
}

/// What a machine has of a shelf.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FilesShown {
    /// Of which.
    pub shelf: String,
    /// The edition that its guest sees; 0: none yet.
    pub edition: u64,
    /// The slots whose editions it has, as bits.
    pub kept: u32,
    /// It may change it.
    pub is_writer: bool,
}

#[derive(Debug)]
struct One {
    of: Use,
    shown: FilesShown,
    _used: File,
    _writes: Option<File>,
}

/// What a guest is to do.
#[derive(Debug)]
struct Wanted {
    /// With which shelf.
    at: usize,
    /// See the last edition, in which what was changed here is, or not; none: leave old ones.
    show: Option<bool>,
    /// For whom.
    client: Option<u32>,
}

#[derive(Debug)]
struct Asked {
    wanted: Wanted,
    exec: u32,
    /// The slot and the number of the edition that is to be seen.
    edition: Option<(u32, u64)>,
    said: Vec<u8>,
}

/// All shelves of a machine.
#[derive(Debug)]
pub struct MachineFiles {
    all: Vec<One>,
    wanted: VecDeque<Wanted>,
    asked: Option<Asked>,
    why_not: Option<String>,
}

/// What whoever wanted it is told.
#[derive(Debug)]
pub struct Heard {
    /// By which line.
    pub client: Option<u32>,
    /// What.
    pub answer: Answer,
}

impl Use {
    /// Puts the shelf's device into a machine.
    pub fn plug(&self, engine: &mut Engine) -> Result<(), EngineError> {
        let record = self.shelf.record().map_err(|error| EngineError::Ended(error.to_string()))?;
        let id = format!("files-{}", self.shelf.name);
        // Not even a writer writes to what others see: what it changes is on top, in its own memory.
        engine.plug_memory(&id, &self.shelf.device(), record.device_bytes, None, false)
    }

    /// What has the guest see the edition in a slot.
    pub fn show(&self, slot: u32, is_brought_out: bool) -> Command {
        let slot = slot.to_string();
        let mut words = vec!["show", self.shelf.name.as_str(), &slot];
        words.extend(self.is_writer.then_some("writable"));
        words.extend(is_brought_out.then_some("brought-out"));
        within(&words)
    }

    /// What has the guest leave editions that nobody has open.
    pub fn leave(&self) -> Command {
        within(&["leave", self.shelf.name.as_str()])
    }
}

/// Has the agent's program do something with files.
pub fn within(words: &[&str]) -> Command {
    let words = [PROGRAM, "files"].iter().chain(words);
    Command { arguments: words.map(|word| word.as_bytes().to_vec()).collect(), ..Command::default() }
}

/// What a guest says that it sees and has: a slot, and bits. It is believed as far as it harms nobody else: an edition that it says it has left may be written over.
fn read_said(said: &[u8]) -> Option<(u32, u32)> {
    let (seen, kept) = std::str::from_utf8(said).ok()?.trim().split_once(' ')?;
    let (seen, kept): (u32, u32) = (seen.parse().ok()?, kept.parse().ok()?);
    (seen < SLOTS && kept < 1 << SLOTS && kept >> seen & 1 == 1).then_some((seen, kept))
}

fn last(record: &Record) -> Option<(u32, u64)> {
    Some((record.current?, record.edition()?.number))
}

impl MachineFiles {
    /// Those, which are kept from being removed.
    pub fn new(uses: &[Use]) -> Result<Self, ShelfError> {
        let one = |of: &Use| {
            let name = &of.shelf.name;
            last(&of.shelf.record()?).ok_or_else(|| ShelfError::None(name.clone()))?;
            let shown = FilesShown { shelf: name.to_string(), edition: 0, kept: 0, is_writer: of.is_writer };
            let writes = of.is_writer.then(|| of.shelf.write_it()).transpose()?;
            Ok(One { of: of.clone(), shown, _used: of.shelf.use_it()?, _writes: writes })
        };
        let all = uses.iter().map(one).collect::<Result<Vec<_>, ShelfError>>()?;
        Ok(Self { all, wanted: VecDeque::new(), asked: None, why_not: None })
    }

    /// Puts all devices in; what is to be done with them is wanted then.
    pub fn plug(&mut self, engine: &mut Engine) {
        for (at, one) in self.all.iter().enumerate() {
            match one.of.plug(engine) {
                Ok(()) => self.wanted.push_back(Wanted { at, show: Some(false), client: None }),
                Err(error) => self.why_not = Some(error.to_string()),
            }
        }
    }

    /// Why the machine cannot have what it is to have.
    pub fn why_not(&self) -> Option<String> {
        self.why_not.clone()
    }

    /// Whether its guest sees all of them.
    pub fn are_seen(&self) -> bool {
        self.all.iter().all(|one| one.shown.edition > 0)
    }

    /// What the machine has.
    pub fn shown(&self) -> Vec<FilesShown> {
        self.all.iter().map(|one| one.shown.clone()).collect()
    }

    /// Somebody wants the guest to see the last edition of a shelf, or to leave old ones.
    pub fn want(&mut self, shelf: &str, show: Option<bool>, client: u32) -> Result<(), String> {
        let found = self.all.iter().position(|one| one.shown.shelf == shelf && one.shown.edition > 0);
        let at = found.ok_or_else(|| format!("it does not have the files `{shelf}`"))?;
        self.wanted.push_back(Wanted { at, show, client: Some(client) });
        Ok(())
    }

    /// What the guest is to run next, by this number, if it is to do something and does nothing yet.
    pub fn next(&mut self, exec: u32) -> Option<Command> {
        if self.asked.is_some() {
            return None;
        }
        let wanted = self.wanted.pop_front()?;
        let one = &mut self.all[wanted.at];
        let edition =
            if wanted.show.is_some() { one.of.shelf.record().ok().as_ref().and_then(last) } else { None };
        let command = match (wanted.show, edition) {
            (Some(is_brought_out), Some((slot, _))) => {
                // From now on it may have it.
                one.shown.kept |= 1 << slot;
                one.of.show(slot, is_brought_out)
            }
            _ => one.of.leave(),
        };
        self.asked = Some(Asked { wanted, exec, edition, said: Vec::new() });
        Some(command)
    }

    /// Whether this is what the guest was asked to run.
    pub fn is_asking(&self, exec: u32) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.exec == exec)
    }

    /// It has said something.
    pub fn note(&mut self, said: &[u8]) {
        if let Some(asked) = &mut self.asked {
            let room = MOST_SAID_BYTES.saturating_sub(asked.said.len());
            asked.said.extend_from_slice(&said[..said.len().min(room)]);
        }
    }

    /// It has ended.
    pub fn ended(&mut self, how: &Ended) -> Heard {
        let Some(Asked { wanted, edition, said, .. }) = self.asked.take() else {
            return Heard { client: None, answer: Answer::Done };
        };
        let one = &mut self.all[wanted.at];
        let right = if *how == Ended::Exited(0) { read_said(&said) } else { None };
        let Some((seen, kept)) = right else {
            let said = String::from_utf8_lossy(&said);
            let why = match how {
                Ended::NotRun(why) => why.as_str(),
                _ if said.trim().is_empty() => "the guest does not say why",
                _ => said.trim(),
            };
            let why = format!("its guest does not see the files `{}`: {why}", one.shown.shelf);
            if one.shown.edition == 0 {
                self.why_not = Some(why.clone());
            }
            return Heard { client: wanted.client, answer: Answer::Refused(why) };
        };
        one.shown.kept = kept;
        match edition {
            Some((slot, number)) if slot == seen => one.shown.edition = number,
            Some(_) => {
                let why = format!("what its guest has changed in `{}` was not brought out", one.shown.shelf);
                return Heard { client: wanted.client, answer: Answer::Refused(why) };
            }
            None => {}
        }
        Heard { client: wanted.client, answer: Answer::Done }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::edition::Writing;
    use crate::files::shelf::Shelves;
    use comb_guest::packing::{Entry, Kind, Said};

    fn bring_out(shelf: &Shelf, kept: u32) -> u32 {
        let mut writing = Writing::begin(shelf, kept).unwrap();
        let (path, kind) = (Vec::new(), Kind::Directory);
        writing
            .take(Said::Entry(Entry { path, kind, mode: 0o755, user: 0, group: 0, modified: (0, 0) }))
            .unwrap();
        writing.take(Said::End).unwrap();
        writing.bring_out().unwrap().slot
    }

    #[test]
    fn what_a_guest_may_have_is_kept_until_it_says_that_it_has_left_it() {
        let place = std::env::temp_dir().join(format!("comb-vm-machine-files-{}", std::process::id()));
        let shelf = Shelves::at(place.clone()).open_or_make(&"docs".parse().unwrap(), 1 << 20, 1).unwrap();
        let uses = [Use { shelf: shelf.clone(), is_writer: true }];
        assert!(matches!(MachineFiles::new(&uses), Err(ShelfError::None(_))));
        bring_out(&shelf, 0);
        let mut files = MachineFiles::new(&uses).unwrap();
        assert!(matches!(MachineFiles::new(&uses), Err(ShelfError::HasWriter(_))));
        files.want("docs", None, 1).unwrap_err();
        files.wanted.push_back(Wanted { at: 0, show: Some(false), client: None });
        let words = |command: Command| {
            let words = command.arguments.iter().map(|word| String::from_utf8_lossy(word).into_owned());
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words(files.next(5).unwrap()), "/sbin/comb-guest files show docs 0 writable");
        assert!(files.next(6).is_none() && files.is_asking(5) && !files.is_asking(6));
        assert_eq!((files.shown()[0].kept, files.are_seen()), (1, false));
        files.note(b"0 1\n");
        files.ended(&Ended::Exited(0));
        assert!(files.are_seen());
        bring_out(&shelf, 1);
        for (said, how) in [
            (&b"1 2"[..], Ended::Exited(1)),
            (b"1 1", Ended::Exited(0)),
            (b"1 16", Ended::Exited(0)),
            (b"9 1", Ended::Exited(0)),
            (b"", Ended::Exited(0)),
            (&[0xff; 9000], Ended::Killed(9)),
        ] {
            files.want("docs", Some(false), 3).unwrap();
            files.next(7).unwrap();
            files.note(said);
            let heard = files.ended(&how);
            assert!(heard.client == Some(3) && matches!(heard.answer, Answer::Refused(_)));
            assert_eq!((files.shown()[0].kept, files.shown()[0].edition), (3, 1));
        }
        for (said, kept, edition, is_done) in [("0 3", 3, 1, false), ("1 3", 3, 2, true), ("1 2", 2, 2, true)]
        {
            files.want("docs", Some(true), 3).unwrap();
            assert!(words(files.next(8).unwrap()).ends_with("show docs 1 writable brought-out"));
            files.note(said.as_bytes());
            assert_eq!(files.ended(&Ended::Exited(0)).answer == Answer::Done, is_done);
            assert_eq!((files.shown()[0].kept, files.shown()[0].edition), (kept, edition));
        }
        std::fs::remove_dir_all(place).unwrap();
    }
}
