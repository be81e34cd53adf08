//! The kernel of docs/kernel-tutorial.md does what is said of it.

#[path = "../examples/backwards.rs"]
#[expect(dead_code, reason = "it is a program of its own")]
mod backwards;

use comb_kernels::memory::Clock;

#[test]
fn the_kernel_of_the_tutorial_reads_each_page_once_and_faults_less() {
    const PAGES: usize = 1000;
    let path = std::env::temp_dir().join(format!("comb-kernel-tutorial-{}", std::process::id()));
    let content: Vec<u8> =
        (0..PAGES * 4096).map(|at| u8::try_from(at / 4096 % 251).expect("it is small")).collect();
    std::fs::write(&path, &content).expect("a file");
    let expected: u64 = content.iter().step_by(4096).map(|byte| u64::from(*byte)).sum();
    let with_clock = backwards::sum(&path, Box::<Clock>::default());
    let with_backwards = backwards::sum(&path, Box::new(backwards::Backwards));
    std::fs::remove_file(&path).expect("it was made");
    let ((sum, clock), (same, own)) = (with_clock.expect("it runs"), with_backwards.expect("it runs"));
    assert_eq!([sum, same], [expected; 2]);
    // And the page of its code.
    assert_eq!([clock.read, own.read], [PAGES as u64 + 1; 2]);
    assert!(own.faults * 3 < clock.faults * 2, "{own:?} {clock:?}");
    // All but the first of what it needs is there already.
    assert!(own.here + 2 >= own.faults, "{own:?}");
}

/// What stands in the tutorial stands in the program.
#[test]
fn the_tutorial_shows_the_program() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| std::fs::read_to_string(root.join(name)).expect("a file of this repository");
    let (text, program) = (read("../../docs/kernel-tutorial.md"), read("examples/backwards.rs"));
    let shown: Vec<&str> =
        text.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(shown.len() >= 3);
    for part in shown {
        assert!(program.contains(part), "not in examples/backwards.rs:\n{part}");
    }
}
