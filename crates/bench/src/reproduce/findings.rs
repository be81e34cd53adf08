//! All that was found out so far, paper by paper: `report.json`, of which the page is made.
//!
//! A run changes the part of its paper and no other. The file is replaced as a whole, so that whoever is interrupted leaves
//! the one before it; two runs at once wait for each other here.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use comb_cell::journal::timestamp;
use serde::{Deserialize, Serialize};

use super::plot::Plot;
use super::{Item, Reproduced, page};

const FILE: &str = "report.json";
const PAGE: &str = "index.html";
/// What is written now. A file of another one is not read: it is put aside.
const FORMAT: u32 = 1;

/// What `report.json` has in it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Findings {
    format: u32,
    pub(crate) papers: Vec<Part>,
}

/// A paper's.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) paper: String,
    /// The last that came to its end.
    pub(crate) run: Option<Run>,
    /// The one after that, if it failed.
    pub(crate) failed: Option<Failed>,
}

/// Where and when it was measured, and what.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    /// In UTC, as RFC 3339 has it.
    pub(crate) measured_at: String,
    pub(crate) took_s: f64,
    pub(crate) kernel: String,
    pub(crate) cores: usize,
    pub(crate) processor: String,
    /// Its version.
    pub(crate) comb: String,
    /// Without it no time of this run says anything.
    pub(crate) optimised: bool,
    pub(crate) how: String,
    pub(crate) items: Vec<Item>,
    pub(crate) figures: Vec<Plot>,
}

/// A run that came to nothing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Failed {
    pub(crate) at: String,
    pub(crate) why: String,
}

/// Why there are no findings of before.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("is no report: {0}")]
    Corrupt(serde_json::Error),
    #[error("is of another version of comb (format {0}, and not {FORMAT})")]
    OtherFormat(String),
}

/// This moment.
pub(crate) fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    timestamp(since.as_secs(), since.subsec_millis())
}

impl Run {
    pub(crate) fn of(found: &Reproduced, took: Duration) -> Self {
        let names = rustix::system::uname();
        Self {
            measured_at: now(),
            took_s: took.as_secs_f64(),
            kernel: format!("{} {}", names.sysname().to_string_lossy(), names.release().to_string_lossy()),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            processor: processor().unwrap_or_else(|| names.machine().to_string_lossy().into_owned()),
            comb: env!("CARGO_PKG_VERSION").to_owned(),
            optimised: !cfg!(debug_assertions),
            how: found.how.clone(),
            items: found.items.clone(),
            figures: found.drawings.iter().filter_map(Plot::of).collect(),
        }
    }
}

fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

impl Default for Findings {
    fn default() -> Self {
        Self { format: FORMAT, papers: Vec::new() }
    }
}

impl Findings {
    pub(crate) fn of(&self, paper: &str) -> Option<&Part> {
        self.papers.iter().find(|part| part.paper == paper)
    }

    /// Puts a paper's run in the place of the one before it, or that it failed beside that; the others stay.
    fn put(&mut self, paper: &str, outcome: Result<Run, Failed>) {
        let known = self.papers.iter().position(|part| part.paper == paper);
        let place = known.unwrap_or_else(|| {
            self.papers.push(Part { paper: paper.to_owned(), run: None, failed: None });
            self.papers.len() - 1
        });
        let part = &mut self.papers[place];
        match outcome {
            Ok(run) => (part.run, part.failed) = (Some(run), None),
            Err(failed) => part.failed = Some(failed),
        }
    }

