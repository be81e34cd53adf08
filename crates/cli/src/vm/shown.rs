//! What is shown of images and machines.

use std::net::Ipv4Addr;
use std::process::ExitCode;

use comb_vm::control::{Machines, Shown, proportional_bytes};
use comb_vm::image::Image;
use comb_vm::names::Name;
use comb_vm::snapshot::{Of, Snapshot};
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::table;

pub(super) fn image(image: &Image) -> Value {
    json!({
        "name": image.name.as_str(),
        "kernel": image.kernel_version,
        "root_bytes": image.root_bytes,
        "directory": image.directory,
    })
}

pub(super) fn images(images: &[Image], output: Output) -> Result<(), Failure> {
    let objects: Vec<Value> = images.iter().map(image).collect();
    output.show(&objects, || {
        if images.is_empty() {
            return "there are no images: `comb vm create small --from-debian` makes one\n".to_owned();
        }
        let mut rows = vec![["IMAGE", "KERNEL", "ROOT", "DIRECTORY"].map(String::from).to_vec()];
        rows.extend(images.iter().map(|image| {
            let directory = image.directory.display().to_string();
            vec![
                image.name.to_string(),
                image.kernel_version.clone(),
                table::bytes(image.root_bytes),
                directory,
            ]
        }));
        table::format(&rows)
    })
}

pub(super) fn snapshot(name: &Name, snapshot: &Snapshot) -> Value {
    let Of { machine, image, hardware } = &snapshot.of;
    json!({
        "name": name.as_str(),
        "machine": machine,
        "image": image,
        "memory_bytes": hardware.memory_bytes,
        "bytes": snapshot.bytes(),
    })
}

pub(super) fn snapshots(all: &[(Name, Snapshot)], output: Output) -> Result<(), Failure> {
    let objects: Vec<Value> = all.iter().map(|(name, one)| snapshot(name, one)).collect();
    output.show(&objects, || {
        if all.is_empty() {
            return "there are no snapshots: `comb vm snapshot MACHINE NAME` makes one\n".to_owned();
        }
        let mut rows = vec![["SNAPSHOT", "MACHINE", "IMAGE", "MEMORY", "SIZE"].map(String::from).to_vec()];
        rows.extend(all.iter().map(|(name, one)| {
            let memory = table::bytes(one.of.hardware.memory_bytes);
            vec![
                name.to_string(),
                one.of.machine.clone(),
                one.of.image.clone(),
                memory,
                table::bytes(one.bytes()),
            ]
        }));
        table::format(&rows)
    })
}

pub(super) fn object(shown: &Shown, host_bytes: Option<u64>) -> Value {
    json!({
        "name": shown.name,
        "image": shown.image,
        "is_clone": shown.is_clone,
        "state": shown.state.as_str(),
        "cell": shown.cell,
        "engine": shown.engine,
        "monitor": shown.monitor,
        "accelerator": shown.hardware.accelerator.as_str(),
        "processors": shown.hardware.processors,
        "memory_bytes": shown.memory.bytes,
        "least_bytes": shown.hardware.memory_bytes,
        "most_bytes": shown.hardware.most_bytes.max(shown.hardware.memory_bytes),
        "wanted_bytes": shown.memory.wanted_bytes,
        "came_bytes": shown.memory.came_bytes,
        "went_bytes": shown.memory.went_bytes,
        "guest_total_bytes": shown.guest.total_bytes,
        "guest_available_bytes": shown.guest.available_bytes,
        "guest_idle_ms": shown.guest.idle_ms,
        "guest_stalled_us": shown.guest.stalled_us,
        "host_bytes": host_bytes,
        "begun_us": shown.begun_us,
        "age_ms": shown.age_ms,
        "replaced": shown.replaced,
        "address": shown.address.map(|address| Ipv4Addr::from(address).to_string()),
        "disk_servers": shown.disk_servers,
        "disk_restarts": shown.disk_restarts,
        "longest_gap_us": shown.longest_gap_us,
        "usual_gap_us": shown.usual_gap_us,
        "files": shown.files.iter().map(|files| files.shelf.as_str()).collect::<Vec<_>>(),
    })
}

fn age(ms: u64) -> String {
    match ms / 1000 {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

fn row(shown: &Shown, host_bytes: Option<u64>) -> Vec<String> {
    let used = shown.guest.total_bytes.min(shown.memory.bytes).saturating_sub(shown.guest.available_bytes);
    let dash = || "-".to_owned();
    vec![
        shown.name.clone(),
        shown.image.clone(),
        shown.state.as_str().to_owned(),
        shown.cell.map_or_else(dash, |cell| cell.to_string()),
        format!("{} of {}", table::bytes(used), table::bytes(shown.memory.bytes)),
        host_bytes.map_or_else(dash, table::bytes),
        #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
        shown.begun_us.map_or_else(dash, |took| format!("{:.2} s", took as f64 / 1e6)),
        age(shown.age_ms),
        shown.replaced.to_string(),
        shown.address.map_or_else(dash, |address| Ipv4Addr::from(address).to_string()),
    ]
}

/// What is said of a machine whose monitor does not answer.
const SILENT: &str = "silent";

pub(super) fn list(machines: &Machines, output: Output) -> Outcome {
    let with_bytes = |shown: Shown| {
        let bytes = proportional_bytes(shown.engine);
        (shown, bytes)
    };
    let all = machines.show_all().into_iter().map(|(name, shown)| (name, shown.map(with_bytes)));
    let all: Vec<_> = all.collect();
    let objects: Vec<Value> = all
        .iter()
        .map(|(name, shown)| match shown {
            Some((shown, bytes)) => object(shown, *bytes),
            None => json!({ "name": name.as_str(), "state": SILENT }),
        })
        .collect();
    output.show(&objects, || {
        if all.is_empty() {
            return "no machines run: `comb vm clone IMAGE` starts one\n".to_owned();
        }
        let heading = [
            "MACHINE", "IMAGE", "STATE", "CELL", "USES", "OF HOST", "BEGAN IN", "AGE", "REPLACED", "ADDRESS",
        ];
        let mut rows = vec![heading.map(String::from).to_vec()];
        let columns = heading.len();
        rows.extend(all.iter().map(|(name, shown)| match shown {
            Some((shown, bytes)) => row(shown, *bytes),
            None => {
                let known = [name.to_string(), "-".into(), SILENT.into()];
                known.into_iter().chain(std::iter::repeat_n("-".into(), columns - 3)).collect()
            }
        }));
        table::painted(
            &rows,
            output,
            |column, text| {
                if column == 2 { table::state_colour(text) } else { None }
            },
        )
    })?;
    Ok(ExitCode::SUCCESS)
}
