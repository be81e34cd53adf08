// What a guest does to its disk and its network, to measure them.
//
//   load reads FILE AT-ONCE SECONDS     random reads of 4 KB past the guest's cache: how many
//   load take PORT                      what one connection sends, until it ends: megabytes a second
//   load send ADDRESS PORT SECONDS
//   load flood DEVICE KIND SECONDS      frames as fast as they go: forged, everybody or unknown
//   load spin SECONDS                   nothing, as fast as it goes
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 4096, MOST_AT_ONCE = 64, CHUNK = 1 << 18, FRAMES = 32, FRAME = 60 };

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int disk;
static uint64_t blocks;
static double until;

static void *read_blocks(void *argument) {
  uint64_t *count = argument, dice = *count;
  void *buffer;
  if (posix_memalign(&buffer, BLOCK, BLOCK)) fail("memory");
  for (*count = 0; now() < until; ++*count) {
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    if (pread(disk, buffer, BLOCK, (off_t)((dice >> 33) % blocks * BLOCK)) != BLOCK) fail("read");
  }
  return NULL;
}

static void reads(const char *path, int at_once, double seconds) {
  disk = open(path, O_RDONLY | O_DIRECT);
  if (disk < 0 || at_once < 1 || at_once > MOST_AT_ONCE) fail(path);
  blocks = (uint64_t)lseek(disk, 0, SEEK_END) / BLOCK;
  until = now() + seconds;
  pthread_t threads[MOST_AT_ONCE];
  uint64_t counts[MOST_AT_ONCE], all = 0;
  for (int i = 0; i < at_once; i++) {
    counts[i] = (uint64_t)i + 1;
    if (pthread_create(&threads[i], NULL, read_blocks, &counts[i])) fail("thread");
  }
  for (int i = 0; i < at_once; i++) {
    pthread_join(threads[i], NULL);
    all += counts[i];
  }
  printf("%.1f\n", (double)all / seconds);
}

static struct sockaddr_in at(const char *address, int port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  inet_pton(AF_INET, address, &at.sin_addr);
  return at;
}

static char chunk[CHUNK];

static void take(int port) {
  int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  struct sockaddr_in here = at("0.0.0.0", port);
  if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 1)) fail("listen");
  int stream = accept(listener, NULL, NULL);
  if (stream < 0) fail("accept");
  double begin = now();
  uint64_t bytes = 0;
  for (ssize_t count; (count = read(stream, chunk, CHUNK)) > 0;) bytes += (uint64_t)count;
  printf("%.3f\n", (double)bytes / 1e6 / (now() - begin));
}

static void send_to(const char *address, int port, double seconds) {
  struct sockaddr_in there = at(address, port);
  int stream;
  // Whoever takes it may not listen yet.
  for (double give_up = now() + 20;;) {
    stream = socket(AF_INET, SOCK_STREAM, 0);
    if (!connect(stream, (struct sockaddr *)&there, sizeof there)) break;
    close(stream);
    if (now() > give_up) fail("connect");
    usleep(20000);
  }
  double end = now() + seconds;
  while (now() < end)
    if (write(stream, chunk, CHUNK) < 0) fail("write");
}

static void flood(const char *device, const char *kind, double seconds) {
  int line = socket(AF_PACKET, SOCK_RAW, 0);
  struct ifreq request = {0};
  strncpy(request.ifr_name, device, IFNAMSIZ - 1);
  if (line < 0 || ioctl(line, SIOCGIFHWADDR, &request)) fail(device);
  unsigned char frame[FRAME] = {0};
  memcpy(frame + 6, request.ifr_hwaddr.sa_data, 6);
  memset(frame, strcmp(kind, "everybody") ? 0x42 : 0xff, 6);
  if (!strcmp(kind, "forged")) frame[11] ^= 0x55;
  frame[12] = 0x88, frame[13] = 0xb5;
  if (ioctl(line, SIOCGIFINDEX, &request)) fail(device);
  struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_ifindex = request.ifr_ifindex, .sll_halen = 6};
  struct iovec part = {frame, FRAME};
  struct mmsghdr all[FRAMES] = {0};
  for (int i = 0; i < FRAMES; i++)
    all[i].msg_hdr = (struct msghdr){.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &part, .msg_iovlen = 1};
  uint64_t sent = 0;
  for (double end = now() + seconds; now() < end;) {
    int count = sendmmsg(line, all, FRAMES, 0);
    if (count > 0) sent += (uint64_t)count;
  }
  printf("%.0f\n", (double)sent / seconds);
}

int main(int count, char **words) {
  const char *what = count > 1 ? words[1] : "";
  if (!strcmp(what, "reads") && count == 5) reads(words[2], atoi(words[3]), atof(words[4]));
  else if (!strcmp(what, "take") && count == 3) take(atoi(words[2]));
  else if (!strcmp(what, "send") && count == 5) send_to(words[2], atoi(words[3]), atof(words[4]));
  else if (!strcmp(what, "flood") && count == 5) flood(words[2], words[3], atof(words[4]));
  else if (!strcmp(what, "spin") && count == 3) for (double end = now() + atof(words[2]); now() < end;);
  else return 2;
  return 0;
}
