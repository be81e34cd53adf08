/* Counts what is not as it should be. Only the thread outside of all regions calls these. */

#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>

static int failures;

#define CHECK(condition) CHECK_EQUAL(!!(condition), 1)

#define CHECK_EQUAL(found, expected)                                                                                   \
    do {                                                                                                               \
        long long found_ = (long long)(found), expected_ = (long long)(expected);                                      \
        if (found_ != expected_) {                                                                                     \
            printf("%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #found, found_, expected_);                    \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)

#endif
