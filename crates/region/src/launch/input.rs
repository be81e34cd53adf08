//! The launcher's standard input, on its way to component 0 on another host.

use std::io::{IsTerminal, Read};
use std::sync::mpsc::{self, Sender};

use super::crew::{CHUNK_BYTES, Order};
use super::running::Control;

/// Reads, one chunk at a time, while component 0 wants more: whether it does is sent into what this returns.
pub(super) fn forward(control: Control) -> std::io::Result<Sender<bool>> {
    let (sender, wants_more) = mpsc::channel();
    let work = move || {
        let mut input = std::io::stdin().lock();
        let mut chunk = vec![0; CHUNK_BYTES];
        // A program in the background of a terminal is stopped when it reads.
        while !is_in_background() {
            let bytes = input.read(&mut chunk).unwrap_or(0);
            control.order(&Order::Input(chunk[..bytes].to_vec()));
            if bytes == 0 || wants_more.recv() != Ok(true) {
                return;
            }
        }
        control.order(&Order::Input(Vec::new()));
    };
    std::thread::Builder::new().name("comb-input".into()).spawn(work)?;
    Ok(sender)
}

fn is_in_background() -> bool {
    let input = std::io::stdin();
    input.is_terminal()
        && rustix::termios::tcgetpgrp(&input).is_ok_and(|front| front != rustix::process::getpgrp())
}
