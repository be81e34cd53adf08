// Looks for files that are not there, one after the other, with names of all lengths: `names TIMES`.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int main(int count, char **arguments) {
  if (count != 2) return 2;
  int times = atoi(arguments[1]);
  static char name[1000];
  for (int each = 0; each < times; each++) {
    int bytes = sprintf(name, "/nothing/%d/", each);
    memset(name + bytes, 'x', 800);
    name[bytes + each * 37 % 700] = 0;
    struct stat status;
    if (stat(name, &status) == 0) return 1;
  }
  return 0;
}
