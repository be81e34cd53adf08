/* Calendars, exactly; clocks, as far as two readings can agree. */
#include "world.h"

#include <limits.h>
#include <stddef.h>

static void *time_at(void)
{
    time_t own = (time_t)below(2000000000);
    return place_bytes(&own, sizeof own);
}

/* tm_zone points into libc. */
static void say_calendar(struct tm *time)
{
    struct tm own;
    get(&own, time, sizeof own);
    SAY(own.tm_year * 400 + own.tm_yday);
    own.tm_zone = NULL;
    /* Nobody writes what lies between two members. */
    memset(&own.tm_isdst + 1, 0, offsetof(struct tm, tm_gmtoff) - offsetof(struct tm, tm_isdst) - sizeof own.tm_isdst);
    put(time, &own, sizeof own);
}

static void calendars(void)
{
    time_t *time = time_at();
    struct tm *to = (struct tm *)place_aligned(sizeof *to), own;
    char *text = place(200), *format = place_text("%Y-%m-%d %H:%M:%S %A %j %Z");
    wchar_t *wide = (wchar_t *)place_aligned(400), *wide_format = place_bytes(L"%Y %B", sizeof L"%Y %B");
    locale_t locale = newlocale(LC_ALL_MASK, "C", NULL);
    SAY_PLACE(C(gmtime_r)(time, to));
    SAY(C(strftime)(text, below(80), format, to));
    SAY(C(strftime_l)(text, 80, format, to, locale));
    SAY(C(wcsftime)(wide, below(20), wide_format, to));
    SAY(C(wcsftime_l)(wide, 20, wide_format, to, locale));
    SAY_TEXT(C(asctime)(to));
    SAY_PLACE(C(asctime_r)(to, text));
    SAY(C(timegm)(to));
    say_calendar(to);
    SAY_PLACE(C(localtime_r)(time, to));
    SAY(C(mktime)(to));
    SAY(C(timelocal)(to));
    say_calendar(to);
    own = *C(gmtime)(time);
    SAY(own.tm_yday);
    own = *C(localtime)(time);
    SAY(own.tm_yday);
    SAY_TEXT(C(ctime)(time));
    SAY_PLACE(C(ctime_r)(time, text));
    char *date = place_text("2024-02-29 10:11:12 rest");
    SAY_PLACE(C(strptime)(date, place_text("%Y-%m-%d %H:%M:%S"), to));
    say_calendar(to);
    SAY_PLACE(C(strptime)(date, place_text("%d"), to));
    SAY_PLACE(C(getdate)(date));
    SAY(C(getdate_r)(date, to));
}

static void forget(void *place, size_t bytes)
{
    char own[256] = "";
    put(place, own, bytes);
}

static void readings(void)
{
    struct timespec *now = (struct timespec *)place_aligned(sizeof *now), short_while = {0, 1000};
    struct timeval *day = (struct timeval *)place_aligned(sizeof *day);
    struct timezone *zone = (struct timezone *)place_aligned(sizeof *zone);
    time_t *seconds = (time_t *)place_aligned(8), own;
    SAY(C(time)(seconds) > 0);
    get(&own, seconds, sizeof own);
    SAY(time(NULL) - own <= 1);
    SAY(C(clock_gettime)(CLOCK_REALTIME, now));
    get(&own, now, sizeof own);
    SAY(time(NULL) - own <= 1);
    SAY(C(clock_getres)(CLOCK_REALTIME, now));
    SAY(C(timespec_get)(now, TIME_UTC));
    SAY(C(timespec_getres)(now, TIME_UTC));
    SAY(C(gettimeofday)(day, zone));
    get(&own, day, sizeof own);
    SAY(time(NULL) - own <= 1);
    SAY_ERRNO(C(clock_gettime)(12345, now));
    SAY(C(nanosleep)(place_bytes(&short_while, sizeof short_while), now));
    SAY(C(clock_nanosleep)(CLOCK_MONOTONIC, 0, place_bytes(&short_while, sizeof short_while), now));
    clockid_t *clock = (clockid_t *)place_aligned(sizeof *clock);
    SAY(C(clock_getcpuclockid)(0, clock));
    struct itimerval *timer = place_bytes(&(struct itimerval){{0, 0}, {0, 0}}, sizeof *timer);
    SAY(C(setitimer)(ITIMER_VIRTUAL, timer, timer));
    SAY(C(getitimer)(ITIMER_VIRTUAL, timer));
    struct tms *used = (struct tms *)place_aligned(sizeof *used);
    SAY(C(times)(used) != -1);
    SAY_ERRNO(C(clock_settime)(CLOCK_MONOTONIC, now));
    forget(now, sizeof *now), forget(day, sizeof *day), forget(seconds, 8), forget(used, sizeof *used);
}

void clocks_scene(void)
{
    setenv("TZ", "CET-1", 1);
    tzset();
    calendars();
    readings();
}
