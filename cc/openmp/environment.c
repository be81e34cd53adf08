/* Variables of the environment. A value that makes no sense is named and left aside. */

#include "environment.h"
#include "omp.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define MOST_THREADS 1024

static struct environment values;
static pthread_once_t is_read = PTHREAD_ONCE_INIT;

static void ignored(const char *name, const char *value) {
    fprintf(stderr, "comb openmp: %s=%s is no value for it, and is ignored\n", name, value);
}

int processors(void) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

/* A number from 1, the first of a list. */
static int number(const char *name, int otherwise) {
    const char *value = getenv(name);
    if (!value || !*value) {
        return otherwise;
    }
    char *end;
    long found = strtol(value, &end, 10);
    if (end == value || (*end != 0 && *end != ',') || found < 1 || found > MOST_THREADS) {
        ignored(name, value);
        return otherwise;
    }
    return (int)found;
}

static bool truth(const char *name) {
    const char *value = getenv(name);
    return value && (strcasecmp(value, "true") == 0 || strcmp(value, "1") == 0);
}

/* [monotonic:|nonmonotonic:]kind[,chunk] */
static void read_schedule(void) {
    static const struct {
        const char *name;
        int kind;
    } kinds[] = {{"static", omp_sched_static},
                 {"dynamic", omp_sched_dynamic},
                 {"guided", omp_sched_guided},
                 {"auto", omp_sched_auto}};
    const char *value = getenv("OMP_SCHEDULE");
    if (!value || !*value) {
        return;
    }
    const char *colon = strchr(value, ':');
    const char *kind = colon ? colon + 1 : value;
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t length = strlen(kinds[i].name);
        if (strncasecmp(kind, kinds[i].name, length) != 0) {
            continue;
        }
        int chunk = 0;
        if (kind[length] == ',') {
            chunk = atoi(kind + length + 1);
        }
        if ((kind[length] == 0 || kind[length] == ',') && chunk >= 0) {
            values.schedule = kinds[i].kind;
            values.chunk = chunk;
            return;
        }
    }
    ignored("OMP_SCHEDULE", value);
}

static void read_all(void) {
    values.thread_limit = number("OMP_THREAD_LIMIT", MOST_THREADS);
    values.threads = number("OMP_NUM_THREADS", processors());
    values.may_cancel = truth("OMP_CANCELLATION");
    values.schedule = omp_sched_static;
    read_schedule();
}

const struct environment *environment(void) {
    pthread_once(&is_read, read_all);
    return &values;
}
