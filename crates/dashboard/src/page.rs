//! The page's files. They hold no secret: whoever has them sees nothing without a token.

/// One file.
pub(crate) struct File {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) content: &'static [u8],
}

macro_rules! files {
    ($($name:literal: $kind:literal),* $(,)?) => {
        [$(File { name: $name, kind: $kind, content: include_bytes!(concat!("../page/", $name)) }),*]
    };
}

/// All of them; the first is the page.
pub(crate) static FILES: &[File] = &files! {
    "index.html": "text/html; charset=utf-8",
    "comb.css": "text/css; charset=utf-8",
    "first.js": "text/javascript; charset=utf-8",
    "theme.js": "text/javascript; charset=utf-8",
    "comb.js": "text/javascript; charset=utf-8",
    "actions.js": "text/javascript; charset=utf-8",
    "camera.js": "text/javascript; charset=utf-8",
    "chart.js": "text/javascript; charset=utf-8",
    "detail.js": "text/javascript; charset=utf-8",
    "dom.js": "text/javascript; charset=utf-8",
    "edges.js": "text/javascript; charset=utf-8",
    "events.js": "text/javascript; charset=utf-8",
    "format.js": "text/javascript; charset=utf-8",
    "hexagon.js": "text/javascript; charset=utf-8",
    "honeycomb.js": "text/javascript; charset=utf-8",
    "layout.js": "text/javascript; charset=utf-8",
    "legend.js": "text/javascript; charset=utf-8",
    "session.js": "text/javascript; charset=utf-8",
    "snapshot.js": "text/javascript; charset=utf-8",
    "stream.js": "text/javascript; charset=utf-8",
    "tables.js": "text/javascript; charset=utf-8",
    "timeline.js": "text/javascript; charset=utf-8",
};

/// The one of that name; of none, the page.
pub(crate) fn find(name: &str) -> Option<&'static File> {
    if name.is_empty() {
        return FILES.first();
    }
    FILES.iter().find(|file| file.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_page_is_served() {
        let listed = include_str!("../page/FILES");
        let served: String = FILES.iter().map(|file| format!("{} {}\n", file.name, file.kind)).collect();
        assert_eq!(listed, served);
        let on_disk = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/page")).unwrap().count();
        assert_eq!(on_disk, FILES.len() + 1, "beside FILES there is nothing else");
    }

    #[test]
    fn the_page_is_light() {
        let bytes: usize = FILES.iter().map(|file| file.content.len()).sum();
        assert!(bytes <= 150_000, "{bytes}");
    }

    #[test]
    fn nothing_else_is_found() {
        for name in ["FILES", "../Cargo.toml", "index.html/", "/", "comb.css?x", "COMB.CSS"] {
            assert!(find(name).is_none(), "{name:?}");
        }
        assert_eq!(find("").unwrap().name, "index.html");
    }
}
