//! Has machines continue from a template of an image that `comb vm create` has made, and runs a program in each.
//!
//! `cargo run --release -p comb-vm --example clones -- IMAGES NAME COUNT COMMAND…`, where `comb vm images` says which directory has the image.

use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use comb_guest::wire::{Become, Command};
use comb_vm::engine::Engine;
use comb_vm::hardware::Hardware;
use comb_vm::image::Images;
use comb_vm::template::Template;

const LIMIT: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(images), Some(name), Some(count)) = (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("say IMAGES NAME COUNT COMMAND…".into());
    };
    let image = Images::at(PathBuf::from(images)).open(&name.to_string_lossy().parse()?)?;
    let hardware = Hardware::default();
    let template = Template::of(&image, &hardware, &mut |line| println!("{line}"))?;
    let command = Command { arguments: arguments.map(OsStringExt::into_vec).collect(), ..Command::default() };
    let mut engines = Vec::new();
    for number in 1..=count.to_string_lossy().parse::<u32>()? {
        let since = Instant::now();
        let mut engine = Engine::start(&hardware, &image, &template.backing(), true, None)?;
        engine.take_up(&template.state(), true)?;
        engine.become_who(Become { name: format!("clone-{number}"), ..Become::default() }, LIMIT)?;
        let (said, how) = engine.run(command.clone(), LIMIT)?;
        print!(
            "{number}: {how:?} after {:.2} s: {}",
            since.elapsed().as_secs_f64(),
            String::from_utf8_lossy(&said)
        );
        engines.push(engine);
    }
    Ok(())
}
