//! The same for OpenTelemetry: metrics and what has happened, as OTLP over HTTP, in JSON. Built in by the feature `otlp`, and at work where
//! `OTEL_EXPORTER_OTLP_ENDPOINT` says where to.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use comb_cell::journal;
use comb_host::RuntimeDirectory;
use comb_host::events::Event;
use serde_json::{Value, json};

use crate::gather::Looker;
use crate::metrics::{Family, Kind, families};
use crate::snapshot::Snapshot;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const INTERVAL: &str = "OTEL_METRIC_EXPORT_INTERVAL";
/// As OpenTelemetry has it where nothing is said.
const USUAL_INTERVAL: Duration = Duration::from_secs(60);
/// A collector answers at once.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Events that wait for a collector that is away. Of more than that the oldest are left out.
const MOST_EVENTS: usize = 4096;
/// From one look for events to the next.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// Where a collector is.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Collector {
    host: String,
    path: String,
}

impl Collector {
    fn read(endpoint: &str) -> Result<Self, String> {
        let rest = endpoint.strip_prefix("http://");
        let rest = rest.ok_or_else(|| format!("{ENDPOINT} is {endpoint:?}: only http:// is spoken"))?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = if host.contains(':') { host.to_owned() } else { format!("{host}:4318") };
        Ok(Self { host, path: path.trim_end_matches('/').to_owned() })
    }

    fn post(&self, what: &str, content: &Value) -> Result<(), String> {
        let text = |error: std::io::Error| format!("{}: {error}", self.host);
        let mut addresses = self.host.to_socket_addrs().map_err(text)?;
        let address = addresses.next().ok_or_else(|| format!("{} has no address", self.host))?;
        let mut stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT).map_err(text)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT)).map_err(text)?;
        stream.set_write_timeout(Some(ANSWER_LIMIT)).map_err(text)?;
        let content = content.to_string();
        let (before, host, bytes) = (if self.path.is_empty() { "" } else { "/" }, &self.host, content.len());
        let path = format!("{before}{}/v1/{what}", self.path);
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n{content}"
        );
        stream.write_all(request.as_bytes()).map_err(text)?;
        let mut answer = [0; 64];
        let bytes = stream.read(&mut answer).map_err(text)?;
        let answer = String::from_utf8_lossy(&answer[..bytes]).into_owned();
        let status = answer.split(' ').nth(1).unwrap_or_default();
        if status.starts_with('2') { Ok(()) } else { Err(format!("{host} answers {status:?}")) }
    }
}

/// Sends for as long as the comb is there, from a thread of its own; where nothing says where to, not at all.
pub(crate) fn begin(directory: RuntimeDirectory) {
    let Ok(endpoint) = std::env::var(ENDPOINT) else { return };
    let collector = match Collector::read(&endpoint) {
        Ok(collector) => collector,
        Err(why) => return journal::write("dashboard", why),
    };
    let interval = std::env::var(INTERVAL).ok().and_then(|text| text.parse().ok()).map(Duration::from_millis);
    let interval = interval.unwrap_or(USUAL_INTERVAL);
    let send = move || send_for_ever(&collector, Looker::new(directory), interval);
    let _ = std::thread::Builder::new().name("comb-otlp".to_owned()).spawn(send);
}

fn send_for_ever(collector: &Collector, mut looker: Looker, interval: Duration) {
    let (mut events, mut next, mut was_away) = (Vec::new(), Instant::now(), false);
    loop {
        while let Some(event) = looker.next_event() {
            events.push(event);
        }
        events.drain(..events.len().saturating_sub(MOST_EVENTS));
        let sent = if events.is_empty() { Ok(()) } else { collector.post("logs", &logs(&events)) };
        if sent.is_ok() {
            events.clear();
        }
        let mut outcome = sent;
        if Instant::now() >= next {
            next = Instant::now() + interval;
            outcome = outcome.and(collector.post("metrics", &metrics(&looker.look())));
        }
        // Once for each time that it is away.
        if let Err(why) = &outcome
            && !was_away
        {
            journal::write("dashboard", format_args!("the collector does not take metrics: {why}"));
        }
        was_away = outcome.is_err();
        std::thread::sleep(BETWEEN_LOOKS.min(interval));
    }
}

fn attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn resource() -> Value {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    json!({ "attributes": [
        attribute("service.name", "comb"),
        attribute("service.version", env!("CARGO_PKG_VERSION")),
        attribute("host.name", &host),
    ] })
}

