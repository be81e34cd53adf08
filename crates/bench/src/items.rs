//! The papers' claims, tables and figures, each with what was measured for it. A null says that nothing was.

use crate::reproduce::messages::Measured;
use crate::reproduce::{Item, PENDING};

/// One row, to be filled in from left to right.
pub(crate) fn item(
    paper: &'static str,
    name: &str,
    paper_value: impl Into<Option<f64>>,
    unit: &'static str,
) -> Item {
    Item {
        paper: paper.into(),
        item: name.to_owned(),
        paper_value: paper_value.into(),
        measured: None,
        baseline: None,
        unit: unit.into(),
        command: format!("comb reproduce {paper}"),
        note: String::new(),
    }
}

impl Item {
    pub(crate) fn ours(mut self, measured: Option<f64>) -> Self {
        self.measured = measured;
        self
    }

    pub(crate) fn classic(mut self, baseline: Option<f64>) -> Self {
        self.baseline = baseline;
        self
    }

    /// Ours beside the classic way: says how many times better ours is, where both were measured, before what else there
    /// is to say.
    pub(crate) fn shorter(self, ours: Option<f64>, classic: Option<f64>, note: &str) -> Self {
        let times = ours.zip(classic).map(|(ours, classic)| classic / ours);
        self.ours(ours).classic(classic).with_times(times, note)
    }

    pub(crate) fn more(self, ours: Option<f64>, classic: Option<f64>, note: &str) -> Self {
        let times = ours.zip(classic).map(|(ours, classic)| ours / classic);
        self.ours(ours).classic(classic).with_times(times, note)
    }

