/* images.c: finds the images by the symbols that the linker script defines in each library and in the executable,
 * and says in one text what must be equal in all components: which libraries are loaded where, by their build ids. */
#include "images.h"

#include <dlfcn.h>
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
    void *library = dlopen(name, RTLD_NOLOAD | RTLD_LAZY);
    if (!library)
        return 0;
    void *start = dlsym(library, "comb_image_start");
    void *end = dlsym(library, "comb_image_end");
    Dl_info owner;
    /* dlsym() looks into what the library depends on, too. */
    if (start && end && start != comb_image_start && dladdr(start, &owner) &&
        owner.dli_fbase == (void *)object->dlpi_addr)
        add_image(start, end);
    dlclose(library);
    return 0;
}

const struct comb_images *comb_images_find(void)
{
    if (comb_image_start)
        add_image(comb_image_start, comb_image_end);
    dl_iterate_phdr(add_object, NULL);
    return &found;
}
