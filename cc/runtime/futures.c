/* futures.c: what std::future, std::promise and std::async have in libstdc++'s own library: the state's futex, and the base of results. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdbool.h>

#include "finish.h"
#include "objects.h"
#include "words.h"

/* The time is seconds and nanoseconds on the clock. */
static bool wait_until(uint32_t *word, uint32_t value, bool has_deadline, long seconds, long nanoseconds, int is_realtime)
{
    struct timespec at = {seconds, nanoseconds};
    const struct timespec *deadline = has_deadline ? &at : NULL;
    comb_flush_output();
    if (comb_is_by_messages(word))
        return comb_here.program->futex(word, FUTEX_WAIT, value, deadline, is_realtime) != -ETIMEDOUT;
    return comb_word_wait((comb_word *)word, value, (struct comb_deadline){deadline, is_realtime}) != ETIMEDOUT;
}

bool wait_realtime(void *self, uint32_t *word, uint32_t value, bool has_deadline, long seconds, long nanoseconds) __asm__(
    "comb_lib__ZNSt28__atomic_futex_unsigned_base19_M_futex_wait_untilEPjjbNSt6chrono8durationIlSt5ratioILl1ELl1EEEENS2_IlS3_ILl1ELl1000000000EEEE");
bool wait_realtime(void *self, uint32_t *word, uint32_t value, bool has_deadline, long seconds, long nanoseconds)
{
    (void)self;
    return wait_until(word, value, has_deadline, seconds, nanoseconds, 1);
}

bool wait_steady(void *self, uint32_t *word, uint32_t value, bool has_deadline, long seconds, long nanoseconds) __asm__(
    "comb_lib__ZNSt28__atomic_futex_unsigned_base26_M_futex_wait_until_steadyEPjjbNSt6chrono8durationIlSt5ratioILl1ELl1EEEENS2_IlS3_ILl1ELl1000000000EEEE");
bool wait_steady(void *self, uint32_t *word, uint32_t value, bool has_deadline, long seconds, long nanoseconds)
{
    (void)self;
    return wait_until(word, value, has_deadline, seconds, nanoseconds, 0);
}

/* The object may be gone already, and its memory with it: nothing there is touched. */
void comb_lib__ZNSt28__atomic_futex_unsigned_base19_M_futex_notify_allEPj(uint32_t *word)
{
    comb_flush_output();
    if (comb_is_by_messages(word))
        comb_here.program->futex(word, FUTEX_WAKE, INT_MAX, NULL, 0);
    else
        comb_word_wake((comb_word *)word, INT_MAX);
}

/* A table of functions, and an exception's pointer. */
enum { RESULT_BYTES = 16 };

void real_make_result(void *result) __asm__("_ZNSt13__future_base12_Result_baseC2Ev") __attribute__((weak));
void real_end_result(void *result) __asm__("_ZNSt13__future_base12_Result_baseD2Ev") __attribute__((weak));
void real_set_later(void *self) __asm__("_ZNSt13__future_base13_State_baseV211_Make_ready6_M_setEv") __attribute__((weak));

void comb_lib__ZNSt13__future_base12_Result_baseC2Ev(void *result)
{
    comb_pin(&(struct comb_need){result, RESULT_BYTES, 1}, 1);
    real_make_result(result);
    comb_unpin();
}

void comb_lib__ZNSt13__future_base12_Result_baseD2Ev(void *result)
{
    comb_pin(&(struct comb_need){result, RESULT_BYTES, 1}, 1);
    real_end_result(result);
    comb_unpin();
}

/* set_value_at_thread_exit(): libstdc++ looks at the state when the thread is over, unseen. */
void comb_lib__ZNSt13__future_base13_State_baseV211_Make_ready6_M_setEv(void *self)
{
    if (comb_here.by_messages)
        comb_die("std::promise's functions for the thread's exit are not supported by copies");
    real_set_later(self);
}
