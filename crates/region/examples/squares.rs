//! The components of a task fill an array together. Run: `comb run -n 4 -- target/release/examples/squares`

use comb_region::{Array, Task, Terms};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let task = Task::join()?;
    let squares = Array::<u64>::together(&task, 1000, &Terms::default())?;
    let (rank, count) = (task.rank() as usize, task.count() as usize);
    for index in (rank..squares.len()).step_by(count) {
        squares.set(index, (index * index) as u64);
    }
    task.barrier();
    let sum: u64 = (0..squares.len()).map(|index| squares.get(index)).sum();
    println!("component {rank} of {count}: the sum of the first thousand squares is {sum}");
    Ok(())
}
