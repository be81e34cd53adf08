//! What Linux says of the nodes of memory, and does with pages.

#![expect(unsafe_code, reason = "calls for which no crate of ours has a safe form")]

use std::fs;
use std::io;
use std::mem::{size_of, zeroed};
use std::ptr::null;

use super::shared::PAGE_BYTES;

/// A node that has both memory and processors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Node {
    /// As Linux numbers it.
    pub(super) number: u32,
    pub(super) processors: Vec<usize>,
}

/// From `<linux/mempolicy.h>`.
const BIND: libc::c_int = 2;
const MOVE_ALL: libc::c_int = 1 << 2;

pub(super) fn nodes() -> io::Result<Vec<Node>> {
    let mut nodes = Vec::new();
    for entry in fs::read_dir("/sys/devices/system/node")? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(number) = name.strip_prefix("node").and_then(|number| number.parse().ok()) else { continue };
        let processors = listed(fs::read_to_string(path.join("cpulist"))?.trim());
        if !processors.is_empty() {
            nodes.push(Node { number, processors });
        }
    }
    nodes.sort_by_key(|node| node.number);
    Ok(nodes)
}

/// Numbers as `0-2,5`.
fn listed(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

fn checked(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// This thread runs there from now on.
pub(super) fn run_on(node: &Node) -> io::Result<()> {
    // SAFETY: a set of processors, all of whose bits may be 0, and this thread's own.
    unsafe {
        let mut set: libc::cpu_set_t = zeroed();
        node.processors.iter().for_each(|&processor| libc::CPU_SET(processor, &mut set));
        checked(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set).into())
    }
}

fn move_pages(page: *mut u8, to: Option<u32>) -> io::Result<libc::c_int> {
    let (pages, nodes) = ([page], to.map(|to| [libc::c_int::try_from(to).unwrap_or(-1)]));
    let mut status = [-1 as libc::c_int];
    let nodes = nodes.as_ref().map_or(null(), |nodes| nodes.as_ptr());
    // SAFETY: three arrays of one, or none of nodes; it is of this process.
    let done = unsafe {
        libc::syscall(libc::SYS_move_pages, 0, 1_usize, pages.as_ptr(), nodes, status.as_mut_ptr(), MOVE_ALL)
    };
    checked(done)?;
    Ok(status[0])
}

/// Moves a page, whoever has it mapped.
pub(super) fn move_page(page: *mut u8, to: u32) -> io::Result<()> {
    let status = move_pages(page, Some(to))?;
    if u32::try_from(status) == Ok(to) {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "a page does not move to node {to}: {}",
        io::Error::from_raw_os_error(-status)
    )))
}

/// Where a page is that this process has mapped; none: nowhere yet.
pub(super) fn node_of(page: *mut u8) -> Option<u32> {
    move_pages(page, None).ok().and_then(|status| u32::try_from(status).ok())
}

/// What this process will touch first of a page comes from there.
pub(super) fn bind(page: *mut u8, node: u32) -> io::Result<()> {
    let mask = [1_u64 << node.min(63)];
    // SAFETY: a page of this process's, and a mask of 64 bits, of which the kernel looks at one less than it is told.
    let done = unsafe { libc::syscall(libc::SYS_mbind, page, PAGE_BYTES, BIND, mask.as_ptr(), 65_usize, 0) };
    checked(done)
}

pub(super) fn let_others() {
    std::thread::yield_now();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_listed_by_ranges() {
        assert_eq!(listed("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(listed(""), [0; 0]);
    }

    #[test]
    fn a_page_that_is_there_is_in_a_node() {
        let mut memory = vec![1_u8; 2 * PAGE_BYTES];
        let page = memory.as_mut_ptr().wrapping_add(PAGE_BYTES);
        if let Ok(nodes) = nodes() {
            let found = node_of(page);
            assert!(found.is_none_or(|found| nodes.iter().any(|node| node.number == found)), "{found:?}");
        }
    }
}
