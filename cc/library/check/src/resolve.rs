//! Which symbols instrumented objects need that nothing has.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::path::PathBuf;

use crate::lists::Lists;
use crate::objects::{Object, ObjectError, read_all};

/// A function, or variable, that instrumented code uses and that may touch memory which is not here.
#[derive(Debug, PartialEq, Eq)]
pub struct Uncovered {
    /// Its name in objects.
    pub symbol: String,
    /// The first object that needs it.
    pub file: String,
    /// What to do about it, where that is known.
    pub advice: Option<String>,
}

impl fmt::Display for Uncovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} is not covered", self.file, self.symbol)?;
        self.advice.as_ref().map_or(Ok(()), |advice| write!(f, ": {advice}"))
    }
}

/// The symbols, in order, that instrumented objects among these files need, and that neither an instrumented object nor a list has.
pub fn uncovered(lists: &Lists, files: &[PathBuf]) -> Result<Vec<Uncovered>, ObjectError> {
    let objects = read_all(files)?;
    let linked = linked(&objects);
    let instrumented = || linked.iter().filter(|object| object.is_instrumented());
    let defined: BTreeSet<&String> = instrumented().flat_map(|object| &object.defined).collect();

    let mut missing: BTreeMap<&String, &Object> = BTreeMap::new();
    for object in instrumented().filter(|object| !object.is_linked) {
        for symbol in &object.needed {
            if !defined.contains(symbol) && !lists.has(symbol) {
                missing.entry(symbol).or_insert(object);
            }
        }
    }
    let advice = |symbol: &String| {
        lists.advice(symbol).map(str::to_owned).or_else(|| {
            let plain = linked.iter().find(|object| object.defined.contains(symbol))?;
            Some(format!("{} defines it: compile that with combcc", plain.name))
        })
    };
    Ok(missing
        .into_iter()
        .map(|(symbol, object)| Uncovered {
            symbol: symbol.clone(),
            file: object.name.clone(),
            advice: advice(symbol),
        })
        .collect())
}

/// Whether instrumented objects among these files need a symbol of a kind, and none of them defines it.
pub fn lack(files: &[PathBuf], kind: impl Fn(&str) -> bool) -> Result<bool, ObjectError> {
    let objects = read_all(files)?;
    let is_defined = |symbol: &String| objects.iter().any(|object| object.defined.contains(symbol));
    let mut needed =
        objects.iter().filter(|object| object.is_instrumented()).flat_map(|object| &object.needed);
    Ok(needed.any(|symbol| kind(symbol) && !is_defined(symbol)))
}

/// The objects that the linker takes: all but members of archives that nothing needs.
fn linked(objects: &[Object]) -> Vec<&Object> {
    let (mut waiting, mut linked): (Vec<&Object>, Vec<&Object>) =
        objects.iter().partition(|object| object.is_member);
    let mut defined: HashSet<&String> = linked.iter().flat_map(|object| &object.defined).collect();
    let mut needed: HashSet<&String> = linked.iter().flat_map(|object| &object.needed).collect();
    // One at a time: what it defines, the next need not.
    while let Some(index) = waiting.iter().position(|object| {
        object.defined.iter().any(|symbol| needed.contains(symbol) && !defined.contains(symbol))
    }) {
        let next = waiting.remove(index);
        defined.extend(&next.defined);
        needed.extend(&next.needed);
        linked.push(next);
    }
    linked
}
