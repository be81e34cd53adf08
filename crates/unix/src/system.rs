//! Calls about the system and the caller's place in it: names, limits, identities.

use crate::errno::{EINVAL, EPERM, ESRCH};
use crate::host;
use crate::layouts::Limit;
use crate::machine::Machine;
use crate::unix::{Caller, Unix};
use crate::waiting::Outcome;

/// The version of Linux whose calls are emulated, as programs are told. The C library of today refuses much older ones.
pub(crate) const RELEASE: &str = "6.1.0-comb";

impl<M: Machine> Unix<M> {
    /// Remembers a call that there is not.
    pub(crate) fn note_unsupported(&mut self, number: u64, detail: u64) {
        // A program that tries all numbers is not to fill the memory with them.
        const MOST: usize = 1024;
        let known = self.unsupported.len();
        if known < MOST || self.unsupported.contains_key(&(number, detail)) {
            *self.unsupported.entry((number, detail)).or_default() += 1;
        }
    }

    pub(crate) fn call_name(&mut self, who: Caller, into: u64) -> Outcome {
        let mut name = host::system_name();
        for (to, from) in name.release.iter_mut().zip(RELEASE.bytes().chain(std::iter::repeat(0))) {
            *to = from as libc::c_char;
        }
        self.memory.write_bytes(who.space, into, &host::bytes_of(&name))?;
        Ok(0)
    }

    pub(crate) fn call_information(&mut self, who: Caller, into: u64) -> Outcome {
        let mut told = host::system_information();
        told.procs = self.threads.len() as u16;
        told.uptime = self.began.elapsed().as_secs() as i64;
        self.memory.write_bytes(who.space, into, &host::bytes_of(&told))?;
        Ok(0)
    }

    pub(crate) fn call_limit(
        &mut self,
        who: Caller,
        target: i32,
        resource: u32,
        new: u64,
        old: u64,
    ) -> Outcome {
        let target = if target == 0 { who.process } else { target };
        let process = self.processes.get(&target).ok_or(ESRCH)?;
        let before = *process.limits.get(resource as usize).ok_or(EINVAL)?;
        if new != 0 {
            let wanted: Limit = self.memory.read(who.space, new)?;
            if wanted.current > wanted.most {
                return Err(EINVAL.into());
            }
            if wanted.most > before.most || target != who.process {
                return Err(EPERM.into());
            }
            self.process_mut(target).limits[resource as usize] = wanted;
        }
        if old != 0 {
            self.memory.write(who.space, old, &before)?;
        }
        Ok(0)
    }

    /// Sets an identity to what it is already; there are no others.
    pub(crate) fn call_set_identity(&mut self, wanted: &[u64], group: bool) -> Outcome {
        let own = host::identity();
        let own = if group { [own[2], own[3]] } else { [own[0], own[1]] };
        let same = |&id: &u64| id as u32 == u32::MAX || own.contains(&(id as u32));
        if wanted.iter().all(same) { Ok(0) } else { Err(EPERM.into()) }
    }

    pub(crate) fn call_three_identities(&mut self, who: Caller, into: [u64; 3], group: bool) -> Outcome {
        let own = host::identity();
        let (real, effective) = if group { (own[2], own[3]) } else { (own[0], own[1]) };
        for (at, id) in into.into_iter().zip([real, effective, effective]) {
            self.memory.write(who.space, at, &id)?;
        }
        Ok(0)
    }

    pub(crate) fn call_random(&mut self, who: Caller, into: u64, bytes: u64, flags: u32) -> Outcome {
        if flags & !7 != 0 {
            return Err(EINVAL.into());
        }
        let mut random = vec![0u8; bytes.min(crate::user_memory::MOST_BYTES) as usize];
        host::random(&mut random);
        self.memory.write_bytes(who.space, into, &random)?;
        Ok(random.len() as u64)
    }

    /// `prctl`: names, and what is as programs wish it anyway.
    pub(crate) fn call_process_control(&mut self, who: Caller, arguments: [u64; 6]) -> Outcome {
        let [option, value, ..] = arguments;
        match option as i32 {
            libc::PR_SET_NAME => {
                let mut text = Vec::new();
                for at in 0..15 {
                    match self.memory.read::<u8>(who.space, value.wrapping_add(at))? {
                        0 => break,
                        byte => text.push(byte),
                    }
                }
                let name = &mut self.thread_mut(who.thread).name;
                *name = [0; 16];
                name[..text.len()].copy_from_slice(&text);
                Ok(0)
            }
            libc::PR_GET_NAME => {
                let name = self.thread(who.thread).name;
                self.memory.write(who.space, value, &name)?;
                Ok(0)
            }
            libc::PR_GET_DUMPABLE
            | libc::PR_GET_KEEPCAPS
            | libc::PR_GET_NO_NEW_PRIVS
            | libc::PR_GET_SECCOMP => Ok(0),
            libc::PR_SET_DUMPABLE
            | libc::PR_SET_NO_NEW_PRIVS
            | libc::PR_SET_TIMERSLACK
            | libc::PR_SET_VMA
            | libc::PR_SET_KEEPCAPS => Ok(0),
            libc::PR_GET_TIMERSLACK => Ok(50_000),
            libc::PR_CAPBSET_READ => Ok(0),
            option => {
                self.note_unsupported(libc::SYS_prctl as u64, option as u64);
                Err(EINVAL.into())
            }
        }
    }

    pub(crate) fn call_architecture(&mut self, who: Caller, code: i32, value: u64) -> Outcome {
        const SET_GS: i32 = 0x1001;
        const SET_FS: i32 = 0x1002;
        const GET_FS: i32 = 0x1003;
        const GET_GS: i32 = 0x1004;
        let registers = *self.registers(who.thread);
        match code {
            SET_FS | SET_GS if value >= 1 << 47 => Err(EPERM.into()),
            SET_FS => {
                self.registers_mut(who.thread).fs_base = value;
                Ok(0)
            }
            SET_GS => {
                self.registers_mut(who.thread).gs_base = value;
                Ok(0)
            }
            GET_FS => {
                self.memory.write(who.space, value, &registers.fs_base)?;
                Ok(0)
            }
            GET_GS => {
                self.memory.write(who.space, value, &registers.gs_base)?;
                Ok(0)
            }
            _ => Err(EINVAL.into()),
        }
    }

    pub(crate) fn call_affinity(&mut self, who: Caller, bytes: u64, into: u64) -> Outcome {
        let count = host::processors();
        let needed = count.div_ceil(64) * 8;
        if bytes < needed as u64 {
            return Err(EINVAL.into());
        }
        let mut mask = vec![0u8; needed];
        for processor in 0..count {
            mask[processor / 8] |= 1 << (processor % 8);
        }
        self.memory.write_bytes(who.space, into, &mask)?;
        Ok(needed as u64)
    }

    pub(crate) fn call_mask_files(&mut self, who: Caller, mask: u32) -> Outcome {
        let place = std::rc::Rc::clone(&self.process(who.process).place);
        let before = std::mem::replace(&mut place.borrow_mut().mask, mask & 0o777);
        Ok(u64::from(before))
    }
}