    /// Those of before, if there are any.
    pub(crate) fn read(folder: &Path) -> Result<Self, Unusable> {
        let text = match std::fs::read(folder.join(FILE)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error.into()),
        };
        // Of another format hardly anything else would be understood.
        let any: serde_json::Value = serde_json::from_slice(&text).map_err(Unusable::Corrupt)?;
        match any.get("format") {
            Some(format) if *format == FORMAT => serde_json::from_value(any).map_err(Unusable::Corrupt),
            Some(format) => Err(Unusable::OtherFormat(format.to_string())),
            None => Err(Unusable::OtherFormat("none".to_owned())),
        }
    }

    fn write(&self, folder: &Path) -> io::Result<()> {
        replace(&folder.join(FILE), &(serde_json::to_string_pretty(self)? + "\n"))?;
        replace(&folder.join(PAGE), &page::html(self))
    }
}

/// Where findings are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Folder<'a>(pub(crate) &'a Path);

impl Folder<'_> {
    pub(crate) fn page(&self) -> PathBuf {
        self.0.join(PAGE)
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.join(FILE)
    }

    /// Before a long run: whether its findings will find a place. What is there and cannot be used is put aside, which the
    /// answer tells.
    pub(crate) fn prepare(&self) -> io::Result<Option<String>> {
        std::fs::create_dir_all(self.0)?;
        let _turn = self.turn()?;
        let probe = self.0.join(format!(".{}", std::process::id()));
        std::fs::write(&probe, "")?;
        std::fs::remove_file(&probe)?;
        Ok(self.usable()?.1)
    }

    /// Adds what came of a run, and makes the page of all that is there.
    /// Without an outcome it is the page alone.
    pub(crate) fn add(
        &self,
        paper: &str,
        outcome: Option<Result<Run, Failed>>,
    ) -> io::Result<Option<String>> {
        std::fs::create_dir_all(self.0)?;
        let _turn = self.turn()?;
        let (mut findings, says) = self.usable()?;
        if let Some(outcome) = outcome {
            findings.put(paper, outcome);
        }
        findings.write(self.0)?;
        Ok(says)
    }

    /// Until it is dropped nobody else changes what is there.
    fn turn(&self) -> io::Result<File> {
        let folder = File::open(self.0)?;
        folder.lock()?;
        Ok(folder)
    }

    /// Those of before, and none in the place of such as cannot be used.
    fn usable(&self) -> io::Result<(Findings, Option<String>)> {
        let why = match Findings::read(self.0) {
            Ok(findings) => return Ok((findings, None)),
            Err(Unusable::Io(error)) => return Err(error),
            Err(why) => why,
        };
        let aside = self.aside();
        std::fs::rename(self.file(), &aside)?;
        let says = format!(
            "{} {why}. It is {} now, and a new one is begun.",
            self.file().display(),
            aside.display()
        );
        Ok((Findings::default(), Some(says)))
    }

    /// A name that nothing has.
    fn aside(&self) -> PathBuf {
        let now = now();
        let name = |more: &str| self.0.join(format!("report-put-aside-{now}{more}.json").replace(':', "-"));
        let names = std::iter::once(name("")).chain((2..).map(|count: u32| name(&format!("-{count}"))));
        names.into_iter().find(|name| !name.exists()).expect("there are endless names")
    }
}

