/* What this prints is the same on the host: mappings of all kinds, and what forks see of them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define P 4096
static unsigned sum(const unsigned char *p, size_t n) {
    unsigned s = 0;
    while (n--) s = s * 31 + *p++;
    return s;
}

int main(void) {
    unsigned char *a = mmap(0, 64 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 64 * P; i++) a[i] = i * 7 >> 3;
    unsigned before = sum(a, 64 * P);
    if (!fork()) { memset(a, 1, 64 * P); _exit(sum(a, 64 * P) == before); }
    int status;
    wait(&status);
    printf("child %d same %d\n", status, sum(a, 64 * P) == before);
    munmap(a + 10 * P, 5 * P);
    printf("hole %d\n", madvise(a, 64 * P, MADV_DONTNEED) == -1 && errno == ENOMEM);
    printf("zero %d\n", a[0] == 0 && a[20 * P] == 0);
    unsigned char *b = mmap(0, 4 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy((char *)b + P, "moved");
    unsigned char *c = mremap(b, 4 * P, 400 * P, MREMAP_MAYMOVE);
    printf("%s %d\n", c + P, c[399 * P]);
    c = mremap(c, 400 * P, 2 * P, 0);
    printf("%s\n", c + P);
    char name[] = "/tmp/comb-unix-memory-XXXXXX";
    int fd = mkstemp(name);
    ftruncate(fd, 3 * P + 100);
    char *s = mmap(0, 4 * P, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *v = mmap(0, 4 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    strcpy(s + P, "shared");
    printf("private sees %s\n", v + P);
    strcpy(v + P, "own");
    char back[16] = {0};
    pread(fd, back, 6, P);
    printf("file %s private %s\n", back, v + P);
    pwrite(fd, "WRITE", 5, 2 * P + 4);
    printf("mapped %s %s\n", s + 2 * P + 4, v + 2 * P + 4);
    if (!fork()) { strcpy(s, "from child"); _exit(0); }
    wait(&status);
    printf("%s\n", s);
    ftruncate(fd, P + 3);
    ftruncate(fd, 4 * P);
    printf("cut %d %.3s %d\n", s[2 * P + 4], s + P, s[P + 3]);
    munmap(s, 4 * P);
    lseek(fd, 0, SEEK_SET);
    read(fd, back, 10);
    printf("kept %.10s\n", back);
    struct iovec io[3] = {{a, 3}, {0, 0}, {a + 20 * P - 2, 5}};
    printf("readv %d\n", (int)preadv(fd, io, 3, 0));
    printf("efault %d", (int)read(fd, (void *)8, 4));
    printf(" %d\n", errno);
    lseek(fd, 0, SEEK_SET);
    printf("short %d\n", (int)read(fd, a + 10 * P - 4, 100));
    void *h = sbrk(0);
    sbrk(300000);
    memset(h, 5, 300000);
    sbrk(-200000);
    printf("brk %d\n", (int)((char *)sbrk(0) - (char *)h));
    char *fixed = mmap(a + 10 * P, P, PROT_READ, MAP_FIXED_NOREPLACE | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("fixed %d", fixed == (char *)a + 10 * P);
    fixed = mmap(a + 10 * P, P, PROT_READ, MAP_FIXED_NOREPLACE | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf(" %d\n", fixed == MAP_FAILED && errno == EEXIST);
    unsigned char *code = mmap(0, P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, "\xb8\x2a\0\0\0\xc3", 6);
    mprotect(code, P, PROT_READ | PROT_EXEC);
    printf("code %d\n", ((int (*)(void))code)());
    unlink(name);
    return 0;
}