    fn with_times(mut self, times: Option<f64>, note: &str) -> Self {
        let times = times.map(|times| format!("{times:.1}× better than the classic way"));
        let note = (!note.is_empty()).then(|| note.to_owned());
        self.note = [times, note].into_iter().flatten().collect::<Vec<_>>().join("; ");
        self
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Not measured yet, and what it waits for.
    pub(crate) fn pending(self, what: &str) -> Self {
        self.note(format!("{PENDING}: {what}"))
    }
}

pub(crate) const NO_NUMBER: &str = "the text gives no number";
const HISTORY: &str = "history: 140 Mbit/s ATM, 60 MHz SPARC";
const DEDICATED: &str = "history: dedicated hardware of over 600 Mbit/s";

/// Chapter 2: U-Net.
pub(crate) fn unet(m: &Measured) -> Vec<Item> {
    let mut rows = table_2_1(m);
    rows.extend(table_2_2(m));
    rows.extend(table_2_3(m));
    rows.extend(hardware_of_1995());
    rows.extend(figure_2_3(m));
    rows.extend(figure_2_4(m));
    rows.extend(no_number_in_unet(m));
    rows.extend(unet_pending());
    rows
}

fn table_2_1(m: &Measured) -> Vec<Item> {
    let row = |name: &str, value: f64| item("unet", &format!("Table 2.1, {name}"), value, "µs");
    let send = |way| m.microseconds(way, "send", 8);
    let receive = |way| m.microseconds(way, "receive", 8);
    let one_way = |way| m.round_trip(way, 16).map(|us| us / 2.0);
    let rest = |way| Some(one_way(way)? - send(way)? - receive(way)?).filter(|us| *us > 0.0);
    let (ours, classic) = ("endpoint", "spinning socket");
    let across = "what one way takes beyond both calls; here the cache line's way between the cores";
    vec![
        row("across the switch, trap level", 21.0).ours(rest(ours)).classic(rest(classic)).note(across),
        row("send overhead", 7.0).shorter(send(ours), send(classic), "one of 32 sends in a row, 8 B"),
        row("receive overhead", 5.0).shorter(
            receive(ours),
            receive(classic),
            "one of 32 receives of what is there, 8 B",
        ),
        row("total one way", 33.0).shorter(one_way(ours), one_way(classic), "half a round trip, 16 B"),
    ]
}

/// What the machines are characterised by; the programs that they are compared with are Figure 2.5.
fn table_2_2(m: &Measured) -> Vec<Item> {
    let row = |machine: &str, name: &str, value: f64, unit| {
        item("unet", &format!("Table 2.2, {machine}, {name}"), value, unit)
    };
    let machine = |name: &'static str, is: &'static str, values: [f64; 3]| {
        let note = format!("history: the machine itself, {is}");
        let units = [("message overhead", "µs"), ("round trip", "µs"), ("bandwidth", "MB/s")];
        units
            .into_iter()
            .zip(values)
            .map(move |((what, unit), value)| row(name, what, value, unit).note(&note))
    };
    let unet = "U-Net ATM";
    let mut rows = vec![
        row(unet, "message overhead", 6.0, "µs").shorter(
            m.microseconds("active", "send", 8),
            m.microseconds("spinning socket", "send", 8),
            "one of 16 requests in a row, one word",
        ),
        row(unet, "round trip", 71.0, "µs").shorter(
            m.round_trip("active", 32),
            m.round_trip("spinning socket", 32),
            "request and reply, 32 B",
        ),
        row(unet, "bandwidth", 14.0, "MB/s").more(
            m.megabytes("store", 4096),
            m.megabytes("spinning socket", 4096),
            "block store, 4 KB; the table prints Mb/s and means bytes: §2.5.2",
        ),
    ];
    rows.extend(machine("CM-5", "33 MHz Sparc-2", [3.0, 12.0, 10.0]));
    rows.extend(machine("Meiko CS-2", "40 MHz SuperSparc", [11.0, 25.0, 39.0]));
    rows
}

fn table_2_3(m: &Measured) -> Vec<Item> {
    let latency =
        |name: &str, value: f64| item("unet", &format!("Table 2.3, {name}, round trip"), value, "µs");
    let rate =
        |name: &str, value: f64| item("unet", &format!("Table 2.3, {name}, 4 KB packets"), value, "Mbit/s");
    let slot = |row: Item, way: &str, note| {
        row.shorter(m.round_trip(way, 32), m.round_trip("spinning socket", 32), note)
    };
    let stream = |row: Item, way: &str, note| {
        row.more(m.megabits(way, 4096), m.megabits("spinning socket", 4096), note)
    };
    let tcp = "UDP and TCP over endpoints are not built yet";
    let (global, socket) = (m.round_trip("global store", 8), m.round_trip("spinning socket", 16));
    let two_places = "global stores into two places in turn, each block read and acknowledged";
    vec![
        slot(latency("raw AAL5", 65.0), "endpoint", "raw endpoint, 32 B"),
        stream(rate("raw AAL5", 120.0), "endpoint", "raw endpoint"),
        slot(latency("active messages", 71.0), "active", "request and reply, 32 B"),
        stream(rate("active messages", 118.0), "store", "block store"),
        item("unet", "Table 2.3, active messages by raw, 4 KB packets", 118.0 / 120.0, "ratio")
            .ours(m.megabits("store", 4096).zip(m.megabits("endpoint", 4096)).map(|(store, raw)| store / raw))
            .note("§2.5.3: for large transfers there is virtually no loss due to the extra copies"),
        latency("UDP", 138.0).pending(tcp),
        rate("UDP", 120.0).pending(tcp),
        latency("TCP", 157.0).pending(tcp),
        rate("TCP", 115.0).pending(tcp),
        latency("Split-C store", 72.0).shorter(global, socket, "a global store there and one back, 8 B"),
        stream(rate("Split-C store", 118.0), "global store", two_places),
    ]
}

fn hardware_of_1995() -> Vec<Item> {
    let row = |name: &str, value: f64, unit: &'static str| item("unet", name, value, unit).note(HISTORY);
    vec![
        row("SBA-100, round trip of one ATM cell", 66.0, "µs"),
        row("SBA-100, bandwidth at 1 KB", 6.8, "MB/s"),
        row("Fore firmware, round trip", 160.0, "µs"),
        row("Fore firmware, bandwidth at 4 KB", 13.0, "MB/s"),
        row("peak of the fibre", 15.2, "MB/s"),
        row("SBA-100, checksums, of the send overhead", 33.0, "%"),
        row("SBA-100, checksums, of the receive overhead", 40.0, "%"),
        row("application device channels, one byte", 150.0, "µs").note(DEDICATED),
        row("HP Jetstream, 16 B", 300.0, "µs").note(DEDICATED),
    ]
}

fn figure_2_3(m: &Measured) -> Vec<Item> {
    let row = |name: &str, value: Option<f64>| item("unet", &format!("Figure 2.3, {name}"), value, "µs");
    let at = |name: &str, value: Option<f64>, way: &str, bytes: usize, note| {
        let (ours, classic) = (m.round_trip(way, bytes), m.round_trip("spinning socket", bytes));
        row(name, value).shorter(ours, classic, note)
    };
    let a_cell = |way| m.a_byte(way, 48, 1024).map(|us| us * 48.0);
    let active_over_raw = |bytes| Some(m.round_trip("active", bytes)? - m.round_trip("endpoint", bytes)?);
    let ratio = |bytes| Some(m.round_trip("active", bytes)? / m.round_trip("endpoint", bytes)?);
    let woken = |kind| Some(m.microseconds(kind, "slept", 8)? - m.microseconds(kind, "polled", 8)?);
    let woken_note = "what a sleeping receiver adds to a round trip after 200 µs of silence, one end";
    let mut rows = vec![
        at("raw, one ATM cell", Some(65.0), "endpoint", 32, "32 B: within the slot"),
        at("raw, 48 B", Some(120.0), "endpoint", 48, "here still within the slot: up to 56 B"),
        item("unet", "Figure 2.3, raw, beyond the descriptor by within it", 120.0 / 65.0, "ratio")
            .ours(
                m.round_trip("endpoint", 64)
                    .zip(m.round_trip("endpoint", 48))
                    .map(|(out, within)| out / within),
            )
            .note("§2.3.4: small messages in descriptors; here 64 B by 48 B, of which the slot holds 56"),
        row("raw, each 48 B more", Some(6.0))
            .ours(a_cell("endpoint"))
            .classic(a_cell("spinning socket"))
            .note("rise from 48 B to 1 KB"),
        at("active messages, one ATM cell", Some(71.0), "active", 32, "32 B of payload"),
        row("active messages over raw", Some(6.0))
            .ours(active_over_raw(32))
            .note("32 B; the classic way has no counterpart"),
        item("unet", "Figure 2.3, active messages by raw", 71.0 / 65.0, "ratio")
            .ours(ratio(32))
            .note("goal: at most 1.09 without payload, see `comb bench net`; this row carries 32 B"),
        at("block, fixed part", Some(135.0), "block", 4, "a block of 4 B there and back"),
        row("block, each byte", Some(0.2))
            .ours(m.a_byte("block", 4, 1024))
            .classic(m.a_byte("spinning socket", 4, 1024))
            .note("rise from 4 B to 1 KB"),
        item("unet", "signal instead of polling, each end", 30.0, "µs").shorter(
            woken("endpoint"),
            woken("socket"),
            woken_note,
        ),
    ];
    for bytes in crate::curves::ROUND_TRIP_BYTES {
        for (name, way) in [("raw", "endpoint"), ("active messages", "active"), ("block", "block")] {
            rows.push(at(&format!("point {name} {bytes} B"), None, way, bytes, NO_NUMBER));
        }
    }
    rows
}

fn figure_2_4(m: &Measured) -> Vec<Item> {
    let size = |name: &str, value: f64| item("unet", &format!("Figure 2.4, {name}"), value, "B");
    let shortest = |way, share| m.peak(way, share).map(|(_, bytes)| bytes as f64);
    let dip = |way| Some(m.megabytes(way, 4164)? / m.megabytes(way, 4096)?);
    let mut rows = vec![
        size("raw, saturation", 800.0)
            .ours(shortest("endpoint", 0.9))
            .classic(shortest("spinning socket", 0.9))
            .note("shortest measured message with 90 % of the peak; no fibre limits memory"),
        size("store, 80 % of the limit", 2048.0)
            .ours(shortest("store", 0.8))
            .classic(shortest("spinning socket", 0.8))
            .note("shortest measured block with 80 % of the peak"),
        item("unet", "Figure 2.4, store, 4164 B by 4096 B", None, "ratio")
            .ours(dip("store"))
            .classic(dip("spinning socket"))
            .note("the paper's dip comes of buffers of 4160 B; the text gives no number"),
        item("unet", "Figure 2.4, store, peak", 14.8, "MB/s").more(
            m.peak("store", 0.9).map(|(peak, _)| peak),
            m.peak("spinning socket", 0.9).map(|(peak, _)| peak),
            "the paper's at 4 KB",
        ),
    ];
    let series = crate::curves::SERIES_BYTES;
    let (got, stored) = (m.megabytes("get", series), m.megabytes("store", series));
    rows.extend([
        item("unet", "Figure 2.4, block get, series", None, "MB/s")
            .ours(got)
            .note("64 KB, whose fragments are under way at once; the text gives no number"),
        item("unet", "Figure 2.4, block get by block store, series", None, "ratio")
            .ours(got.zip(stored).map(|(got, stored)| got / stored))
            .note("64 KB each; the paper's is nearly identical, without a number"),
        item("unet", "Figure 2.4, block get, one at a time", None, "MB/s")
            .ours(m.megabytes("get", 4096))
            .note("4 KB, waited for one by one; the paper has no such measurement"),
    ]);
    for bytes in crate::curves::STREAM_BYTES {
        for (name, way) in [("raw", "endpoint"), ("store", "store")] {
            let point = item("unet", &format!("Figure 2.4, point {name} {bytes} B"), None, "MB/s");
            let classic = m.megabytes("spinning socket", bytes);
            rows.push(point.more(m.megabytes(way, bytes), classic, NO_NUMBER));
        }
    }
    rows
}

/// What the chapter says without a number, and can be measured.
fn no_number_in_unet(m: &Measured) -> Vec<Item> {
    let row = |name: &str, unit: &'static str| item("unet", name, None, unit);
    let emulated = m.round_trip("emulated", crate::curves::EMULATED_BYTES);
    let socket = m.round_trip("spinning socket", 32);
    vec![
        row("§2.3.1, upcalls disabled and enabled", "µs")
            .ours(m.microseconds("gate", "time", 0))
            .note("the paper: cheaply"),
        row("§2.3.5, emulated endpoint, round trip", "µs").shorter(
            emulated,
            socket,
            "32 B; the paper: quite different from a regular endpoint's",
        ),
        row("§2.3.5, emulated endpoint by a real one", "ratio")
            .ours(emulated.zip(m.round_trip("endpoint", 32)).map(|(emulated, real)| emulated / real))
            .note("32 B, there and back"),
        row("§2.3.6, direct access, there and back", "µs").shorter(
            m.round_trip("put", 8),
            m.round_trip("spinning socket", 16),
            "8 B put into the peer's window each way; the paper specifies it and did not build it",
        ),
        row("§2.4.2, memory of a channel", "KB")
            .ours(m.value("idle channel", "value", 0).map(|bytes| bytes / 1024.0))
            .note("after 1,000 small messages each way, both directions; the paper's is pinned, ours is not"),
    ]
}

fn unet_pending() -> Vec<Item> {
    let row =
        |name: &str, value: Option<f64>, unit, what: &str| item("unet", name, value, unit).pending(what);
    let programs = "the Split-C programs are not built yet";
    let tcp = "UDP and TCP over endpoints are not built yet";
    let of = |value: &str| format!("{tcp}; the paper: {value}");
    vec![
        row("Figure 2.5, Split-C programs", None, "s", programs),
        row("Figure 2.6, kernel TCP and UDP round trips", None, "µs", tcp),
        row("Figure 2.7, UDP bandwidth", None, "MB/s", tcp),
        row("Figure 2.7, kernel UDP, transfers with its maximum", Some(8192.0), "B", &of("larger than 8 KB")),
        row("Figure 2.7, U-Net UDP, messages lost", Some(0.0), "messages", tcp),
        row("Figure 2.8, TCP bandwidth", None, "MB/s", tcp),
        row("Figure 2.8, U-Net TCP, 8 KB window", Some(14.0), "MB/s", &of("14–15")),
        row("Figure 2.8, kernel TCP, 64 KB window", Some(9.0), "MB/s", &of("at most 9–10")),
        row("§2.7, kernel TCP, of the maximum bandwidth", Some(55.0), "%", &of("no more than that")),
        row("§2.7.6, UDP checksum, each 100 B", Some(1.0), "µs", tcp),
        row("§2.7.8, TCP, granularity of timers", Some(1.0), "ms", &of("BSD's is 500 ms")),
        row("Figure 2.9, UDP and TCP round trips", None, "µs", tcp),
    ]
}

/// Chapter 3: the Virtual Interface Architecture.
pub(crate) fn via(m: &Measured) -> Vec<Item> {
    let mut rows = table_3_1(m);
    rows.extend(figure_3_1(m));
    rows.extend(remote_memory(m));
    rows
}

fn table_3_1(m: &Measured) -> Vec<Item> {
    let (time, speed) = (|way, bytes| m.round_trip(way, bytes), |way| m.megabits(way, 4096));
    let (latency, rate) = (time("socket", 16), speed("socket"));
    let columns = [
        ("sockets", 250.0, 15.0, latency, rate, "Unix stream socket that sleeps; this is the baseline"),
        ("U-Net", 13.0, 95.0, time("endpoint", 16), speed("endpoint"), "raw endpoint"),
        ("VMMC-2", 11.0, 97.0, time("put", 8), speed("global store"), "puts; global stores"),
        ("AM-II", 21.0, 31.0, time("active", 16), speed("store"), "active messages; block store"),
        ("FM", 11.0, 78.0, time("extract", 4), None, "active messages taken by `extract`, 4 B"),
        ("VIA", 60.0, 90.0, time("via", 16), speed("via"), "virtual interface"),
    ];
    columns
        .into_iter()
        .flat_map(|(name, paper_latency, paper_rate, ours, our_rate, note)| {
            let rate_row = item("via", &format!("Table 3.1, {name}, bandwidth"), paper_rate, "Mbit/s");
            [
                item("via", &format!("Table 3.1, {name}, latency"), paper_latency, "µs").shorter(
                    ours,
                    latency,
                    &format!("{note}; round trip"),
                ),
                if name == "FM" {
                    rate_row.classic(rate).pending("streams taken by `extract` are not measured yet")
                } else {
                    rate_row.more(our_rate, rate, &format!("{note}; 4 KB"))
                },
            ]
        })
        .collect()
}

fn figure_3_1(m: &Measured) -> Vec<Item> {
    let curves = [
        ("COM local", "socket call", "a call over a Unix socket: the classic way"),
        ("DCOM over VIA", "call", "a typed call over Comb"),
        ("VIA raw", "via", "a message each way over a virtual interface"),
    ];
    let mut rows = Vec::new();
    for bytes in crate::curves::ROUND_TRIP_BYTES {
        for (name, way, note) in curves {
            let row = item("via", &format!("Figure 3.1, {name}, {bytes} B"), None, "µs");
            let (ours, classic) = (m.round_trip(way, bytes), m.round_trip("socket call", bytes));
            rows.push(row.shorter(ours, classic, &format!("{note}; {NO_NUMBER}")));
        }
    }
    rows
}

fn remote_memory(m: &Measured) -> Vec<Item> {
    let row = |name: &str, value: Option<f64>, unit: &'static str| item("via", name, value, unit);
    let rdma = |name: &str, test: &str, bytes: usize, socket_bytes: usize, note: &str| {
        let (ours, classic) = (m.round_trip(test, bytes), m.round_trip("spinning socket", socket_bytes));
        row(name, None, "µs").shorter(ours, classic, &format!("{note}; {NO_NUMBER}"))
    };
    vec![
        rdma("RDMA write, there and back", "rdma write", 8, 16, "8 B each way"),
        rdma("RDMA read, 8 B", "rdma read", 8, 16, "the peer does nothing"),
        rdma("RDMA read, 1 KB", "rdma read", 1024, 1024, "the baseline carries 1 KB both ways"),
        row("RDMA read refused on unreliable", Some(1.0), "yes = 1")
            .ours(m.value("rdma read refused", "value", 0))
            .note("§3.4.4"),
        row("address translation, miss", Some(20.0), "µs")
            .ours(m.microseconds("register", "time", 4096))
            .note("U-Net's card asks the host; here nothing translates: registering 4 KB and giving it back"),
        row("buffers of an application, least", Some(200.0), "KB")
            .ours(m.value("idle channel", "value", 0).map(|bytes| bytes / 1024.0))
            .note("200–300 KB in the paper; here one process and channel after 1,000 small messages each way; all touched: `comb bench net`"),
    ]
}