/// As a whole, or not at all.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, text)?;
    std::fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::items::item;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("comb-findings-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn page(&self) -> String {
            std::fs::read_to_string(self.0.join(PAGE)).unwrap()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn run(at: &str, value: f64) -> Run {
        let items = vec![
            item("unet", "Table 1, measured", 65.0, "µs").ours(Some(value)).classic(Some(7.5)),
            item("unet", "Table 1, not", None, "µs").pending("somebody"),
        ];
        let found = Reproduced { how: "by hand".to_owned(), items, drawings: Vec::new() };
        Run { measured_at: at.to_owned(), ..Run::of(&found, Duration::from_secs(3)) }
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let place = Place::new("again");
        let mut run = run("2026-01-02T03:04:05.000Z", 0.5);
        run.figures = vec![Plot::example()];
        assert_eq!(Folder(&place.0).add("unet", Some(Ok(run.clone()))).unwrap(), None);
        let found = Findings::read(&place.0).unwrap();
        let part = Part { paper: "unet".to_owned(), run: Some(run), failed: None };
        assert_eq!(found.papers, [part]);
    }

    #[test]
    fn parts_of_other_papers_stay() {
        let place = Place::new("parts");
        let folder = Folder(&place.0);
        let (first, second) = ("2026-01-02T03:04:05.000Z", "2026-02-03T04:05:06.000Z");
        folder.add("unet", Some(Ok(run(first, 0.5)))).unwrap();
        folder.add("via", Some(Ok(run(second, 0.25)))).unwrap();
        folder.add("a-paper-of-tomorrow", Some(Ok(run(second, 0.125)))).unwrap();
        folder.add("via", Some(Ok(run(second, 0.75)))).unwrap();
        let found = Findings::read(&place.0).unwrap();
        let at = |paper: &str| found.of(paper).unwrap().run.clone().unwrap();
        assert_eq!((at("unet").measured_at.as_str(), at("unet").items[0].measured), (first, Some(0.5)));
        assert_eq!((at("via").measured_at.as_str(), at("via").items[0].measured), (second, Some(0.75)));
        assert_eq!(found.papers.len(), 3);
        let page = place.page();
        for said in ["2026-01-02", "2026-02-03", "a-paper-of-tomorrow"] {
            assert!(page.contains(said), "{said}");
        }
    }

    #[test]
    fn a_run_that_failed_takes_nothing_away() {
        let place = Place::new("failed");
        let folder = Folder(&place.0);
        folder.add("unet", Some(Ok(run("2026-01-02T03:04:05.000Z", 0.5)))).unwrap();
        let failed = || Failed { at: now(), why: "no <processes>".to_owned() };
        folder.add("unet", Some(Err(failed()))).unwrap();
        folder.add("hive", Some(Err(failed()))).unwrap();
        let found = Findings::read(&place.0).unwrap();
        let part = found.of("unet").unwrap();
        assert!(part.run.is_some() && part.failed.is_some());
        assert!(place.page().matches("no &lt;processes&gt;").count() >= 2);
        folder.add("unet", Some(Ok(run("2026-01-02T03:04:05.000Z", 0.5)))).unwrap();
        assert_eq!(Findings::read(&place.0).unwrap().of("unet").unwrap().failed, None);
    }

    #[test]
    fn what_cannot_be_read_is_put_aside_and_not_lost() {
        let place = Place::new("aside");
        let folder = Folder(&place.0);
        let bad = [
            ("{\"format\": 1, \"papers\": [", "is no report"),
            ("{\"format\": 1, \"papers\": [{}]}", "is no report"),
            ("{\"format\": 999, \"papers\": {}}", "format 999"),
            ("[1]", "format none"),
        ];
        for (text, why) in bad {
            std::fs::write(place.0.join(FILE), text).unwrap();
            let says = folder.prepare().unwrap().expect("it is told");
            assert!(says.contains(why), "{says}");
            assert!(!place.0.join(FILE).exists());
            folder.add("unet", Some(Ok(run("2026-01-02T03:04:05.000Z", 0.5)))).unwrap();
            assert_eq!(Findings::read(&place.0).unwrap().papers.len(), 1);
            let names = std::fs::read_dir(&place.0).unwrap().map(|entry| entry.unwrap().path());
            let kept = names.filter_map(|path| std::fs::read_to_string(path).ok());
            assert!(kept.into_iter().any(|kept| kept == text), "{text} is lost");
        }
    }

    #[test]
    fn two_runs_at_once_lose_nothing() {
        let place = Place::new("two");
        let folder = Folder(&place.0);
        std::thread::scope(|scope| {
            for paper in 0..8 {
                let add =
                    move || folder.add(&format!("paper-{paper}"), Some(Ok(run("2026-01-02", 1.0)))).unwrap();
                scope.spawn(add);
            }
        });
        assert_eq!(Findings::read(&place.0).unwrap().papers.len(), 8);
    }
}
