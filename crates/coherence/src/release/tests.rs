use super::*;

#[path = "model.rs"]
mod model;
use model::Bounds;

fn bounds(protocol: Release) -> Bounds {
    Bounds { protocol, cells: 3, homes: 1, blocks: 1, bytes: 2, sections: 3, evictions: 0, mortal: None }
}

fn both(check: impl Fn(Bounds)) {
    [Release::invalidating(), Release::updating()].map(bounds).into_iter().for_each(check);
}

#[test]
fn model_three_cells_write_a_block_at_once() {
    both(Bounds::look_at_all);
}

#[test]
fn model_evictions() {
    both(|bounds| Bounds { evictions: 1, ..bounds }.look_at_all());
}

#[test]
fn model_a_cell_dies() {
    both(|bounds| Bounds { mortal: Some(2), ..bounds }.look_at_all());
}

#[test]
fn model_a_home_dies() {
    both(|bounds| {
        Bounds { cells: 2, homes: 2, blocks: 2, bytes: 1, mortal: Some(0), ..bounds }.look_at_all()
    });
}

#[test]
fn many_sections() {
    both(|bounds| {
        for seed in 0..2000 {
            let bounds = bounds.clone();
            Bounds {
                cells: 5,
                homes: 2,
                blocks: 2,
                bytes: 3,
                sections: 25,
                evictions: 6,
                mortal: Some(3),
                ..bounds
            }
            .walk(seed, 1000);
        }
    });
}
