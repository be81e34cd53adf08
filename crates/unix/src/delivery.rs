//! How a thread gets its signals: by a frame on its stack as Linux lays it out, by the end of its process, or by a halt.

use crate::errno::EINTR;
use crate::layouts::{Action, SignalContext, SignalFrame, SignalInformation, SignalStack, UserContext};
use crate::machine::{Machine, Registers};
use crate::processes::State;
use crate::signals::{DEFAULT, Effect, IGNORE, bit, effect, information, unstoppable};
use crate::unix::{Caller, Unix};
use crate::waiting::{Id, Interruption, Outcome, Stop};
use std::mem::size_of;
use zerocopy::IntoBytes;

const RESTORER: u64 = 0x0400_0000;
const ON_STACK: u64 = 0x0800_0000;
const RESTART: u64 = 0x1000_0000;
const NOT_MASKED: u64 = 0x4000_0000;
const ONCE: u64 = 0x8000_0000;

/// The flags of `rflags` that a program may set for itself.
const PROGRAM_FLAGS: u64 = 0x0005_0dd5;
/// The bytes below the stack pointer that a function may use without moving it.
const RED_ZONE: u64 = 128;
/// `UC_FP_XSTATE`, `UC_SIGCONTEXT_SS`, `UC_STRICT_RESTORE_SS`.
const CONTEXT_FLAGS: u64 = 7;
/// Where in an image of the vector state its size in a signal frame is.
const IMAGE_BYTES_AT: usize = 468;

fn saved(registers: &Registers) -> SignalContext {
    SignalContext {
        r8: registers.r8,
        r9: registers.r9,
        r10: registers.r10,
        r11: registers.r11,
        r12: registers.r12,
        r13: registers.r13,
        r14: registers.r14,
        r15: registers.r15,
        rdi: registers.rdi,
        rsi: registers.rsi,
        rbp: registers.rbp,
        rbx: registers.rbx,
        rdx: registers.rdx,
        rax: registers.rax,
        rcx: registers.rcx,
        rsp: registers.rsp,
        rip: registers.rip,
        rflags: registers.rflags,
        cs: 0x33,
        ss: 0x2b,
        ..SignalContext::default()
    }
}

fn restore(context: &SignalContext, registers: &mut Registers) {
    *registers = Registers {
        r8: context.r8,
        r9: context.r9,
        r10: context.r10,
        r11: context.r11,
        r12: context.r12,
        r13: context.r13,
        r14: context.r14,
        r15: context.r15,
        rdi: context.rdi,
        rsi: context.rsi,
        rbp: context.rbp,
        rbx: context.rbx,
        rdx: context.rdx,
        rax: context.rax,
        rcx: context.rcx,
        rsp: context.rsp,
        rip: context.rip,
        rflags: registers.rflags & !PROGRAM_FLAGS | context.rflags & PROGRAM_FLAGS,
        fs_base: registers.fs_base,
        gs_base: registers.gs_base,
    };
}

impl<M: Machine> Unix<M> {
    /// A signal has come for a thread that waits: its call ends or is to be made again.
    pub(crate) fn interrupt_wait(&mut self, id: Id) {
        let Some(thread) = self.threads.get(&id) else { return };
        let State::Waiting(wait) = &thread.state else { return };
        let set = self.deliverable(id);
        if set == 0 || wait.interruption == Interruption::Ignore && set & bit(libc::SIGKILL) == 0 {
            return;
        }
        let interruption = wait.interruption;
        let next = set.trailing_zeros() as i32 + 1;
        let action = self.process(thread.process).actions.borrow()[next as usize - 1];
        let handled = action.handler != DEFAULT && action.handler != IGNORE;
        let again = !handled || interruption == Interruption::Restart && action.flags & RESTART != 0;
        let (done, number) = (thread.progress.done, thread.call.0);
        self.tell_rest_of_sleep(id);
        self.forget_wait(id);
        let registers = self.registers_mut(id);
        if done > 0 {
            registers.rax = done;
        } else if again {
            registers.rax = number;
            registers.rip = registers.rip.wrapping_sub(2);
        } else {
            registers.rax = (-i64::from(EINTR.0)) as u64;
        }
        self.leave(id);
    }

