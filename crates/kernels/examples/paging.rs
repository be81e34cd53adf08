//! What paging takes under the host and under kernels that do it themselves: `paging [ROUNDS]`.

use comb_kernels::measure::{Work, measure};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(3), |rounds| rounds.parse())?;
    for work in [Work::MP3D, Work::DATABASE] {
        let measured = measure(work, "/var/tmp".as_ref(), rounds, &|_| {})?;
        println!("{work:?}: {measured:.2?}");
    }
    Ok(())
}
