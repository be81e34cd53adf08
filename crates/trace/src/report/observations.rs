//! Table 9.1: the thesis' observations, each recomputed.

use super::gathering::Gathered;
use super::groups::{Gathering, share};
use super::tables::activity;
use super::{Content, Distribution, Row, Table, Value};
use crate::history::Pattern;
use crate::lifetimes::Death;
use crate::statistics::histogram::{By, LogHistogram};

/// "No such file", "file exists".
const NOT_FOUND: i64 = 2;
const EXISTS: i64 = 17;

struct Rows(Vec<Row>);

impl Rows {
    fn add(&mut self, what: &str, unit: &'static str, here: Option<f64>, nt: Option<&str>) -> &mut Row {
        self.0.push(Row {
            what: what.to_owned(),
            unit,
            here: Value::of(here),
            nt: nt.map(str::to_owned),
            sprite: None,
            bsd: None,
            note: String::new(),
        });
        self.0.last_mut().expect("it was just added")
    }

    fn percent(&mut self, what: &str, here: Option<f64>, nt: Option<&str>) -> &mut Row {
        self.add(what, "%", here.map(|share| share * 100.0), nt)
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn ratio(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// What part lies at or below a value.
fn below(histogram: &LogHistogram, value: f64) -> Option<f64> {
    (histogram.total(By::Count) > 0).then(|| histogram.fraction_at_or_below(By::Count, value))
}

fn merged(histograms: [&LogHistogram; 3]) -> LogHistogram {
    let mut sum = LogHistogram::new();
    histograms.into_iter().for_each(|histogram| sum.merge(histogram));
    sum
}

/// Table 9.1.
pub(super) fn table(gathered: &Gathered, distributions: &[Distribution], content: &Content) -> Table {
    let mut rows = Rows(Vec::new());
    in_comparison(&mut rows, gathered);
    of_distributions(&mut rows, gathered, distributions);
    of_operation(&mut rows, gathered);
    of_content(&mut rows, content);
    Table {
        number: "9.1",
        title: "The observations of the thesis, recomputed",
        note: "NT, Sprite and BSD: what the thesis' text says. A recording says how the recorded programs use files, and nothing of others: \
               one user's build is no university's week."
            .to_owned(),
        rows: rows.0,
    }
}

fn in_comparison(rows: &mut Rows, gathered: &Gathered) {
    let throughput =
        activity(gathered).rows.into_iter().find(|row| row.what.contains("throughput of a user, on average"));
    if let Some(row) = throughput {
        rows.0.push(Row { what: "throughput of a user, in 10-minute intervals".to_owned(), ..row });
    }
    let [local, remote] = [&gathered.open_local, &gathered.open_remote];
    let open = merged([local, remote, &LogHistogram::new()]);
    let milliseconds = open.quantile(By::Count, 0.75).map(|ns| ns / 1e6);
    let row =
        rows.add("three of four files with data moved are open for less", "ms", milliseconds, Some("10"));
    (row.sprite, row.bsd) = (Some("250".to_owned()), Some("500".to_owned()));
    rows.percent("files with data moved that are open for less than 10 ms", below(&open, 10e6), Some("75"));
    let sizes = merged([&gathered.sizes[0], &gathered.sizes[1], &gathered.sizes[2]]);
    rows.add(
        "four of five opened files are smaller",
        "KB",
        sizes.quantile(By::Count, 0.8).map(|bytes| bytes / 1024.0),
        Some("26"),
    );
    rows.percent("opened files of less than 26 KB", below(&sizes, 26.0 * 1024.0), Some("80"));
    rows.percent(
        "opened files of 4 MB or more",
        below(&sizes, 4.0 * 1024.0 * 1024.0).map(|below| 1.0 - below),
        Some("20"),
    );
    let by_operations = &gathered.sizes_by_operations;
    let of_small =
        (by_operations.total(By::Weight) > 0).then(|| by_operations.fraction_at_or_below(By::Weight, 2048.0));
    rows.percent("reads and writes of files of less than 2 KB", of_small, Some("40"));
    let session = gathered.session_sizes.quantile(By::Count, 0.8).map(|bytes| bytes / 1024.0);
    rows.add("four of five sessions move less", "KB", session, Some("24"));
    let mut all = Gathering::default();
    gathered.by_user.values().for_each(|user| all.merge(user));
    let moved = all.moved(None, None).sessions;
    let in_order = all.moved(None, Some(Pattern::WholeFile)).sessions
        + all.moved(None, Some(Pattern::Sequential)).sessions;
    rows.percent("sessions that go through a file in order", share(in_order, moved), Some("60"));
    let large = sizes.quantile(By::Count, 0.8);
    let in_large = large.map(|large| 1.0 - sizes.fraction_at_or_below(By::Weight, large));
    rows.percent("bytes moved in the largest fifth of the files", in_large, Some("most"));
    let ended = &gathered.ended;
    let overwritten =
        ended.iter().filter(|file| file.death == Death::Overwritten && file.lived_ns <= 4_000_000).count();
    let deleted =
        ended.iter().filter(|file| file.death == Death::Deleted && file.lived_ns <= 5_000_000_000).count();
    let made = usize::try_from(gathered.lifetimes.made).unwrap_or(usize::MAX);
    rows.percent("new files overwritten within 4 ms", ratio(overwritten, made), Some("26"));
    rows.percent("new files deleted within 5 s", ratio(deleted, made), Some("55"));
    let within = ended.iter().filter(|file| file.lived_ns <= 4_000_000_000).count();
    rows.percent("new files gone within 4 s", ratio(within, made), Some("80"));
    let within = ended.iter().filter(|file| file.lived_ns <= 30_000_000_000).count();
    rows.percent("new files gone within 30 s", ratio(within, made), None).sprite = Some("65–80".to_owned());
    let of_death = |death: Death| ended.iter().filter(move |file| file.death == death);
    let part_of_deaths = |death: Death| ratio(of_death(death).count(), ended.len());
    rows.percent("new files that ended: overwritten", part_of_deaths(Death::Overwritten), Some("37"));
    rows.percent("new files that ended: deleted", part_of_deaths(Death::Deleted), Some("62"));
    rows.percent("new files that ended: temporary by attribute", part_of_deaths(Death::Nameless), Some("1"));
    let by_maker = |death: Death| {
        ratio(of_death(death).filter(|file| file.by_its_maker).count(), of_death(death).count())
    };
    rows.percent("overwritten by the process that made them", by_maker(Death::Overwritten), Some("94"));
    rows.percent("deleted by the process that made them", by_maker(Death::Deleted), Some("36"));
    let reopened = ratio(
        of_death(Death::Deleted).filter(|file| file.opens > 0).count(),
        of_death(Death::Deleted).count(),
    );
    rows.percent("deleted files that were opened in between", reopened, Some("18"));
    let large_dead = ratio(
        of_death(Death::Deleted).filter(|file| file.bytes > 40 * 1024).count(),
        of_death(Death::Deleted).count(),
    );
    rows.percent("deleted files of more than 40 KB", large_dead, Some("4"));
    let mut runs = LogHistogram::new();
    gathered.runs.iter().for_each(|of_direction| runs.merge(of_direction));
    let row = rows.add(
        "four of five sequential runs are shorter",
        "KB",
        runs.quantile(By::Count, 0.8).map(|bytes| bytes / 1024.0),
        Some("11"),
    );
    row.sprite = Some("10".to_owned());
}

fn of_distributions(rows: &mut Rows, gathered: &Gathered, distributions: &[Distribution]) {
    let heavy: Vec<&Distribution> =
        distributions.iter().filter(|one| one.verdict == "heavy-tailed").collect();
    let rejected = distributions.iter().filter(|one| one.verdict == "not heavy-tailed").count();
    let names: Vec<&str> = heavy.iter().map(|one| one.what).collect();
    let row =
        rows.percent("variables found heavy-tailed", ratio(heavy.len(), distributions.len()), Some("all"));
    row.note = format!(
        "{} of {}; {rejected} not, of {} nothing can be said. {}",
        heavy.len(),
        distributions.len(),
        distributions.len() - heavy.len() - rejected,
        names.join(", ")
    );
    let alphas: Vec<f64> = heavy.iter().filter_map(|one| Some(one.hill_alpha?[0])).collect();
    let row = rows.add("Hill estimator of those", "α", None, Some("1.2–1.7"));
    row.here = Value::with_range(None, alphas.into_iter());
    let normal = distributions
        .iter()
        .filter(|one| one.normal_straightness.is_some_and(|straight| straight > 0.95))
        .count();
    rows.percent(
        "variables whose quantiles lie on a normal distribution's (R² > 0.95)",
        ratio(normal, distributions.len()),
        Some("0"),
    );
    let seconds = gathered.seconds_with_opens.len();
    let length = gathered.about.seconds.max(1.0)
        * f64::from(u32::try_from(gathered.about.machines.len()).unwrap_or(1));
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let busy = (seconds as f64 / length).min(1.0);
    rows.percent("seconds in which anything is opened", Some(busy), Some("up to 24"));
}

fn of_operation(rows: &mut Rows, gathered: &Gathered) {
    let sessions = gathered.data_sessions + gathered.control_sessions;
    rows.percent(
        "opens for control or directory operations alone",
        share(gathered.control_sessions, sessions),
        Some("74"),
    );
    rows.percent(
        "reads whose data came from the page cache",
        share(gathered.reads.times - gathered.missed_reads, gathered.reads.times),
        Some("60"),
    );
    let open = merged([&gathered.open_local, &gathered.open_remote, &gathered.open_control]);
    rows.percent("files closed within 1 ms", below(&open, 1e6), Some("40"));
    rows.percent(
        "opens within 1 ms of another",
        below(&gathered.samples.open_gap_ns.histogram, 1e6),
        Some("40"),
    );
    rows.percent(
        "reads of 512 or 4096 bytes",
        share(gathered.reads_of_usual_size, gathered.reads.times),
        Some("59"),
    );
    let prefetched = share(gathered.read_sessions_of_one_miss, gathered.read_sessions);
    let row =
        rows.percent("read sessions in which at most one read waited for pages", prefetched, Some("92"));
    row.note = "NT: a single prefetch was enough.".to_owned();
    rows.percent(
        "read sessions with a single read",
        share(gathered.single_read_sessions, gathered.read_sessions),
        Some("31"),
    );
    let row = rows.percent(
        "reads that went the short way",
        share(gathered.reads.times - gathered.missed_reads, gathered.reads.times),
        Some("59"),
    );
    row.note = "NT: direct calls instead of packets; here: nothing had to come from a device.".to_owned();
    let through = share(gathered.write_sessions - gathered.write_through_sessions, gathered.write_sessions);
    rows.percent("write sessions that went the short way", through, Some("96")).note =
        "NT: of write requests; here: not opened to write through or past the cache.".to_owned();
    rows.percent(
        "write sessions opened to write through",
        share(gathered.write_through_sessions, gathered.write_sessions),
        Some("1.4"),
    );
    rows.percent(
        "write sessions that sync",
        share(gathered.synced_write_sessions, gathered.write_sessions),
        Some("4"),
    );
    let row = rows.percent(
        "files without a name, for temporary use",
        share(gathered.temporary_sessions, gathered.write_sessions),
        Some("1"),
    );
    row.note = "NT: of deleted new files; here: of write sessions.".to_owned();
    let row = rows.percent(
        "read sessions told to be sequential",
        share(gathered.sequential_advice, gathered.read_sessions),
        Some("5"),
    );
    row.note = "posix_fadvise.".to_owned();
    let opens = &gathered.opens;
    rows.percent("opens that fail", share(opens.failed(), opens.times), Some("12"));
    let of_failed = |error: i64| share(opens.errors.get(&error).copied().unwrap_or(0), opens.failed());
    rows.percent("of those: there is no such file", of_failed(NOT_FOUND), Some("52"));
    rows.percent("of those: there is one already", of_failed(EXISTS), Some("31"));
    rows.percent(
        "control and directory operations that fail",
        share(gathered.controls.failed(), gathered.controls.times),
        Some("8"),
    );
    rows.percent("reads that fail", share(gathered.reads.failed(), gathered.reads.times), Some("0.2"));
    rows.percent("writes that fail", share(gathered.writes.failed(), gathered.writes.times), Some("0"));
    let reused = |access: usize| {
        let opened = gathered.reused.opens.values().filter(|opens| opens[access] > 0).count();
        ratio(gathered.reused.opens.values().filter(|opens| opens[access] > 1).count(), opened)
    };
    rows.percent("files opened read-only that are opened so again", reused(0), Some("24–40"));
    rows.percent("files opened write-only that are opened so again", reused(1), Some("4"));
    rows.percent("files opened read-write that are opened so again", reused(2), Some("94"));
}

fn of_content(rows: &mut Rows, content: &Content) {
    rows.percent(
        "bytes of all files that are programs, libraries and fonts",
        content.program_share,
        Some("most"),
    )
    .note = need_snapshots(content.program_share.is_some());
    let changes = content.changes.as_ref();
    let row = rows.percent("changes that are in one subtree", changes.map(|(_, share)| *share), Some("94"));
    row.note = changes.map_or_else(|| need_snapshots(false), |(place, _)| place.clone());
    let row = rows.percent(
        "files whose last change is after their last access",
        content.unreliable_share,
        Some("2–4"),
    );
    row.note = need_snapshots(content.unreliable_share.is_some());
}

fn need_snapshots(are_there: bool) -> String {
    if are_there { String::new() } else { "Needs snapshots: comb trace snapshot.".to_owned() }
}
