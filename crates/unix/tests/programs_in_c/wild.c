/* Makes calls with arguments that make no sense. It must not be run on the host; the emulator is to survive it. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned long state;
static unsigned long next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}
static char *area;
static unsigned long argument(void) {
    switch (next() % 14) {
    case 0: return 0;
    case 1: return next() % 8;
    case 2: return next() % 4096;
    case 3: return -(next() % 200);
    case 4: return next();
    case 5: return 1ul << next() % 64;
    case 6: return (unsigned long)area + next() % 65536;
    case 7: return (unsigned long)area + 65536 - next() % 16;
    case 8: return ((unsigned long)area + next() % 65536) & ~4095ul;
    case 9: return 0x7fffffff + next() % 3;
    case 10: return (unsigned long)area + 8 * (next() % 64);
    case 11: return 0xffffffff00000000ul + next() % 10;
    case 12: return 3 + next() % 12;
    default: return (unsigned long)argument;
    }
}

int main(int argc, char **argv) {
    unsigned long first = argc > 1 ? strtoul(argv[1], 0, 0) : 1, last = first + (argc > 2 ? strtoul(argv[2], 0, 0) : 60);
    for (unsigned long seed = first; seed < last; seed++) {
        pid_t child = fork();
        if (!child) {
            setsid();
            state = seed * 0x9e3779b97f4a7c15ul + 1;
            area = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            for (int i = 0; i < 512; i++) ((unsigned long *)area)[i] = argument();
            for (int i = 0; i < 64; i++) sprintf(area + 8192 + 64 * i, "/tmp/%lx", next() % 16);
            strcpy(area + 64, "/tmp/../../x");
            strcpy(area + 128, "/proc/self/fd/3");
            strcpy(area + 192, "/proc/self/maps");
            strcpy(area + 256, "/dev/zero");
            int pipes[2];
            pipe(pipes);
            for (int i = 0; i < 400; i++) {
                long number = next() % 10 < 9 ? next() % 335 : 424 + next() % 40;
                /* Filling the disk, ending by itself, and signals to its parent. */
                if (number == 285 || number == 60 || number == 231) continue;
                if (number == 62 || number == 200 || number == 234 || number == 129 || number == 297) continue;
                unsigned long a[6];
                for (int j = 0; j < 6; j++) a[j] = next() % 12 ? argument() : (unsigned long)area + 8192 + 64 * (next() % 64);
                if (next() % 4 == 0) for (int j = 0; j < 512; j++) ((unsigned long *)area)[j] = argument();
                syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
            }
            _exit(0);
        }
        int status = 0, turn = 0;
        while (waitpid(child, &status, WNOHANG) == 0 && turn++ < 100) usleep(2000);
        kill(child, SIGKILL);
        kill(-child, SIGKILL);
        while (wait(&status) > 0) kill(-child, SIGKILL);
    }
    return 23; /* nothing else ends with it */
}
