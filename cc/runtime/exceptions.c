/* exceptions.c: std::exception_ptr, by which std::future, too, hands an exception on. The exception itself is private memory of the component
 * that has thrown it: whoever takes it elsewhere is told so, before libstdc++ follows a pointer that means nothing here. */
#include <stdint.h>
#include <sys/uio.h>
#include <unistd.h>

#include "runtime.h"

/* What stands before each exception of C++: its class, by which languages know their own. The last byte tells of exceptions that several refer to. */
enum { CLASS_BEFORE = 32 };
static const uint64_t class_of_cplusplus = 0x474e5543432b2b00;

/* The kernel reads it: there may be nothing. */
static int is_here(const char *exception)
{
    uint64_t class = 0;
    struct iovec to = {&class, sizeof class}, from = {(void *)(exception - CLASS_BEFORE), sizeof class};
    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == sizeof class && (class & ~(uint64_t)1) == class_of_cplusplus;
}

/* The exception of a pointer to it that may stand in shared memory. */
static void *exception_of(void *const *pointer)
{
    void *exception;
    comb_copy_from(&exception, pointer, sizeof exception);
    if (exception && comb_is_spread() && !is_here(exception))
        comb_die("an exception cannot go to another component, by std::future or std::exception_ptr: catch it in the thread that throws it");
    return exception;
}

void real_addref(void **pointer) __asm__("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv") __attribute__((weak));
void real_release(void **pointer) __asm__("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv") __attribute__((weak));
void real_rethrow(void **pointer) __asm__("_ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE") __attribute__((weak, noreturn));

void comb_lib__ZNSt15__exception_ptr13exception_ptr9_M_addrefEv(void **pointer)
{
    void *own = exception_of(pointer);
    real_addref(&own);
}

void comb_lib__ZNSt15__exception_ptr13exception_ptr10_M_releaseEv(void **pointer)
{
    void *own = exception_of(pointer);
    real_release(&own);
    comb_copy_to(pointer, &own, sizeof own);
}

void comb_lib__ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE(void **pointer)
{
    void *own = exception_of(pointer);
    real_rethrow(&own);
}
