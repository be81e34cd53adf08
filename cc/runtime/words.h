/* words.h: waiting at a word that all who wait have in the same page frame. */
#ifndef COMB_WORDS_H
#define COMB_WORDS_H

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

typedef _Atomic uint32_t comb_word;

/* Until when to wait. `at` NULL: for ever. */
struct comb_deadline {
    const struct timespec *at;
    int is_realtime; /* else CLOCK_MONOTONIC */
};
#define COMB_FOR_EVER ((struct comb_deadline){NULL, 0})

/* Sleeps while the word has the value: 0, or ETIMEDOUT. May return 0 early: look at the word again. */
int comb_word_wait(comb_word *word, uint32_t value, struct comb_deadline deadline);
/* How many there were. */
long comb_word_wake(comb_word *word, int how_many);

/* Whether another look at the word may be worth it before sleeping. `turn` begins at 0 and is counted here. */
int comb_word_spin(unsigned *turn);
/* The same, where nobody waits for our processor: for about as long as it takes to sleep and to be woken. */
int comb_word_spin_long(unsigned *turn);

/* A deadline that a program gave: 0, or EINVAL if its nanoseconds are none. */
int comb_deadline_check(const struct timespec *at);

#endif
