// What the parts of the library have in common.
//
// The library is loaded into programs that know nothing of it. It calls none of the functions that it stands in front of: what it wants to
// know itself, it asks the kernel. So it changes no errno, allocates nothing, takes no lock, and may be interrupted by itself.
#ifndef COMB_PRELOAD_H
#define COMB_PRELOAD_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ring.h"

#define INLINE static inline __attribute__((always_inline))
#define SEEN __attribute__((visibility("default")))
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

// The next function of this name behind ours. Looked for when it is first called: few programs call many.
#define REAL(name)                                                                    \
  ({                                                                                  \
    static void *found;                                                               \
    void *function = __atomic_load_n(&found, __ATOMIC_RELAXED);                       \
    if (UNLIKELY(!function)) {                                                        \
      function = find_real(#name);                                                    \
      __atomic_store_n(&found, function, __ATOMIC_RELAXED);                           \
    }                                                                                 \
    (__typeof__(&name))function;                                                      \
  })

void *find_real(const char *name);

INLINE long ask(long number, long first, long second, long third, long fourth, long fifth) {
  long result;
  register long in_r10 __asm__("r10") = fourth;
  register long in_r8 __asm__("r8") = fifth;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(first), "S"(second), "d"(third), "r"(in_r10), "r"(in_r8)
                   : "rcx", "r11", "memory");
  return result;
}

INLINE u64 now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}

// What is known of a descriptor.
enum kind { KIND_UNKNOWN = 0, KIND_NO_FILE = 1, KIND_FILE = 2 };

struct open_file {
  u32 kind;
  u32 mode;
  u64 handle;
  struct identity file;
  u64 size;      // when it was last seen
  u64 position;  // and where, if a stream reads it
  u64 listed;    // bytes of entries that were handed out since the last were told
  FILE *stream;  // that wrote to it
  u32 is_written;
};

// A process that borrows its parent's memory until it runs another program: what it does to its descriptors is not done to the parent's.
#define MOST_BORROWED 64

struct folder {
  struct identity file;
  u32 is_known;
};

struct borrower {
  u32 is_taken;
  u32 thread, process;  // the lender's
  struct borrower *outer;
  u32 changes;
  s32 descriptors[MOST_BORROWED];
  struct open_file files[MOST_BORROWED];
  struct folder working;
};

struct thread {
  u32 number;
  u32 process;
  u32 is_looking;  // for a function: what is called meanwhile is not told
  struct borrower *borrower;
  struct open_file spare;
};

extern __thread struct thread self __attribute__((tls_model("initial-exec")));

// The running process's number; zero in a child that has just been forked, however that was done.
struct own {
  u32 process;
};
extern struct own *own;

enum attachment { NOT_TRIED = 0, BEING_TRIED = 1, ATTACHED = 2, NOT_ATTACHED = 3 };
extern u32 attachment;

int attach(void);
void introduce(void);

// When a call begins that is to be told; 0 if it is not.
INLINE u64 begins(void) {
  u32 state = __atomic_load_n(&attachment, __ATOMIC_ACQUIRE);
  if (UNLIKELY(state != ATTACHED) && (state == NOT_ATTACHED || !attach())) return 0;
  if (UNLIKELY(self.is_looking)) return 0;
  if (UNLIKELY(self.process != own->process || !self.process)) introduce();
  return self.process ? now_ns() : 0;
}

// A text behind an event.
struct path {
  struct identity base;
  const char *text;
  u32 bytes;
};

// Whether it got there.
int put(struct event *event, const struct path *paths, u32 count);
int has_ring(void *memory, u64 bytes);
int is_named(const struct identity *file);
void set_named(const struct identity *file);

void prepare(struct event *event, u8 operation, u64 start, s64 result);
void end_process(void);

struct open_file *slot_of(int descriptor);
struct open_file *file_of(int descriptor);
#define FLAGS_UNKNOWN (-1)
void learn(int descriptor, struct open_file *file, int flags);
void forget(int descriptor);
void copy_descriptor(int from, int to);
void describe(struct event *event, int descriptor, const struct open_file *file);
u64 new_handle(void);
u64 position_of(int descriptor);
struct path path_at(int directory, const char *text);
void working_directory_changes(void);
struct identity identity_of(int directory, const char *path, int flags, u32 *mode);
void tell_name(const struct identity *file, u32 mode, int directory, const char *link);

// A call that opened something, or did not.
void tell_open(u64 start, int result, int directory, const char *path, int flags, int is_created);
int is_missing(int directory, const char *path);
// A call that works on a descriptor's file.
void tell_descriptor(u8 operation, u64 start, s64 result, int descriptor, u64 argument, u64 asked);
// One that works on a path.
void tell_path(u8 operation, u64 start, s64 result, int directory, const char *path, u64 argument, u64 asked);
// A close: before it happens, what will be told of it, and afterwards that it did.
void before_close(struct event *event, int descriptor);
void tell_close(struct event *event, u64 start, s64 result);

// What a stream has left in its buffer when the process ends, which the C library then writes.
void end_streams(void);
u32 highest_descriptor(void);
void each_written_stream(void (*end)(int descriptor, FILE *stream));

// For programs that this process starts.
u32 handles_as_text(char *text, u32 room);
void take_handles(const char *text);

// What a call returned: what the program gets, or the error that goes with it.
INLINE s64 outcome(s64 result) { return result == -1 ? -(s64)errno : result; }

#endif
