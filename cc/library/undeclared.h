/* What compiled programs call of libc although no header says so: names of fortified headers, and old ones. In fortified
 * names `object` is the size of what is written to, as far as the compiler knew it. */
#ifndef COMB_UNDECLARED_H
#define COMB_UNDECLARED_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>
#include <wchar.h>

extern void __chk_fail(void) __attribute__((noreturn));

void *__mempcpy(void *, const void *, size_t);
void *__rawmemchr(const void *, int);
char *__strndup(const char *, size_t);
char *__strdup(const char *);
char *__stpncpy(char *, const char *, size_t);
int __xpg_strerror_r(int, char *, size_t);

/* Of newer glibcs. */
long __isoc23_strtol(const char *, char **, int);
long long __isoc23_strtoll(const char *, char **, int);
unsigned long __isoc23_strtoul(const char *, char **, int);
unsigned long long __isoc23_strtoull(const char *, char **, int);

void *__memcpy_chk(void *, const void *, size_t, size_t object);
void *__memmove_chk(void *, const void *, size_t, size_t object);
void *__mempcpy_chk(void *, const void *, size_t, size_t object);
void *__memset_chk(void *, int, size_t, size_t object);
void __explicit_bzero_chk(void *, size_t, size_t object);
char *__strcpy_chk(char *, const char *, size_t object);
char *__stpcpy_chk(char *, const char *, size_t object);
char *__strncpy_chk(char *, const char *, size_t, size_t object);
char *__stpncpy_chk(char *, const char *, size_t, size_t object);
char *__strcat_chk(char *, const char *, size_t object);
char *__strncat_chk(char *, const char *, size_t, size_t object);
wchar_t *__wmemcpy_chk(wchar_t *, const wchar_t *, size_t, size_t object);
wchar_t *__wmemmove_chk(wchar_t *, const wchar_t *, size_t, size_t object);
wchar_t *__wmempcpy_chk(wchar_t *, const wchar_t *, size_t, size_t object);
wchar_t *__wmemset_chk(wchar_t *, wchar_t, size_t, size_t object);
wchar_t *__wcscpy_chk(wchar_t *, const wchar_t *, size_t object);
wchar_t *__wcpcpy_chk(wchar_t *, const wchar_t *, size_t object);
wchar_t *__wcsncpy_chk(wchar_t *, const wchar_t *, size_t, size_t object);
wchar_t *__wcpncpy_chk(wchar_t *, const wchar_t *, size_t, size_t object);
wchar_t *__wcscat_chk(wchar_t *, const wchar_t *, size_t object);
wchar_t *__wcsncat_chk(wchar_t *, const wchar_t *, size_t, size_t object);
size_t __mbstowcs_chk(wchar_t *, const char *, size_t, size_t object);
size_t __wcstombs_chk(char *, const wchar_t *, size_t, size_t object);
size_t __wcrtomb_chk(char *, wchar_t, mbstate_t *, size_t object);
int __wctomb_chk(char *, wchar_t, size_t object);
size_t __mbsrtowcs_chk(wchar_t *, const char **, size_t, mbstate_t *, size_t object);
size_t __mbsnrtowcs_chk(wchar_t *, const char **, size_t, size_t, mbstate_t *, size_t object);
size_t __wcsrtombs_chk(char *, const wchar_t **, size_t, mbstate_t *, size_t object);
size_t __wcsnrtombs_chk(char *, const wchar_t **, size_t, size_t, mbstate_t *, size_t object);

