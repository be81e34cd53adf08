//! How a program is started: its file and its interpreter are mapped, and its stack is laid out as the ABI says.

use crate::descriptors::{Kind, OpenFile};
use crate::elf::{self, HEADER_BYTES, Image};
use crate::errno::{E2BIG, EACCES, EINVAL, ELOOP, ENOENT, ENOEXEC, ENOMEM, Errno};
use crate::host;
use crate::machine::{Machine, PAGE_BYTES, Registers, Rights};
use crate::spaces::{Mapping, Place, STACK_BYTES, SpaceNumber};
use crate::unix::{Caller, Unix};
use crate::waiting::{Outcome, Stop};
use std::os::fd::AsRawFd;
use std::rc::Rc;

/// All arguments and environment together, and each of them.
const MOST_ARGUMENT_BYTES: usize = 2 << 20;
const MOST_ONE_ARGUMENT: usize = 128 << 10;
/// Interpreters of interpreters of scripts.
const MOST_SCRIPTS: usize = 5;
/// Where a program goes that can be loaded anywhere.
const PROGRAM_BASE: u64 = 0x5555_5555_4000;

/// What is to be started, when all names have been found.
struct Program {
    file: Rc<OpenFile>,
    name: Vec<u8>,
    image: Image,
    interpreter: Option<(Rc<OpenFile>, Image)>,
}

/// What a program gets on its stack.
#[derive(Clone, Default)]
pub(crate) struct Invocation {
    pub(crate) arguments: Vec<Vec<u8>>,
    pub(crate) environment: Vec<Vec<u8>>,
}

impl Invocation {
    fn check(&self) -> Result<(), Errno> {
        let mut total = 0usize;
        for text in self.arguments.iter().chain(&self.environment) {
            if text.len() >= MOST_ONE_ARGUMENT {
                return Err(E2BIG);
            }
            total += text.len() + 9;
        }
        if total > MOST_ARGUMENT_BYTES { Err(E2BIG) } else { Ok(()) }
    }
}

fn read_range(file: &OpenFile, range: std::ops::Range<u64>) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0u8; (range.end - range.start) as usize];
    let host = file.host().ok_or(EACCES)?;
    let read = host::read_own(host, &mut bytes, range.start)?;
    bytes.truncate(read as usize);
    Ok(bytes)
}

fn image_of(file: &OpenFile) -> Result<Image, Errno> {
    let header = read_range(file, 0..HEADER_BYTES as u64)?;
    let headers = read_range(file, elf::headers(&header)?)?;
    elf::parse(&header, &headers)
}

/// The interpreter of a script and its one argument, from the first line.
fn script_line(start: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let line = start.strip_prefix(b"#!")?;
    let line = &line[..line.iter().position(|&byte| byte == b'\n').unwrap_or(line.len())];
    let line = line.trim_ascii();
    let end = line.iter().position(|&byte| byte == b' ' || byte == b'\t').unwrap_or(line.len());
    let argument = line[end..].trim_ascii();
    Some((line[..end].to_vec(), (!argument.is_empty()).then(|| argument.to_vec())))
}

impl<M: Machine> Unix<M> {
    fn open_program(
        &mut self,
        who: Caller,
        directory: i32,
        path: &[u8],
        follow: bool,
    ) -> Result<Rc<OpenFile>, Errno> {
        let flags = libc::O_RDONLY | if follow { 0 } else { libc::O_NOFOLLOW };
        let file = self.open(who, directory, path, flags, 0)?;
        match &file.kind {
            Kind::Regular { host, .. } => host::may_access(host.as_raw_fd(), libc::X_OK)?,
            _ => return Err(EACCES),
        }
        Ok(file)
    }

