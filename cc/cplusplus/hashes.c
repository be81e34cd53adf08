/* Hashes of bytes, by libstdc++'s own code on a private copy; and numbers from the kernel, which need no object. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

#include "../library/desk.h"

#define HASH(name)                                                       \
    size_t name(const void *bytes, size_t count, size_t seed);           \
    size_t comb_lib_##name(const void *bytes, size_t count, size_t seed) \
    {                                                                    \
        COMB_DESK(desk);                                                 \
        return name(comb_own(&desk, bytes, count), count, seed);         \
    }
HASH(_ZSt11_Hash_bytesPKvmm)
HASH(_ZSt15_Fnv_hash_bytesPKvmm)

/* std::random_device, of whatever name: all of them end in the kernel's numbers. */
void comb_lib__ZNSt13random_device7_M_initERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE(void *self, const void *name)
{
    (void)self, (void)name;
}

void comb_lib__ZNSt13random_device7_M_finiEv(void *self)
{
    (void)self;
}

unsigned comb_lib__ZNSt13random_device9_M_getvalEv(void *self)
{
    unsigned value;
    (void)self;
    /* So few bytes come whole. */
    if (getrandom(&value, sizeof value, 0) != sizeof value)
        abort();
    return value;
}

double comb_lib__ZNKSt13random_device13_M_getentropyEv(const void *self)
{
    (void)self;
    return 32;
}
