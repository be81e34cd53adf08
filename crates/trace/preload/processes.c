// Where the library comes from and goes to: it finds the ring by the environment, tells that processes begin and end, and sees to it that
// the programs that they run find it, too.
//
// One variable says all: COMB_TRACE=PROCESS:RING:LIBRARY:HANDLES. Whose number stands first has been told to have begun; in the
// environment of any other process the variable is an ancestor's.

#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "preload.h"
#include "processes.h"

extern char **environ;

__thread struct thread self;

static struct own before_mapping;
struct own *own = &before_mapping;
u32 attachment;

#define MOST_PLACE_BYTES 256

static char ring_place[MOST_PLACE_BYTES];
static char library_place[MOST_PLACE_BYTES];
static pthread_key_t thread_ends;
static u32 has_thread_ends;

// Stands where the C library has no such function: it was none of the program's, then.
static long no_function(void) {
  errno = ENOSYS;
  return -1;
}

void *find_real(const char *name) {
  u32 was_looking = self.is_looking;
  int kept = errno;
  self.is_looking = 1;
  void *found = dlsym(RTLD_NEXT, name);
  // Functions that only old programs know, which new ones cannot be linked with.
  if (!found) found = dlvsym(RTLD_NEXT, name, "GLIBC_2.2.5");
  self.is_looking = was_looking;
  errno = kept;
  return found ? found : (void *)no_function;
}

u32 is_sandboxed;

// From here on the kernel kills whoever asks it for something that is not on a list, and what this library asks for is on none.
void enter_sandbox(void) {
  __atomic_store_n(&is_sandboxed, 1, __ATOMIC_RELEASE);
  __atomic_store_n(&attachment, NOT_ATTACHED, __ATOMIC_RELEASE);
}

// A part of the variable up to the next colon.
static const char *take_part(const char *text, char *part) {
  u32 bytes = 0;
  for (; text[bytes] && text[bytes] != ':'; bytes++)
    if (bytes + 1 < MOST_PLACE_BYTES) part[bytes] = text[bytes];
  part[bytes < MOST_PLACE_BYTES ? bytes : 0] = 0;
  return text[bytes] ? text + bytes + 1 : text + bytes;
}