    /// Finds the program behind a file, through scripts.
    fn find_program(
        &mut self,
        who: Caller,
        mut file: Rc<OpenFile>,
        path: &[u8],
        call: &mut Invocation,
    ) -> Result<Program, Errno> {
        let mut path = path.to_vec();
        for _ in 0..MOST_SCRIPTS {
            let start = read_range(&file, 0..256)?;
            let Some((interpreter, argument)) = script_line(&start) else {
                let image = image_of(&file)?;
                let name = file.host().map_or(Err(ENOENT), |host| self.host_name(host)).unwrap_or(path);
                let interpreter = self.find_interpreter(who, &file, &image)?;
                return Ok(Program { file, name, image, interpreter });
            };
            if interpreter.is_empty() {
                return Err(ENOEXEC);
            }
            let mut arguments = vec![interpreter.clone()];
            arguments.extend(argument);
            arguments.push(path);
            arguments.extend(call.arguments.drain(..).skip(1));
            call.arguments = arguments;
            file = self.open_program(who, libc::AT_FDCWD, &interpreter, true)?;
            path = interpreter;
        }
        Err(ELOOP)
    }

    fn find_interpreter(
        &mut self,
        who: Caller,
        file: &OpenFile,
        image: &Image,
    ) -> Result<Option<(Rc<OpenFile>, Image)>, Errno> {
        let Some(range) = image.interpreter.clone() else { return Ok(None) };
        let mut name = read_range(file, range)?;
        let end = name.iter().position(|&byte| byte == 0).ok_or(ENOEXEC)?;
        name.truncate(end);
        let file = self.open_program(who, libc::AT_FDCWD, &name, true)?;
        let image = image_of(&file)?;
        Ok(Some((file, image)))
    }

    /// Maps the pieces of a file, and says what is added to its addresses.
    fn load(&mut self, space: SpaceNumber, file: &OpenFile, image: &Image, wish: u64) -> Result<u64, Errno> {
        let extent = image.extent();
        let bytes = extent.end - extent.start;
        let reserve = |place| {
            (place, Mapping { rights: Rights::NONE, shared: false, grows_down: false, backing: None })
        };
        let (place, mapping) =
            reserve(if image.movable { Place::Near(wish) } else { Place::OnlyIfFree(extent.start) });
        let start = self.memory.map(space, place, bytes, mapping)?;
        let base = start.wrapping_sub(extent.start);
        let host = file.host().ok_or(ENOEXEC)?;
        let object = self.memory.objects.file(&mut self.memory.frames, host, false)?;
        self.memory.unmap(space, start, bytes)?;
        for load in &image.loads {
            let address = base.wrapping_add(load.address);
            let before = address % PAGE_BYTES;
            let first = address - before;
            let file_end = (address + load.file_bytes).next_multiple_of(PAGE_BYTES);
            let memory_end = (address + load.memory_bytes).next_multiple_of(PAGE_BYTES);
            if load.file_bytes > 0 {
                let backing = Some((Rc::clone(&object), (load.offset - before) / PAGE_BYTES));
                let mapping = Mapping { rights: load.rights, shared: false, grows_down: false, backing };
                self.memory.map(space, Place::OnlyIfFree(first), file_end - first, mapping)?;
            }
            let zeroes_from = if load.file_bytes > 0 { file_end } else { first };
            if memory_end > zeroes_from {
                let mapping =
                    Mapping { rights: load.rights, shared: false, grows_down: false, backing: None };
                self.memory.map(space, Place::OnlyIfFree(zeroes_from), memory_end - zeroes_from, mapping)?;
            }
            let file_stop = address + load.file_bytes;
            if load.file_bytes > 0 && load.memory_bytes > load.file_bytes && load.rights.write {
                let zeroes = vec![0u8; (file_end - file_stop) as usize];
                self.memory.write_bytes(space, file_stop, &zeroes)?;
            }
        }
        Ok(base)
    }

    /// Fills a new space with a program, and says with which registers it begins.
    fn build(
        &mut self,
        space: SpaceNumber,
        program: &Program,
        call: &Invocation,
    ) -> Result<Registers, Errno> {
        let base = self.load(space, &program.file, &program.image, PROGRAM_BASE)?;
        let entry = base.wrapping_add(program.image.entry);
        let heap = base.wrapping_add(program.image.extent().end);
        self.memory.place_heap(space, heap);
        let (start, interpreter_base) = match &program.interpreter {
            None => (entry, 0),
            Some((file, image)) => {
                let base = self.load(space, file, image, 0)?;
                (base.wrapping_add(image.entry), base)
            }
        };
        let headers = match program.image.headers_address {
            0 => 0,
            address => base.wrapping_add(address),
        };
        let auxiliary = [
            (libc::AT_PHDR, headers),
            (libc::AT_PHENT, 56),
            (libc::AT_PHNUM, program.image.header_count),
            (libc::AT_BASE, interpreter_base),
            (libc::AT_ENTRY, entry),
        ];
        let rsp = self.build_stack(space, call, &program.name, &auxiliary)?;
        Ok(Registers { rip: start, rsp, rflags: 0x202, ..Registers::default() })
    }

