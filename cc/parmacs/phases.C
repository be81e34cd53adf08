/* What each thread of the sieve does. */
EXTERN_ENV
#include "sieve.h"

long last_digit(long value);

long next_name(void) {
    long name;
    LOCK(sieve->name_lock)
    name = sieve->names++;
    UNLOCK(sieve->name_lock)
    return name;
}

static void sift_small(void) {
    for (long p = 2; p * p < LIMIT; p++) {
        if (!sieve->composite[p]) {
            for (long multiple = p * p; multiple * multiple < LIMIT; multiple += p) {
                sieve->composite[multiple] = 1;
            }
        }
    }
}

static void sift_segment(long segment) {
    long first = segment * SEGMENT, end = first + SEGMENT;
    for (long p = 2; p * p < end; p++) {
        if (sieve->composite[p]) {
            continue;
        }
        long multiple = (first + p - 1) / p * p;
        for (multiple = multiple < p * p ? p * p : multiple; multiple < end; multiple += p) {
            /* The small ones are read by all others meanwhile. */
            if (multiple * multiple >= LIMIT) {
                sieve->composite[multiple] = 1;
            }
        }
    }
}

void sift(void) {
    long segment, name = next_name();
    BARINCLUDE(sieve->start);
    BARRIER(sieve->start, sieve->threads)
    if (name == 0) {
        sift_small();
        SETPAUSE(sieve->small_primes_known)
    }
    WAITPAUSE(sieve->small_primes_known);
    EVENT(name)
    /* Twice: the subscripts begin anew, and to sieve again changes nothing. */
    for (int round = 0; round < 2; round++) {
        GETSUB(sieve->segments, segment, SEGMENTS - 1, sieve->threads)
        while (segment >= 0) {
            sift_segment(segment);
            GETSUB(sieve->segments, segment, SEGMENTS - 1, sieve->threads)
        }
        BARRIER(sieve->phase, sieve->threads)
    }
    if (name == 0) {
        CLEARPAUSE(sieve->small_primes_known)
    }
}

static void report(long sum) {
    LOCK(sieve->sum_lock)
    sieve->sum += sum;
    sieve->reports++;
    if (sieve->reports == sieve->threads) {
        CONDVARBCAST(sieve->sum_changed)
    } else {
        CONDVARSIGNAL(sieve->sum_changed) /* Too early for who waits: it waits on. */
        while (sieve->reports < sieve->threads) {
            CONDVARWAIT(sieve->sum_changed, sieve->sum_lock)
        }
    }
    UNLOCK(sieve->sum_lock)
}

void count(void) {
    long name = next_name(), sum = 0;
    for (long i = name; i < LIMIT; i += sieve->threads) {
        if (!sieve->composite[i]) {
            sum += i;
            ALOCK(sieve->last_digit, last_digit(i))
            sieve->with_last_digit[last_digit(i)]++;
            AULOCK(sieve->last_digit, last_digit(i))
        }
    }
    /* One after another, each waiting for the one before. */
    if (name > 0) {
        WAITPAUSE(sieve->counted[name - 1])
    }
    SETPAUSE(sieve->counted[name])
    report(sum);
}
