//! The benchmark of paging, with less work. Its process is in a group of limited memory for a time, so that it runs alone.

use comb_kernels::measure::{OWN_BYTES, Work, measure};

/// Where no group of processes can be limited it says why.
#[test]
fn what_is_measured_is_the_same_work() {
    for work in [
        Work::Mp3d { molecules: 480_000, steps: 2 },
        Work::Database { leaves: 8_192, scans: 2, leaves_a_lookup: 1024 },
    ] {
        match measure(work, "/var/tmp".as_ref(), 1, &|_| {}) {
            Ok(measured) => {
                assert_eq!([measured.ours.len(), measured.host.len(), measured.advised.len()], [1; 3]);
                assert!(measured.memory_bytes * 2 >= measured.file_bytes);
                // What a process has is limited, and not only said to be.
                let peak = measured.peak_bytes.expect("the host says what it limits");
                assert!(peak <= measured.memory_bytes + OWN_BYTES, "{measured:?}");
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("memory cgroup") || text.contains("is on no disk"), "{text}");
            }
        }
    }
}
