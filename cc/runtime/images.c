/* images.c: finds the images by the symbols that the linker script defines in each library and in the executable,
 * and says in one text what must be equal in all components: which libraries are loaded where, by their build ids. */
#include "images.h"

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "runtime.h"

/* Of the executable; a program without any such data has none. */
extern char comb_image_start[] __attribute__((weak));
extern char comb_image_end[] __attribute__((weak));

static struct comb_images found;
static size_t build_length;

static void add_image(void *start, void *end)
{
    if (start == end)
        return;
    if (found.count == COMB_MOST_IMAGES)
        comb_die("more than %d shared libraries with data of the program", COMB_MOST_IMAGES);
    found.image[found.count++] = (struct comb_image){start, (size_t)((char *)end - (char *)start)};
}

static void add_text(const char *text)
{
    int written = snprintf(found.build + build_length, sizeof found.build - build_length, "%s", text);
    build_length += (size_t)written;
    if (build_length >= sizeof found.build)
        build_length = sizeof found.build - 1; /* what is cut off is cut off in all components */
}

/* The linker's digest of what it wrote; libraries without one are told apart by address and name alone. */
static void add_build_id(const struct dl_phdr_info *object)
{
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &object->dlpi_phdr[i];
        if (header->p_type != PT_NOTE)
            continue;
        const char *at = (const char *)object->dlpi_addr + header->p_vaddr;
        const char *end = at + header->p_memsz;
        while (at + sizeof(ElfW(Nhdr)) <= end) {
            const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)at;
            const unsigned char *content = (const unsigned char *)(note + 1) + ((note->n_namesz + 3u) & ~3u);
            if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !memcmp(note + 1, "GNU", 4))
                for (unsigned byte = 0; byte < note->n_descsz; byte++) {
                    char digits[3];
                    snprintf(digits, sizeof digits, "%02x", content[byte]);
                    add_text(digits);
                }
            at = (const char *)content + ((note->n_descsz + 3u) & ~3u);
        }
    }
}

/* A section of the file that ld.so has put into memory, by its tag. */
static const void *dynamic(const struct dl_phdr_info *object, long tag)
{
    for (int i = 0; i < object->dlpi_phnum; i++) {
        if (object->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        const ElfW(Dyn) *entry = (const ElfW(Dyn) *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
        for (; entry->d_tag != DT_NULL; entry++)
            if (entry->d_tag == tag)
                return (const void *)entry->d_un.d_ptr;
    }
    return NULL;
}

static size_t symbols_of(const struct dl_phdr_info *object)
{
    const uint32_t *old = dynamic(object, DT_HASH), *table = dynamic(object, DT_GNU_HASH);
    if (old)
        return old[1];
    if (!table)
        return 0;
    const uint32_t buckets = table[0], first = table[1], *bucket = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof *table);
    const uint32_t *chain = bucket + buckets;
    uint32_t last = 0;
    for (uint32_t i = 0; i < buckets; i++)
        last = bucket[i] > last ? bucket[i] : last;
    if (last < first)
        return 0;
    while (!(chain[last - first] & 1))
        last++;
    return last + 1;
}

/* Where a library itself has it. dlopen() and dlsym() would run constructors, and none may run yet. */
static void *symbol_of(const struct dl_phdr_info *object, const char *name)
{
    const ElfW(Sym) *symbols = dynamic(object, DT_SYMTAB);
    const char *names = dynamic(object, DT_STRTAB);
    size_t count = symbols && names ? symbols_of(object) : 0;
    for (size_t i = 0; i < count; i++)
        if (symbols[i].st_shndx != SHN_UNDEF && !strcmp(names + symbols[i].st_name, name))
            return (void *)(object->dlpi_addr + symbols[i].st_value);
    return NULL;
}

static int add_object(struct dl_phdr_info *object, size_t bytes, void *unused)
{
    (void)bytes, (void)unused;
    const char *name = object->dlpi_name;
    if (strstr(name, "linux-vdso") || strstr(name, "libcomb.so"))
        return 0; /* the kernel's, and one that is not part of the program */
    char address[32];
    snprintf(address, sizeof address, "@%lx:", (unsigned long)object->dlpi_addr);
    add_text(*name ? name : "program");
    add_text(address);
    add_build_id(object);
    add_text("\n");
    if (!*name)
        return 0;
    void *start = symbol_of(object, "comb_image_start"), *end = symbol_of(object, "comb_image_end");
    if (start && end)
        add_image(start, end);
    return 0;
}

const struct comb_images *comb_images_find(void)
{
    if (comb_image_start)
        add_image(comb_image_start, comb_image_end);
    dl_iterate_phdr(add_object, NULL);
    return &found;
}
