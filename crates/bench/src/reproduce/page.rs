//! The page of all findings: one file, which asks nobody for anything.

use std::fmt::Write;
use std::time::Duration;

use super::findings::{Findings, Part, Run};
use super::item::{Counts, Item, State, readable};
use super::markup::{Escaped, Prose};
use super::paper::Paper;

const STYLE: &str = include_str!("page.css");
const TITLE: &str = "What the papers claim, measured here";
const LEAD: &str = "Same experiment, today's hardware. A paper's own numbers are history: they are of machines of ten to thirty years ago, and stand beside ours for the record, \
                    never as opponents. What ours is compared with is the classic way, measured beside it in the same run.";

/// What the page says of one paper.
struct Chapter<'a> {
    name: &'a str,
    title: &'a str,
    source: String,
    /// Whether any command measures it.
    is_measured: bool,
    part: Option<&'a Part>,
    /// As they were measured, or as they wait.
    items: Vec<Item>,
}

impl Chapter<'_> {
    fn run(&self) -> Option<&Run> {
        self.part?.run.as_ref()
    }
}

/// Papers that this comb does not know come last: another version has measured them.
fn chapters(findings: &Findings) -> Vec<Chapter<'_>> {
    let items = |part: Option<&Part>| Some(part?.run.as_ref()?.items.clone());
    let known = Paper::ALL.into_iter().map(|paper| {
        let part = findings.of(paper.name());
        Chapter {
            name: paper.name(),
            title: paper.title(),
            source: paper.source(),
            is_measured: paper.takes().is_some(),
            part,
            items: items(part).unwrap_or_else(|| paper.unmeasured()),
        }
    });
    let is_known = |part: &&Part| Paper::ALL.into_iter().any(|paper| paper.name() == part.paper);
    let others = findings.papers.iter().filter(|part| !is_known(part)).map(|part| Chapter {
        name: &part.paper,
        title: &part.paper,
        source: "A paper that this version of comb does not know".to_owned(),
        is_measured: true,
        part: Some(part),
        items: items(Some(part)).unwrap_or_default(),
    });
    known.chain(others).collect()
}

