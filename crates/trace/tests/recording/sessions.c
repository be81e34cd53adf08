// Opens files and has them closed in every way there is; says of each how its session should end, and between which times.
#include "expect.h"
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>

static char bytes[100];

// What children leave for their parents.
static volatile struct shared {
  long long before;
  int is_open;
} *shared;

static long long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static void ends(const char *name, const char *how, long long before, const char *seen) {
  printf("%s %s %lld %lld %s\n", name, how, before, now(), seen);
}

static int make(const char *name, int flags) {
  int file = open(name, O_RDWR | O_CREAT | flags, 0600);
  need(file >= 0, name);
  return file;
}

static void end_of(pid_t child) {
  need(child > 0 && waitpid(child, 0, 0) == child, "wait");
}

static void leave(void) {
  shared->before = now();
  _exit(0);
}

static void become_another(void) {
  shared->before = now();
  execl("/bin/true", "true", (char *)0);
  _exit(9);
}

static void closes(void) {
  int file = make("closed", 0);
  long long before = now();
  close(file);
  ends("closed", "Close", before, "open");

  file = make("duplicated", 0);
  int other = dup(file);
  close(file);
  before = now();
  close(other);
  ends("duplicated", "Close", before, "open");

  file = make("replaced", 0);
  other = make("replacing", 0);
  before = now();
  dup2(other, file);
  ends("replaced", "Close", before, "open");
  close(other);
  before = now();
  close(file);
  ends("replacing", "Close", before, "open");

  int pair[2];
  need(pipe(pair) == 0, "pipe");
  file = make("piped", 0);
  before = now();
  dup2(pair[0], file);
  ends("piped", "Close", before, "open");
  close(file);
  close(pair[0]);
  close(pair[1]);

  file = make("in-range", 0);
  need(dup2(file, 900) == 900 && close(file) == 0, "a high number");
  before = now();
  syscall(SYS_close_range, 800, ~0u, 0);
  ends("in-range", "Close", before, "open");
}

static void exits(void) {
  pid_t child = fork();
  if (child == 0) {
    make("left-open", 0);
    leave();
  }
  end_of(child);
  ends("left-open", "Exit", shared->before, "open");

  child = fork();
  if (child == 0) {
    make("killed", 0);
    shared->before = now();
    kill(getpid(), SIGKILL);
  }
  end_of(child);
  ends("killed", "Exit", shared->before, "open");

  int file = make("inherited", 0);
  int pair[2];
  need(pipe(pair) == 0, "pipe");
  child = fork();
  if (child == 0) {
    need(read(pair[0], bytes, 1) == 1, "read");
    leave();
  }
  close(file);
  need(write(pair[1], bytes, 1) == 1, "write");
  end_of(child);
  ends("inherited", "Exit", shared->before, "open");
  close(pair[0]);
  close(pair[1]);
}

static void executions(void) {
  pid_t child = fork();
  if (child == 0) {
    make("closing", O_CLOEXEC);
    make("staying", 0);
    int set = make("set", 0);
    fcntl(set, F_SETFD, FD_CLOEXEC);
    set = make("set-by-ioctl", 0);
    ioctl(set, FIOCLEX);
    set = make("set-back", O_CLOEXEC);
    ioctl(set, FIONCLEX);
    int other = make("duplicate-closing", 0);
    dup3(other, 700, O_CLOEXEC);
    close(other);
    other = make("duplicate-staying", O_CLOEXEC);
    dup2(other, 701);
    become_another();
  }
  end_of(child);
  for (const char **name = (const char *[]){"closing", "set", "set-by-ioctl", "duplicate-closing", 0}; *name; name++)
    ends(*name, "Execute", shared->before, "open");
  for (const char **name = (const char *[]){"staying", "set-back", "duplicate-staying", 0}; *name; name++)
    ends(*name, "Exit", shared->before, "open");
}

// Twice away from whoever started it.
static void daemons(void) {
  int gone[2];
  need(pipe(gone) == 0, "pipe");
  pid_t child = fork();
  if (child == 0) {
    make("of-daemon", 0);
    setsid();
    if (fork() != 0) _exit(0);
    close(gone[0]);
    usleep(20000);
    leave();
  }
  close(gone[1]);
  end_of(child);
  need(read(gone[0], bytes, 1) == 0, "the daemon's end");
  close(gone[0]);
  ends("of-daemon", "Exit", shared->before, "open");
}

static pid_t fork_sharing(void) {
  return syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
}

