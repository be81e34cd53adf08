//! Shelves in a guest: directories that it has in common with others, of which no page is in its own memory.
//!
//! A shelf is a device of memory with a few partitions. Each begins with what an edition of the shelf is called and where it lies, and reaches to the device's end, for the
//! content of all editions lies behind. The host writes them; here they are looked at, and left when nobody has anything of theirs open any more.

use std::fs;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::frames::framed;
use crate::packing;

mod mounts;

use mounts::Flags;

/// Editions that a shelf can have at once.
pub const SLOTS: u32 = 4;

/// With what a shelf's device begins, before its name and a zero.
pub const MAGIC: &[u8] = b"comb shelf ";

/// Where guests see shelves.
pub const SHOWN_IN: &str = "/files";

/// Where editions are.
const EDITIONS: &str = "/run/comb/files";

/// Where what a writer changes is, until it has become an edition.
const CHANGES: &str = "/var/lib/comb-files";

/// A device that was put in is there by then, on a machine that does much else.
const DEVICE_LIMIT: Duration = Duration::from_secs(240);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Does what a line of words asks for: `show SHELF SLOT [writable] [brought-out]`, `leave SHELF`, `stop-writing SHELF`, `go-on-writing SHELF`, `pack DIRECTORY`, `pack-shelf SHELF`. What is
/// said to standard output is for the host: of the first two the slot that is seen, and which slots this guest still has, as bits of a number.
pub fn run(words: &[String]) -> io::Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["show", shelf, slot, ref options @ ..] => {
            let slot = slot.parse().ok().filter(|&slot| slot < SLOTS);
            let slot = slot.ok_or_else(|| wrong("it has no such edition"))?;
            let shelf = Shelf::new(shelf)?;
            if options.contains(&"writable") {
                shelf.show_writable(slot, options.contains(&"brought-out"))?;
            } else {
                shelf.show(slot)?;
            }
            shelf.leave_old()
        }
        ["leave", shelf] => Shelf::new(shelf)?.leave_old(),
        ["stop-writing", shelf] => {
            let shelf = Shelf::new(shelf)?;
            mounts::change(&shelf.shown(), Flags::ReadOnly).map_err(|error| match error.kind() {
                ErrorKind::ResourceBusy => wrong(&format!("somebody writes in {}", shelf.shown().display())),
                _ => error,
            })
        }
        ["go-on-writing", shelf] => mounts::change(&Shelf::new(shelf)?.shown(), Flags::Writable),
        ["pack", directory] => pack(Path::new(directory), None),
        ["pack-shelf", shelf] => {
            let shelf = Shelf::new(shelf)?;
            let slot = shelf.seen().ok_or_else(|| wrong("the guest does not have it"))?;
            pack(&shelf.shown(), Some(&shelf.changes(slot).join("upper")))
        }
        _ => Err(wrong("nothing that is done with files")),
    }
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, why)
}

fn pack(directory: &Path, changed: Option<&Path>) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    packing::pack(directory, changed, |said| out.write_all(&framed(said)))?;
    out.flush()
}

struct Shelf<'a> {
    name: &'a str,
}

impl<'a> Shelf<'a> {
    fn new(name: &'a str) -> io::Result<Self> {
        let may_be = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if !name.is_empty() && name.bytes().all(may_be) {
            Ok(Self { name })
        } else {
            Err(wrong("that is no shelf's name"))
        }
    }

    /// Where its readers see it.
    fn shown(&self) -> PathBuf {
        Path::new(SHOWN_IN).join(self.name)
    }

    /// Where an edition is.
    fn edition(&self, slot: u32) -> PathBuf {
        Path::new(EDITIONS).join(format!("{}.{slot}", self.name))
    }

    /// Which edition is seen.
    fn note(&self) -> PathBuf {
        Path::new(EDITIONS).join(format!("{}.seen", self.name))
    }

    fn seen(&self) -> Option<u32> {
        fs::read_to_string(self.note()).ok()?.trim().parse().ok()
    }

    /// What a writer changes of an edition.
    fn changes(&self, slot: u32) -> PathBuf {
        Path::new(CHANGES).join(self.name).join(slot.to_string())
    }

