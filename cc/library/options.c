/* getopt: libc keeps no pointer between two calls but into the words, so it always gets the same private copies of them, and
 * what it says of those is said of the program's. optarg and its like are libc's own, private to each cell. */
#include "wrap.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "reach.h"

/* The words as of the first call; a program that begins anew with others sets optind to 0 or 1. */
static int words_count;
static char **own_words, **program_words;

static void copy_words(int count, char *const *words)
{
    int is_same = words_count == count && program_words != NULL;
    for (int at = 0; is_same && at < count; at++) {
        int is_known = 0;
        char *word = comb_pointer(words + at);
        for (int other = 0; other < count && !is_known; other++)
            is_known = program_words[other] == word;
        is_same = is_known;
    }
    if (is_same)
        return;
    words_count = count;
    program_words = calloc((size_t)count + 1, sizeof *program_words);
    own_words = calloc((size_t)count + 1, sizeof *own_words);
    if (!program_words || !own_words)
        abort();
    comb_copy_from(program_words, words, (size_t)count * sizeof *program_words);
    for (int at = 0; at < count; at++) {
        size_t bytes = comb_lib_strlen(program_words[at]) + 1;
        own_words[at] = malloc(bytes);
        if (!own_words[at])
            abort();
        comb_copy_from(own_words[at], program_words[at], bytes);
    }
}

/* libc has put its words in another order: the program's follow, by the copies' addresses before. */
static void reorder(char *const *words, char **before)
{
    char *program_before[words_count + 1];
    memcpy(program_before, program_words, (size_t)words_count * sizeof *program_before);
    for (int at = 0; at < words_count; at++) {
        int from = 0;
        while (before[from] != own_words[at])
            from++;
        program_words[at] = program_before[from];
    }
    if (memcmp(before, own_words, (size_t)words_count * sizeof *before) != 0)
        comb_copy_to((void *)words, program_words, (size_t)words_count * sizeof *program_words);
}

static char *program_text(char *text)
{
    for (int at = 0; text && at < words_count; at++) {
        if (text >= own_words[at] && text <= own_words[at] + strlen(own_words[at]))
            return program_words[at] + (text - own_words[at]);
    }
    return text;
}

enum kind { SHORT, LONG, LONG_ONLY };

static struct option *own_options(struct comb_desk *desk, const struct option *options)
{
    size_t count = 0;
    while (comb_pointer(&options[count].name))
        count++;
    struct option *own = comb_desk_room(desk, (count + 1) * sizeof *own);
    comb_copy_from(own, options, (count + 1) * sizeof *own);
    for (size_t at = 0; at < count; at++)
        own[at].name = comb_own_text(desk, own[at].name);
    return own;
}

static int next(enum kind kind, int count, char *const *words, const char *letters, const struct option *options,
                int *index)
{
    COMB_DESK(desk);
    copy_words(count, words);
    char *before[count + 1];
    memcpy(before, own_words, (size_t)count * sizeof *before);
    const char *own_letters = comb_own_text(&desk, letters);
    struct option *own = options ? own_options(&desk, options) : NULL;
    int own_index = -1, flag = -1;
    /* A flag is the program's memory: libc sets ours instead, for the option that it names. */
    for (struct option *at = own; at && at->name; at++) {
        if (at->flag)
            at->val = (int)(at - own), at->flag = &flag;
    }
    int answer = kind == SHORT  ? getopt(count, own_words, own_letters)
                 : kind == LONG ? getopt_long(count, own_words, own_letters, own, &own_index)
                                : getopt_long_only(count, own_words, own_letters, own, &own_index);
    if (flag >= 0) {
        struct option chosen;
        comb_copy_from(&chosen, &options[flag], sizeof chosen);
        comb_copy_to(chosen.flag, &chosen.val, sizeof chosen.val);
    }
    if (index && own_index >= 0)
        comb_copy_to(index, &own_index, sizeof own_index);
    reorder(words, before);
    optarg = program_text(optarg);
    return answer;
}

int comb_lib_getopt(int count, char *const *words, const char *letters)
{
    return next(SHORT, count, words, letters, NULL, NULL);
}
COMB_SAME_TYPE(getopt);

/* getopt() of a program that asks for POSIX alone: the first word that is no option is the last that is looked at. */
int comb_lib___posix_getopt(int count, char *const *words, const char *letters)
{
    COMB_DESK(desk);
    size_t bytes = comb_lib_strlen(letters) + 1;
    char *own = comb_desk_room(&desk, bytes + 1);
    own[0] = '+';
    comb_copy_from(own + 1, letters, bytes);
    return next(SHORT, count, words, own, NULL, NULL);
}

int comb_lib_getopt_long(int count, char *const *words, const char *letters, const struct option *options, int *index)
{
    return next(LONG, count, words, letters, options, index);
}
COMB_SAME_TYPE(getopt_long);

int comb_lib_getopt_long_only(int count, char *const *words, const char *letters, const struct option *options,
                              int *index)
{
    return next(LONG_ONLY, count, words, letters, options, index);
}
COMB_SAME_TYPE(getopt_long_only);
