/* What both programs have in common: the arena, the log, the rounds. */
#include "world.h"

#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned long long dice;
static size_t used;
static FILE *out;
char *scratch;

void world_begin(void); /* maps the arena, starts the thief */
void world_end(void);

unsigned below(unsigned limit)
{
    dice = dice * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(dice >> 33) % limit;
}

char *place(size_t bytes)
{
    used += below(150);
    if (used + bytes > ARENA_BYTES) {
        fprintf(stderr, "the arena is too small for a scene\n");
        abort();
    }
    char *at = ARENA + used;
    used += bytes;
    return at;
}

char *place_aligned(size_t bytes)
{
    used = (used + 15) & ~(size_t)15;
    size_t start = used;
    place(bytes + 160);
    return ARENA + start + 16 * below(8);
}

void put_text(char *to, const char *text)
{
    put(to, text, strlen(text) + 1);
}

char *place_text(const char *text)
{
    char *at = place(strlen(text) + 1);
    put_text(at, text);
    return at;
}

void *place_bytes(const void *from, size_t bytes)
{
    char *at = place_aligned(bytes);
    put(at, from, bytes);
    return at;
}

char *place_random_text(size_t most)
{
    size_t length = below((unsigned)most);
    char *text = malloc(length + 1);
    for (size_t at = 0; at < length; at++)
        text[at] = "abcABC x,"[below(9)];
    text[length] = 0;
    char *at = place_text(text);
    free(text);
    return at;
}

void say(const char *format, ...)
{
    int error = errno;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(out, format, arguments);
    va_end(arguments);
    errno = error;
}

void say_place(const void *pointer)
{
    const char *at = pointer;
    if (!at)
        say("nowhere\n");
    else if (at >= ARENA && at < ARENA + ARENA_BYTES)
        say("%td\n", at - ARENA);
    else
        say("elsewhere\n");
}

void say_text(const char *text)
{
    if (!text) {
        say("nothing\n");
        return;
    }
    say("«");
    for (char byte; get(&byte, text, 1), byte; text++)
        say(byte >= ' ' ? "%c" : "\\%02x", (unsigned char)byte);
    say("»\n");
}

void say_bytes(const void *from, size_t bytes)
{
    unsigned long long sum = 14695981039346656037ull;
    unsigned char *own = malloc(bytes + 1);
    get(own, from, bytes);
    for (size_t at = 0; at < bytes; at++)
        sum = (sum ^ own[at]) * 1099511628211ull;
    free(own);
    say("%zu bytes: %016llx\n", bytes, sum);
}

int sign_of(int order)
{
    return (order > 0) - (order < 0);
}

static void fill_arena(void)
{
    static char filled[ARENA_BYTES];
    for (size_t at = 0; at < sizeof filled; at++)
        filled[at] = (char)(below(255) + 1);
    put(ARENA, filled, sizeof filled);
}

/* Usage: PROGRAM SEED LOG [SCENE]: plays every scene, or one. */
int main(int count, char **words)
{
    if (count < 3)
        return 2;
    out = fopen(words[2], "w");
    char directory[] = "/tmp/comb-library-XXXXXX";
    scratch = mkdtemp(directory);
    if (!out || !scratch || chdir(scratch) != 0)
        return 2;
    world_begin();
    for (const struct scene *scene = scenes; scene->name; scene++) {
        if (count > 3 && strcmp(words[3], scene->name) != 0)
            continue;
        dice = strtoull(words[1], NULL, 10) * 1000003 + (unsigned)(scene->name[0] << 8) + (unsigned)scene->name[1];
        fill_arena();
        for (unsigned round = 0; round < scene->rounds; round++) {
            used = 0;
            say("-- %s %u\n", scene->name, round);
            scene->play();
            say_bytes(ARENA, ARENA_BYTES);
            fflush(out);
        }
    }
    world_end();
    rmdir(scratch);
    return fclose(out);
}
