//! Which cells a task depends on, and why: it fails with any of them, and with no other.

use comb_containment::dependencies::{Dependencies, Reason};
use comb_host::tasks::TaskRecord;
use comb_region::named::Status;
use comb_types::CellId;

/// What a task depends on, with the words for it. `regions`: what the homes of all regions say, each with its cell.
pub fn of(task: &TaskRecord, regions: &[(u32, Status)]) -> (Dependencies, Vec<(u32, String)>) {
    let (mut depends, mut words) = (Dependencies::new(), Vec::new());
    for (rank, seat) in task.seats.iter().enumerate() {
        depends.add(CellId(seat.cell), Reason::Component);
        words.push((seat.cell, format!("component {rank} runs there")));
    }
    for (cell, region) in regions {
        let ranks: Vec<String> = (0..)
            .zip(&task.seats)
            .filter(|(_, seat)| seat.process != 0 && region.processes.contains(&seat.process))
            .map(|(rank, _): (u32, _)| rank.to_string())
            .collect();
        if !ranks.is_empty() {
            depends.add(CellId(*cell), Reason::Region);
            let who = if ranks.len() == 1 { "component" } else { "components" };
            words.push((*cell, format!("region {} lives there ({who} {})", region.name, ranks.join(", "))));
            if let Some(home) = region.memory_home {
                depends.add(CellId(home), Reason::Frames);
                words.push((home, format!("page frames of region {} are from there", region.name)));
            }
            for &above in region.ancestors.iter().filter(|above| *above != cell) {
                depends.add(CellId(above), Reason::Ancestor);
                words.push((above, format!("what region {} has not got yet is there", region.name)));
            }
        }
    }
    (depends, words)
}
