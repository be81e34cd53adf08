//! What the launcher brings along to hosts where no comb is: itself, and libcomb.

use std::fs::File;
use std::io::{Read, Result, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use flate2::Compression;
use flate2::write::GzEncoder;
use ring::digest::{SHA256, digest};

use super::{executable, library};

/// What runs on another host first.
const SCRIPT: &str = include_str!("bootstrap.sh");
/// This program, also where its file has gone since.
const OWN: &str = "/proc/self/exe";
/// Of a hash in the name of a copy: two builds in one directory do not have these in common by chance, and whoever can choose them may
/// write there anyway.
const KEY_CHARACTERS: usize = 16;

#[derive(Debug)]
pub(super) struct Luggage {
    pub(super) comb: Item,
    /// Where there is none here, there is none on other hosts.
    pub(super) library: Option<Item>,
    here: PathBuf,
    twin: String,
}

/// A file to bring, as much of it as is needed there.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) bytes: Vec<u8>,
    hash: String,
    packed: OnceLock<Vec<u8>>,
}

impl Item {
    fn read(path: &Path) -> Result<Self> {
        let bytes = executable::read_loaded(&mut File::open(path)?)?;
        let hash = hexadecimal(digest(&SHA256, &bytes).as_ref());
        Ok(Self { bytes, hash, packed: OnceLock::new() })
    }

    /// As `gzip -d` takes it. Packed once for all hosts.
    pub(super) fn packed(&self) -> &[u8] {
        self.packed.get_or_init(|| {
            // Slower ones make a tenth less of it.
            let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
            packer.write_all(&self.bytes).and_then(|()| packer.finish()).expect("memory takes all")
        })
    }

    fn key(&self) -> &str {
        &self.hash[..KEY_CHARACTERS]
    }
}

impl Luggage {
    pub(super) fn pack() -> Result<Self> {
        let own = Path::new(OWN);
        let found = own.metadata()?;
        let mut kernel = String::new();
        // Whoever cannot read it has no twin.
        let _ =
            File::open("/proc/sys/kernel/random/boot_id").and_then(|mut id| id.read_to_string(&mut kernel));
        let (device, number, size, time) = (found.dev(), found.ino(), found.size(), found.mtime());
        let twin = match kernel.trim() {
            "" => String::new(),
            kernel => format!("{kernel} {device} {number} {size} {time}"),
        };
        Ok(Self {
            comb: Item::read(own)?,
            library: library::find().map(|library| Item::read(&library)).transpose()?,
            here: std::env::current_exe()?,
            twin,
        })
    }

    /// What `sh` there is to read. Its answers begin with `comb-`, the nonce and a space.
    pub(super) fn script(&self, nonce: &str) -> Vec<u8> {
        let library = self.library.as_ref();
        let bytes = self.comb.bytes.len() + library.map_or(0, |library| library.bytes.len());
        let variables = [
            ("nonce", nonce.to_owned()),
            ("machine", format!("Linux {}", std::env::consts::ARCH)),
            ("twin", self.twin.clone()),
            ("key", format!("{}-{}", self.comb.key(), library.map_or("0", Item::key))),
            // And something for directories.
            ("kilobytes", (bytes.div_ceil(1024) + 64).to_string()),
            ("bytes", self.comb.bytes.len().to_string()),
            ("hash", self.comb.hash.clone()),
            ("library_bytes", library.map_or(0, |library| library.bytes.len()).to_string()),
            ("library_hash", library.map_or(String::new(), |library| library.hash.clone())),
        ];
        let mut script = Vec::new();
        for (name, value) in variables {
            script.extend(format!("comb_{name}='{value}'\n").bytes());
        }
        script.extend(b"comb_here=");
        script.extend(quoted(self.here.as_os_str().as_bytes()));
        script.push(b'\n');
        script.extend(SCRIPT.bytes());
        script
    }
}

/// What tells our script's answers from whatever else is said there: nobody knows it before.
pub(super) fn nonce() -> String {
    let random = ring::rand::generate::<[u8; 8]>(&ring::rand::SystemRandom::new());
    hexadecimal(&random.expect("the system has random numbers").expose())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One word for a shell, whatever is in it.
fn quoted(word: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for &byte in word {
        match byte {
            b'\'' => quoted.extend(br"'\''"),
            byte => quoted.push(byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    use std::process::{Command, Stdio};

    #[test]
    fn a_word_stays_one_whatever_is_in_it() {
        for word in ["a b", "it's", "$HOME`id`\\", "'\n'", ""] {
            let mut script = b"printf %s ".to_vec();
            script.extend(quoted(word.as_bytes()));
            let script = OsString::from_vec(script);
            let said = Command::new("sh").arg("-c").arg(script).output().unwrap().stdout;
            assert_eq!(String::from_utf8(said).unwrap(), word);
        }
    }

    #[test]
    fn what_is_packed_is_unpacked_there() {
        let item = Item::read(Path::new("/bin/sh")).unwrap();
        assert!(item.packed().len() < item.bytes.len());
        let path = std::env::temp_dir().join(format!("comb-luggage-{}", std::process::id()));
        std::fs::write(&path, item.packed()).unwrap();
        let gzip = Command::new("gzip").arg("-dc").stdin(File::open(&path).unwrap()).output().unwrap();
        assert!(gzip.stdout == item.bytes);
        let mut sum = Command::new("sh");
        sum.args(["-c", "gzip -dc | sha256sum"]).stdin(File::open(&path).unwrap());
        let sum = sum.stderr(Stdio::null()).output().unwrap();
        assert_eq!(String::from_utf8(sum.stdout).unwrap(), format!("{}  -\n", item.hash));
        std::fs::remove_file(path).unwrap();
    }
}
