/* What a program needs that has no C library: calls, its arguments, and numbers as text. It is the same under any kernel. */
#ifndef HOST_H
#define HOST_H

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long u64;
typedef int i32;
typedef long i64;

enum { PAGE = 4096 };
enum { CALL_WRITE = 1, CALL_OPEN = 2, CALL_LSEEK = 8, CALL_MMAP = 9, CALL_MSYNC = 26, CALL_MADVISE = 28, CALL_FTRUNCATE = 77, CALL_EXIT = 231 };
enum { READ_AND_WRITE = 2, CREATE = 0100, AT_END = 2, MAP_READ = 1, MAP_WRITE = 2, MAP_SHARED = 1, SYNC_NOW = 4 };
enum { ADVICE_RANDOM = 1, ADVICE_SEQUENTIAL = 2, ADVICE_NEEDED = 3 };

static inline i64 call(i64 number, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f)
{
    register u64 r10 __asm__("r10") = d;
    register u64 r8 __asm__("r8") = e;
    register u64 r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "+a"(number)
                     : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return number;
}

__attribute__((noreturn)) static inline void leave(int status)
{
    for (;;)
        call(CALL_EXIT, (u64)status, 0, 0, 0, 0, 0);
}

static inline u64 length(const char *text)
{
    u64 n = 0;
    while (text[n])
        n++;
    return n;
}

static inline void say(int to, const char *text) { call(CALL_WRITE, (u64)to, (u64)text, length(text), 0, 0, 0); }

static inline void fail(const char *why)
{
    say(2, why);
    say(2, "\n");
    leave(1);
}

static inline u64 number(const char *text)
{
    u64 value = 0;
    for (; *text >= '0' && *text <= '9'; text++)
        value = value * 10 + (u64)(*text - '0');
    if (*text)
        fail("not a number");
    return value;
}

/* Sixteen digits and an end of line. */
static inline void say_result(u64 value)
{
    char text[18];
    for (int i = 0; i < 16; i++)
        text[i] = "0123456789abcdef"[value >> (60 - 4 * i) & 15];
    text[16] = '\n';
    text[17] = 0;
    say(1, text);
}

static inline int is(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

static inline u64 mix(u64 x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdul;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ul;
    return x ^ x >> 33;
}

/* Opens a file of this length; of its own length, if it is not said. */
static inline int open_file(const char *path, u64 *bytes)
{
    i64 file = call(CALL_OPEN, (u64)path, READ_AND_WRITE | (*bytes ? CREATE : 0), 0600, 0, 0, 0);
    if (file < 0)
        fail("the file cannot be opened");
    if (*bytes && call(CALL_FTRUNCATE, (u64)file, *bytes, 0, 0, 0, 0) < 0)
        fail("the file cannot be made");
    if (!*bytes)
        *bytes = (u64)call(CALL_LSEEK, (u64)file, 0, AT_END, 0, 0, 0);
    return (int)file;
}

static inline u8 *map_file(int file, u64 bytes)
{
    i64 at = call(CALL_MMAP, 0, bytes, MAP_READ | MAP_WRITE, MAP_SHARED, (u64)file, 0);
    if (at < 0 && at > -PAGE)
        fail("the file cannot be mapped");
    return (u8 *)at;
}

static inline void keep(u8 *at, u64 bytes)
{
    if (call(CALL_MSYNC, (u64)at, bytes, SYNC_NOW, 0, 0, 0) < 0)
        fail("the file cannot be kept");
}

static inline void advise(u8 *at, u64 bytes, int advice) { call(CALL_MADVISE, (u64)at, bytes, (u64)advice, 0, 0, 0); }

int run(int count, char **arguments);

__attribute__((used, noreturn)) static void begin(u64 *stack) { leave(run((int)stack[0], (char **)(stack + 1))); }

__asm__(".globl _start\n_start:\n xor %ebp, %ebp\n mov %rsp, %rdi\n and $-16, %rsp\n call begin\n");

#endif
