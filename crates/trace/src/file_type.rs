//! What kind of file it is, by its name and place; and of which category that kind is. (Thesis §9.4: a mailbox is a mail file, and that
//! an application's file.)

use std::sync::OnceLock;

/// Kinds of files, and the endings of each.
type Kinds = &'static [(&'static str, &'static [&'static str])];

/// Categories and their kinds.
const CATEGORIES: &[(&str, Kinds)] = &[
    (
        "program",
        &[
            ("library", &["so", "a", "dll"]),
            ("object", &["o", "ko", "obj", "rlib", "rmeta", "rcgu"]),
            ("executable", &["exe", "bin"]),
            ("bytecode", &["pyc", "class", "jar", "elc", "wasm"]),
        ],
    ),
    (
        "source",
        &[
            ("c", &["c", "h", "cc", "cpp", "cxx", "hpp", "hh", "inc", "i", "s", "S", "ll", "bc"]),
            ("rust", &["rs"]),
            ("script", &["py", "sh", "pl", "pm", "rb", "tcl", "lua", "awk", "php"]),
            ("web source", &["js", "ts", "jsx", "tsx", "mjs", "cjs", "css", "scss", "vue"]),
            (
                "other source",
                &["go", "java", "kt", "swift", "hs", "ml", "scala", "el", "cs", "f", "f90", "m4", "y", "l"],
            ),
            (
                "build",
                &["mk", "cmake", "ninja", "make", "am", "ac", "in", "d", "gradle", "bazel", "spec", "pc"],
            ),
        ],
    ),
    (
        "document",
        &[
            ("text", &["txt", "md", "rst", "tex", "log", "csv", "tsv", "org", "po", "mo"]),
            ("page", &["html", "htm", "xhtml"]),
            (
                "office",
                &["doc", "docx", "xls", "xlsx", "ppt", "pptx", "odt", "ods", "odp", "pdf", "ps", "rtf"],
            ),
            ("mail", &["mbx", "mbox", "eml", "msf", "pst"]),
        ],
    ),
    (
        "media",
        &[
            ("image", &["png", "jpg", "jpeg", "gif", "svg", "webp", "ico", "bmp", "tif", "tiff", "xpm"]),
            ("sound", &["wav", "mp3", "ogg", "flac", "opus", "m4a"]),
            ("video", &["mp4", "mkv", "webm", "avi", "mov"]),
            ("font", &["ttf", "otf", "woff", "woff2", "pcf", "pfb"]),
        ],
    ),
    (
        "data",
        &[
            ("database", &["db", "sqlite", "sqlite3", "mdb", "wal", "journal", "dbf"]),
            (
                "configuration",
                &[
                    "conf",
                    "cfg",
                    "ini",
                    "toml",
                    "yaml",
                    "yml",
                    "json",
                    "xml",
                    "lock",
                    "rc",
                    "properties",
                    "service",
                    "desktop",
                ],
            ),
            (
                "archive",
                &[
                    "zip", "gz", "xz", "bz2", "zst", "tar", "tgz", "rpm", "deb", "7z", "iso", "crate", "whl",
                    "pack", "idx",
                ],
            ),
            ("certificate", &["pem", "crt", "key", "cert", "gpg", "sig"]),
            ("table", &["parquet", "arrow", "npy", "h5", "dat"]),
        ],
    ),
    ("temporary", &[("temporary", &["tmp", "temp", "swp", "bak", "part", "pid", "cache"])]),
];

/// What kind of file it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileType {
    /// What several kinds have in common.
    pub category: &'static str,
    /// The kind.
    pub kind: &'static str,
}

impl FileType {
    /// Those of which nothing is known.
    pub const OTHER: Self = Self { category: "other", kind: "other" };
    const DIRECTORY: Self = Self { category: "directory", kind: "directory" };
    const LINK: Self = Self { category: "directory", kind: "link" };
    const KERNEL: Self = Self { category: "kernel", kind: "kernel" };
    const REPOSITORY: Self = Self { category: "data", kind: "repository" };