    fn build_stack(
        &mut self,
        space: SpaceNumber,
        call: &Invocation,
        name: &[u8],
        known: &[(u64, u64)],
    ) -> Result<u64, Errno> {
        let top = self.memory.space(space).regions.bounds().end;
        let mut strings: Vec<u8> = Vec::new();
        let mut offsets = Vec::new();
        let texts = call.arguments.iter().chain(&call.environment).map(Vec::as_slice);
        for text in texts.chain([name, b"x86_64"]) {
            offsets.push(strings.len() as u64);
            strings.extend_from_slice(text);
            strings.push(0);
        }
        let random_at = strings.len() as u64;
        strings.extend_from_slice(&[0; 16]);
        let tail = strings.len() - 16;
        host::random(&mut strings[tail..]);
        let strings_at = (top - 16 - strings.len() as u64) & !15;
        let text = |index: usize| strings_at + offsets[index];
        let (arguments, environment) = (call.arguments.len(), call.environment.len());
        let [user, effective_user, group, effective_group] = host::identity();
        let mut words = vec![arguments as u64];
        words.extend((0..arguments).map(text));
        words.push(0);
        words.extend((arguments..arguments + environment).map(text));
        words.push(0);
        // The C library must not use instructions that change the base of a segment behind the emulator's back.
        const FSGSBASE: u64 = 2;
        let mut auxiliary = known.to_vec();
        auxiliary.extend([
            (libc::AT_PAGESZ, PAGE_BYTES),
            (libc::AT_FLAGS, 0),
            (libc::AT_UID, u64::from(user)),
            (libc::AT_EUID, u64::from(effective_user)),
            (libc::AT_GID, u64::from(group)),
            (libc::AT_EGID, u64::from(effective_group)),
            (libc::AT_CLKTCK, 100),
            (libc::AT_HWCAP, host::auxiliary(libc::AT_HWCAP)),
            (libc::AT_HWCAP2, host::auxiliary(libc::AT_HWCAP2) & !FSGSBASE),
            (libc::AT_MINSIGSTKSZ, host::auxiliary(libc::AT_MINSIGSTKSZ).max(2048)),
            (libc::AT_SECURE, 0),
            (libc::AT_PLATFORM, text(arguments + environment + 1)),
            (libc::AT_EXECFN, text(arguments + environment)),
            (libc::AT_RANDOM, strings_at + random_at),
            (libc::AT_NULL, 0),
        ]);
        words.extend(auxiliary.iter().flat_map(|&(kind, value)| [kind, value]));
        let rsp = (strings_at - words.len() as u64 * 8) & !15;
        let bottom = (rsp - rsp % PAGE_BYTES).saturating_sub(16 * PAGE_BYTES);
        if top - bottom > STACK_BYTES {
            return Err(E2BIG);
        }
        let mapping = Mapping { rights: Rights::READ_WRITE, shared: false, grows_down: true, backing: None };
        self.memory.map(space, Place::OnlyIfFree(bottom), top - bottom, mapping)?;
        self.memory.write_bytes(space, strings_at, &strings)?;
        self.memory.write_bytes(
            space,
            rsp,
            &words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>(),
        )?;
        Ok(rsp)
    }

