//! What the papers say that nothing here measures yet: their numbers stand in the report all the same, and each says what it waits for.

use crate::items::item;
use crate::reproduce::Item;

/// Name, the paper's number, and its unit; what the paper says where it is not plain.
type Row = (&'static str, Option<f64>, &'static str, &'static str);

fn all(paper: &'static str, waits_for: &str, rows: &[Row]) -> Vec<Item> {
    let row = |&(name, value, unit, says): &Row| {
        let says = if says.is_empty() { String::new() } else { format!("; {says}") };
        item(paper, name, value, unit).pending(&format!("{waits_for}{says}"))
    };
    rows.iter().map(row).collect()
}

const NO_NUMBER: &str = "a figure without numbers in the text";

/// Chapter 4: the AC3 cluster's interconnect, 40 switches in a fat tree.
pub(crate) fn giganet() -> Vec<Item> {
    const TABLE: [(&str, [f64; 4]); 8] = [
        ("Test 1", [115.0, 9.0, 115.0, 0.0]),
        ("Test 2", [115.0, 0.0, 115.0, 114.0]),
        ("Test 3, 5%", [52.0, 31.0, 84.0, 0.0]),
        ("Test 3, 20%", [49.0, 42.0, 91.0, 0.0]),
        ("Test 3, 100%", [61.0, 53.0, 114.0, 0.0]),
        ("Test 4, 5%", [61.0, 53.0, 114.0, 30.0]),
        ("Test 4, 20%", [62.0, 54.0, 116.0, 64.0]),
        ("Test 5, 100%", [60.0, 54.0, 114.0, 114.0]),
    ];
    let fabric = "the fabric of switches is not built yet";
    let mut rows = all(
        "giganet",
        fabric,
        &[
            ("§4.5, latency, least", Some(10.0), "µs", ""),
            ("§4.5, each further hop", Some(1.0), "µs", "Figure 4.2"),
            ("§4.5, throughput, most", Some(114.0), "MB/s", "Figure 4.4"),
            ("§4.5, messages in a second, most", Some(266_000.0), "1/s", "4 B each, by the PCI bus"),
            ("Figure 4.5, throughput of single streams, front to back", None, "KB/s", NO_NUMBER),
            ("Figure 4.6, throughput of the fabric by message size", None, "KB/s", NO_NUMBER),
            ("§4.6.2, slow host, background stream alone", Some(112.0), "MB/s", ""),
            ("§4.6.2, slow host, background stream beside the first small one", Some(107.0), "MB/s", ""),
            ("§4.6.2, slow host, background streams beside several, least", Some(110.0), "MB/s", ""),
            ("§4.6.2, slow host, three small streams, each", Some(88_000.0), "1/s", ""),
            ("§4.6.3, port contention, each competing stream", Some(15.0), "MB/s", "Figure 4.8"),
            ("§4.6.3, port contention, output of the port", Some(91.0), "MB/s", ""),
            ("§4.6.3, port contention, each of the seven others", Some(98.0), "MB/s", ""),
            ("§4.6.3, port contention, the switch as a whole", Some(780.0), "MB/s", ""),
        ],
    );
    for (test, values) in TABLE {
        for (node, value) in ["node 18 I", "node 18 II", "node 18", "node 10"].into_iter().zip(values) {
            let name = format!("Table 4.1, {test}, {node}");
            rows.push(item("giganet", &name, value, "MB/s").pending(fabric));
        }
    }
    rows.extend(all(
        "giganet",
        fabric,
        &[
            (
                "§4.7, by links, throughput less with 2 KB, mean",
                Some(27.0),
                "%",
                "flow control by links in the place of quenches",
            ),
            (
                "§4.7, by links, the fabric's throughput",
                Some(58.0),
                "%",
                "of that with quenches; Figure 4.11",
            ),
            ("§4.7, by links, a port beside a contended one", Some(15.0), "%", "the same; Figure 4.12"),
        ],
    ));
    rows
}

/// Chapters 5 and 6. They describe a system, and measure next to nothing.
pub(crate) fn quintet() -> Vec<Item> {
    all(
        "quintet",
        "replicated components are not built yet",
        &[
            (
                "§6.2, a client goes on at another replica after a node's death",
                None,
                "s",
                "no number in the text",
            ),
            (
                "§6.7.5, what DCOM's time-out alone would take to notice a dead manager",
                Some(30.0),
                "s",
                "unacceptable, says the text",
            ),
            ("§6.2, throughput of a component by its replicas", None, "1/s", "no number in the text"),
            ("§6.7.4, transfer of state to a replica that comes in", None, "s", "no number in the text"),
        ],
    )
}

/// Chapter 8.
pub(crate) fn galaxy() -> Vec<Item> {
    let rows = all(
        "galaxy",
        "comb bench membership measures it, and is not asked from here yet",
        &[
            ("§8.5.1, the last observer learns of a crash, 1000 nodes, least", Some(7.0), "s", ""),
            ("§8.5.1, the last observer learns of a crash, 1000 nodes, most", Some(8.0), "s", ""),
            ("§8.5.1, load of the links, most", Some(1.0), "%", ""),
            (
                "§8.5.2, loss at which news still reach all",
                Some(75.0),
                "%",
                "almost impossible to stop the dissemination",
            ),
            ("§8.5.2, part of the time for which nodes are perturbed", Some(50.0), "%", "the same"),
            (
                "§8.5.2, messages that are not delivered atomically",
                None,
                "",
                "less than a constant that is chosen",
            ),
        ],
    );
    let mut rows: Vec<Item> =
        rows.into_iter().map(|row| Item { command: "comb bench membership".to_owned(), ..row }).collect();
    rows.extend(all(
        "galaxy",
        "the farm's nodes, clusters, profiles and events are not built yet",
        &[
            ("§8.2, nodes of the experimental set-up, most", Some(400.0), "nodes", "300 to 400"),
            ("Table 8.1, example profiles of clusters", None, "", "profiles, no numbers"),
        ],
    ));
    rows
}

/// A kernel's service, its time in µs without the monitor, and how much slower it is on it.
type Service = (&'static str, f64, f64);

const IRIX_5_3: [Service; 7] = [
    ("DEMAND-ZERO", 21.0, 1.42),
    ("QUICK-FAULT", 5.0, 3.17),
    ("open", 42.0, 1.63),
    ("UTLB-MISS", 0.035, 1.35),
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

/// Operating systems on a monitor.
pub(crate) fn disco() -> Vec<Item> {
    let machines = "virtual machines as cells are not built yet";
    let mut rows = all(
        "disco",
        machines,
        &[
            ("Table 1, pmake", Some(3.9), "s", "IRIX without Disco"),
            ("Table 1, engineering", Some(3.5), "s", "the same"),
            ("Table 1, raytrace", Some(12.9), "s", "the same"),
            ("Table 1, database", Some(2.0), "s", "the same"),
            ("Figure 6, pmake, slower on the monitor", Some(16.0), "%", ""),
            ("Figure 6, database, slower on the monitor", Some(16.0), "%", ""),
            ("Figure 6, raytrace, slower on the monitor", Some(3.0), "%", ""),
            ("Figure 6, pmake, system time by IRIX's", Some(2.15), "ratio", "IRIX 6.2: 1.62"),
        ],
    );
    for (system, services) in [("IRIX 5.3", IRIX_5_3), ("IRIX 6.2", IRIX_6_2)] {
        for (service, microseconds, slowdown) in services {
            let row = |what: &str, value, unit| {
                item("disco", &format!("Table 2, {system}, {service}, {what}"), value, unit).pending(machines)
            };
            rows.push(row("time", microseconds, "µs"));
            rows.push(row("slowdown", slowdown, "ratio"));
        }
    }
    rows.extend(all(
        "disco",
        machines,
        &[
            ("Figure 7, eight machines, memory of IRIX's private data, less than", Some(20.0), "MB", ""),
            ("Figure 7, memory of one to eight machines and of NFS", None, "MB", NO_NUMBER),
            ("Figure 8, pmake, eight machines by IRIX alone", Some(60.0), "%", "two are faster already"),
            ("Figure 8, radix on SPLASHOS by IRIX", None, "ratio", NO_NUMBER),
            ("Figure 9, engineering, faster by migration and replication", Some(33.0), "%", ""),
            ("Figure 9, raytrace, faster by migration and replication", Some(38.0), "%", ""),
            ("Figure 9, engineering, slower than with uniform memory", Some(40.0), "%", ""),
            ("Figure 9, raytrace, slower than with uniform memory", Some(26.0), "%", ""),
            ("Table 3, pmake, IRIX", Some(30.3), "s", "Origin200"),
            ("Table 3, pmake, by IRIX", Some(1.08), "ratio", "Disco: 32.7 s"),
            ("Table 3, pmake, kernel, by IRIX", Some(1.62), "ratio", ""),
            ("Table 3, engineering, IRIX", Some(65.4), "s", "Origin200"),
            ("Table 3, engineering, by IRIX", Some(1.07), "ratio", "Disco: 69.9 s"),
            ("§6.2, a TLB miss in Disco", Some(92.0), "cycles", "62 in IRIX"),
        ],
    ));
    rows
}