    /// All that there are. Their numbers in tables are their places here.
    pub fn all() -> &'static [Self] {
        static ALL: OnceLock<Vec<FileType>> = OnceLock::new();
        ALL.get_or_init(|| {
            let by_ending = CATEGORIES
                .iter()
                .flat_map(|(category, kinds)| kinds.iter().map(|(kind, _)| Self { category, kind }));
            [Self::OTHER, Self::DIRECTORY, Self::LINK, Self::KERNEL, Self::REPOSITORY]
                .into_iter()
                .chain(by_ending)
                .collect()
        })
    }

    /// Of a file with this path on a file system of this type (nothing if that is not known), with this mode.
    pub fn of(path: &[u8], system: &str, mode: u32) -> Self {
        const DIRECTORY: u32 = 0o040_000;
        const LINK: u32 = 0o120_000;
        const KIND: u32 = 0o170_000;
        match mode & KIND {
            DIRECTORY => return Self::DIRECTORY,
            LINK => return Self::LINK,
            _ => {}
        }
        if is_of_kernel(system) {
            return Self::KERNEL;
        }
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        if let Some(found) = known_ending(name).and_then(by_ending) {
            return found;
        }
        let stands_in = |folder: &[u8]| path.split(|&byte| byte == b'/').any(|part| part == folder);
        match name {
            b"Makefile" | b"makefile" | b"GNUmakefile" | b"configure" | b"CMakeLists.txt" => {
                Self { category: "source", kind: "build" }
            }
            b".gitignore" | b".gitattributes" | b"HEAD" | b"index" if stands_in(b".git") => Self::REPOSITORY,
            _ if stands_in(b".git") => Self::REPOSITORY,
            // A library's version stands behind its ending.
            _ if name.windows(4).any(|window| window == b".so.") => {
                Self { category: "program", kind: "library" }
            }
            _ if stands_in(b"bin") || stands_in(b"sbin") || stands_in(b"libexec") => {
                Self { category: "program", kind: "executable" }
            }
            _ if path.starts_with(b"/tmp/") || path.starts_with(b"/var/tmp/") || name.ends_with(b"~") => {
                Self { category: "temporary", kind: "temporary" }
            }
            _ if path.starts_with(b"/etc/") => Self { category: "data", kind: "configuration" },
            _ => Self::OTHER,
        }
    }
}

/// Whether what a file system of this type shows is made up by the kernel when somebody looks, and nothing of it is kept anywhere.
pub fn is_of_kernel(system: &str) -> bool {
    matches!(
        system,
        "proc"
            | "sysfs"
            | "devtmpfs"
            | "debugfs"
            | "tracefs"
            | "cgroup"
            | "cgroup2"
            | "devpts"
            | "securityfs"
            | "bpf"
            | "binfmt_misc"
            | "configfs"
            | "efivarfs"
            | "fusectl"
            | "mqueue"
            | "nsfs"
            | "pstore"
            | "rpc_pipefs"
            | "selinuxfs"
    )
}

fn by_ending(ending: &[u8]) -> Option<FileType> {
    CATEGORIES.iter().find_map(|(category, kinds)| {
        let (kind, _) =
            kinds.iter().find(|(_, endings)| endings.iter().any(|known| known.as_bytes() == ending))?;
        Some(FileType { category, kind })
    })
}

/// The ending of a name, if it is one that many files have.
pub fn known_ending(name: &[u8]) -> Option<&[u8]> {
    let dot = name.iter().rposition(|&byte| byte == b'.').filter(|&dot| dot > 0)?;
    let ending = &name[dot + 1..];
    by_ending(ending).map(|_| ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_apart_by_name_place_and_mode() {
        let kind = |path: &str| FileType::of(path.as_bytes(), "ext4", 0o100_644).kind;
        assert_eq!(kind("/usr/lib/libc.so.6"), "library");
        assert_eq!(kind("/usr/bin/cat"), "executable");
        assert_eq!(kind("/home/ann/src/main.rs"), "rust");
        assert_eq!(kind("/home/ann/.git/objects/12/34"), "repository");
        assert_eq!(kind("/tmp/cc1234"), "temporary");
        assert_eq!(kind("/etc/passwd"), "configuration");
        assert_eq!(kind("/home/ann/.bashrc"), "other");
        assert_eq!(FileType::of(b"/proc/1/stat", "proc", 0o100_444).category, "kernel");
        assert_eq!(FileType::of(b"/usr/lib", "ext4", 0o040_755).kind, "directory");
    }

    #[test]
    fn every_type_that_is_found_has_a_number() {
        let places = ["/usr/bin/cat", "/etc/passwd", "/tmp/x", "/a/.git/HEAD", "/Makefile", "/a.so.1", "/x"];
        for place in places {
            assert!(FileType::all().contains(&FileType::of(place.as_bytes(), "", 0)), "{place}");
        }
    }

    #[test]
    fn no_ending_has_two_kinds() {
        let all =
            CATEGORIES.iter().flat_map(|(_, kinds)| kinds.iter()).flat_map(|(_, endings)| endings.iter());
        let mut all: Vec<_> = all.collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