/// The whole page.
pub(super) fn html(findings: &Findings) -> String {
    let chapters = chapters(findings);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>{TITLE}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{TITLE}</h1>\n<p class=\"lead\">{LEAD}</p>\n</header>\n<main>\n"
    );
    overview(&mut page, &chapters);
    for chapter in &chapters {
        section(&mut page, chapter);
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

/// To the minute.
pub(super) fn day(moment: &str) -> String {
    let text = moment.replace('T', " ");
    text.chars().take("2026-01-02 03:04".len()).collect()
}

pub(super) fn about(took: Duration) -> String {
    match took.as_secs() {
        seconds if seconds < 100 => format!("{seconds} s"),
        seconds => format!("{} min", (seconds + 30) / 60),
    }
}

fn overview(page: &mut String, chapters: &[Chapter<'_>]) {
    page.push_str(
        "<table class=\"papers\">\n<caption>The papers, and how many of their claims, figures and rows are measured here. \
         <span class=\"state history\">history</span> is what only a machine of its time has; \
         <span class=\"state pending\">pending</span> is what has not been measured.</caption>\n\
         <thead><tr><th scope=\"col\">paper</th><th scope=\"col\">measured</th><th scope=\"col\">pending</th>\
         <th scope=\"col\" class=\"less\">history</th><th scope=\"col\" class=\"text\">last run (UTC)</th></tr></thead>\n<tbody>\n",
    );
    for chapter in chapters {
        let counts = Counts::of(&chapter.items);
        let last = match chapter.run() {
            Some(run) => day(&run.measured_at),
            None if chapter.is_measured => "never".to_owned(),
            None => "–".to_owned(),
        };
        let _ = writeln!(
            page,
            "<tr><th scope=\"row\"><a href=\"#{0}\">{0}</a><small>{1}</small></th><td>{2}</td><td>{3}</td><td class=\"less\">{4}</td><td class=\"text when\">{5}</td></tr>",
            Escaped(chapter.name),
            Escaped(chapter.title),
            counts.measured,
            counts.pending,
            counts.history,
            Escaped(&last)
        );
    }
    page.push_str("</tbody>\n</table>\n");
}

fn section(page: &mut String, chapter: &Chapter<'_>) {
    let name = Escaped(chapter.name);
    let _ = writeln!(page, "<section id=\"{name}\" aria-labelledby=\"{name}-title\">");
    let _ = writeln!(
        page,
        "<h2 id=\"{name}-title\">{}<small>{}</small></h2>",
        Escaped(chapter.title),
        Escaped(&chapter.source)
    );
    if let Some(failed) = chapter.part.and_then(|part| part.failed.as_ref()) {
        let stays = if chapter.run().is_some() { " What follows is of the run before it." } else { "" };
        let (at, why) = (day(&failed.at), &failed.why);
        let _ = writeln!(
            page,
            "<p class=\"note failed\">The run of {} failed: {}.{stays}</p>",
            Escaped(&at),
            Prose(why)
        );
    }
    match chapter.run() {
        Some(run) => {
            told(page, run);
            if !run.figures.is_empty() {
                page.push_str("<div class=\"figures\">\n");
                run.figures.iter().for_each(|plot| plot.write(page));
                page.push_str("</div>\n");
            }
        }
        None if chapter.is_measured => {
            let _ = writeln!(
                page,
                "<p class=\"note pending\">Not measured here yet: <code>comb reproduce {name}</code> does it.</p>"
            );
        }
        None => page.push_str("<p class=\"note pending\">Pending: nothing here measures this paper yet. Its numbers stand here for the record.</p>\n"),
    }
    table(page, chapter);
    page.push_str("</section>\n");
}

/// When, where and how.
fn told(page: &mut String, run: &Run) {
    let _ = writeln!(
        page,
        "<p class=\"run\">Measured <b>{} UTC</b> in {} by comb {} on {}, {} cores of {}.</p>",
        Escaped(&day(&run.measured_at)),
        about(Duration::try_from_secs_f64(run.took_s).unwrap_or_default()),
        Escaped(&run.comb),
        Escaped(&run.kernel),
        run.cores,
        Escaped(&run.processor)
    );
    if !run.optimised {
        page.push_str("<p class=\"note failed\">By a build for developers: a release build is faster.</p>\n");
    }
    let _ = writeln!(page, "<p class=\"how\">{}</p>", Prose(&run.how));
}

/// A table, figure or section that a row is of: `Table 2.1` of `Table 2.1, send overhead`.
fn head(item: &Item) -> Option<&str> {
    let head = item.item.split_once(", ")?.0;
    let begins = |begin| head.strip_prefix("beside ").unwrap_or(head).starts_with(begin);
    ["Table ", "Figure ", "§"].into_iter().any(begins).then_some(head)
}

/// Rows on end that are of the same, if they are two or more; what is between such has no name.
fn groups(items: &[Item]) -> Vec<(Option<&str>, &[Item])> {
    let mut heads: Vec<Option<&str>> = Vec::new();
    for item in items {
        // Such a row goes on with the one before it.
        let before = heads.last().copied().flatten().filter(|_| item.item.starts_with('…'));
        heads.push(before.or_else(|| head(item)));
    }
    let alone = |place: usize| {
        let same = |other: Option<usize>| other.and_then(|other| heads.get(other)) == Some(&heads[place]);
        !same(place.checked_sub(1)) && !same(Some(place + 1))
    };
    let named: Vec<_> = (0..items.len()).map(|place| heads[place].filter(|_| !alone(place))).collect();
    let mut groups = Vec::new();
    let mut begin = 0;
    for end in 1..=items.len() {
        if named.get(end) != Some(&named[begin]) {
            groups.push((named[begin], &items[begin..end]));
            begin = end;
        }
    }
    groups
}

fn table(page: &mut String, chapter: &Chapter<'_>) {
    let command = format!("comb reproduce {}", chapter.name);
    page.push_str("<table class=\"items\">\n");
    if chapter.is_measured {
        let _ = writeln!(
            page,
            "<caption>Each row is by <code>{}</code>, where it names no other command. \
             The paper's numbers are history; the classic way is of the same run as ours.</caption>",
            Escaped(&command)
        );
    } else {
        page.push_str("<caption>What the paper says, and what each waits for.</caption>\n");
    }
    page.push_str(
        "<colgroup><col><col class=\"number\"><col class=\"number\"><col class=\"number\"></colgroup>\n\
         <thead><tr><th scope=\"col\">item</th><th scope=\"col\">the paper</th><th scope=\"col\">measured here</th>\
         <th scope=\"col\">classic way</th></tr></thead>\n",
    );
    for (head, items) in groups(&chapter.items) {
        let name = head.unwrap_or("Other claims");
        let _ =
            writeln!(page, "<tbody>\n<tr><th scope=\"rowgroup\" colspan=\"4\">{}</th></tr>", Escaped(name));
        for item in items {
            let name = head.and_then(|head| item.item.strip_prefix(head)?.strip_prefix(", "));
            row(page, item, name.unwrap_or(&item.item), &command);
        }
        page.push_str("</tbody>\n");
    }
    page.push_str("</table>\n");
}

fn row(page: &mut String, item: &Item, name: &str, command: &str) {
    let _ = write!(page, "<tr><th scope=\"row\">{}", Escaped(name));
    if !item.note.is_empty() {
        let _ = write!(page, "<small>{}</small>", Prose(&item.note));
    }
    if item.command != command {
        let _ = write!(page, "<small><code>{}</code></small>", Escaped(&item.command));
    }
    let number = |value: Option<f64>| match value {
        Some(value) => format!("{} <i>{}</i>", readable(value), Escaped(&item.unit)),
        None => "–".to_owned(),
    };
    let ours = match item.state() {
        State::Measured => number(item.measured),
        State::History => "<span class=\"state history\">history</span>".to_owned(),
        State::Pending => "<span class=\"state pending\">pending</span>".to_owned(),
    };
    let _ = writeln!(
        page,
        "</th><td>{}</td><td>{ours}</td><td>{}</td></tr>",
        number(item.paper_value),
        number(item.baseline)
    );
}

#[cfg(test)]
mod tests {
    use super::super::Reproduced;
    use super::super::findings::Failed;
    use super::super::plot::Plot;
    use super::*;
    use crate::items::item;

    fn findings(paper: &str, items: Vec<Item>) -> Findings {
        let found =
            Reproduced { how: "How <it> was; see `comb bench`".to_owned(), items, drawings: Vec::new() };
        let mut run = Run::of(&found, Duration::from_secs(75));
        run.figures = vec![Plot::example()];
        run.measured_at = "2026-01-02T03:04:05.678Z".to_owned();
        let mut findings = Findings::default();
        findings.papers.push(Part { paper: paper.to_owned(), run: Some(run), failed: None });
        findings
    }

    fn rows(page: &str) -> usize {
        page.matches("<th scope=\"row\">").count()
    }

    #[test]
    fn what_is_measured_stands_beside_the_paper_and_the_classic_way() {
        let row = item("unet", "round trip", 65.0, "µs").shorter(Some(0.5), Some(8.0), "32 B, `spun`");
        let page = html(&findings("unet", vec![row]));
        for said in [
            "<th scope=\"row\">round trip<small>16.0× better than the classic way; 32 B, <code>spun</code></small></th>\
             <td>65.0 <i>µs</i></td><td>0.50 <i>µs</i></td><td>8.00 <i>µs</i></td>",
            "Measured <b>2026-01-02 03:04 UTC</b> in 75 s",
            "How &lt;it&gt; was; see <code>comb bench</code>",
            "Same experiment, today's hardware",
            "<svg viewBox",
        ] {
            assert!(page.contains(said), "{said}\n{page}");
        }
    }

    #[test]
    fn nothing_that_is_pending_is_hidden() {
        let page = html(&Findings::default());
        let all: usize = Paper::ALL.into_iter().map(|paper| paper.unmeasured().len()).sum();
        assert_eq!(
            rows(&page),
            all + Paper::ALL.len(),
            "each item has a row, and each paper one in the overview"
        );
        for paper in Paper::ALL {
            assert!(page.contains(&format!("<section id=\"{}\"", paper.name())), "{paper:?}");
        }
        let unmeasured = Paper::ALL.into_iter().flat_map(Paper::unmeasured);
        let pending = unmeasured.filter(|item| item.state() == State::Pending).count();
        // One more explains the word.
        assert_eq!(page.matches("<span class=\"state pending\">pending</span>").count(), pending + 1);
    }

    #[test]
    fn whatever_an_item_is_called_the_page_stays_whole() {
        let evil = "</table><script src=\"https://example.org/x.js\"></script> & 'it', \"";
        let mut row = item("unet", evil, 1.0, "µs").note(evil);
        row.unit = evil.into();
        row.command = evil.to_owned();
        let mut findings = findings(evil, vec![row.clone(), row.ours(Some(2.0))]);
        let run = findings.papers[0].run.as_mut().unwrap();
        (run.how, run.kernel, run.processor) = (evil.to_owned(), evil.to_owned(), evil.to_owned());
        findings.papers[0].failed = Some(Failed { at: evil.to_owned(), why: evil.to_owned() });
        let page = html(&findings);
        assert!(!page.contains("<script") && !page.contains("src=\""), "{page}");
        assert_eq!(page.matches("<table").count(), page.matches("</table>").count());
        assert!(page.contains("&lt;script src=&quot;"));
    }

    #[test]
    fn the_page_asks_nobody_for_anything() {
        let page = html(&findings("unet", Paper::Unet.unmeasured()));
        for asks in ["http:", "https:", "@import", "url(", "src=", "<script"] {
            assert!(!page.contains(asks), "{asks}");
        }
        assert!(page.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn rows_of_the_same_table_are_a_group() {
        let items = [
            "Table 1, a",
            "Table 1, b, c",
            "… d",
            "§2, e",
            "plain, f",
            "plain, g",
            "Table 10, h",
            "Table 10, i",
        ];
        let items = items.map(|name| item("unet", name, None, ""));
        let found: Vec<_> = groups(&items).into_iter().map(|(head, group)| (head, group.len())).collect();
        assert_eq!(found, [(Some("Table 1"), 3), (None, 3), (Some("Table 10"), 2)]);
        assert!(groups(&[]).is_empty());
    }
}
