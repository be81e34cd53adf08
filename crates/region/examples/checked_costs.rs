//! What misses, fences and calls cost where a program's own code looks for its rights.
//! Run: `cargo run --release -p comb-region --example checked_costs`

use comb_region::Task;
use comb_region::launch::Launch;
use comb_region::task::{Description, Share};

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    if Description::from_environment().is_err() {
        let outcome = Launch::new(std::env::current_exe()?).components(2).share(Share::Copy).start()?.wait();
        return if outcome.is_success() { Ok(()) } else { Err("a component has failed".into()) };
    }
    let task = Task::join()?;
    for block_bytes in [128, 1024, 4096] {
        if let Some(costs) = task.measure_checked(block_bytes)? {
            println!("blocks of {block_bytes} bytes, nanoseconds (median, 99th of a hundred):");
            println!("  read miss {:?}, write miss {:?}", costs.read_miss, costs.write_miss);
            println!("  miss that finds the right {:.0}", costs.found);
            println!(
                "  fence beside a thread that computes {:?}, alone {:.0}",
                costs.fence, costs.fence_alone
            );
        }
    }
    Ok(())
}
