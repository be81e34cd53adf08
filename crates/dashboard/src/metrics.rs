//! The same in numbers, as Prometheus reads them.

use std::fmt::Write as _;

use crate::snapshot::{Cell, Region, Snapshot};

/// A metric of many: its name, its kind, what it counts, and what it is of one; none: not known.
type Metric<Of, Value> = (&'static str, &'static str, &'static str, fn(&Of) -> Option<Value>);

/// A metric: its name, its kind, and what it counts.
fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// What stands between quotes may have none itself.
fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// All of it.
pub(crate) fn text(seen: &Snapshot) -> String {
    let mut text = String::new();
    let is_reached = u8::from(seen.trouble.is_none());
    head(&mut text, "comb_agent_up", "gauge", "Whether the agent of this host answers.");
    let _ = writeln!(text, "comb_agent_up {is_reached}");
    head(&mut text, "comb_build_info", "gauge", "Which version of comb this is.");
    let _ = writeln!(
        text,
        "comb_build_info{{version=\"{}\",comb=\"{}\"}} 1",
        escaped(&seen.version),
        escaped(&seen.comb)
    );
    for host in seen.hosts.iter().filter(|host| host.is_this) {
        head(&mut text, "comb_agent_cpu_seconds_total", "counter", "Processor time of the agent.");
        let _ = writeln!(text, "comb_agent_cpu_seconds_total {}", seconds(host.agent_cpu_ms));
        head(&mut text, "comb_agent_resident_bytes", "gauge", "Resident memory of the agent.");
        let _ = writeln!(text, "comb_agent_resident_bytes {}", host.agent_bytes);
    }
    let of_cells: [Metric<Cell, f64>; 9] = [
        ("comb_cell_up", "gauge", "Whether the cell is at work.", |cell| {
            Some(f64::from(u8::from(["up", "draining", "drained", "recovering"].contains(&cell.state))))
        }),
        ("comb_cell_incarnation", "counter", "Lives that the cell has had.", |cell| {
            Some(float(cell.incarnation))
        }),
        ("comb_cell_uptime_seconds", "gauge", "How long it has been running.", |cell| {
            Some(seconds(cell.uptime_ms))
        }),
        ("comb_cell_own_bytes", "gauge", "Memory that lives in it.", |cell| {
            Some(float(cell.memory.own_bytes))
        }),
        ("comb_cell_imported_bytes", "gauge", "Memory of other cells that its processes use.", |cell| {
            Some(float(cell.memory.imported_bytes))
        }),
        ("comb_cell_loaned_bytes", "gauge", "Its page frames that other cells have.", |cell| {
            Some(float(cell.memory.loaned_bytes))
        }),
        ("comb_cell_heartbeats_total", "counter", "Heartbeats that came back to it.", |cell| {
            Some(float(cell.round_trips))
        }),
        ("comb_cell_heartbeat_seconds", "gauge", "How long the last one took.", |cell| {
            Some(float(cell.last_round_trip_ns) / 1e9)
        }),
        ("comb_cell_tasks", "gauge", "Tasks with components in it.", |cell| {
            Some(float(cell.tasks.len() as u64))
        }),
    ];
    for (name, kind, help, value) in of_cells {
        head(&mut text, name, kind, help);
        for cell in &seen.cells {
            if let Some(value) = value(cell) {
                let _ = writeln!(
                    text,
                    "{name}{{cell=\"{}\",host=\"{}\"}} {value}",
                    cell.cell,
                    escaped(&cell.host)
                );
            }
        }
    }
    head(
        &mut text,
        "comb_right_blocks",
        "gauge",
        "Blocks at home in one cell that processes of another can store to.",
    );
    for right in &seen.rights {
        let _ = writeln!(
            text,
            "comb_right_blocks{{holder=\"{}\",home=\"{}\"}} {}",
            right.holder, right.home, right.pages
        );
    }
    head(&mut text, "comb_tasks", "gauge", "Tasks that run on the cells.");
    let _ = writeln!(text, "comb_tasks {}", seen.tasks.len());
    let of_regions: [Metric<Region, u64>; 4] = [
        ("comb_region_bytes", "gauge", "How long the region is.", |region| Some(region.bytes)),
        ("comb_region_resident_bytes", "gauge", "How much memory it takes.", |region| region.resident_bytes),
        ("comb_region_misses_total", "counter", "How often somebody had to ask for a block.", |region| {
            region.misses
        }),
        ("comb_region_lost_blocks", "gauge", "Blocks whose content is lost.", |region| region.lost_blocks),
    ];
    for (name, kind, help, value) in of_regions {
        head(&mut text, name, kind, help);
        for region in &seen.regions {
            if let Some(value) = value(region) {
                let (which, cell) = (escaped(&region.region), region.cell);
                let _ = writeln!(text, "{name}{{region=\"{which}\",cell=\"{cell}\"}} {value}");
            }
        }
    }
    head(&mut text, "comb_failures", "gauge", "Failures of cells that are remembered.");
    let _ = writeln!(text, "comb_failures {}", seen.failures.len());
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
mod tests {
    use super::*;

    #[test]
    fn every_line_is_one_that_is_understood() {
        let mut seen = Snapshot { version: "0.1".to_owned(), ..Snapshot::default() };
        let state = "up";
        seen.cells.push(Cell {
            cell: 2,
            host: "a\"b\\c\nd".to_owned(),
            state,
            incarnation: 3,
            ..Cell::default()
        });
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
        let text = text(&seen);
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(
                name.starts_with("comb_")
                    && name.matches('"').count() % 2 == line.matches("\\\"").count() % 2,
                "{line}"
            );
        }
        assert!(text.contains("comb_cell_up{cell=\"2\",host=\"a\\\"b\\\\c\\nd\"} 1"), "{text}");
        assert!(text.contains("comb_region_misses_total{region=\"tally\",cell=\"2\"} 5"));
        assert!(!text.contains("comb_region_resident_bytes{"), "what is not known is not said to be 0");
    }
}