    /// Lets a stopped thread go on in user mode, after its signals; or ends or halts it.
    pub(crate) fn leave(&mut self, id: Id) {
        loop {
            let Some(thread) = self.threads.get_mut(&id) else { return };
            thread.state = State::Stopped;
            thread.awaits = 0;
            let process = thread.process;
            let set = self.deliverable(id);
            if self.process(process).halted && set & bit(libc::SIGKILL) == 0 {
                self.thread_mut(id).state = State::Halted;
                return;
            }
            if set == 0 {
                break;
            }
            let first = if set & bit(libc::SIGKILL) != 0 { bit(libc::SIGKILL) } else { set };
            let taken = match self.thread_mut(id).pending.take(first) {
                None => self.process_mut(process).pending.take(first),
                taken => taken,
            };
            let Some(information) = taken else { break };
            let signal = information.number;
            let action = self.process(process).actions.borrow()[signal as usize - 1];
            match action.handler {
                IGNORE => {}
                DEFAULT => match effect(signal) {
                    Effect::Nothing | Effect::GoOn => {}
                    Effect::Halt => self.halt(process, signal),
                    // No core is ever written, and so the status does not say that one was.
                    Effect::End | Effect::EndWithCore => return self.end_process(process, signal),
                },
                _ => self.enter_handler(id, action, &information),
            }
        }
        let Some(thread) = self.threads.get_mut(&id) else { return };
        if let Some(mask) = thread.saved_mask.take() {
            thread.mask = mask;
            if self.deliverable(id) != 0 {
                return self.leave(id);
            }
        }
        let thread = self.thread_mut(id);
        thread.state = State::Running;
        let machine = thread.machine;
        self.memory.machine.resume(machine);
    }

    fn enter_handler(&mut self, id: Id, action: Action, information: &SignalInformation) {
        if action.flags & ONCE != 0 {
            let process = self.thread(id).process;
            self.process(process).actions.borrow_mut()[information.number as usize - 1].handler = DEFAULT;
        }
        if self.write_frame(id, action, information).is_none() {
            // There is no stack to tell it on. The program can only end, as on Linux.
            let process = self.thread(id).process;
            if information.number == libc::SIGSEGV {
                self.process(process).actions.borrow_mut()[libc::SIGSEGV as usize - 1].handler = DEFAULT;
            }
            self.force(id, crate::signals::information(libc::SIGSEGV, libc::SI_KERNEL));
        }
    }

    fn write_frame(&mut self, id: Id, action: Action, information: &SignalInformation) -> Option<()> {
        let who = self.caller(id)?;
        let (machine, mask, saved_mask, stack) = {
            let thread = self.thread_mut(id);
            (thread.machine, thread.mask, thread.saved_mask.take(), thread.stack)
        };
        let image = self.memory.machine.vector_state(machine);
        let registers = *self.registers(id);
        let usable = stack.flags & libc::SS_DISABLE == 0 && stack.bytes > 0;
        let on_it = usable && registers.rsp > stack.base && registers.rsp - stack.base <= stack.bytes;
        let top = if action.flags & ON_STACK != 0 && usable && !on_it {
            stack.base.checked_add(stack.bytes)?
        } else {
            registers.rsp.checked_sub(RED_ZONE)?
        };
        let state = top.checked_sub(image.len() as u64)? & !63;
        let frame_at = (state.checked_sub(size_of::<SignalFrame>() as u64 + 8)? & !15).checked_sub(8)?;
        if on_it && frame_at < stack.base {
            return None;
        }
        let mut context = saved(&registers);
        context.vector_state = if image.is_empty() { 0 } else { state };
        context.old_mask = saved_mask.unwrap_or(mask);
        if matches!(information.number, libc::SIGSEGV | libc::SIGBUS) {
            context.cr2 = information.rest[0];
            context.trap = 14;
            context.error = self.thread(id).fault_error;
        }
        let frame = SignalFrame {
            return_address: if action.flags & RESTORER != 0 { action.restorer } else { 0 },
            context: UserContext {
                flags: CONTEXT_FLAGS,
                link: 0,
                stack,
                context,
                mask: saved_mask.unwrap_or(mask),
            },
            information: *information,
        };
        self.memory.write_bytes(who.space, state, &image).ok()?;
        self.memory.write_bytes(who.space, frame_at, frame.as_bytes()).ok()?;
        let blocked = if action.flags & NOT_MASKED == 0 { bit(information.number) } else { 0 };
        self.thread_mut(id).mask = (mask | action.mask | blocked) & !unstoppable();
        let with_information = size_of::<UserContext>() as u64 + 8;
        let registers = self.registers_mut(id);
        registers.rdi = information.number as u64;
        registers.rsi = frame_at + with_information;
        registers.rdx = frame_at + 8;
        registers.rax = 0;
        registers.rsp = frame_at;
        registers.rip = action.handler;
        // Direction, trap and resume are as a function expects them.
        registers.rflags &= !0x1_0500;
        Some(())
    }

