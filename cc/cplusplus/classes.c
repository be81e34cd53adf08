/* Classes of libstdc++ whose members are plain code in its own library: they are called on private copies, or while the object is pinned.
 * Under the names that the C++ compiler gives them, and by the layout of libstdc++'s classes. Linked into programs that use one of them. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "comb_access.h"

int comb_lib_open(const char *path, int flags, ...);
int comb_lib_close(int descriptor);
ssize_t comb_lib_read(int descriptor, void *to, size_t bytes);
ssize_t comb_lib_write(int descriptor, const void *from, size_t bytes);
off_t comb_lib_lseek(int descriptor, off_t offset, int from);
int comb_lib_ioctl(int descriptor, unsigned long request, ...);

/* streams.cpp: lets std::cin, cout, cerr and clog go by the program's files. Room for so many objects, in private memory, as those are. */
enum { STANDARD = 4 };
void comb_replace_buffers(void *const rooms[STANDARD]);

void real_init(void *of_one_byte) __asm__("_ZNSt8ios_base4InitC1Ev");

void comb_lib__ZNSt8ios_base4InitC1Ev(void *unused)
{
    static char one_byte, buffers[STANDARD][128] __attribute__((aligned(16)));
    static bool is_made;
    (void)unused;
    real_init(&one_byte);
    /* Alone they are libstdc++'s. */
    if (!comb_runtime.stack || is_made)
        return;
    is_made = true;
    comb_replace_buffers((void *[]){buffers[0], buffers[1], buffers[2], buffers[3]});
}

/* They write through at once; who wants them faster has that from <cstdio>. */
bool real_sync_with_stdio(bool wanted) __asm__("_ZNSt8ios_base15sync_with_stdioEb");

bool comb_lib__ZNSt8ios_base15sync_with_stdioEb(bool wanted)
{
    return comb_runtime.stack ? true : real_sync_with_stdio(wanted);
}

/* Of std::ios_base; streams.cpp holds it to that. */
enum { IOS_BASE_BYTES = 216 };

#define PINNED(result, name, bytes)                                                 \
    result real_##name(void *object) __asm__(#name);                                \
    result comb_lib_##name(void *object)                                            \
    {                                                                               \
        comb_pin(&(struct comb_need){object, bytes, 1}, 1);                         \
        real_##name(object);                                                        \
        comb_unpin();                                                               \
    }

/* std::ios_base: made, taken down, reset. */
PINNED(void, _ZNSt8ios_baseC2Ev, IOS_BASE_BYTES)
PINNED(void, _ZNSt8ios_baseD2Ev, IOS_BASE_BYTES)
PINNED(void, _ZNSt8ios_base7_M_initEv, IOS_BASE_BYTES)

#define PINNED_BOTH(name)                                                           \
    void real_##name(void *one, void *other) __asm__(#name);                        \
    void comb_lib_##name(void *one, void *other)                                    \
    {                                                                               \
        struct comb_need needs[] = {{one, IOS_BASE_BYTES, 1}, {other, IOS_BASE_BYTES, 1}}; \
        comb_pin(needs, 2);                                                         \
        real_##name(one, other);                                                    \
        comb_unpin();                                                               \
    }
PINNED_BOTH(_ZNSt8ios_base7_M_moveERS_)
PINNED_BOTH(_ZNSt8ios_base7_M_swapERS_)

/* std::locale is one pointer, to what each component has for itself; the classic one is at the same place in all. */
typedef void *locale;

void real_make(locale *self) __asm__("_ZNSt6localeC1Ev");
void real_copy(locale *self, const locale *other) __asm__("_ZNSt6localeC1ERKS_");
void real_end(locale *self) __asm__("_ZNSt6localeD1Ev");
void real_assign(locale *self, const locale *other) __asm__("_ZNSt6localeaSERKS_");
bool real_equals(const locale *self, const locale *other) __asm__("_ZNKSt6localeeqERKS_");
void real_imbue(locale *before, void *stream, const locale *wanted) __asm__("_ZNSt8ios_base5imbueERKSt6locale");

static locale read_locale(const locale *shared)
{
    locale own;
    comb_copy_from(&own, shared, sizeof own);
    return own;
}

void comb_lib__ZNSt6localeC1Ev(locale *self)
{
    locale own;
    real_make(&own);
    comb_copy_to(self, &own, sizeof own);
}

void comb_lib__ZNSt6localeC1ERKS_(locale *self, const locale *other)
{
    locale own, from = read_locale(other);
    real_copy(&own, &from);
    comb_copy_to(self, &own, sizeof own);
}

void comb_lib__ZNSt6localeD1Ev(locale *self)
{
    locale own = read_locale(self);
    real_end(&own);
}

locale *comb_lib__ZNSt6localeaSERKS_(locale *self, const locale *other)
{
    locale own = read_locale(self), from = read_locale(other);
    real_assign(&own, &from);
    comb_copy_to(self, &own, sizeof own);
    return self;
}

bool comb_lib__ZNKSt6localeeqERKS_(const locale *self, const locale *other)
{
    locale own = read_locale(self), from = read_locale(other);
    return real_equals(&own, &from);
}

