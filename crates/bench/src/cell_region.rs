//! Regions that live in a cell: what they cost a process that imports them, and one that has copies.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use comb_net::Agent;
use comb_net::agent::Limits;
use comb_net::agent::policy::SameUser;
use comb_net::agent::server::Server;
use comb_region::Array;
use comb_region::Task;
use comb_region::named::home::{Home, HomeOptions};
use comb_region::named::{Ask, Attaching, Mode, Wanted};
use comb_region::task::Share;

use crate::memory_side::{PLACES, PlainMapping, by_private, in_no_order, load, nanoseconds_each, say, store};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const PAGE: usize = 4096;
const WORDS: usize = PAGE / 8;
const PAGES: usize = 8192;
pub(crate) const STORED: &str = "stored";
const EMPTY: &str = "empty";

/// A cell's home in this process, for the time of a part. It answers as a supervisor does: from a thread that spins for a moment, then sleeps.
pub(crate) struct Cell {
    directory: PathBuf,
    home: Option<Home>,
    agent: Option<Server>,
}

impl Cell {
    pub(crate) fn begin() -> Outcome<Self> {
        let directory = std::env::temp_dir().join(format!("comb-bench-cell-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let mut cell = Self { directory, home: None, agent: None };
        let socket = cell.directory.join("agent.sock");
        cell.agent = Some(Server::bind(&socket, Box::new(SameUser), Limits::default())?);
        let agent = Agent::connect(&socket, "cell-1")?;
        let options = HomeOptions {
            cell: 1,
            incarnation: 1,
            runtime: cell.directory.clone(),
            keeper: None,
            published: None,
        };
        cell.home = Some(Home::begin(&agent, options)?);
        for name in [STORED, EMPTY] {
            let wanted = Wanted {
                name: name.to_owned(),
                bytes: Some((PAGES * PAGE) as u64),
                block_bytes: 4096,
                migratory: false,
                mode: Mode::default(),
                sparse: true,
                from: None,
            };
            Ask::at(&cell.directory, 1)?.create(&wanted)?;
        }
        Ok(cell)
    }

    /// Where processes find it.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        drop(self.home.take());
        drop(self.agent.take());
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// The process that attaches them.
pub(crate) fn run(task: &Task) -> Outcome<()> {
    let attach = |name: &str, share: Share| -> Outcome<Array<u64>> {
        let region = task.attach(name, &Attaching { share, ..Attaching::default() })?;
        if region.imports() != (share == Share::Auto) {
            return Err("this kernel cannot guard imports".into());
        }
        Ok(region.array(0, PAGES * WORDS).ok_or("too small")?)
    };
    let stored = attach(STORED, Share::Auto)?;
    let each = in_no_order(PAGES, |page| stored.set(page * WORDS, 1));
    say(task, 0, "first store, median", "ns", each[PAGES / 2] as f64);
    hits(task, stored.as_ptr());
    drop(stored);
    // They have content now, and this process has not seen them.
    let stored = attach(STORED, Share::Auto)?;
    say(task, 0, "first load, stored by others", "ns", load_all(stored.as_ptr()));
    drop(stored);
    let empty = attach(EMPTY, Share::Auto)?;
    say(task, 0, "first load, in runs", "ns", load_all(empty.as_ptr()));
    drop(empty);
    let plain = PlainMapping::fresh(PAGES)?;
    say(task, 0, "first load, fresh, plain", "ns", load_all(plain.again()?));
    let copies = attach(STORED, Share::Copy)?;
    let each = in_no_order(PAGES, |page| _ = black_box(copies.get(page * WORDS)));
    say(task, 0, "read miss by copy, median", "ns", each[PAGES / 2] as f64);
    Ok(())
}

fn load_all(words: *const u64) -> f64 {
    let started = Instant::now();
    for page in 0..PAGES {
        black_box(load(words, page * WORDS));
    }
    nanoseconds_each(started.elapsed(), PAGES)
}

/// Loads and stores of what was granted, beside private memory.
fn hits(task: &Task, shared: *mut u64) {
    // Parts of it, for as many places.
    const COUNT: usize = PAGES / PLACES * WORDS;
    let places: Vec<*mut u64> = (0..PLACES).map(|place| shared.wrapping_add(place * COUNT)).collect();
    let [stores, loads] = by_private(&places, COUNT);
    say(task, 0, "stores by private", "ratio", stores);
    say(task, 0, "loads by private", "ratio", loads);
    store(shared, 0, 1);
}
