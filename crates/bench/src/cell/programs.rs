//! Programs of `apps` on the cells of a comb, beside threads of one process (Hive, Table 7.2).

use super::comb::Comb;
use super::measured::Measured;
use crate::cc::programs::{Compiler, Ran, Way, Workshop};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Hive's two, and one that has much to do with the others' memory.
pub(crate) const PROGRAMS: [&str; 3] = ["ocean", "raytrace", "radix"];
/// As many threads as Hive's machine had processors.
const THREADS: u32 = 4;
/// Cells, with a component and its share of the threads each.
pub(crate) const CELLS: [u32; 3] = [1, 2, 4];
const SIZE: &str = "medium";
const PAIRS: usize = 3;
const FULL_PAIRS: usize = 11;

/// By samples `PROGRAM threads`, `PROGRAM on N` cells, and `PROGRAM outside` of them, in seconds; and `PROGRAM on N by threads`, `PROGRAM in cells by outside` of each round.
pub(super) fn measure(measured: &mut Measured, comb: &Comb, full: bool, say: &dyn Fn(&str)) -> Outcome<()> {
    say("compiling");
    let shop = Workshop::open()?;
    for compiler in [Compiler::Plain, Compiler::Page] {
        shop.build(compiler)?;
    }
    let directory = comb.path().display().to_string();
    for round in 1..=if full { FULL_PAIRS } else { PAIRS } {
        for name in PROGRAMS {
            say(&format!("{name}, round {round}"));
            let run = |way: &Way, compiler| match way.run(&shop.program(compiler, name))? {
                Ran::Seconds(seconds) => Ok(seconds),
                Ran::Unfinished(after) => Err(format!("{name} was not over after {after} s")),
            };
            let threads = run(&Way::alone(THREADS, SIZE), Compiler::Plain)?;
            measured.add(format!("{name} threads"), threads);
            let on = |cells: u32, places: &str| {
                let spread = format!("fill:{}", THREADS / cells);
                let mut way = Way::task(cells, THREADS, SIZE, &["--cells", places, "--spread", &spread]);
                way.variables = vec![("COMB_RUNTIME_DIR", directory.clone())];
                run(&way, Compiler::Page)
            };
            for cells in CELLS {
                let seconds = on(cells, "all")?;
                measured.add(format!("{name} on {cells}"), seconds);
                measured.add(format!("{name} on {cells} by threads"), seconds / threads);
            }
            let outside = on(THREADS, "none")?;
            measured.add(format!("{name} outside"), outside);
            if let Some(inside) = measured.all(&format!("{name} on {THREADS}")).last().copied() {
                measured.add(format!("{name} in cells by outside"), inside / outside);
            }
        }
    }
    Ok(())
}
