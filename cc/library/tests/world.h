/* What a scene sees. Every scene is compiled twice: PLAIN, where C(f) is libc's f and memory is ordinary, and with the
 * wrappers, where a thief takes blocks of the arena away all the time. What both say must be the same. */
#ifndef WORLD_H
#define WORLD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef PLAIN
#define C(name) name
#include "../every.h"
#else
#define C(name) comb_lib_##name
#include "declared.h"
#endif

/* Memory that may be stolen; at the same address in both programs, so that pointers in it are the same. */
#define ARENA ((char *)0x100000000000)
enum { ARENA_BYTES = 1 << 18 };

/* The scene's own way to the arena, right whatever the thief does. */
void put(void *to, const void *from, size_t bytes);
void get(void *to, const void *from, size_t bytes);
void put_text(char *to, const char *text);
/* A fresh place in the arena, at some odd or even distance from the last one; all of it is given back between rounds. */
char *place(size_t bytes);
char *place_aligned(size_t bytes);
char *place_text(const char *text);
void *place_bytes(const void *from, size_t bytes);
/* Letters, blanks and zeros, few enough different ones that texts meet. */
char *place_random_text(size_t most);

unsigned below(unsigned limit);

/* What is compared. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void say_place(const void *pointer);
void say_text(const char *text);
void say_bytes(const void *from, size_t bytes);
#define SAY(expression) say("%s = %lld\n", #expression, (long long)(expression))
#define SAY_SIGN(expression) say("%s : %d\n", #expression, sign_of(expression))
#define SAY_PLACE(expression) (say("%s at ", #expression), say_place(expression))
#define SAY_TEXT(expression) (say("%s says ", #expression), say_text(expression))
#define SAY_ERRNO(expression) (errno = 0, say("%s = %lld ", #expression, (long long)(expression)), say("errno %d\n", errno))
#define SAY_REAL(expression) say("%s = %a\n", #expression, (double)(expression))
int sign_of(int order);

/* A directory for files, removed afterwards; private memory. */
extern char *scratch;

struct scene {
    const char *name;
    void (*play)(void);
    unsigned rounds;
};
extern const struct scene scenes[];

/* From here on the scene runs on that cell; what it did before is settled. Nothing happens in the plain program. */
void on_cell(unsigned number);
unsigned long calls_made(void);

/* Lets the thief take what it likes, once more than by itself. */
void theft(void);

#endif
