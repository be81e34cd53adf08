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
