//! Several hosts, all of which are this one: what another host's part of a task does, the test program does itself.

use comb_region::launch::Launch;

/// Set where the program is a host's part of a task.
const PART: &str = "COMB_TEST_PART";

/// To be called by a test named `part`: it is a host's part of a task that [`on`] prepared, and in the test program itself nothing.
pub(crate) fn serve() {
    if std::env::var_os(PART).is_some() {
        let output = std::fs::File::options().write(true).open("/proc/self/fd/3").expect("as part.sh has it");
        comb_region::launch::serve_part(std::io::stdin(), output, None, None).expect("served");
    }
}

/// A task with so many components on each host.
pub(crate) fn on(launch: Launch, hosts: &[u32]) -> Launch {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../region/tests/hosts/part.sh");
    let host = |(number, count)| format!("h{number}=127.0.0.{number}:{count}").parse().expect("a host");
    launch
        .components(hosts.iter().sum())
        .hosts((2..).zip(hosts).map(host))
        .shell(&format!("sh {script}"))
        .comb(std::env::current_exe().unwrap())
}