/* Streams. `flag` asks for checks of the format. */
int __uflow(FILE *);
int _IO_getc(FILE *);
int _IO_putc(int, FILE *);
int __printf_chk(int flag, const char *, ...);
int __fprintf_chk(FILE *, int flag, const char *, ...);
int __dprintf_chk(int, int flag, const char *, ...);
int __sprintf_chk(char *, int flag, size_t object, const char *, ...);
int __snprintf_chk(char *, size_t, int flag, size_t object, const char *, ...);
int __asprintf_chk(char **, int flag, const char *, ...);
int __vprintf_chk(int flag, const char *, va_list);
int __vfprintf_chk(FILE *, int flag, const char *, va_list);
int __vdprintf_chk(int, int flag, const char *, va_list);
int __vsprintf_chk(char *, int flag, size_t object, const char *, va_list);
int __vsnprintf_chk(char *, size_t, int flag, size_t object, const char *, va_list);
int __vasprintf_chk(char **, int flag, const char *, va_list);
int __wprintf_chk(int flag, const wchar_t *, ...);
int __fwprintf_chk(FILE *, int flag, const wchar_t *, ...);
int __swprintf_chk(wchar_t *, size_t, int flag, size_t object, const wchar_t *, ...);
int __vwprintf_chk(int flag, const wchar_t *, va_list);
int __vfwprintf_chk(FILE *, int flag, const wchar_t *, va_list);
int __vswprintf_chk(wchar_t *, size_t, int flag, size_t object, const wchar_t *, va_list);
int __isoc99_scanf(const char *, ...);
int __isoc99_fscanf(FILE *, const char *, ...);
int __isoc99_sscanf(const char *, const char *, ...);
int __isoc99_vscanf(const char *, va_list);
int __isoc99_vfscanf(FILE *, const char *, va_list);
int __isoc99_vsscanf(const char *, const char *, va_list);
int __isoc99_wscanf(const wchar_t *, ...);
int __isoc99_fwscanf(FILE *, const wchar_t *, ...);
int __isoc99_swscanf(const wchar_t *, const wchar_t *, ...);
int __isoc99_vwscanf(const wchar_t *, va_list);
int __isoc99_vfwscanf(FILE *, const wchar_t *, va_list);
int __isoc99_vswscanf(const wchar_t *, const wchar_t *, va_list);
void __syslog_chk(int, int flag, const char *, ...);
void __vsyslog_chk(int, int flag, const char *, va_list);
char *__fgets_chk(char *, size_t object, int, FILE *);
char *__fgets_unlocked_chk(char *, size_t object, int, FILE *);
wchar_t *__fgetws_chk(wchar_t *, size_t object, int, FILE *);
wchar_t *__fgetws_unlocked_chk(wchar_t *, size_t object, int, FILE *);
size_t __fread_chk(void *, size_t object, size_t, size_t, FILE *);
size_t __fread_unlocked_chk(void *, size_t object, size_t, size_t, FILE *);

/* Descriptors, paths and names. */
ssize_t __read_chk(int, void *, size_t, size_t object);
ssize_t __pread_chk(int, void *, size_t, off_t, size_t object);
ssize_t __pread64_chk(int, void *, size_t, off_t, size_t object);
ssize_t __readlink_chk(const char *, char *, size_t, size_t object);
ssize_t __readlinkat_chk(int, const char *, char *, size_t, size_t object);
char *__getcwd_chk(char *, size_t, size_t object);
char *__realpath_chk(const char *, char *, size_t object);
int __gethostname_chk(char *, size_t, size_t object);
int __getdomainname_chk(char *, size_t, size_t object);
int __ttyname_r_chk(int, char *, size_t, size_t object);
int __getgroups_chk(int, gid_t *, size_t object);
size_t __confstr_chk(int, char *, size_t, size_t object);
void __assert_fail(const char *, const char *, unsigned, const char *) __attribute__((noreturn));
ssize_t __recv_chk(int, void *, size_t, size_t object, int);
struct pollfd;
struct timespec;
int __poll_chk(struct pollfd *, unsigned long, int, size_t object);
int __ppoll_chk(struct pollfd *, unsigned long, const struct timespec *, const __sigset_t *, size_t object);
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);
char *__xpg_basename(char *);
struct __jmp_buf_tag;
int (sigsetjmp)(struct __jmp_buf_tag *, int); /* a macro as well */
void __longjmp_chk(struct __jmp_buf_tag *, int) __attribute__((noreturn));

/* getopt() of <unistd.h> where a program asks for POSIX alone. */
int __posix_getopt(int count, char *const *words, const char *letters);

#endif
