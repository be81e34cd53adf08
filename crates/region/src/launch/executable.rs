//! An executable without what is not needed to run it.

use std::fs::File;
use std::io::{Read, Result, Seek, SeekFrom};

/// `Elf64_Ehdr`, of a little-endian machine.
const HEADER_BYTES: usize = 64;
const BEGINNING: &[u8] = b"\x7fELF\x02\x01";
const PROGRAM_HEADERS_AT: usize = 32;
const ENTRY_BYTES_AT: usize = 54;
const ENTRIES_AT: usize = 56;
/// `Elf64_Phdr`.
const ENTRY_BYTES: usize = 56;
const OFFSET_AT: usize = 8;
const LENGTH_AT: usize = 32;

/// The file up to where the last segment ends. Behind it are symbols and what debuggers read, which is most of the file; the kernel and
/// the dynamic linker look at neither. So a file whose first bytes are these is as good. One that is no executable is all of it.
pub(super) fn read_loaded(file: &mut File) -> Result<Vec<u8>> {
    let length = file.metadata()?.len();
    let loaded = loaded_bytes(file)?.filter(|&loaded| loaded <= length).unwrap_or(length);
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::with_capacity(usize::try_from(loaded).unwrap_or(0));
    file.take(loaded).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn loaded_bytes(file: &mut File) -> Result<Option<u64>> {
    let mut header = Vec::new();
    file.take(HEADER_BYTES as u64).read_to_end(&mut header)?;
    if header.len() < HEADER_BYTES || !header.starts_with(BEGINNING) {
        return Ok(None);
    }
    let short = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    if usize::from(short(ENTRY_BYTES_AT)) != ENTRY_BYTES {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(long(&header, PROGRAM_HEADERS_AT)))?;
    let mut end = None;
    for _ in 0..short(ENTRIES_AT) {
        let mut entry = [0; ENTRY_BYTES];
        file.read_exact(&mut entry)?;
        end = end.max(long(&entry, OFFSET_AT).checked_add(long(&entry, LENGTH_AT)));
    }
    Ok(end)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::OpenOptionsExt;
    use std::process::Command;

    #[test]
    fn what_is_left_of_an_executable_runs() {
        let own = std::env::current_exe().unwrap();
        let bytes = read_loaded(&mut File::open(&own).unwrap()).unwrap();
        assert!((bytes.len() as u64) < std::fs::metadata(&own).unwrap().len(), "tests have symbols");
        let path = std::env::temp_dir().join(format!("comb-executable-{}", std::process::id()));
        let mut file = File::options().write(true).create_new(true).mode(0o700).open(&path).unwrap();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        drop(file);
        // While another test forks, the file is open for writing there, and cannot be executed.
        let output = loop {
            match Command::new(&path).args(["--exact", "no_such_test"]).output() {
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
                output => break output.unwrap(),
            }
        };
        assert!(String::from_utf8_lossy(&output.stdout).contains("0 passed"), "{output:?}");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_no_executable_is_all_of_it() {
        let path = std::env::temp_dir().join(format!("comb-no-executable-{}", std::process::id()));
        for text in [&b""[..], b"#!/bin/sh\n", &[b'\x7f'; 100]] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read_loaded(&mut File::open(&path).unwrap()).unwrap(), text);
        }
        std::fs::remove_file(path).unwrap();
    }
}
