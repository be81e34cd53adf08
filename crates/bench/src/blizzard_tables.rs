//! Blizzard's Tables 2 and 4 as figures: what each way of access control costs, there and here.

use crate::figure::{Curve, Drawing, Figure};
use crate::reproduce::Item;

/// A system's rows, by how their names begin, and its lines' labels: here, and in the paper.
struct System {
    here: &'static str,
    there: Option<&'static str>,
    rows: [&'static str; 3],
}

const TABLE_2: [System; 4] = [
    System {
        here: "check (S)",
        there: Some("Blizzard-S"),
        rows: [
            "Table 2, Blizzard-S, lookup, no action",
            "Table 2, Blizzard-S, invocation",
            "Table 2, Blizzard-S, remote miss",
        ],
    },
    System {
        here: "hybrid (ES), stores",
        there: Some("Blizzard-ES, stores"),
        rows: [
            "Table 2, Blizzard-ES, stores, lookup, no action",
            "Table 2, Blizzard-ES, stores, invocation",
            "Table 2, Blizzard-ES, remote miss",
        ],
    },
    System {
        here: "mmu (E)",
        there: Some("Blizzard-E"),
        rows: [
            "Table 2, Blizzard-E, lookup, no action",
            "Table 2, Blizzard-E, invocation",
            "Table 2, Blizzard-E, remote miss",
        ],
    },
    System {
        here: "page (P)",
        there: None,
        rows: [
            "Table 2, page (P), not in the table, lookup, no action",
            "Table 2, page (P), not in the table, invocation",
            "Table 2, page (P), not in the table, remote miss",
        ],
    },
];

const PROGRAMS: [&str; 6] = ["Appbt", "Barnes", "Mp3d", "Ocean", "Tomcatv", "Water"];

/// Of the rows that `comb reproduce blizzard` prints.
pub(crate) fn drawings(rows: &[Item]) -> Vec<Drawing> {
    vec![table_2(rows), table_4(rows)]
}

/// At 1, 2, 3 …; what has no value, or none that a logarithmic axis has, is no point.
fn curve(label: &'static str, values: impl IntoIterator<Item = Option<f64>>) -> Curve {
    let point =
        |(place, value): (u32, Option<f64>)| Some((f64::from(place), value.filter(|value| *value > 0.0)?));
    Curve { label, points: (1..).zip(values).filter_map(point).collect() }
}

fn table_2(rows: &[Item]) -> Drawing {
    let row = |name: &str| rows.iter().find(|row| row.item == name);
    let mut curves = Vec::new();
    for System { here, there, rows } in &TABLE_2 {
        curves.push(curve(here, rows.iter().map(|name| row(name)?.measured)));
        if let Some(there) = there {
            curves.push(curve(there, rows.iter().map(|name| row(name)?.paper_value)));
        }
    }
    Figure {
        name: "blizzard-table-2",
        title: "Access control (Blizzard, Table 2), here and in the paper",
        x: "1: a lookup without action, 2: invocation of a handler, 3: a remote miss (what costs nothing is left out)",
        y: "cycles",
    }
    .of(curves)
}

fn table_4(rows: &[Item]) -> Drawing {
    let systems = [
        ("Blizzard-S", "check (S)", "S, 32 nodes of 1994"),
        ("Blizzard-ES", "hybrid (ES)", "ES, 32 nodes of 1994"),
        ("Blizzard-P", "page (P)", "P, 32 nodes of 1994"),
    ];
    let mut curves = Vec::new();
    for (system, here, there) in systems {
        let found = PROGRAMS.map(|program| {
            let name = format!("Table 4, {program}, {system}, by Blizzard-E");
            rows.iter().find(|row| row.item == name)
        });
        curves.push(curve(here, found.map(|row| row?.measured)));
        curves.push(curve(there, found.map(|row| row?.paper_value)));
    }
    Figure {
        name: "blizzard-table-4",
        title: "Programs (Blizzard, Table 4), two components with copies",
        x: "1: Appbt, 2: Barnes, 3: Mp3d, 4: Ocean, 5: Tomcatv, 6: Water",
        y: "time by that of Blizzard-E, mmu",
    }
    .of(curves)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::{self, figure_1};
    use crate::memory::Measured;

    /// The names are those of the rows: the paper's values are found without any measurement.
    #[test]
    fn each_row_that_a_figure_wants_is_there() {
        let rows = crate::blizzard_items::blizzard(
            &Measured::default(),
            &cc::Measured::default(),
            &figure_1::Measured::default(),
        );
        for System { rows: names, .. } in &TABLE_2 {
            for name in names {
                assert!(rows.iter().any(|row| row.item == *name), "{name}");
            }
        }
        let points = |drawing: &Drawing, label: &str| {
            drawing.curves.iter().find(|curve| curve.label == label).expect(label).points.clone()
        };
        let [table_2, table_4] = &drawings(&rows)[..] else { panic!("two") };
        assert_eq!(points(table_2, "Blizzard-S"), [(1.0, 18.0), (2.0, 25.0), (3.0, 6000.0)]);
        assert_eq!(points(table_2, "Blizzard-E"), [(2.0, 250.0), (3.0, 6000.0)], "a lookup is free there");
        assert_eq!(points(table_4, "P, 32 nodes of 1994").len(), PROGRAMS.len());
        assert_eq!(points(table_4, "page (P)"), [], "nothing was measured");
    }
}
