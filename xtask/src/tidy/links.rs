//! Markdown links to files of this repository.

use super::{File, Finding};

/// Finds relative links in a Markdown file that lead to no file or directory of the repository. One that is only on
/// this disk, built or forgotten, does not count: a reader elsewhere does not have it.
pub(super) fn missing(file: &File, files: &[File], findings: &mut Vec<Finding>) {
    let mut fence = None;
    for (number, line) in file.lines() {
        let start = line.trim_start();
        match (fence, ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark))) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
            (None, None) => {
                for target in targets(&without_code(line)) {
                    if !leads_somewhere(target, &file.path, files) {
                        findings.push(Finding::new(
                            &file.path,
                            number,
                            format!("the link to {target} leads nowhere"),
                        ));
                    }
                }
            }
        }
    }
}

/// The line with what stands between back-quotes blanked.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("` `")
}

/// What the links of a line point to: `](target)`, `](target "title")`, and `[name]: target` at its start.
fn targets(line: &str) -> Vec<&str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let definition = line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    let named = definition.and_then(|(_, rest)| rest.split_whitespace().next());
    inline.chain(named).map(|target| target.trim_matches(['<', '>'])).collect()
}

fn leads_somewhere(target: &str, from: &str, files: &[File]) -> bool {
    let has_scheme = target.split(['/', '#']).next().is_some_and(|start| start.contains(':'));
    let path = target.split(['#', '?']).next().unwrap_or_default();
    if has_scheme || path.is_empty() {
        return true;
    }
    let Some(path) = resolve(path, from) else { return false };
    let directory = format!("{path}/");
    path.is_empty() || files.iter().any(|file| file.path == path || file.path.starts_with(&directory))
}

/// A link's path from the root; none if it leaves the repository. A leading slash means the root.
fn resolve(path: &str, from: &str) -> Option<String> {
    let mut parts: Vec<&str> = if path.starts_with('/') { Vec::new() } else { from.split('/').collect() };
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::file;
    use super::*;

    fn found(text: &str) -> usize {
        let files =
            ["README.md", "docs/GLOSSARY.md", "docs/papers/hive.md", "docs/a.md"].map(|path| file(path, ""));
        let mut findings = Vec::new();
        missing(&file("docs/a.md", text), &files, &mut findings);
        findings.len()
    }

    #[test]
    fn a_link_is_followed_from_its_file() {
        for target in [
            "GLOSSARY.md",
            "./GLOSSARY.md#cell",
            "../README.md",
            "papers/hive.md",
            "papers/",
            "papers",
            "/README.md",
            "..",
        ] {
            assert_eq!(found(&format!("see [it]({target}).\n")), 0, "{target}");
        }
        for target in
            ["README.md", "../GLOSSARY.md", "papers/disco.md", "../../README.md", "/docs/b.md", "paper"]
        {
            assert_eq!(found(&format!("see [it]({target}).\n")), 1, "{target}");
        }
    }

    #[test]
    fn every_form_of_link_is_seen() {
        assert_eq!(found("[a](GLOSSARY.md) [b](no.md) ![c](no.png \"title\")\n"), 2);
        assert_eq!(found("[name]: no.md\n"), 1);
        assert_eq!(found("[name]: GLOSSARY.md \"title\"\n"), 0);
    }

    #[test]
    fn what_is_no_file_of_ours_is_left_alone() {
        assert_eq!(found("[a](https://example.org/no.md) [b](mailto:a@example.org) [c](#part)\n"), 0);
        assert_eq!(found("`[a](no.md)` and `x[0](y)`\n"), 0);
        assert_eq!(found("```\n[a](no.md)\n```\n"), 0);
        assert_eq!(found("```\n[a](no.md)\n```\n[a](no.md)\n"), 1);
    }
}
