/* flags: -O2 -march=native
 * Values that live in whole vector registers, as wide as the processor has them, while blocks are missed one after the other. */
#include <stdio.h>
#include <stdlib.h>

typedef double d8 __attribute__((vector_size(64)));

struct link {
    struct link *next;
    double weight;
};

enum { COUNT = 300, ROUNDS = 40000 };

__attribute__((noinline)) static double sum(const struct link *link)
{
    d8 a = {1, 2, 3, 4, 5, 6, 7, 8}, b = -a, c = a * 3, d = a / 7;
    for (; link; link = link->next) {
        a += link->weight;
        b -= a * link->weight;
        c += b / 1024;
        d -= c * link->weight;
    }
    d8 all = a + b + c + d;
    double result = 0;
    for (int i = 0; i < 8; i++)
        result += all[i];
    return result;
}

int main(void)
{
    struct link *links = calloc(COUNT, sizeof *links), *first = NULL;
    for (int i = 0; i < COUNT; i++) {
        struct link *link = &links[i * 7 % COUNT];
        link->weight = i * 0x1p-14;
        link->next = first;
        first = link;
    }
    double total = 0;
    for (int round = 0; round < ROUNDS; round++)
        total += sum(first);
    printf("%.17g\n", total);
}
