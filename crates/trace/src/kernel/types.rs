//! What the kernel says of its own types, cut down to those that the recorder has to do with.
//!
//! There are more than a hundred thousand, and the loader goes through all their names once for each structure that the recorder knows:
//! that took longer than all else that it does. So whatever has another name is no more than a number here.

use std::collections::HashSet;

use aya::{Btf, Endianness};
use aya_obj::Object;
use aya_obj::btf::BtfError;
use foldhash::fast::RandomState;

const DESCRIPTION: &str = "/sys/kernel/btf/vmlinux";

/// How the types of tracepoints are called, before their own names.
const TRACEPOINT: &[u8] = b"btf_trace_";

const MAGIC: u16 = 0xeb9f;

/// Each type begins with where its name is, what kind it is and how many parts it has, and a size or another type's number.
const TYPE_BYTES: usize = 12;

/// The kinds of types, as far as they differ here.
mod kind {
    pub(super) const INTEGER: u32 = 1;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCTURE: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUMERATION: u32 = 6;
    /// Of which only the name is known.
    pub(super) const FORWARD: u32 = 7;
    pub(super) const SYNONYM: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONSTANT: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const PROTOTYPE: u32 = 13;
    pub(super) const VARIABLE: u32 = 14;
    pub(super) const SECTION: u32 = 15;
    pub(super) const DECLARATION_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const LARGE_ENUMERATION: u32 = 19;
}

type Names<'a> = HashSet<&'a [u8], RandomState>;

/// The kernel's types whose names are in `object` or among `others`, and those of its tracepoints.
pub(super) fn known_to(object: &[u8], others: &[&str]) -> Result<Btf, BtfError> {
    let description = std::fs::read(DESCRIPTION)
        .map_err(|error| BtfError::FileError { path: DESCRIPTION.into(), error })?;
    let of_object = Object::parse(object).ok().and_then(|object| object.btf).map(|types| types.to_bytes());
    let cut = of_object.as_deref().and_then(Types::read).and_then(|known| {
        let mut names: Names<'_> = known.types.iter().map(|known| known.name).collect();
        names.extend(others.iter().map(|name| name.as_bytes()));
        Types::read(&description)?.cut_to(&names)
    });
    // A kernel of another time may have kinds that are unknown here. Then there is time to read all.
    Btf::parse(cut.as_deref().unwrap_or(&description), Endianness::default())
}

/// Types in the form in which compilers and the kernel describe them (BTF). They have numbers from one on; zero is none.
struct Types<'a> {
    header: &'a [u8],
    strings: &'a [u8],
    types: Vec<Type<'a>>,
}

#[derive(Clone, Copy)]
struct Type<'a> {
    bytes: &'a [u8],
    name: &'a [u8],
    kind: u32,
}

impl<'a> Types<'a> {
    fn read(description: &'a [u8]) -> Option<Self> {
        let magic = u16::from_ne_bytes(description.first_chunk().copied()?);
        let header = description.get(..number_at(description, 4)? as usize)?;
        if magic != MAGIC {
            return None;
        }
        let section = |place: usize| {
            let [start, bytes] = [number_at(header, place)?, number_at(header, place + 4)?];
            description.get(header.len()..)?.get(start as usize..)?.get(..bytes as usize)
        };
        let strings = section(16)?;
        let mut rest = section(8)?;
        let mut types = Vec::with_capacity(rest.len() / TYPE_BYTES / 2);
        while !rest.is_empty() {
            let [name, about] = [number_at(rest, 0)?, number_at(rest, 4)?];
            let (kind, parts) = (about >> 24 & 0x1f, (about & 0xffff) as usize);
            let bytes = TYPE_BYTES
                + match kind {
                    kind::INTEGER | kind::VARIABLE | kind::DECLARATION_TAG => 4,
                    kind::ARRAY => 12,
                    kind::STRUCTURE | kind::UNION | kind::SECTION | kind::LARGE_ENUMERATION => 12 * parts,
                    kind::ENUMERATION | kind::PROTOTYPE => 8 * parts,
                    0 | 20.. => return None,
                    _ => 0,
                };
            let name = strings.get(name as usize..)?;
            let name = &name[..name.iter().position(|&byte| byte == 0)?];
            types.push(Type { bytes: rest.get(..bytes)?, name, kind });
            rest = &rest[bytes..];
        }
        Some(Self { header, strings, types })
    }

    /// These types with only such as have one of these names or are parts of one, and nothing of the others.
    fn cut_to(&self, names: &Names<'_>) -> Option<Vec<u8>> {
        let mut is_kept = vec![false; self.types.len()];
        let mut to_do: Vec<usize> = (0..self.types.len())
            .filter(|&place| {
                let name = self.types[place].name;
                !name.is_empty() && (names.contains(name) || name.starts_with(TRACEPOINT))
            })
            .collect();
        while let Some(place) = to_do.pop() {
            if !std::mem::replace(is_kept.get_mut(place)?, true) {
                to_do.extend(
                    self.types[place].insides().filter_map(|number| (number as usize).checked_sub(1)),
                );
            }
        }
        let nothing: Vec<u8> = [0, kind::FORWARD << 24, 0].into_iter().flat_map(u32::to_ne_bytes).collect();
        let mut bytes = self.header.to_vec();
        for (known, is_kept) in self.types.iter().zip(is_kept) {
            bytes.extend_from_slice(if is_kept { known.bytes } else { &nothing });
        }
        let type_bytes = u32::try_from(bytes.len() - self.header.len()).ok()?;
        let string_bytes = u32::try_from(self.strings.len()).ok()?;
        let sections = [0, type_bytes, type_bytes, string_bytes];
        bytes
            .get_mut(8..TYPE_BYTES * 2)?
            .copy_from_slice(&sections.into_iter().flat_map(u32::to_ne_bytes).collect::<Vec<u8>>());
        bytes.extend_from_slice(self.strings);
        Some(bytes)
    }
}

impl<'a> Type<'a> {
    /// The types that are parts of it, and what it is another name for: not what it points to.
    fn insides(self) -> impl Iterator<Item = u32> + 'a {
        let parts = &self.bytes[TYPE_BYTES..];
        let (own, parts) = match self.kind {
            kind::STRUCTURE | kind::UNION => (None, parts),
            kind::ARRAY => (number_at(parts, 0), &[][..]),
            kind::SYNONYM | kind::VOLATILE | kind::CONSTANT | kind::RESTRICT | kind::TYPE_TAG => {
                (number_at(self.bytes, 8), &[][..])
            }
            _ => (None, &[][..]),
        };
        own.into_iter().chain(parts.chunks_exact(12).filter_map(|part| number_at(part, 4)))
    }
}

fn number_at(bytes: &[u8], place: usize) -> Option<u32> {
    bytes.get(place..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests;
