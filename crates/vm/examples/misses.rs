//! Records what misses the caches of a machine's processors while programs run in it, and says which pages are hot, and whose.
//!
//! Run as `cargo run --release -p comb-vm --example misses -- DIRECTORY IMAGE PROCESSORS COMMAND`: `DIRECTORY` is where images are, such as `~/.local/state/comb/images`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use comb_guest::wire::{Become, Command, ToGuest};
use comb_vm::engine::Engine;
use comb_vm::hardware::Hardware;
use comb_vm::image::Images;
use comb_vm::misses::Watcher;
use comb_vm::template::Template;

const LIMIT: Duration = Duration::from_secs(600);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [directory, image, processors, command @ ..] = &words[..] else {
        return Err("misses DIRECTORY IMAGE PROCESSORS COMMAND…".into());
    };
    let image = Images::at(PathBuf::from(directory)).open(&image.parse()?)?;
    let usual = Hardware { processors: processors.parse()?, ..Hardware::default() };
    let template = Template::of(&image, &usual, &mut |line| eprintln!("{line}"))?;
    let scratch = std::env::temp_dir().join(format!("comb-misses-{}", std::process::id()));
    std::fs::create_dir(&scratch)?;
    let watcher = Watcher::new(&scratch, 256, 2_000_000)?;
    let hardware = Hardware { watcher: Some(watcher.option()), ..usual };
    let mut engine = Engine::start(&hardware, &image, &template.backing(), true, None)?;
    engine.take_up(&template.state(), true)?;
    engine.become_who(Become { name: "watched".to_owned(), ..Become::default() }, LIMIT)?;
    let since = Instant::now();
    let arguments = command.iter().map(|word| word.as_bytes().to_vec()).collect();
    engine.say(&ToGuest::Exec { exec: 0, command: Command { arguments, ..Command::default() } })?;
    watcher.begin()?;
    while !watcher.is_full()? && since.elapsed() < LIMIT {
        if let Some(said) = engine.hear(Instant::now() + Duration::from_millis(50))? {
            println!("{:.1} s: {said:?}", since.elapsed().as_secs_f64());
            if matches!(said, comb_guest::wire::FromGuest::Ended { .. }) {
                break;
            }
        }
    }
    watcher.end()?;
    drop(engine);
    let recorded = watcher.recorded()?;
    let took = since.elapsed().as_secs_f64();
    println!(
        "{} misses, instructions of each processor: {:?}; {took:.1} s",
        recorded.misses.len(),
        recorded.instructions
    );
    let mut pages = BTreeMap::<u64, (u64, BTreeMap<u32, [u64; 2]>)>::new();
    for miss in &recorded.misses {
        let (count, by) = pages.entry(miss.page).or_default();
        *count += 1;
        by.entry(miss.processor).or_default()[usize::from(miss.is_store)] += 1;
    }
    let mut pages: Vec<_> = pages.into_iter().collect();
    pages.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    println!("{} pages; the hottest, with loads and stores by each processor:", pages.len());
    for (page, (count, by)) in pages.iter().take(20) {
        println!("{page:#x} {count} {by:?}");
    }
    std::fs::remove_dir_all(scratch)?;
    Ok(())
}
