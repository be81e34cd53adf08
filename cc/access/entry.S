/* The way out of instrumented code. Its fast path keeps values in any register, so nothing may change here but the flags. */

    .text

/* What C does not keep: nine registers, 72 bytes. */
.macro keep_registers
    pushq %rax
    pushq %rcx
    pushq %rdx
    pushq %rsi
    pushq %rdi
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
    cld
.endm

.macro give_registers_back
    popq %r11
    popq %r10
    popq %r9
    popq %r8
    popq %rdi
    popq %rsi
    popq %rdx
    popq %rcx
    popq %rax
.endm

/* comb_entry: called out of line by a load that read the flag, or a store whose block forbids it. On the stack, above the return
 * address: what (bytes << 2 | kind), the instruction, the address. again.c is compiled to general registers only, so that vectors
 * are saved on a true miss alone (comb_call_saving_vectors). */
    .globl comb_entry
    .type comb_entry, @function
    .balign 16
comb_entry:
    keep_registers
    movq 80(%rsp), %rsi
    movq 88(%rsp), %rdx
    movq 96(%rsp), %rdi
    call comb_again
    give_registers_back
    ret
    .size comb_entry, .-comb_entry

/* comb_load_end: a load whose entry left the thread pinned has read its value. */
    .globl comb_load_end
    .type comb_load_end, @function
    .balign 16
comb_load_end:
    incq %fs:comb_thread@tpoff
    ret
    .size comb_load_end, .-comb_load_end

/* The same registers for a batch: the thread is pinned, and its ranges are in comb_thread.noted; returns when they all hold. */
    .globl comb_batch
    .type comb_batch, @function
    .balign 16
comb_batch:
    keep_registers
    movq 72(%rsp), %rdi
    call comb_look_at_batch
    give_registers_back
    ret
    .size comb_batch, .-comb_batch

/* The same registers for a loop that has found mail. */
    .globl comb_poll
    .type comb_poll, @function
    .balign 16
comb_poll:
    keep_registers
    call comb_look_at_mail
    give_registers_back
    ret
    .size comb_poll, .-comb_poll

.macro for_each_vector what
    .irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    \what \number
    .endr
.endm

.macro keep_vector number
    movaps %xmm\number, 16 * \number(%rsp)
.endm

.macro give_vector_back number
    movaps 16 * \number(%rsp), %xmm\number
.endm

/* comb_call_saving_vectors(first, second, third, fourth, unused, function): calls it with all that compiled code may have in vector
 * registers and in those of the x87 kept. Without AVX that is sixteen registers, unless the x87's stack is somewhere: then it is in use. */
    .globl comb_call_saving_vectors
    .type comb_call_saving_vectors, @function
    .balign 16
comb_call_saving_vectors:
    pushq %rbp
    movq %rsp, %rbp
    andq $-64, %rsp
    cmpb $0, comb_has_wide_vectors(%rip)
    jne 1f
    fnstsw %ax
    testw $0x3800, %ax
    jne 1f
    subq $320, %rsp
    for_each_vector keep_vector
    stmxcsr 256(%rsp)
    call *%r9
    ldmxcsr 256(%rsp)
    for_each_vector give_vector_back
    leave
    ret
1:
    /* x87, SSE, AVX and AVX-512: 2,816 bytes hold that in XSAVE's standard form (AVX-512 ends at 2,688). */
    subq $2816, %rsp
    xorl %eax, %eax
    movq %rax, 512(%rsp)
    movq %rax, 520(%rsp)
    movq %rax, 528(%rsp)
    movq %rax, 536(%rsp)
    movq %rax, 544(%rsp)
    movq %rax, 552(%rsp)
    movq %rax, 560(%rsp)
    movq %rax, 568(%rsp)
    movq %rdx, %r8
    movl $0xe7, %eax
    xorl %edx, %edx
    xsave64 (%rsp)
    /* C expects a clean x87 stack. */
    fninit
    movq %r8, %rdx
    call *%r9
    movl $0xe7, %eax
    xorl %edx, %edx
    xrstor64 (%rsp)
    leave
    ret
    .size comb_call_saving_vectors, .-comb_call_saving_vectors

    .section .note.GNU-stack,"",@progbits
