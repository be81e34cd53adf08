/*
 * The ranks are components of a task (`comb run -n N -- build/pages_comb …`), the memory is Comb's, and nothing is done for it but to choose
 * terms: memory lives with whoever touches it first.
 *
 *   COMB_BLOCK    bytes of a block, 128 to 65536, a power of two; 4096 if it is not set
 *   COMB_SHARING  stache (if it is not set), migratory, release or update
 */
#include "shared.h"

#include <comb.h>
#include <string.h>

static struct comb_terms terms = {.block_bytes = 4096, .guard = COMB_PAGE, .sharing = COMB_STACHE, .placement = COMB_FIRST_TOUCH};
static const char *sharing_name = "stache";

const char *implementation(void)
{
    return "comb";
}

const char *setting(void)
{
    static char text[64];
    snprintf(text, sizeof text, "sharing=%s block=%u", sharing_name, terms.block_bytes);
    return text;
}

int rank(void)
{
    return (int)comb_rank();
}

int count(void)
{
    return (int)comb_count();
}

void *allocate(size_t bytes)
{
    void *memory = comb_alloc_together(bytes, &terms);
    if (memory == NULL)
        fail("no memory for %zu bytes: %s", bytes, comb_error());
    return memory;
}

void barrier(void)
{
    comb_barrier();
}

double sum(double value)
{
    return comb_sum(value);
}

static void choose_terms(void)
{
    static const struct {
        const char *name;
        enum comb_sharing sharing;
    } KINDS[] = {{"stache", COMB_STACHE}, {"migratory", COMB_MIGRATORY}, {"release", COMB_RELEASE}, {"update", COMB_UPDATE}};

    /* What Comb thinks of a size that is none, it says when memory is allocated. */
    const char *block = getenv("COMB_BLOCK");
    if (block != NULL && *block != '\0')
        terms.block_bytes = (unsigned)strtoul(block, NULL, 10);
    const char *sharing = getenv("COMB_SHARING");
    if (sharing == NULL || *sharing == '\0')
        return;
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (strcmp(sharing, KINDS[i].name) == 0) {
            terms.sharing = KINDS[i].sharing;
            sharing_name = KINDS[i].name;
            return;
        }
    fail("COMB_SHARING is not stache, migratory, release or update");
}

int run_on_all(int (*part)(const void *), const void *argument)
{
    choose_terms();
    if (comb_init() != 0)
        fail("no task: %s", comb_error());
    int code = part(argument);
    comb_end();
    return code;
}
