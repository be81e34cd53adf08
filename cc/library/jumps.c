/* setjmp and longjmp: libc's, on a private copy of the program's buffer. Where a jump goes is written as libc writes it, so that plain
 * libraries can make it, too. */
#include "wrap.h"

#include <setjmp.h>
#include <signal.h>
#include <stddef.h>

#include "reach.h"

/* libc's jmp_buf: eight registers, of which rbp, rsp and rip are mangled, and then the mask. */
_Static_assert(sizeof(struct __jmp_buf_tag) == 200 && offsetof(struct __jmp_buf_tag, __mask_was_saved) == 64, "what the assembly below fills");

/* pthread_cleanup_push() gives a buffer that has no room for more. */
enum { WITHOUT_MASK = offsetof(struct __jmp_buf_tag, __saved_mask) };

__attribute__((used)) static void keep(struct __jmp_buf_tag *shared, struct __jmp_buf_tag *own, int keeps_mask)
{
    own->__mask_was_saved = keeps_mask && !sigprocmask(SIG_BLOCK, NULL, (sigset_t *)&own->__saved_mask);
    comb_copy_to(shared, own, own->__mask_was_saved ? sizeof *own : WITHOUT_MASK);
}

/* comb_lib___sigsetjmp(buffer, keeps_mask): the registers as they will be when it has returned. */
__asm__(".pushsection .text\n"
        ".globl comb_lib__setjmp, comb_lib_setjmp, comb_lib_sigsetjmp, comb_lib___sigsetjmp\n"
        ".type comb_lib__setjmp, @function\n.type comb_lib_setjmp, @function\n"
        ".type comb_lib_sigsetjmp, @function\n.type comb_lib___sigsetjmp, @function\n"
        "comb_lib__setjmp:\n"
        "    xorl %esi, %esi\n"
        "    jmp comb_sigsetjmp\n"
        "comb_lib_setjmp:\n"
        "    movl $1, %esi\n"
        "comb_lib_sigsetjmp:\n"
        "comb_lib___sigsetjmp:\n"
        "comb_sigsetjmp:\n"
        "    .cfi_startproc\n"
        "    subq $216, %rsp\n"
        "    .cfi_adjust_cfa_offset 216\n"
        "    movq %rbx, (%rsp)\n"
        "    movq %rbp, %rax\n"
        "    xorq %fs:0x30, %rax\n"
        "    rolq $17, %rax\n"
        "    movq %rax, 8(%rsp)\n"
        "    movq %r12, 16(%rsp)\n"
        "    movq %r13, 24(%rsp)\n"
        "    movq %r14, 32(%rsp)\n"
        "    movq %r15, 40(%rsp)\n"
        "    leaq 224(%rsp), %rax\n"
        "    xorq %fs:0x30, %rax\n"
        "    rolq $17, %rax\n"
        "    movq %rax, 48(%rsp)\n"
        "    movq 216(%rsp), %rax\n"
        "    xorq %fs:0x30, %rax\n"
        "    rolq $17, %rax\n"
        "    movq %rax, 56(%rsp)\n"
        "    movl %esi, %edx\n"
        "    movq %rsp, %rsi\n"
        "    call keep\n"
        "    addq $216, %rsp\n"
        "    .cfi_adjust_cfa_offset -216\n"
        "    xorl %eax, %eax\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".popsection\n");

void comb_lib_longjmp(struct __jmp_buf_tag *shared, int value)
{
    jmp_buf own;
    comb_copy_from(own, shared, WITHOUT_MASK);
    if (own->__mask_was_saved)
        comb_copy_from(own, shared, sizeof own);
    longjmp(own, value);
}
COMB_ALIAS(_longjmp, longjmp);
COMB_ALIAS(siglongjmp, longjmp);
COMB_ALIAS(__longjmp_chk, longjmp);
