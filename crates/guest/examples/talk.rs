//! A host and its guest in one process: runs a program by the agent, and prints what it writes.
//!
//! `cargo run -p comb-guest --example talk -- uname -a`

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;

use comb_guest::agent::serve_on;
use comb_guest::frames::{Frames, framed};
use comb_guest::wire::{Command, FromGuest, ToGuest};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut host, guest) = UnixStream::pair()?;
    guest.set_nonblocking(true)?;
    std::thread::spawn(move || serve_on(&File::from(OwnedFd::from(guest))));
    let arguments = std::env::args_os().skip(1).map(OsStringExt::into_vec).collect();
    let command = Command { arguments, ..Command::default() };
    host.write_all(&framed(&ToGuest::Exec { exec: 1, command }))?;
    host.write_all(&framed(&ToGuest::Input { exec: 1, bytes: Vec::new() }))?;
    let mut came = Frames::default();
    loop {
        let mut some = [0; 4096];
        let read = host.read(&mut some)?;
        came.push(&some[..read]);
        while let Some(said) = came.take()? {
            match said {
                FromGuest::Output { bytes, .. } => {
                    host.write_all(&framed(&ToGuest::Taken { exec: 1, bytes: u32::try_from(bytes.len())? }))?;
                    std::io::stdout().write_all(&bytes)?;
                }
                FromGuest::Ended { how, .. } => {
                    println!("{how:?}");
                    return Ok(());
                }
                _ => {}
            }
        }
    }
}