static int map_ring(void) {
  long descriptor = ask(SYS_openat, AT_FDCWD, (long)ring_place, O_RDWR | O_CLOEXEC, 0, 0);
  if (descriptor < 0) return 0;
  struct stat status = {};
  ask(SYS_fstat, descriptor, (long)&status, 0, 0, 0);
  void *memory = REAL(mmap)(0, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  ask(SYS_close, descriptor, 0, 0, 0, 0);
  return memory != MAP_FAILED && has_ring(memory, status.st_size);
}

static void tell_begin(u64 parent, u8 flags) {
  struct event event;
  char name[16] = "";
  ask(SYS_prctl, PR_GET_NAME, (long)name, 0, 0, 0);
  prepare(&event, NOTE_PROCESS, 0, 0);
  event.start_ns = now_ns();
  event.argument = parent;
  event.asked = ask(SYS_getuid, 0, 0, 0, 0, 0);
  event.flags = flags;
  struct path path = {{}, name, sizeof name};
  put(&event, &path, 1);
}

static void tell_end(void) {
  struct event event;
  prepare(&event, NOTE_EXIT, 0, 0);
  event.start_ns = now_ns();
  put(&event, 0, 0);
}

// A program has begun to run in this process.
static void tell_program(u64 start) {
  struct event event;
  struct identity file;
  char name[16] = "";
  u32 mode = 0;
  ask(SYS_prctl, PR_GET_NAME, (long)name, 0, 0, 0);
  file = identity_of(AT_FDCWD, "/proc/self/exe", 0, &mode);
  if (file.inode) tell_name(&file, mode, AT_FDCWD, "/proc/self/exe");
  prepare(&event, OPERATION_EXECUTE, start, 0);
  event.about.file = file;
  event.about.mode = mode;
  event.argument = ask(SYS_getuid, 0, 0, 0, 0, 0);
  struct path path = {{}, name, sizeof name};
  put(&event, &path, 1);
}

static void thread_ended(void *unused) {
  (void)unused;
  if (self.number != self.process) tell_end();
}

static u32 number_of_process(void) { return ask(SYS_getpid, 0, 0, 0, 0, 0); }

static u32 number_of_thread(void) { return ask(SYS_gettid, 0, 0, 0, 0, 0); }

// Of a thread that has not been seen yet, or not in this process. What lends its memory meanwhile is another matter.
void introduce(void) {
  if (self.borrower) return;
  if (!own->process) {
    own->process = number_of_process();
    self.process = own->process;
    self.number = number_of_thread();
    tell_begin(ask(SYS_getppid, 0, 0, 0, 0, 0), 0);
    return;
  }
  self.process = own->process;
  self.number = number_of_thread();
  tell_begin(self.process, FLAG_SHARES);
  // The C library may allocate for it, and that by mapping a file.
  self.is_looking = 1;
  if (__atomic_load_n(&has_thread_ends, __ATOMIC_ACQUIRE)) pthread_setspecific(thread_ends, &self);
  self.is_looking = 0;
}

// A page that a child does not inherit: it finds zeros there, however it was made. On a kernel that has no such pages, our `fork` sees to it.
static void map_own(void) {
  void *page = REAL(mmap)(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  ask(SYS_madvise, (long)page, 4096, MADV_WIPEONFORK, 0, 0);
  own = page;
}

static u32 read_number(const char *text) {
  u32 number = 0;
  for (; *text >= '0' && *text <= '9'; text++) number = number * 10 + (*text - '0');
  return number;
}

static const char *find_variable(char *const *variables, const char *start) {
  u64 bytes = strlen(start);
  for (; variables && *variables; variables++)
    if (!strncmp(*variables, start, bytes)) return *variables + bytes;
  return 0;
}

// Finds the ring when the first function is called, which may be long before it is this library's turn to be initialised. Returns whether
// there is one; to whoever comes while another is looking, there is none yet.
int attach(void) {
  u32 expected = NOT_TRIED;
  if (!environ) return 0;
  if (!__atomic_compare_exchange_n(&attachment, &expected, BEING_TRIED, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return expected == ATTACHED;
  u64 start = now_ns();
  int kept = errno;
  const char *variable = find_variable(environ, "COMB_TRACE=");
  u32 state = NOT_ATTACHED;
  if (variable) {
    char process[MOST_PLACE_BYTES];
    const char *handles = take_part(take_part(take_part(variable, process), ring_place), library_place);
    if (map_ring()) {
      map_own();
      self.process = own->process = number_of_process();
      self.number = number_of_thread();
      u32 told = read_number(process);
      if (told != self.process) tell_begin(ask(SYS_getppid, 0, 0, 0, 0, 0), 0);
      tell_program(start);
      // Zero: whoever started this program could not know its number.
      if (told == self.process || !told) take_handles(handles);
      self.is_looking = 1;
      if (!pthread_key_create(&thread_ends, thread_ended)) __atomic_store_n(&has_thread_ends, 1, __ATOMIC_RELEASE);
      self.is_looking = 0;
      state = ATTACHED;
    }
  }
  errno = kept;
  __atomic_store_n(&attachment, state, __ATOMIC_RELEASE);
  return state == ATTACHED;
}

__attribute__((constructor)) static void library_begins(void) { attach(); }

__attribute__((destructor)) static void library_ends(void) { end_process(); }

// What this process does from here on is not told any more, except by handlers that run even later.
void end_process(void) {
  if (!begins()) return;
  if (!self.borrower) end_streams();
  tell_end();
}

#define MOST_BORROWERS 16

static struct borrower borrowers[MOST_BORROWERS];

// After `vfork`, in the child, which has its parent's memory, and then in the parent. Without a place for what the child does to its
// descriptors, nothing of it is told.
__attribute__((visibility("hidden"), used)) void has_forked(long result) {
  if (__atomic_load_n(&attachment, __ATOMIC_ACQUIRE) != ATTACHED) return;
  struct borrower *borrower = self.borrower;
  if (result) {
    if (borrower && result > 0) {
      self.borrower = borrower->outer;
      self.number = borrower->thread;
      self.process = borrower->process;
      __atomic_store_n(&borrower->is_taken, 0, __ATOMIC_RELEASE);
    } else if (result > 0) {
      self.is_looking = 0;
    }
    return;
  }
  for (u32 each = 0; each < MOST_BORROWERS; each++) {
    u32 expected = 0;
    borrower = borrowers + each;
    if (!__atomic_compare_exchange_n(&borrower->is_taken, &expected, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) continue;
    borrower->outer = self.borrower;
    borrower->thread = self.number;
    borrower->process = self.process;
    borrower->changes = 0;
    borrower->working.is_known = 0;
    self.borrower = borrower;
    u32 parent = self.process ? self.process : own->process;
    self.process = number_of_process();
    self.number = number_of_thread();
    tell_begin(parent, 0);
    return;
  }
  self.is_looking = 1;
}

// The child returns from here into its caller, and so may the parent then: what stood on the stack is kept in a register meanwhile, as the
// child is going to write over it.
__asm__(
    ".text\n"
    ".globl vfork\n"
    ".type vfork, @function\n"
    "vfork:\n"
    "  .cfi_startproc\n"
    "  pop %rdi\n"
    "  .cfi_adjust_cfa_offset -8\n"
    "  .cfi_register %rip, %rdi\n"
    "  mov $58, %eax\n"
    "  syscall\n"
    "  push %rdi\n"
    "  .cfi_adjust_cfa_offset 8\n"
    "  .cfi_rel_offset %rip, 0\n"
    "  push %rax\n"
    "  .cfi_adjust_cfa_offset 8\n"
    "  mov %rax, %rdi\n"
    "  call has_forked\n"
    "  pop %rdi\n"
    "  .cfi_adjust_cfa_offset -8\n"
    "  jmp result_of_vfork\n"
    "  .cfi_endproc\n"
    ".size vfork, . - vfork\n");

__attribute__((visibility("hidden"), used)) long result_of_vfork(long result) {
  if (result >= 0) return result;
  errno = -result;
  return -1;
}

static pid_t forked(pid_t result) {
  if (result == 0 && __atomic_load_n(&attachment, __ATOMIC_ACQUIRE) == ATTACHED) {
    self.borrower = 0;
    own->process = 0;
    introduce();
  }
  return result;
}

SEEN pid_t fork(void) { return forked(REAL(fork)()); }

SEEN pid_t _Fork(void) { return forked(REAL(_Fork)()); }

// How much memory an environment needs in which a program finds the library, and how many variables it has.
u64 environment_bytes(char *const *variables, u64 *count) {
  *count = 0;
  for (; variables && variables[*count]; ++*count) continue;
  const char *loaded = find_variable(variables, "LD_PRELOAD=");
  return (*count + 3) * sizeof(char *) + 2 * MOST_PLACE_BYTES + (loaded ? strlen(loaded) : 0) + 3 * MOST_PLACE_BYTES +
         MOST_HANDLES_BYTES;
}

static char *append(char *end, const char *text) {
  u64 bytes = strlen(text);
  memcpy(end, text, bytes + 1);
  return end + bytes;
}

static char *append_number(char *end, u32 number) {
  char digits[10];
  u32 count = 0;
  do digits[count++] = '0' + number % 10;
  while (number /= 10);
  while (count) *end++ = digits[--count];
  *end = 0;
  return end;
}

static int is_variable(const char *variable, const char *start) { return !strncmp(variable, start, strlen(start)); }

// Fills it. A program that builds an environment of its own is followed all the same; one that could not read the library, in another root
// or as another user, is left alone, for its loader would complain; and so is one in a sandbox.
char **fill_environment(void *memory, char *const *variables, u64 count, int is_same_process) {
  char **filled = memory;
  char *text = (char *)(filled + count + 3);
  char **next = filled;
  int is_reachable = !is_sandboxed && ask(SYS_faccessat, AT_FDCWD, (long)library_place, R_OK, 0, 0) == 0;
  const char *loaded = find_variable(variables, "LD_PRELOAD=");
  for (u64 each = 0; each < count; each++)
    if (!is_variable(variables[each], "COMB_TRACE=") && !is_variable(variables[each], "LD_PRELOAD="))
      *next++ = variables[each];
  const char *place = loaded ? strstr(loaded, library_place) : 0;
  *next = text;
  text = append(text, "LD_PRELOAD=");
  if (is_reachable) {
    if (!place) {
      text = append(text, library_place);
      if (loaded && *loaded) text = append(text, ":");
    }
    if (loaded) text = append(text, loaded);
  } else if (place) {
    // Without ours.
    memcpy(text, loaded, place - loaded);
    text += place - loaded;
    place += strlen(library_place);
    text = append(text, *place == ':' ? place + 1 : place);
  } else if (loaded) {
    text = append(text, loaded);
  }
  if (is_reachable || loaded) next++;
  if (is_reachable) {
    *next++ = ++text;
    text = append(text, "COMB_TRACE=");
    text = append_number(text, is_same_process ? self.process : 0);
    text = append(append(text, ":"), ring_place);
    text = append(append(append(text, ":"), library_place), ":");
    handles_as_text(text, MOST_HANDLES_BYTES);
  }
  *next = 0;
  return filled;
}
