//! The same in numbers: families of samples, and how Prometheus reads them.

use std::fmt::Write as _;

use crate::snapshot::{Cell, Region, Snapshot};

/// Whether a number only ever grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Counter,
    Gauge,
}

/// One number, and of what it is.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Sample {
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: f64,
}

/// Numbers of one meaning. What is not known has no sample.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) help: &'static str,
    pub(crate) samples: Vec<Sample>,
}

/// A metric of many: its name, its kind, what it counts, and what it is of one; none: not known.
type Metric<Of> = (&'static str, Kind, &'static str, fn(&Of) -> Option<f64>);

const OF_CELLS: [Metric<Cell>; 9] = [
    ("comb_cell_up", Kind::Gauge, "Whether the cell is at work.", |cell| {
        Some(f64::from(u8::from(["up", "draining", "drained", "recovering"].contains(&cell.state))))
    }),
    ("comb_cell_incarnation", Kind::Counter, "Lives that the cell has had.", |cell| {
        Some(float(cell.incarnation))
    }),
    ("comb_cell_uptime_seconds", Kind::Gauge, "How long it has been running.", |cell| {
        Some(seconds(cell.uptime_ms))
    }),
    ("comb_cell_own_bytes", Kind::Gauge, "Memory that lives in it.", |cell| {
        Some(float(cell.memory.own_bytes))
    }),
    ("comb_cell_imported_bytes", Kind::Gauge, "Memory of other cells that its processes use.", |cell| {
        Some(float(cell.memory.imported_bytes))
    }),
    ("comb_cell_loaned_bytes", Kind::Gauge, "Its page frames that other cells have.", |cell| {
        Some(float(cell.memory.loaned_bytes))
    }),
    ("comb_cell_heartbeats_total", Kind::Counter, "Heartbeats that came back to it.", |cell| {
        Some(float(cell.round_trips))
    }),
    ("comb_cell_heartbeat_seconds", Kind::Gauge, "How long the last one took.", |cell| {
        Some(float(cell.last_round_trip_ns) / 1e9)
    }),
    ("comb_cell_tasks", Kind::Gauge, "Tasks with components in it.", |cell| {
        Some(float(cell.tasks.len() as u64))
    }),
];

const OF_REGIONS: [Metric<Region>; 4] = [
    ("comb_region_bytes", Kind::Gauge, "How long the region is.", |region| Some(float(region.bytes))),
    ("comb_region_resident_bytes", Kind::Gauge, "How much memory it takes.", |region| {
        region.resident_bytes.map(float)
    }),
    ("comb_region_misses_total", Kind::Counter, "How often somebody had to ask for a block.", |region| {
        region.misses.map(float)
    }),
    ("comb_region_lost_blocks", Kind::Gauge, "Blocks whose content is lost.", |region| {
        region.lost_blocks.map(float)
    }),
];

/// All of it.
pub(crate) fn families(seen: &Snapshot) -> Vec<Family> {
    let one = |name, kind, help, labels: Vec<(&'static str, String)>, value| Family {
        name,
        kind,
        help,
        samples: vec![Sample { labels, value }],
    };
    let is_reached = f64::from(u8::from(seen.trouble.is_none()));
    let build = vec![("version", seen.version.clone()), ("comb", seen.comb.clone())];
    let mut all = vec![
        one("comb_agent_up", Kind::Gauge, "Whether the agent of this host answers.", Vec::new(), is_reached),
        one("comb_build_info", Kind::Gauge, "Which version of comb this is.", build, 1.0),
    ];
    for host in seen.hosts.iter().filter(|host| host.is_this) {
        let (cpu, bytes) = (seconds(host.agent_cpu_ms), float(host.agent_bytes));
        all.push(one(
            "comb_agent_cpu_seconds_total",
            Kind::Counter,
            "Processor time of the agent.",
            Vec::new(),
            cpu,
        ));
        all.push(one(
            "comb_agent_resident_bytes",
            Kind::Gauge,
            "Resident memory of the agent.",
            Vec::new(),
            bytes,
        ));
    }
    for (name, kind, help, value) in OF_CELLS {
        let sample = |cell: &Cell| {
            let labels = vec![("cell", cell.cell.to_string()), ("host", cell.host.clone())];
            Some(Sample { labels, value: value(cell)? })
        };
        all.push(Family { name, kind, help, samples: seen.cells.iter().filter_map(sample).collect() });
    }
    let rights = seen.rights.iter().map(|right| Sample {
        labels: vec![("holder", right.holder.to_string()), ("home", right.home.to_string())],
        value: float(right.pages),
    });
    let help = "Blocks at home in one cell that processes of another can store to.";
    all.push(Family { name: "comb_right_blocks", kind: Kind::Gauge, help, samples: rights.collect() });
    let tasks = float(seen.tasks.len() as u64);
    all.push(one("comb_tasks", Kind::Gauge, "Tasks that run on the cells.", Vec::new(), tasks));
    for (name, kind, help, value) in OF_REGIONS {
        let sample = |region: &Region| {
            let labels = vec![("region", region.region.clone()), ("cell", region.cell.to_string())];
            Some(Sample { labels, value: value(region)? })
        };
        all.push(Family { name, kind, help, samples: seen.regions.iter().filter_map(sample).collect() });
    }
    let failures = float(seen.failures.len() as u64);
    all.push(one(
        "comb_failures",
        Kind::Gauge,
        "Failures of cells that are remembered.",
        Vec::new(),
        failures,
    ));
    all
}

/// What stands between quotes may have none itself.
fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// As Prometheus reads it.
pub(crate) fn text(seen: &Snapshot) -> String {
    let mut text = String::new();
    for Family { name, kind, help, samples } in families(seen) {
        let kind = if kind == Kind::Counter { "counter" } else { "gauge" };
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for Sample { labels, value } in samples {
            let labels: Vec<String> =
                labels.iter().map(|(label, of)| format!("{label}=\"{}\"", escaped(of))).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    }
    text
}

fn seconds(ms: u64) -> f64 {
    float(ms) / 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus counts in floating point")]
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A cell with a difficult host, and a region of which not all is known.
    pub(crate) fn scene() -> Snapshot {
        let mut seen = Snapshot { version: "0.1".to_owned(), ..Snapshot::default() };
        let (host, state) = ("a\"b\\c\nd".to_owned(), "up");
        seen.cells.push(Cell { cell: 2, host, state, incarnation: 3, ..Cell::default() });
        seen.regions.push(Region {
            region: "tally".to_owned(),
            cell: 2,
            bytes: 4096,
            resident_bytes: None,
            mode: "600".to_owned(),
            users: None,
            lost_blocks: None,
            misses: Some(5),
            misses_per_s: None,
        });
        seen
    }

    #[test]
    fn every_line_is_one_that_is_understood() {
        let text = text(&scene());
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let quotes = (name.matches('"').count(), line.matches("\\\"").count());
            assert!(name.starts_with("comb_") && quotes.0 % 2 == quotes.1 % 2, "{line}");
        }
        assert!(text.contains("comb_cell_up{cell=\"2\",host=\"a\\\"b\\\\c\\nd\"} 1"), "{text}");
        assert!(text.contains("comb_region_misses_total{region=\"tally\",cell=\"2\"} 5"));
        assert!(!text.contains("comb_region_resident_bytes{"), "what is not known is not said to be 0");
    }
}
