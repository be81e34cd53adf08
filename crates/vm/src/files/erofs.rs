//! What an edition's entries are called and where they lie, as guests' kernels read it: the file system EROFS, of which each file is one run of blocks, so that it is read where it lies.

use super::Extent;

/// Of a block, in bytes.
pub const BLOCK_BYTES: u64 = 4096;
const BLOCK: usize = 4096;

const MAGIC: u32 = 0xE0F5_E1E2;
const SUPER_BLOCK_AT: usize = 1024;
/// Inodes begin behind the first block, each with a number that is its place by 32 bytes.
pub(super) const INODE_BYTES: usize = 64;
const INODE_UNIT: usize = 32;
const DIRENT_BYTES: usize = 12;
/// A link's target stands behind its inode, in one block with it.
pub(super) const MOST_TARGET_BYTES: usize = BLOCK - INODE_BYTES;
/// Inodes with 64 bits for sizes and times; content in whole blocks, or behind the inode.
const PLAIN: u16 = 1;
const INLINE: u16 = 1 | 2 << 1;

/// An entry of an edition. A directory comes before what is in it, and the first is that of all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// In which directory, by its number in the order; of the first: itself.
    pub parent: usize,
    /// What it is called there.
    pub name: Vec<u8>,
    /// Its content.
    pub body: Body,
    /// Who may do what with it.
    pub mode: u16,
    /// Whose it is.
    pub user: u32,
    /// Of which group.
    pub group: u32,
    /// Seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
}

/// What an entry contains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// Others.
    Directory,
    /// Bytes.
    File {
        /// So many.
        bytes: u64,
        /// Where they lie, counted from the device's begin.
        extent: Extent,
    },
    /// To where it leads.
    Link(Vec<u8>),
}

impl Body {
    /// Bits of the mode, and what directories say of it.
    fn kind(&self) -> (u16, u8) {
        match self {
            Self::File { .. } => (0o100_000, 1),
            Self::Directory => (0o040_000, 2),
            Self::Link(_) => (0o120_000, 7),
        }
    }
}

fn put<const N: usize>(to: &mut [u8], at: usize, bytes: [u8; N]) {
    to[at..at + N].copy_from_slice(&bytes);
}

/// A directory's blocks: in each, where the names begin and whose they are, and behind that the names. How many bytes of the last count.
fn directory(mut entries: Vec<(&[u8], u64, u8)>) -> (Vec<u8>, usize) {
    entries.sort_unstable();
    let (mut blocks, mut rest) = (Vec::new(), &entries[..]);
    let mut last = 0;
    while !rest.is_empty() {
        let mut left = BLOCK;
        let fit = |(name, _, _): &&(&[u8], u64, u8)| {
            let fits = left.checked_sub(DIRENT_BYTES + name.len());
            fits.inspect(|&less| left = less).is_some()
        };
        let count = rest.iter().take_while(fit).count();
        let (some, others) = rest.split_at(count);
        let begin = blocks.len();
        blocks.resize(begin + BLOCK, 0);
        let block = &mut blocks[begin..];
        let mut name_at = count * DIRENT_BYTES;
        for (number, (name, inode, kind)) in some.iter().enumerate() {
            let at = number * DIRENT_BYTES;
            put(block, at, inode.to_le_bytes());
            put(block, at + 8, u16::try_from(name_at).expect("in a block").to_le_bytes());
            block[at + 10] = *kind;
            block[name_at..name_at + name.len()].copy_from_slice(name);
            name_at += name.len();
        }
        (last, rest) = (name_at, others);
    }
    (blocks, last)
}

/// The file system of these entries, that begins at this block of the device and whose device has so many from there.
pub fn written(nodes: &[Node], first_block: u32, device_blocks: u32, built_s: u64) -> Vec<u8> {
    let mut at = BLOCK;
    let mut places = Vec::with_capacity(nodes.len());
    for node in nodes {
        let inline = if let Body::Link(target) = &node.body { target.len() } else { 0 };
        let bytes = (INODE_BYTES + inline).next_multiple_of(INODE_UNIT);
        if at % BLOCK + bytes > BLOCK {
            at = at.next_multiple_of(BLOCK);
        }
        places.push(at);
        at += bytes;
    }
    let number = |node: usize| (places[node] / INODE_UNIT) as u64;
    let mut inside: Vec<Vec<(&[u8], u64, u8)>> = vec![Vec::new(); nodes.len()];
    let mut links = vec![1_u32; nodes.len()];
    for (node, entry) in nodes.iter().enumerate() {
        let kind = entry.body.kind().1;
        if entry.body == Body::Directory {
            inside[node].push((b".", number(node), kind));
            inside[node].push((b"..", number(entry.parent), kind));
            links[node] += 1;
        }
        if node > 0 {
            inside[entry.parent].push((&entry.name, number(node), kind));
            links[entry.parent] += u32::from(entry.body == Body::Directory);
        }
    }
    let mut out = vec![0; at.next_multiple_of(BLOCK)];
    for (node, (entry, inside)) in nodes.iter().zip(inside).enumerate() {
        let (layout, bytes, block) = match &entry.body {
            Body::Directory => {
                let (blocks, last) = directory(inside);
                let begin = u32::try_from(out.len() / BLOCK).expect("it is small");
                out.extend(&blocks);
                (PLAIN, (blocks.len() - BLOCK + last) as u64, begin)
            }
            // A file without content lies nowhere.
            Body::File { bytes, extent } => (PLAIN, *bytes, extent.block.saturating_sub(first_block)),
            Body::Link(target) => {
                let behind = places[node] + INODE_BYTES;
                out[behind..behind + target.len()].copy_from_slice(target);
                (INLINE, target.len() as u64, 0)
            }
        };
        let inode = &mut out[places[node]..places[node] + INODE_BYTES];
        put(inode, 0, layout.to_le_bytes());
        put(inode, 4, (entry.body.kind().0 | entry.mode & 0o7777).to_le_bytes());
        put(inode, 8, bytes.to_le_bytes());
        put(inode, 16, block.to_le_bytes());
        put(inode, 20, u32::try_from(node + 1).unwrap_or(u32::MAX).to_le_bytes());
        put(inode, 24, entry.user.to_le_bytes());
        put(inode, 28, entry.group.to_le_bytes());
        put(inode, 32, entry.modified.0.to_le_bytes());
        put(inode, 40, entry.modified.1.to_le_bytes());
        put(inode, 44, links[node].to_le_bytes());
    }
    let head = &mut out[SUPER_BLOCK_AT..SUPER_BLOCK_AT + 128];
    put(head, 0, MAGIC.to_le_bytes());
    head[12] = 12;
    put(head, 14, u16::try_from(number(0)).expect("behind the first block").to_le_bytes());
    put(head, 16, (nodes.len() as u64).to_le_bytes());
    put(head, 24, built_s.to_le_bytes());
    put(head, 36, device_blocks.to_le_bytes());
    out
}