fn metrics(seen: &Snapshot) -> Value {
    let now = seen.at_ms.saturating_mul(1_000_000).to_string();
    let metric = |Family { name, kind, help, samples }: Family| {
        let points: Vec<Value> = samples
            .iter()
            .map(|sample| {
                let attributes: Vec<Value> =
                    sample.labels.iter().map(|(label, of)| attribute(label, of)).collect();
                json!({ "attributes": attributes, "timeUnixNano": now, "asDouble": sample.value })
            })
            .collect();
        let data = match kind {
            Kind::Counter => {
                json!({ "dataPoints": points, "aggregationTemporality": 2, "isMonotonic": true })
            }
            Kind::Gauge => json!({ "dataPoints": points }),
        };
        let how = if kind == Kind::Counter { "sum" } else { "gauge" };
        json!({ "name": name, "description": help, how: data })
    };
    let metrics: Vec<Value> =
        families(seen).into_iter().filter(|family| !family.samples.is_empty()).map(metric).collect();
    json!({ "resourceMetrics": [{ "resource": resource(), "scopeMetrics": [{ "scope": { "name": "comb" }, "metrics": metrics }] }] })
}

fn logs(events: &[Event]) -> Value {
    let record = |event: &Event| {
        let what = serde_json::to_value(&event.what).unwrap_or_default();
        let mut attributes = vec![attribute("comb.event", what["kind"].as_str().unwrap_or_default())];
        attributes.extend(event.what.cell().map(|cell| attribute("comb.cell", &cell.to_string())));
        attributes.push(attribute("comb.seq", &event.seq.to_string()));
        json!({
            "timeUnixNano": event.at_ms.saturating_mul(1_000_000).to_string(),
            "severityNumber": 9,
            "severityText": "INFO",
            "body": { "stringValue": event.text },
            "attributes": attributes,
        })
    };
    let records: Vec<Value> = events.iter().map(record).collect();
    json!({ "resourceLogs": [{ "resource": resource(), "scopeLogs": [{ "scope": { "name": "comb" }, "logRecords": records }] }] })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_endpoint_is_read_as_it_is_written_everywhere() {
        let read = |text| Collector::read(text).map(|collector| (collector.host, collector.path));
        assert_eq!(read("http://localhost:4318"), Ok(("localhost:4318".into(), String::new())));
        assert_eq!(read("http://collector/otlp/"), Ok(("collector:4318".into(), "otlp".into())));
        assert!(read("https://collector").unwrap_err().contains("only http"));
    }

    #[test]
    fn metrics_and_events_come_to_a_collector() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let collector = Collector::read(&format!("http://{}/x", listener.local_addr().unwrap())).unwrap();
        let taken = std::thread::spawn(move || {
            let take = |_| {
                let (mut stream, _) = listener.accept().unwrap();
                let (mut said, mut piece) = (Vec::new(), [0; 65_536]);
                loop {
                    let bytes = stream.read(&mut piece).unwrap();
                    said.extend_from_slice(&piece[..bytes]);
                    let text = String::from_utf8_lossy(&said).into_owned();
                    let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
                    if body.len() == length.unwrap().parse::<usize>().unwrap() {
                        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap();
                        return (
                            head.lines().next().unwrap().to_owned(),
                            serde_json::from_str::<Value>(body).unwrap(),
                        );
                    }
                }
            };
            [0, 1].map(take)
        });
        collector.post("metrics", &metrics(&crate::metrics::tests::scene())).unwrap();
        let event = r#"{"seq":3,"at_ms":1,"at_ns":2,"kind":"cell_up","cell":2,"incarnation":4,"text":"cell 2 is up"}"#;
        collector.post("logs", &logs(&[serde_json::from_str(event).unwrap()])).unwrap();
        let [(to_metrics, metrics), (to_logs, logs)] = taken.join().unwrap();
        assert_eq!(
            (to_metrics.as_str(), to_logs.as_str()),
            ("POST /x/v1/metrics HTTP/1.1", "POST /x/v1/logs HTTP/1.1")
        );
        let all = metrics["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap().clone();
        let of = |name: &str| all.iter().find(|metric| metric["name"] == name).unwrap().clone();
        assert_eq!(of("comb_cell_up")["gauge"]["dataPoints"][0]["asDouble"], 1.0);
        assert_eq!(of("comb_region_misses_total")["sum"]["isMonotonic"], true);
        let record = &logs["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
        assert_eq!(
            (&record["body"]["stringValue"], &record["attributes"][1]["value"]["stringValue"]),
            (&json!("cell 2 is up"), &json!("2"))
        );
    }
}
