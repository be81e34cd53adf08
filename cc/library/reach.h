/* Wrappers that other wrappers are made of, and single bytes and pointers of the program's memory. */
#ifndef COMB_REACH_H
#define COMB_REACH_H

#include <stddef.h>
#include <sys/types.h>
#include <wchar.h>

#include "../access/comb_access.h"
#include "comb_calls.h"

void *comb_lib_memcpy(void *restrict to, const void *restrict from, size_t bytes);
void *comb_lib_memmove(void *to, const void *from, size_t bytes);
void *comb_lib_memset(void *to, int byte, size_t bytes);
void *comb_lib_memchr(const void *from, int byte, size_t bytes);
void *comb_lib_memrchr(const void *from, int byte, size_t bytes);
int comb_lib_memcmp(const void *one, const void *other, size_t bytes);
size_t comb_lib_strlen(const char *text);
size_t comb_lib_strnlen(const char *text, size_t most);
int comb_lib_strcmp(const char *one, const char *other);
ssize_t comb_lib_pread(int descriptor, void *to, size_t bytes, off_t offset);
ssize_t comb_lib_write(int descriptor, const void *from, size_t bytes);
size_t comb_lib_wcslen(const wchar_t *text);
size_t comb_lib_wcsnlen(const wchar_t *text, size_t most);

static inline char comb_byte(const char *at)
{
    char byte;
    comb_copy_from(&byte, at, 1);
    return byte;
}

/* `at` is any pointer to a pointer. */
static inline void *comb_pointer(const void *at)
{
    void *pointer;
    comb_copy_from(&pointer, at, sizeof pointer);
    return pointer;
}

static inline void comb_set_pointer(void *at, const void *pointer)
{
    comb_copy_to(at, &pointer, sizeof pointer);
}

#endif