/// How much that takes, of entries with usual names: a directory has a block at least.
pub(super) fn most_bytes(entries: u64, directories: u64) -> u64 {
    (2 + directories) * BLOCK_BYTES + entries * (2 * INODE_BYTES + 2 * DIRENT_BYTES + 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn node(parent: usize, name: &str, body: Body) -> Node {
        let modified = (1_700_000_000, 5);
        Node { parent, name: name.into(), body, mode: 0o755, user: 7, group: 8, modified }
    }

    /// What a name is found to be, as a kernel looks for it.
    fn found(image: &[u8], path: &str) -> Option<(usize, usize, usize, usize)> {
        let number = |at: usize, bytes: usize| {
            (0..bytes).fold(0, |sum, byte| sum | usize::from(image[at + byte]) << (8 * byte))
        };
        let mut at = number(SUPER_BLOCK_AT + 14, 2) * INODE_UNIT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let (bytes, first) = (number(at + 8, 8), number(at + 16, 4) * BLOCK);
            let blocks = (0..bytes.div_ceil(BLOCK)).map(|block| {
                let begin = first + block * BLOCK;
                (begin, (bytes - block * BLOCK).min(BLOCK))
            });
            at = blocks
                .flat_map(|(begin, length)| {
                    let count = number(begin + 8, 2) / DIRENT_BYTES;
                    (0..count).map(move |entry| {
                        let at = begin + entry * DIRENT_BYTES;
                        let from = begin + number(at + 8, 2);
                        let last = entry + 1 == count;
                        let to = if last { begin + length } else { begin + number(at + DIRENT_BYTES + 8, 2) };
                        let name: Vec<u8> =
                            image[from..to].iter().copied().take_while(|&byte| byte > 0).collect();
                        (name, number(at, 8) * INODE_UNIT)
                    })
                })
                .find(|(found, _)| found == name.as_bytes())?
                .1;
        }
        Some((number(at + 4, 2), number(at + 8, 8), number(at + 16, 4), at))
    }

    fn image() -> Vec<u8> {
        let extent = Extent { block: 1000, blocks: 2 };
        let mut nodes = vec![
            node(0, "", Body::Directory),
            node(0, "sub", Body::Directory),
            node(1, "file", Body::File { bytes: 5000, extent }),
            node(1, "empty", Body::File { bytes: 0, extent: Extent::default() }),
            node(0, "link", Body::Link(b"sub/file".to_vec())),
            node(0, "long", Body::Link(vec![b'x'; MOST_TARGET_BYTES])),
            node(0, "many", Body::Directory),
        ];
        let many = (0..500).map(|number| node(6, &format!("a-rather-long-name-{number}"), Body::Directory));
        nodes.extend(many);
        let bytes = written(&nodes, 300, 4000, 1);
        assert!(bytes.len() as u64 <= most_bytes(nodes.len() as u64, 503) + BLOCK_BYTES);
        bytes
    }

    #[test]
    fn entries_are_found_by_their_names_and_lie_where_they_were_put() {
        let image = image();
        assert_eq!(
            found(&image, "sub/file").map(|found| (found.0, found.1, found.2)),
            Some((0o100_755, 5000, 700))
        );
        assert_eq!(found(&image, "sub/empty").map(|found| (found.1, found.2)), Some((0, 0)));
        let (mode, bytes, _, at) = found(&image, "link").unwrap();
        assert_eq!((mode, &image[at + 64..][..bytes]), (0o120_755, &b"sub/file"[..]));
        assert_eq!(found(&image, "long").map(|found| found.1), Some(MOST_TARGET_BYTES));
        assert_eq!(
            found(&image, "sub/../many/./a-rather-long-name-499").map(|found| found.0),
            Some(0o040_755)
        );
        assert_eq!(found(&image, "sub/other"), None);
    }

    #[test]
    fn the_checker_of_such_file_systems_finds_nothing_wrong() {
        let place = std::env::temp_dir().join(format!("comb-vm-erofs-{}", std::process::id()));
        let mut image = image();
        image.resize(4000 * BLOCK, 0);
        std::fs::write(&place, image).unwrap();
        let checked = Command::new("fsck.erofs").arg(&place).output();
        std::fs::remove_file(&place).unwrap();
        match checked {
            Ok(checked) => assert!(checked.status.success(), "{checked:?}"),
            Err(_) => eprintln!("erofs-utils is not installed here"),
        }
    }
}