static void sharing(void) {
  int file = make("closed-by-child", 0);
  pid_t child = fork_sharing();
  if (child == 0) {
    shared->before = now();
    close(file);
    _exit(0);
  }
  end_of(child);
  ends("closed-by-child", "Close", shared->before, "open");

  child = fork_sharing();
  if (child == 0) {
    shared->is_open = make("opened-by-child", 0);
    _exit(0);
  }
  end_of(child);
  long long before = now();
  close(shared->is_open);
  ends("opened-by-child", "Close", before, "open");

  // Who made the table ends before who shares it.
  int gone[2];
  need(pipe(gone) == 0, "pipe");
  child = fork();
  if (child == 0) {
    make("of-heir", 0);
    close(gone[0]);
    pid_t maker = getpid();
    if (fork_sharing() == 0) {
      while (getppid() == maker) usleep(1000);
      leave();
    }
    _exit(0);
  }
  close(gone[1]);
  end_of(child);
  need(read(gone[0], bytes, 1) == 0, "the heir's end");
  close(gone[0]);
  ends("of-heir", "Exit", shared->before, "open");

  // An execution ends the sharing, and closes nothing of the other's.
  file = make("shared-closing", O_CLOEXEC);
  child = fork_sharing();
  if (child == 0) become_another();
  end_of(child);
  before = now();
  close(file);
  ends("shared-closing", "Close", before, "open");
}

static void *opens(void *unused) {
  shared->is_open = make("of-thread", 0);
  return unused;
}

static void *executes(void *unused) {
  make("thread-closing", O_CLOEXEC);
  make("thread-staying", 0);
  become_another();
  return unused;
}

static void threads(void) {
  pthread_t thread;
  pthread_create(&thread, 0, opens, 0);
  pthread_join(thread, 0);
  long long before = now();
  close(shared->is_open);
  ends("of-thread", "Close", before, "open");

  pid_t child = fork();
  if (child == 0) {
    pthread_create(&thread, 0, executes, 0);
    pthread_join(thread, 0);
    _exit(9);
  }
  end_of(child);
  ends("thread-closing", "Execute", shared->before, "open");
  ends("thread-staying", "Exit", shared->before, "open");
}

static void hand_over(int socket, int file) {
  char room[CMSG_SPACE(sizeof file)] = {0};
  struct iovec part = {bytes, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof file)};
  memcpy(CMSG_DATA(head), &file, sizeof file);
  need(sendmsg(socket, &message, 0) == 1, "sendmsg");
}

static int take_over(int socket) {
  int file;
  char room[CMSG_SPACE(sizeof file)];
  struct iovec part = {bytes, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  need(recvmsg(socket, &message, 0) == 1, "recvmsg");
  memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
  return file;
}

// A file that comes in a message is seen first when it is used.
static void messages(void) {
  int pair[2];
  need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
  pid_t child = fork();
  if (child == 0) {
    int file = take_over(pair[1]);
    need(read(file, bytes, 10) == 0 && write(pair[1], bytes, 1) == 1, "use");
    need(read(pair[1], bytes, 1) == 1, "go on");
    shared->before = now();
    close(file);
    need(write(pair[1], bytes, 1) == 1, "closed");
    file = take_over(pair[1]);
    need(read(pair[1], bytes, 1) == 1, "go on");
    need(read(file, bytes, 10) == 0, "use");
    leave();
  }
  // Used by the other before it is closed here: one session.
  int file = make("handed-over", 0);
  hand_over(pair[0], file);
  need(read(pair[0], bytes, 1) == 1, "used");
  close(file);
  need(write(pair[0], bytes, 1) == 1 && read(pair[0], bytes, 1) == 1, "closed");
  ends("handed-over", "Close", shared->before, "open");
  // Closed here before the other one takes it: nobody knows that it is still open, and when it is used that is another session.
  file = make("on-its-way", 0);
  hand_over(pair[0], file);
  long long before = now();
  close(file);
  ends("on-its-way", "Close", before, "open");
  need(write(pair[0], bytes, 1) == 1, "go on");
  end_of(child);
  ends("on-its-way", "Exit", shared->before, "use");
}

int main(int count, char **arguments) {
  need(count == 2 && chdir(arguments[1]) == 0, "the place");
  setvbuf(stdout, 0, _IOFBF, 1 << 16);
  shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  closes();
  exits();
  executions();
  daemons();
  sharing();
  threads();
  messages();
  make("at-last", 0);
  fflush(stdout);
  return 0;
}
