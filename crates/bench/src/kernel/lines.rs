//! How much code the supervisor is.

use std::fs;
use std::path::Path;

/// What of it is about memory.
const OF_MEMORY: [&str; 8] = [
    "space.rs",
    "mapper.rs",
    "stem.rs",
    "frames.rs",
    "userfaultfd.rs",
    "mappings.rs",
    "physical_map.rs",
    "record.rs",
];

/// What is not of it: tests, programs to try it with, and what runs in kernels' processes.
const NOT_OF_IT: [&str; 10] = [
    "tests.rs",
    "tests",
    "model.rs",
    "random.rs",
    "check.rs",
    "world.rs",
    "naive.rs",
    "programs.rs",
    "client.rs",
    "client",
];

/// Lines of code of memory, and of all: neither empty nor comments. Nothing where the source is not at hand.
pub(super) fn counted() -> [Option<f64>; 2] {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel/src");
    let mut counts = [0_u32; 2];
    if count(&source, &mut counts).is_err() {
        return [None; 2];
    }
    counts.map(|count| Some(f64::from(count)))
}

fn count(folder: &Path, counts: &mut [u32; 2]) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if NOT_OF_IT.contains(&&*name) {
            continue;
        }
        if path.is_dir() {
            count(&path, counts)?;
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
        let lines = u32::try_from(text.lines().filter(is_code).count()).unwrap_or(u32::MAX);
        counts[1] += lines;
        if OF_MEMORY.contains(&&*name) {
            counts[0] += lines;
        }
    }
    Ok(())
}