    fn await_device(&self) -> io::Result<PathBuf> {
        let until = Instant::now() + DEVICE_LIMIT;
        loop {
            for number in 0..64 {
                let device = PathBuf::from(format!("/dev/pmem{number}"));
                if begins_with(&device, &[MAGIC, self.name.as_bytes(), &[0]].concat())
                    && partition(&device, 3).exists()
                {
                    return Ok(device);
                }
            }
            if Instant::now() >= until {
                return Err(io::Error::new(ErrorKind::NotFound, "its device has not come"));
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }

    /// Has an edition, beside those that it has.
    fn take(&self, slot: u32) -> io::Result<PathBuf> {
        let place = self.edition(slot);
        if !mounts::all()?.contains(&place) {
            let device = partition(&self.await_device()?, slot);
            fs::create_dir_all(&place)?;
            // What others have made takes no rights here: they may be anybody.
            mounts::read_only(&device, &place, "erofs", "dax=always").map_err(|error| {
                let why = "is erofs in the image? `comb vm create` makes one that has it";
                io::Error::new(error.kind(), format!("{}: {error} ({why})", device.display()))
            })?;
        }
        Ok(place)
    }

    /// Has its readers see an edition; whoever has a file of another open keeps that.
    fn show(&self, slot: u32) -> io::Result<()> {
        let edition = self.take(slot)?;
        fs::create_dir_all(SHOWN_IN)?;
        let new = Path::new(SHOWN_IN).join(format!(".{}.new", self.name));
        let _ = fs::remove_file(&new);
        std::os::unix::fs::symlink(edition, &new)?;
        fs::rename(new, self.shown())?;
        fs::write(self.note(), slot.to_string())
    }

    /// The same with what is changed here on top. `is_brought_out`: what was changed is in this edition. If it is not, and there is some, all stays as it is.
    fn show_writable(&self, slot: u32, is_brought_out: bool) -> io::Result<()> {
        if let Some(seen) = self.seen() {
            let has_changes = fs::read_dir(self.changes(seen).join("upper"))?.next().is_some();
            if seen == slot || (has_changes && !is_brought_out) {
                return Ok(());
            }
        }
        let edition = self.take(slot)?;
        let (shown, changes) = (self.shown(), self.changes(slot));
        let _ = fs::remove_dir_all(&changes);
        let (upper, work) = (changes.join("upper"), changes.join("work"));
        for directory in [&upper, &work, &shown] {
            fs::create_dir_all(directory)?;
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={},redirect_dir=off,metacopy=off,index=off",
            edition.display(),
            upper.display(),
            work.display()
        );
        // Who is still in the directory as it was finds it unchanged there, and cannot write what nobody would see.
        if self.seen().is_some() {
            mounts::leave_lazily(&shown)?;
        }
        mounts::writable("overlay", &shown, "overlay", &options)?;
        if let Some(old) = self.seen() {
            let _ = fs::remove_dir_all(self.changes(old));
        }
        fs::write(self.note(), slot.to_string())
    }

    /// Leaves all editions but the one that is seen, as far as nobody has anything of theirs open, and says what it has.
    fn leave_old(&self) -> io::Result<()> {
        let seen = self.seen().ok_or_else(|| wrong("the guest does not have it"))?;
        let mounted = mounts::all()?;
        let mut kept = 1 << seen;
        for slot in (0..SLOTS).filter(|&slot| slot != seen) {
            let place = self.edition(slot);
            if mounted.contains(&place) && mounts::leave(&place).is_err() {
                kept |= 1 << slot;
            }
        }
        println!("{seen} {kept}");
        Ok(())
    }
}

fn partition(device: &Path, slot: u32) -> PathBuf {
    PathBuf::from(format!("{}p{}", device.display(), slot + 1))
}

fn begins_with(device: &Path, wanted: &[u8]) -> bool {
    let mut begin = vec![0; wanted.len()];
    let read = fs::File::open(device).and_then(|mut file| io::Read::read_exact(&mut file, &mut begin));
    read.is_ok() && begin == wanted
}