locale *comb_lib__ZNSt8ios_base5imbueERKSt6locale(locale *before, void *stream, const locale *wanted)
{
    locale own, from = read_locale(wanted);
    comb_pin(&(struct comb_need){stream, IOS_BASE_BYTES, 1}, 1);
    real_imbue(&own, stream, &from);
    comb_unpin();
    comb_copy_to(before, &own, sizeof own);
    return before;
}

/* std::__basic_file<char>, below std::filebuf: two words, of which the first is ours, a descriptor and 1. */
struct file {
    long descriptor_and_one;
    long is_own;
};

/* std::ios_base::openmode. */
enum { APPEND = 1, AT_END = 2, BINARY = 4, IN = 8, OUT = 16, TRUNCATE = 32 };

static int descriptor_of(const struct file *file)
{
    long word;
    comb_copy_from(&word, &file->descriptor_and_one, sizeof word);
    return (int)word - 1;
}

static void set_descriptor(struct file *file, int descriptor)
{
    struct file new = {descriptor + 1, descriptor >= 0};
    comb_copy_to(file, &new, sizeof new);
}

static int flags_of(int mode)
{
    switch (mode & ~(AT_END | BINARY)) {
    case OUT:
    case OUT | TRUNCATE: return O_WRONLY | O_CREAT | O_TRUNC;
    case APPEND:
    case OUT | APPEND: return O_WRONLY | O_CREAT | O_APPEND;
    case IN: return O_RDONLY;
    case IN | OUT: return O_RDWR;
    case IN | OUT | TRUNCATE: return O_RDWR | O_CREAT | O_TRUNC;
    case IN | APPEND:
    case IN | OUT | APPEND: return O_RDWR | O_CREAT | O_APPEND;
    default: return -1;
    }
}

void comb_lib__ZNSt12__basic_fileIcEC1EP15pthread_mutex_t(struct file *file, void *unused)
{
    (void)unused;
    set_descriptor(file, -1);
}

bool comb_lib__ZNKSt12__basic_fileIcE7is_openEv(const struct file *file)
{
    return descriptor_of(file) >= 0;
}

int comb_lib__ZNSt12__basic_fileIcE2fdEv(struct file *file)
{
    return descriptor_of(file);
}

struct file *comb_lib__ZNSt12__basic_fileIcE4openEPKcSt13_Ios_Openmodei(struct file *file, const char *name, int mode, int rights)
{
    int flags = flags_of(mode);
    if (flags < 0 || descriptor_of(file) >= 0)
        return NULL;
    int descriptor = comb_lib_open(name, flags, rights);
    if (descriptor < 0)
        return NULL;
    set_descriptor(file, descriptor);
    return file;
}

struct file *comb_lib__ZNSt12__basic_fileIcE5closeEv(struct file *file)
{
    int descriptor = descriptor_of(file);
    if (descriptor < 0)
        return NULL;
    set_descriptor(file, -1);
    return comb_lib_close(descriptor) ? NULL : file;
}

void comb_lib__ZNSt12__basic_fileIcED1Ev(struct file *file)
{
    comb_lib__ZNSt12__basic_fileIcE5closeEv(file);
}

long comb_lib__ZNSt12__basic_fileIcE6xsgetnEPcl(struct file *file, char *to, long bytes)
{
    ssize_t got;
    do
        got = comb_lib_read(descriptor_of(file), to, (size_t)bytes);
    while (got < 0 && errno == EINTR);
    return got;
}

long comb_lib__ZNSt12__basic_fileIcE6xsputnEPKcl(struct file *file, const char *from, long bytes)
{
    int descriptor = descriptor_of(file);
    long done = 0;
    while (done < bytes) {
        ssize_t written = comb_lib_write(descriptor, from + done, (size_t)(bytes - done));
        if (written < 0 && errno != EINTR)
            break;
        done += written < 0 ? 0 : written;
    }
    return done;
}

long comb_lib__ZNSt12__basic_fileIcE8xsputn_2EPKclS2_l(struct file *file, const char *first, long first_bytes, const char *second,
                                                      long second_bytes)
{
    long done = comb_lib__ZNSt12__basic_fileIcE6xsputnEPKcl(file, first, first_bytes);
    return done < first_bytes ? done : done + comb_lib__ZNSt12__basic_fileIcE6xsputnEPKcl(file, second, second_bytes);
}

long comb_lib__ZNSt12__basic_fileIcE7seekoffElSt12_Ios_Seekdir(struct file *file, long offset, int from)
{
    return comb_lib_lseek(descriptor_of(file), offset, from);
}

/* Nothing waits here to be written. */
int comb_lib__ZNSt12__basic_fileIcE4syncEv(struct file *file)
{
    (void)file;
    return 0;
}

long comb_lib__ZNSt12__basic_fileIcE9showmanycEv(struct file *file)
{
    int waiting = 0;
    return comb_lib_ioctl(descriptor_of(file), FIONREAD, &waiting) == 0 && waiting > 0 ? waiting : 0;
}