    /// Puts a program in the place of what the caller's process runs. Nothing has changed after an error.
    pub(crate) fn start(
        &mut self,
        who: Caller,
        file: Rc<OpenFile>,
        path: &[u8],
        mut call: Invocation,
    ) -> Result<(), Errno> {
        call.check()?;
        let program = self.find_program(who, file, path, &mut call)?;
        call.check()?;
        let space = self.memory.new_space()?;
        let loaded = self.build(space, &program, &call).and_then(|registers| {
            let machine_space = self.memory.space(space).machine;
            self.memory.machine.load_thread(machine_space, &registers).ok_or(ENOMEM)
        });
        let machine = match loaded {
            Ok(machine) => machine,
            Err(error) => {
                self.memory.release_space(space);
                return Err(error);
            }
        };
        let who = self.end_other_threads(who);
        let used = self.used_by_thread(who.thread);
        let thread = self.thread_mut(who.thread);
        let old_machine = std::mem::replace(&mut thread.machine, machine);
        thread.stack = crate::layouts::SignalStack::default();
        (thread.clear_at, thread.robust_list) = (0, (0, 0));
        (thread.name, thread.used_before) = ([0; 16], used);
        let base = path.rsplit(|&byte| byte == b'/').next().unwrap_or(b"");
        let bytes = base.len().min(15);
        thread.name[..bytes].copy_from_slice(&base[..bytes]);
        self.by_machine.remove(&old_machine);
        self.by_machine.insert(machine, who.thread);
        self.memory.machine.end_thread(old_machine);
        self.part(who.process);
        self.memory.release_space(who.space);
        let process = self.process_mut(who.process);
        process.space = space;
        process.executed = true;
        process.executable = program.name;
        process.arguments = call.arguments;
        process.environment = call.environment;
        let mut actions = *process.actions.borrow();
        for action in &mut actions {
            let ignored = action.handler == crate::signals::IGNORE;
            *action = crate::layouts::Action::default();
            action.handler = if ignored { crate::signals::IGNORE } else { crate::signals::DEFAULT };
        }
        process.actions = Rc::new(std::cell::RefCell::new(actions));
        let own_table = process.table.borrow().clone();
        process.table = Rc::new(std::cell::RefCell::new(own_table));
        let closing = process.table.borrow().closing_on_exec();
        for descriptor in closing {
            // It is in the table, since it was just found there.
            let _ = self.close(who, descriptor);
        }
        Ok(())
    }

    /// `execve` and `execveat`.
    pub(crate) fn call_exec(&mut self, who: Caller, directory: i32, at: [u64; 3], flags: i32) -> Outcome {
        let [path, arguments, environment] = at;
        if flags & !(libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW) != 0 {
            return Err(EINVAL.into());
        }
        let path = self.path_argument(who, path)?;
        let mut call = Invocation {
            arguments: self.strings(who, arguments)?,
            environment: self.strings(who, environment)?,
        };
        if call.arguments.is_empty() {
            call.arguments.push(Vec::new());
        }
        let (file, path) = if path.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
            let file = self.file(who, directory)?;
            let name = self.host_name(file.host().ok_or(EACCES)?)?;
            (self.open_program(who, libc::AT_FDCWD, &name, true)?, name)
        } else {
            (self.open_program(who, directory, &path, flags & libc::AT_SYMLINK_NOFOLLOW == 0)?, path)
        };
        self.start(who, file, &path, call)?;
        Err(Stop::Gone)
    }

    fn strings(&mut self, who: Caller, list: u64) -> Result<Vec<Vec<u8>>, Errno> {
        let mut strings = Vec::new();
        let (mut at, mut total) = (list, 0);
        while at != 0 {
            let pointer: u64 = self.memory.read(who.space, at)?;
            if pointer == 0 {
                break;
            }
            let text = self
                .memory
                .read_string(who.space, pointer, MOST_ONE_ARGUMENT)
                .map_err(|error| if error == crate::errno::ENAMETOOLONG { E2BIG } else { error })?;
            total += text.len() + 9;
            if total > MOST_ARGUMENT_BYTES {
                return Err(E2BIG);
            }
            strings.push(text);
            at = at.checked_add(8).ok_or(crate::errno::EFAULT)?;
        }
        Ok(strings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_script_is_cut_as_linux_cuts_it() {
        assert_eq!(
            script_line(b"#! /bin/sh  -e x \nrest"),
            Some((b"/bin/sh".to_vec(), Some(b"-e x".to_vec())))
        );
        assert_eq!(script_line(b"#!/bin/sh"), Some((b"/bin/sh".to_vec(), None)));
        assert_eq!(script_line(b"\x7fELF"), None);
    }
}
