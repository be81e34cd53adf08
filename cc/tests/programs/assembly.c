// Inline assembly: of registers alone it passes, and so does what a comment says is private.
#include <cpuid.h>
#include <stdio.h>

static int add(int number) {
    __asm__("addl $1, %0" : "+r"(number));
    return number;
}

static double root(double number) {
    double result;
    __asm__("sqrtsd %1, %0" : "=x"(result) : "x"(number));
    return result;
}

static long extended(int number) {
    long result;
    __asm__("movslq %1, %0" : "=r"(result) : "r"(number));
    return result;
}

static long pushed(long number) {
    long result;
    // The machine stack, below what the compiler uses.
    __asm__ volatile("subq $256, %%rsp; pushq %1; popq %0; addq $256, %%rsp # comb: private" : "=&r"(result) : "r"(number));
    return result;
}

int main(void) {
    unsigned a, b, c, d;
    int has_cpuid = __get_cpuid(0, &a, &b, &c, &d);
    printf("%d %d %g %ld %ld\n", has_cpuid, add(41), root(2.25), extended(-5), pushed(1234567890123));
}
