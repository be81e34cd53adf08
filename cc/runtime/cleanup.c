/* cleanup.c: pthread_cleanup_push() in C, whose buffers libc would keep and look at unseen. A thread that ends jumps from one handler to the
 * next, as libc has it. In C++, and with -fexceptions, handlers are destructors. */
#include <pthread.h>
#include <setjmp.h>

#include "lives.h"
#include "runtime.h"

void comb_lib_longjmp(struct __jmp_buf_tag *shared, int value);

/* The buffers are a list, which begins here. */
static _Thread_local __pthread_unwind_buf_t *innermost;

static __pthread_unwind_buf_t *behind(__pthread_unwind_buf_t *buffer)
{
    __pthread_unwind_buf_t *next;
    comb_copy_from(&next, &buffer->__pad[0], sizeof next);
    return next;
}

void comb_lib___pthread_register_cancel(__pthread_unwind_buf_t *buffer)
{
    comb_copy_to(&buffer->__pad[0], &innermost, sizeof innermost);
    innermost = buffer;
}

void comb_lib___pthread_unregister_cancel(__pthread_unwind_buf_t *buffer)
{
    innermost = behind(buffer);
}

void comb_clean_up(void)
{
    __pthread_unwind_buf_t *buffer = innermost;
    if (!buffer)
        return;
    innermost = behind(buffer);
    comb_lib_longjmp((struct __jmp_buf_tag *)buffer->__cancel_jmp_buf, 1);
}

/* The handler that a jump led to has run. */
void comb_lib___pthread_unwind_next(__pthread_unwind_buf_t *buffer)
{
    (void)buffer;
    comb_clean_up();
    comb_end_of_thread();
}