    /// `rt_sigreturn`: everything in the frame may have been changed by the program.
    pub(crate) fn call_return(&mut self, who: Caller) -> Outcome {
        let frame_at = self.registers(who.thread).rsp.wrapping_sub(8);
        if self.take_frame(who, frame_at).is_none() {
            self.force(who.thread, information(libc::SIGSEGV, libc::SI_KERNEL));
        }
        Err(Stop::Gone)
    }

    fn take_frame(&mut self, who: Caller, frame_at: u64) -> Option<()> {
        let frame: SignalFrame = self.memory.read(who.space, frame_at).ok()?;
        let machine = self.thread(who.thread).machine;
        let context = &frame.context.context;
        if context.vector_state != 0 {
            let most = self.memory.machine.vector_state(machine).len();
            let mut image = vec![0u8; most.min(512)];
            self.memory.read_bytes(who.space, context.vector_state, &mut image).ok()?;
            let bytes = image.get(IMAGE_BYTES_AT..IMAGE_BYTES_AT + 4)?;
            let said = u32::from_le_bytes(bytes.try_into().ok()?) as usize;
            image.resize(said.clamp(512.min(most), most), 0);
            self.memory.read_bytes(who.space, context.vector_state, &mut image).ok()?;
            if !self.memory.machine.set_vector_state(machine, &image) {
                return None;
            }
        }
        // An address that the processor refuses would be an exception below; here it is the program's fault.
        if context.rip >= 1 << 47 {
            return None;
        }
        restore(context, self.registers_mut(who.thread));
        let thread = self.thread_mut(who.thread);
        thread.mask = frame.context.mask & !unstoppable();
        let stack = frame.context.stack;
        if stack.flags & !(libc::SS_ONSTACK | libc::SS_DISABLE) == 0 && stack.flags & libc::SS_DISABLE == 0 {
            thread.stack = SignalStack { flags: 0, ..stack };
        }
        Some(())
    }

    /// Tells a thread that its access failed.
    pub(crate) fn refuse(
        &mut self,
        id: Id,
        refusal: crate::spaces::Refusal,
        address: u64,
        access: crate::machine::Access,
    ) {
        use crate::spaces::Refusal;
        let (signal, code) = match refusal {
            Refusal::Unmapped => (libc::SIGSEGV, 1),
            Refusal::Forbidden => (libc::SIGSEGV, 2),
            Refusal::NoContent | Refusal::Elsewhere(_) => (libc::SIGBUS, 2),
            Refusal::Exhausted => (libc::SIGKILL, libc::SI_KERNEL),
        };
        let error = match access {
            crate::machine::Access::Read => 4,
            crate::machine::Access::Write => 6,
            crate::machine::Access::Execute => 20,
        };
        self.thread_mut(id).fault_error = error + u64::from(refusal == Refusal::Forbidden);
        self.force(id, crate::signals::of_fault(signal, code, address));
    }
}
