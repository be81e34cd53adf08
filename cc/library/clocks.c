/* Time: clocks, calendars and sleep. */
#include "wrap.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/timex.h>
#include <threads.h>
#include <time.h>
#include <utime.h>

#include "reach.h"

COMB_WRAP(time_t, time, INOUT(time_t, now));
COMB_WRAP(int, clock_gettime, VALUE(clockid_t, clock), INOUT(struct timespec, now));
COMB_WRAP(int, clock_getres, VALUE(clockid_t, clock), INOUT(struct timespec, now));
COMB_WRAP(int, clock_settime, VALUE(clockid_t, clock), IN(struct timespec, now));
COMB_WRAP(int, clock_nanosleep, VALUE(clockid_t, clock), VALUE(int, flags), IN(struct timespec, length),
          INOUT(struct timespec, left));
COMB_WRAP(int, clock_getcpuclockid, VALUE(pid_t, process), INOUT(clockid_t, clock));
COMB_WRAP(int, nanosleep, IN(struct timespec, length), INOUT(struct timespec, left));
COMB_WRAP(int, thrd_sleep, IN(struct timespec, length), INOUT(struct timespec, left));
COMB_WRAP(int, timespec_get, INOUT(struct timespec, now), VALUE(int, base));
COMB_WRAP(int, timespec_getres, INOUT(struct timespec, now), VALUE(int, base));
COMB_WRAP(int, settimeofday, IN(struct timeval, now), IN(struct timezone, zone));
COMB_WRAP(int, adjtime, IN(struct timeval, change), INOUT(struct timeval, before));
COMB_WRAP(int, getitimer, VALUE(__itimer_which_t, which), INOUT(struct itimerval, value));
COMB_WRAP(int, setitimer, VALUE(__itimer_which_t, which), IN(struct itimerval, value), INOUT(struct itimerval, before));
COMB_WRAP(clock_t, times, INOUT(struct tms, used));

/* Its second argument has a type of its own, to be handed on as it is: NULL, or a struct timezone. */
int comb_lib_gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timeval own_now;
    struct timezone own_zone;
    int answer = gettimeofday(&own_now, zone ? &own_zone : NULL);
    if (answer == 0 && now)
        comb_copy_to(now, &own_now, sizeof own_now);
    if (answer == 0 && zone)
        comb_copy_to(zone, &own_zone, sizeof own_zone);
    return answer;
}
COMB_SAME_TYPE(gettimeofday);

/* Results in libc's memory, for the calling thread's next look only. */
COMB_WRAP(struct tm *, localtime, IN(time_t, time));
COMB_WRAP(struct tm *, gmtime, IN(time_t, time));
COMB_WRAP(char *, ctime, IN(time_t, time));
COMB_WRAP(char *, asctime, IN(struct tm, time));

#define INTO_MEMORY(result, name, from_type, bytes)                                 \
    result *comb_lib_##name(const from_type *restrict time, result *restrict to)    \
    {                                                                               \
        COMB_DESK(desk);                                                            \
        const from_type *own_time = comb_own(&desk, time, sizeof *time);            \
        result *own = comb_own_room(&desk, to, bytes);                              \
        result *answer = name(own_time, own);                                       \
        if (answer)                                                                 \
            comb_give_back(to, own, sizeof *to == 1 ? comb_text_bytes((char *)own, 1) : bytes); \
        return answer ? to : NULL;                                                  \
    }                                                                               \
    COMB_SAME_TYPE(name)
INTO_MEMORY(struct tm, localtime_r, time_t, sizeof(struct tm));
INTO_MEMORY(struct tm, gmtime_r, time_t, sizeof(struct tm));
INTO_MEMORY(char, ctime_r, time_t, 26);
INTO_MEMORY(char, asctime_r, struct tm, 26);

COMB_WRAP(time_t, mktime, INOUT(struct tm, time));
COMB_WRAP(time_t, timegm, INOUT(struct tm, time));
COMB_WRAP(time_t, timelocal, INOUT(struct tm, time));

/* tm_zone is a text of libc's, or the program's. */
static const struct tm *own_time(struct comb_desk *desk, const struct tm *time)
{
    struct tm *own = comb_desk_room(desk, sizeof *own);
    comb_copy_from(own, time, sizeof *own);
    own->tm_zone = comb_own_text(desk, own->tm_zone);
    return own;
}

/* `room` is in characters; all three return the length without the zero character, or 0. */
#define FORMATS(name, character, own_format, parameters, ...)                                                    \
    size_t comb_lib_##name parameters                                                                            \
    {                                                                                                            \
        COMB_DESK(desk);                                                                                         \
        character *own = comb_own_room(&desk, to, room * sizeof *to);                                            \
        size_t length = name(own, room, own_format(&desk, format), own_time(&desk, time), ##__VA_ARGS__);        \
        comb_give_back(to, own, length ? (length + 1) * sizeof *to : 0);                                         \
        return length;                                                                                           \
    }                                                                                                            \
    COMB_SAME_TYPE(name)
FORMATS(strftime, char, comb_own_text,
        (char *restrict to, size_t room, const char *restrict format, const struct tm *restrict time));
FORMATS(strftime_l, char, comb_own_text,
        (char *restrict to, size_t room, const char *restrict format, const struct tm *restrict time, locale_t locale),
        locale);
FORMATS(wcsftime, wchar_t, comb_own_wide,
        (wchar_t *restrict to, size_t room, const wchar_t *restrict format, const struct tm *restrict time));
FORMATS(wcsftime_l, wchar_t, comb_own_wide,
        (wchar_t *restrict to, size_t room, const wchar_t *restrict format, const struct tm *restrict time,
         locale_t locale),
        locale);

char *comb_lib_strptime(const char *restrict text, const char *restrict format, struct tm *restrict to)
{
    COMB_DESK(desk);
    const char *own = comb_own_text(&desk, text);
    struct tm *own_to = comb_own(&desk, to, sizeof *to);
    char *end = strptime(own, comb_own_text(&desk, format), own_to);
    comb_give_back(to, own_to, sizeof *to);
    return end ? (char *)text + (end - own) : NULL;
}
COMB_SAME_TYPE(strptime);

COMB_WRAP(struct tm *, getdate, TEXT(text));
COMB_WRAP(int, getdate_r, TEXT(text), INOUT(struct tm, to));
