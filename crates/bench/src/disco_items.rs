//! Disco's tables and figures, each with what was measured for it and in machines of which engine: of our own workloads, beside the same on the host alone.

use crate::figure::{Curve, Drawing, Figure};
use crate::items::{NO_NUMBER, item};
use crate::reproduce::{Item, ReproduceError, Reproduced};
use crate::vm::engines::{self, Measured, Times, Way, Workload};
use crate::vm::{files, numa, splash};

/// How often each workload runs in each place.
const ROUNDS: usize = 3;

const HOW: &str = "Programs on the host alone and in machines of each engine that works here, by turns, all bound to one processor: medians of three rounds. A guest's times are those that \
its kernel tells. Ours are other workloads than the paper's, and Linux has the place of IRIX. Compared with the paper's overheads is KVM alone: uml stops programs at each system call, tcg translates them.";

/// A processor's own work today, of which a kernel knows nothing.
const BY_HARDWARE: &str = "history: processors of today look pages up in tables themselves";

/// A kernel's service, its time in µs without the monitor, and how much slower it is on it.
type Service = (&'static str, f64, f64);

const UTLB_MISS: &str = "UTLB-MISS";

const IRIX_5_3: [Service; 7] = [
    ("DEMAND-ZERO", 21.0, 1.42),
    ("QUICK-FAULT", 5.0, 3.17),
    ("open", 42.0, 1.63),
    (UTLB_MISS, 0.035, 1.35),
    ("write", 12.0, 2.14),
    ("read", 23.0, 1.53),
    ("execve", 437.0, 1.60),
];
const IRIX_6_2: [Service; 7] = [
    ("DEMAND-ZERO", 57.0, 1.01),
    ("execve", 608.0, 1.30),
    ("open", 37.0, 1.37),
    ("read", 21.0, 1.32),
    ("write", 9.0, 1.71),
    ("COPY-ON-WRITE", 94.0, 1.16),
    ("QUICK-FAULT", 5.0, 2.83),
];

/// What the paper has no row of.
const OURS: [&str; 5] = ["fork", "close", "stat", "switch", "call"];

/// A workload's name, its time on IRIX, and in percent how much slower it is on Disco.
const WORKLOADS: [(Workload, &str, f64, Option<f64>); 4] = [
    (Workload::Pmake, "pmake", 3.9, Some(16.0)),
    (Workload::Engineering, "engineering", 3.5, None),
    (Workload::Raytrace, "raytrace", 12.9, Some(3.0)),
    (Workload::Database, "database", 2.0, Some(16.0)),
];

/// A row of Table 3: of which workload, what of its time, on IRIX in seconds, and Disco's by that.
type Part = (Workload, &'static str, fn(&Times) -> f64, f64, Option<f64>);

const TABLE_3: [Part; 8] = [
    (Workload::Pmake, "pmake, user", |times| times.user, 11.3, Some(1.03)),
    (Workload::Pmake, "pmake, kernel", |times| times.system, 5.9, Some(1.62)),
    (Workload::Pmake, "pmake, idle", Times::idle, 13.1, Some(0.87)),
    (Workload::Pmake, "pmake, all", |times| times.all, 30.3, Some(1.08)),
    (Workload::Engineering, "engineering, user", |times| times.user, 65.2, Some(1.07)),
    (Workload::Engineering, "engineering, kernel", |times| times.system, 0.2, Some(1.0)),
    (Workload::Engineering, "engineering, idle", Times::idle, 0.0, None),
    (Workload::Engineering, "engineering, all", |times| times.all, 65.4, Some(1.07)),
];

/// What is measured of a figure by other programs than these, and its drawings.
type Found = Result<(Vec<Item>, Vec<Drawing>), ReproduceError>;

/// A figure, its rows if it cannot be measured, and how it is.
type Wanted<'a> = (&'static str, &'static [Waiting], &'a dyn Fn() -> Found);

/// What of a time, and its name.
type Portion = (&'static str, fn(&Times) -> f64);

/// Measures, and says what of the paper that is.
pub(crate) fn reproduce(talks: bool) -> Result<Reproduced, ReproduceError> {
    let say = |what: &str| {
        if talks {
            eprint!("\r{what:70}");
        }
    };
    let measured = engines::measure(&Workload::ALL, true, ROUNDS, &say);
    let measured = measured.map_err(|error| ReproduceError::Nothing(error.to_string()))?;
    say("");
    let mut items = of_engines(&measured);
    let mut drawings = vec![slowdowns(&measured)];
    let figures: [Wanted<'_>; 3] = [
        ("Figure 7", FIGURE_7, &files::figure_7),
        ("Figure 8", FIGURE_8, &|| splash::figure_8(&say)),
        ("Figure 9", FIGURE_9, &numa::figure_9),
    ];
    for (name, rows, measure) in figures {
        say(name);
        // One that cannot be measured here stops none of the others.
        let (more, drawn) = measure().unwrap_or_else(|error| {
            eprintln!("\r{name}: {error}");
            (waiting(rows), Vec::new())
        });
        say("");
        items.extend(more);
        drawings.extend(drawn);
    }
    Ok(Reproduced { how: HOW.to_owned(), items, drawings })
}

/// All items before anything is measured.
pub(crate) fn unmeasured() -> Vec<Item> {
    let mut items = of_engines(&Measured::default());
    items.extend([FIGURE_7, FIGURE_8, FIGURE_9].into_iter().flat_map(waiting));
    items
}

fn row(name: &str, paper_value: impl Into<Option<f64>>, unit: &'static str) -> Item {
    item("disco", name, paper_value, unit)
}

/// A row of one engine: that says its name, and why it has no number if it does not work here.
fn by_engine(
    measured: &Measured,
    name: &str,
    paper_value: impl Into<Option<f64>>,
    unit: &'static str,
    of: impl Fn(Way) -> (Option<f64>, String),
) -> Vec<Item> {
    let paper_value = paper_value.into();
    let made = |way: Way| {
        let made = row(&format!("{name}, {way}"), paper_value, unit);
        match (of(way), measured.missing.get(&way)) {
            ((None, _), Some(why)) => made.pending(why),
            ((ours, note), _) => made.ours(ours).note(note),
        }
    };
    Way::ENGINES.into_iter().map(made).collect()
}

/// Tables 1 to 3 and Figure 6.
fn of_engines(measured: &Measured) -> Vec<Item> {
    let mut rows = Vec::new();
    for (workload, name, seconds, _) in WORKLOADS {
        let ours = measured.median(workload, Way::Host, |times| times.all);
        let note = "ours is Linux on the host alone, of our own workload; the paper's IRIX without Disco";
        rows.push(row(&format!("Table 1, {name}"), seconds, "s").ours(ours).note(note));
    }
    for (workload, name, _, slower) in WORKLOADS {
        rows.extend(figure_6(measured, workload, name, slower));
    }
    rows.extend(by_engine(measured, "Figure 6, pmake, system time by IRIX's", 2.15, "ratio", |way| {
        let ratio = measured.by_host(Workload::Pmake, way, |times| times.system);
        (ratio, "the guest's kernel by the host's; the paper's with Disco, IRIX 5.3 (6.2: 1.62)".into())
    }));
    for (workload, name, ..) in WORKLOADS {
        rows.extend(by_engine(measured, &format!("Figure 6, {name}, processor time by the host's"), None, "ratio", |way| {
            let note = "what a machine takes of the host's processors by what the same takes on the host alone, however busy that is";
            (measured.by_host(workload, way, |times| times.taken), note.into())
        }));
    }
    for (system, services) in [("IRIX 5.3", IRIX_5_3), ("IRIX 6.2", IRIX_6_2)] {
        for (service, microseconds, slowdown) in services {
            rows.extend(of_service(
                measured,
                &format!("{system}, {service}"),
                service,
                microseconds,
                slowdown,
            ));
        }
    }
    for service in OURS {
        rows.extend(of_service(measured, &format!("not in the paper, {service}"), service, None, None));
    }
    for (workload, name, of, seconds, ratio) in TABLE_3 {
        let ours = measured.median(workload, Way::Host, of);
        let note = "Linux on the host alone, of our own workload; the paper's IRIX on an Origin200";
        rows.push(row(&format!("Table 3, {name}, IRIX"), seconds, "s").ours(ours).note(note));
        rows.extend(by_engine(measured, &format!("Table 3, {name}, by IRIX"), ratio, "ratio", |way| {
            let seconds = measured.median(workload, way, of);
            let note = seconds.map_or_else(String::new, |seconds| format!("{seconds:.2} s in the machine; "));
            (measured.by_host(workload, way, of), note + "by the host alone of the same round")
        }));
    }
    rows.push(
        row("§6.2, a TLB miss in Disco", 92.0, "cycles")
            .note(format!("{BY_HARDWARE}; the paper: 62 in IRIX")),
    );
    rows
}

/// A workload's bar: the whole, and its parts, all by the whole on the host.
fn figure_6(measured: &Measured, workload: Workload, name: &str, slower: Option<f64>) -> Vec<Item> {
    let all = |times: &Times| times.all;
    let host = measured.median(workload, Way::Host, all);
    let mut rows =
        by_engine(measured, &format!("Figure 6, {name}, slower on the monitor"), slower, "%", |way| {
            let beside = measured.median(workload, way, all).zip(host);
            let note = beside.map_or_else(
                || "a machine beside the host alone".to_owned(),
                |(ours, host)| format!("{ours:.2} s in the machine beside {host:.2} s on the host alone"),
            );
            let note = if slower.is_none() { format!("{note}; {NO_NUMBER}") } else { note };
            (measured.by_host(workload, way, all).map(|ratio| (ratio - 1.0) * 100.0), note)
        });
    let parts: [Portion; 3] =
        [("user", |times| times.user), ("kernel and monitor", |times| times.system), ("idle", Times::idle)];
    for (part, of) in parts {
        let of_whole = |way| Some(100.0 * measured.median(workload, way, of)? / host?);
        let alone = of_whole(Way::Host);
        let made = by_engine(measured, &format!("Figure 6, {name}, {part}"), None, "%", |way| {
            (
                of_whole(way),
                format!("of all the time on the host alone, of which it is the baseline; {NO_NUMBER}"),
            )
        });
        rows.extend(made.into_iter().map(|row| row.classic(alone)));
    }
    rows
}

/// A service's time on the host, and what a machine makes of it.
fn of_service(
    measured: &Measured,
    name: &str,
    service: &'static str,
    microseconds: impl Into<Option<f64>>,
    slowdown: impl Into<Option<f64>>,
) -> Vec<Item> {
    let time = row(&format!("Table 2, {name}, time"), microseconds, "µs");
    let (by, slowdown) = (format!("Table 2, {name}, slowdown"), slowdown.into());
    if service == UTLB_MISS {
        return vec![time.note(BY_HARDWARE), row(&by, slowdown, "ratio").note(BY_HARDWARE)];
    }
    let of = |way| measured.services.get(&(service.to_owned(), way)).copied();
    let mut rows =
        vec![time.ours(of(Way::Host)).note("Linux on the host alone: the least of many short rounds")];
    rows.extend(by_engine(measured, &by, slowdown, "ratio", |way| {
        let note = of(way).map_or_else(String::new, |took| format!("{took:.2} µs in the machine; "));
        (measured.slowdown(service, way), note + "by the host alone")
    }));
    rows
}

/// How much slower services are, by how long they are.
fn slowdowns(measured: &Measured) -> Drawing {
    let curve = |(way, label)| {
        let names = measured.services.iter().filter(|((_, whose), _)| *whose == Way::Host);
        let point = |((name, _), &took): (&(String, Way), &f64)| Some((took, measured.slowdown(name, way)?));
        let mut points: Vec<(f64, f64)> = names.filter_map(point).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Curve { label, points }
    };
    let labels = [(Way::Kvm, "KVM"), (Way::Uml, "user-mode Linux"), (Way::Tcg, "QEMU translates (tcg)")];
    Figure {
        name: "disco-table-2",
        title: "A kernel's services in machines of each engine (Disco, Table 2)",
        x: "µs on the host alone",
        y: "time in a machine by that",
    }
    .of(labels.into_iter().map(curve).collect())
}

/// Name, the paper's number, and its unit; and what it waits for.
type Waiting = (&'static str, Option<f64>, &'static str, &'static str);

const FILES: &str = "files between machines are not measured by this yet";
const SCALE: &str = "eight processors, and SPLASHOS: not measured by this yet";
const NUMA: &str = "a host with more than one node of memory";

const FIGURE_7: &[Waiting] = &[
    ("Figure 7, eight machines, memory of IRIX's private data, less than", Some(20.0), "MB", FILES),
    ("Figure 7, memory of one to eight machines and of NFS", None, "MB", FILES),
];
const FIGURE_8: &[Waiting] = &[
    ("Figure 8, pmake, eight machines by IRIX alone", Some(60.0), "%", SCALE),
    ("Figure 8, radix on SPLASHOS by IRIX", None, "ratio", SCALE),
];
const FIGURE_9: &[Waiting] = &[
    ("Figure 9, engineering, faster by migration and replication", Some(33.0), "%", NUMA),
    ("Figure 9, raytrace, faster by migration and replication", Some(38.0), "%", NUMA),
    ("Figure 9, engineering, slower than with uniform memory", Some(40.0), "%", NUMA),
    ("Figure 9, raytrace, slower than with uniform memory", Some(26.0), "%", NUMA),
];

fn waiting(rows: &[Waiting]) -> Vec<Item> {
    rows.iter().map(|&(name, value, unit, waits_for)| row(name, value, unit).pending(waits_for)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'a>(items: &'a [Item], name: &str) -> &'a Item {
        items.iter().find(|item| item.item == name).unwrap_or_else(|| panic!("{name}"))
    }

    #[test]
    fn an_engine_stands_at_each_number_and_a_missing_one_says_why() {
        let mut measured = Measured::default();
        let times = |all, user, system| vec![Times { all, user, system, taken: all }];
        measured.times.insert((Workload::Pmake, Way::Host), times(2.0, 1.0, 0.5));
        measured.times.insert((Workload::Pmake, Way::Uml), times(3.0, 1.25, 1.5));
        measured.services.insert(("open".into(), Way::Host), 0.5);
        measured.services.insert(("open".into(), Way::Uml), 10.0);
        measured.missing.insert(Way::Kvm, "this host has no KVM".into());
        let items = of_engines(&measured);
        assert_eq!(of(&items, "Figure 6, pmake, slower on the monitor, uml").measured, Some(50.0));
        let kernel = of(&items, "Figure 6, pmake, kernel and monitor, uml");
        assert_eq!((kernel.measured, kernel.baseline), (Some(75.0), Some(25.0)));
        assert_eq!(of(&items, "Table 2, IRIX 5.3, open, slowdown, uml").measured, Some(20.0));
        assert_eq!(of(&items, "Table 3, pmake, kernel, by IRIX, uml").measured, Some(3.0));
        assert_eq!(of(&items, "Table 3, pmake, idle, by IRIX, uml").measured, Some(0.5));
        let missing = of(&items, "Table 3, pmake, all, by IRIX, kvm");
        assert_eq!((missing.measured, missing.note.as_str()), (None, "pending: this host has no KVM"));
        assert!(!of(&items, "Figure 6, raytrace, slower on the monitor, tcg").is_waiting(), "a run may");
        assert_eq!(slowdowns(&measured).curves[1].points, [(0.5, 20.0)]);
    }
}
