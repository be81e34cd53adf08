//! What somebody meant who has misspelt a name.

/// The end of a sentence about a word that is not known: `; did you mean tally?`, or nothing.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    closest(word, known).map_or_else(String::new, |meant| format!("; did you mean {meant}?"))
}

/// The known name that is closest, if one is close.
pub(crate) fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A third of the letters: a word of two has to be right but for one.
    let most = (word.chars().count().max(3)) / 3;
    known
        .into_iter()
        .map(|name| (distance(word, name), name))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// How many letters have to be put in, left out, replaced, or swapped with their neighbours.
fn distance(one: &str, other: &str) -> usize {
    let lower = |text: &str| text.chars().map(|c| c.to_ascii_lowercase()).collect::<Vec<char>>();
    let (one, other) = (lower(one), lower(other));
    let mut rows = vec![(0..=other.len()).collect::<Vec<usize>>()];
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let replaced = rows[i][j] + usize::from(a != b);
            let mut least = replaced.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_what_fingers_do_wrong() {
        for (one, other, steps) in [
            ("tally", "tally", 0),
            ("taly", "tally", 1),
            ("tlaly", "tally", 1),
            ("tell", "tally", 2),
            ("", "ab", 2),
        ] {
            assert_eq!(distance(one, other), steps, "{one} {other}");
            assert_eq!(distance(other, one), steps, "{other} {one}");
        }
    }

    #[test]
    fn only_what_is_close_is_meant() {
        let known = ["membarrier", "landlock", "cgroups"];
        assert_eq!(closest("membarier", known), Some("membarrier"));
        assert_eq!(closest("Landlok", known), Some("landlock"));
        assert_eq!(closest("fuse", known), None);
        assert_eq!(did_you_mean("cgroup", known), "; did you mean cgroups?");
        assert_eq!(did_you_mean("x", []), "");
    }
}
