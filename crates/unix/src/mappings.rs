//! Calls that map memory.

use crate::descriptors::Kind;
use crate::errno::{EACCES, EBADF, EINVAL, ENODEV, ENOMEM, EOVERFLOW, EPERM};
use crate::machine::{Machine, PAGE_BYTES, Rights};
use crate::spaces::{Mapping, Place, whole_pages};
use crate::unix::{Caller, Unix};
use crate::virtual_files::Device;
use crate::waiting::Outcome;
use std::os::fd::AsRawFd;

/// No more than that in one mapping, so that page numbers of objects do not overflow.
const MOST_BYTES: u64 = 1 << 46;

fn rights(bits: u64) -> Rights {
    let has = |bit: i32| bits & bit as u64 != 0;
    Rights { read: has(libc::PROT_READ), write: has(libc::PROT_WRITE), execute: has(libc::PROT_EXEC) }
}

impl<M: Machine> Unix<M> {
    pub(crate) fn call_map(&mut self, who: Caller, arguments: [u64; 6]) -> Outcome {
        let [address, bytes, protection, flags, descriptor, offset] = arguments;
        let flags = flags as i32;
        if bytes == 0 || !offset.is_multiple_of(PAGE_BYTES) || protection & !0x0100_0007 != 0 {
            return Err(EINVAL.into());
        }
        if bytes > MOST_BYTES {
            return Err(ENOMEM.into());
        }
        if offset.checked_add(bytes).is_none_or(|end| end > i64::MAX as u64) {
            return Err(EOVERFLOW.into());
        }
        let shared = match flags & 3 {
            libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE => true,
            libc::MAP_PRIVATE => false,
            _ => return Err(EINVAL.into()),
        };
        let rights = rights(protection);
        let backing = if flags & libc::MAP_ANONYMOUS != 0 {
            None
        } else {
            let file = self.file(who, descriptor as i32)?;
            match &file.kind {
                Kind::Regular { host, .. } => {
                    if !file.may_read() || shared && rights.write && !file.may_write() {
                        return Err(EACCES.into());
                    }
                    let object = self.memory.objects.file(
                        &mut self.memory.frames,
                        host.as_raw_fd(),
                        file.may_write(),
                    )?;
                    Some((object, offset / PAGE_BYTES))
                }
                Kind::Device(Device::Zero) => None,
                Kind::Path { .. } => return Err(EBADF.into()),
                _ => return Err(ENODEV.into()),
            }
        };
        let lowest = self.memory.space(who.space).regions.bounds().start;
        let place = if flags & libc::MAP_FIXED_NOREPLACE != 0 {
            Place::OnlyIfFree(address)
        } else if flags & libc::MAP_FIXED != 0 {
            Place::Exactly(address)
        } else {
            Place::Near(address)
        };
        if !matches!(place, Place::Near(_)) && address < lowest {
            return Err(EPERM.into());
        }
        let grows_down = flags & libc::MAP_GROWSDOWN != 0 && backing.is_none() && !shared;
        let mapping = Mapping { rights, shared, grows_down, backing };
        let start = self.memory.map(who.space, place, bytes, mapping)?;
        Ok(start)
    }

    pub(crate) fn call_unmap(&mut self, who: Caller, address: u64, bytes: u64) -> Outcome {
        self.memory.unmap(who.space, address, bytes)?;
        Ok(0)
    }

    pub(crate) fn call_protect(&mut self, who: Caller, address: u64, bytes: u64, protection: u64) -> Outcome {
        if protection & !0x0100_0007 != 0 {
            return Err(EINVAL.into());
        }
        let rights = rights(protection);
        let end = address.saturating_add(whole_pages(bytes).ok_or(ENOMEM)?);
        if rights.write {
            for (_, region) in self.memory.space(who.space).regions.within(address..end) {
                if region.shared
                    && let Some((object, _)) = &region.backing
                    && !object.may_store()
                {
                    return Err(EACCES.into());
                }
            }
        }
        self.memory.protect(who.space, address, bytes, rights)?;
        Ok(0)
    }

    pub(crate) fn call_remap(&mut self, who: Caller, arguments: [u64; 6]) -> Outcome {
        let [address, old, new, flags, target, _] = arguments;
        let flags = flags as i32;
        let known = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        if flags & !known != 0 || flags & known == libc::MREMAP_FIXED || !address.is_multiple_of(PAGE_BYTES) {
            return Err(EINVAL.into());
        }
        let target = if flags & libc::MREMAP_FIXED != 0 { Some(target) } else { None };
        if target.is_some_and(|target| !target.is_multiple_of(PAGE_BYTES)) || old == 0 || new > MOST_BYTES {
            return Err(EINVAL.into());
        }
        let may_move = flags & libc::MREMAP_MAYMOVE != 0;
        Ok(self.memory.remap(who.space, (address, old), new, may_move, target)?)
    }

    pub(crate) fn call_advise(&mut self, who: Caller, address: u64, bytes: u64, advice: i32) -> Outcome {
        if !address.is_multiple_of(PAGE_BYTES) {
            return Err(EINVAL.into());
        }
        if bytes == 0 {
            return Ok(0);
        }
        match advice {
            libc::MADV_DONTNEED => self.memory.discard(who.space, address, bytes)?,
            // Reclaiming lazily is allowed to be never.
            libc::MADV_NORMAL
            | libc::MADV_RANDOM
            | libc::MADV_SEQUENTIAL
            | libc::MADV_WILLNEED
            | libc::MADV_FREE
            | libc::MADV_HUGEPAGE
            | libc::MADV_NOHUGEPAGE
            | libc::MADV_DONTDUMP
            | libc::MADV_DODUMP
            | libc::MADV_COLD
            | libc::MADV_PAGEOUT
            | libc::MADV_MERGEABLE
            | libc::MADV_UNMERGEABLE
            | libc::MADV_DOFORK => {}
            _ => return Err(EINVAL.into()),
        }
        Ok(0)
    }

    pub(crate) fn call_synchronize_map(
        &mut self,
        who: Caller,
        address: u64,
        bytes: u64,
        flags: i32,
    ) -> Outcome {
        if flags & !(libc::MS_ASYNC | libc::MS_SYNC | libc::MS_INVALIDATE) != 0
            || !address.is_multiple_of(PAGE_BYTES)
        {
            return Err(EINVAL.into());
        }
        self.memory.synchronize(who.space, address, bytes)?;
        Ok(0)
    }

    /// `mincore`: all that is mapped is as good as in memory.
    pub(crate) fn call_in_core(&mut self, who: Caller, address: u64, bytes: u64, into: u64) -> Outcome {
        if !address.is_multiple_of(PAGE_BYTES) {
            return Err(EINVAL.into());
        }
        let end = whole_pages(bytes).and_then(|bytes| address.checked_add(bytes)).ok_or(ENOMEM)?;
        if !self.memory.space(who.space).regions.covers(&(address..end)) {
            return Err(ENOMEM.into());
        }
        let ones = [1u8; 4096];
        let (mut left, mut at) = ((end - address) / PAGE_BYTES, into);
        while left > 0 {
            let step = left.min(4096);
            self.memory.write_bytes(who.space, at, &ones[..step as usize])?;
            (left, at) = (left - step, at.wrapping_add(step));
        }
        Ok(0)
    }
}
