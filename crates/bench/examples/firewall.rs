//! Prints what the firewall costs: `cargo run --release -p comb-bench --example firewall`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if comb_bench::firewall::be_an_importer()? {
        return Ok(());
    }
    for row in comb_bench::firewall::rows()? {
        println!(
            "{:>10.2} µs (goal {:>6.1}) {}",
            row.nanoseconds / 1e3,
            row.goal_nanoseconds / 1e3,
            row.test
        );
    }
    Ok(())
}
