// Writes at random into the memory that it shares with the recorder, between calls that are recorded: `scribbler FILE TIMES SEED`.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **arguments) {
  if (count != 4) return 2;
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[512];
  unsigned long long start = 0, end = 0;
  while (fgets(line, sizeof line, maps))
    if (strstr(line, "memfd:comb-trace")) sscanf(line, "%llx-%llx", &start, &end);
  fclose(maps);
  if (!start) return 3;
  int file = open(arguments[1], O_RDONLY);
  unsigned long long random = strtoull(arguments[3], 0, 10) * 0x9e3779b97f4a7c15ull | 1;
  char buffer[64];
  for (int each = atoi(arguments[2]); each; each--) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    // Half of it where the header is.
    unsigned long long place = random % 2 ? random / 2 % 256 : random / 2 % (end - start);
    *(volatile unsigned char *)(start + place) = random >> 40;
    if (pread(file, buffer, sizeof buffer, 0) != sizeof buffer) return 4;
  }
  return 0;
}
