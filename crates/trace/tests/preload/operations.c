// Does known things with files in the folder that it is in: what is expected of a recording of it stands in `preload.rs`.

#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static char buffer[100000];

static void must(int is_so, const char *what) {
  if (is_so) return;
  perror(what);
  exit(1);
}

int main(void) {
  // Plain descriptors: 3 writes of 1000 bytes, 1 of 500 at a place, 2 vectors of 300.
  int file = open("plain", O_RDWR | O_CREAT | O_EXCL, 0600);
  must(file >= 0, "open");
  for (int each = 0; each < 3; each++) must(write(file, buffer, 1000) == 1000, "write");
  must(pwrite(file, buffer, 500, 5000) == 500, "pwrite");
  struct iovec parts[2] = {{buffer, 100}, {buffer, 200}};
  must(writev(file, parts, 2) == 300 && pwritev(file, parts, 2, 100) == 300, "writev");
  must(lseek(file, 0, SEEK_SET) == 0, "lseek");
  must(read(file, buffer, 700) == 700 && read(file, buffer, 700) == 700, "read");
  must(pread(file, buffer, 400, 10) == 400, "pread");
  must(readv(file, parts, 2) == 300, "readv");
  int other = dup(file);
  must(other >= 0 && dup2(file, 77) == 77 && fcntl(file, F_DUPFD, 80) == 80, "dup");
  must(close(other) == 0 && close(77) == 0 && close(80) == 0, "close");
  must(ftruncate(file, 6000) == 0 && posix_fallocate(file, 0, 7000) == 0, "length");
  must(fsync(file) == 0 && fdatasync(file) == 0, "sync");
  must(flock(file, LOCK_EX) == 0, "flock");
  struct flock lock = {.l_type = F_WRLCK};
  must(fcntl(file, F_SETLK, &lock) == 0, "lock");
  char *mapped = mmap(0, 4096, PROT_READ, MAP_SHARED, file, 0);
  must(mapped != MAP_FAILED, "mmap");
  struct stat status;
  must(fstat(file, &status) == 0 && status.st_size == 7000, "fstat");
  int copy = openat(AT_FDCWD, "copy", O_WRONLY | O_CREAT, 0600);
  off_t from = 0;
  must(sendfile(copy, file, &from, 2000) == 2000, "sendfile");
  must(close(copy) == 0 && close(file) == 0, "close");

  // Names.
  must(open("nothing", O_RDONLY) == -1 && access("nothing", F_OK) == -1, "nothing");
  must(stat("plain", &status) == 0 && lstat("plain", &status) == 0, "stat");
  must(mkdir("folder", 0700) == 0 && rename("copy", "folder/moved") == 0, "rename");
  must(link("plain", "folder/linked") == 0 && symlink("plain", "folder/soft") == 0, "link");
  must(readlink("folder/soft", buffer, sizeof buffer) == 5, "readlink");
  must(chmod("plain", 0640) == 0 && truncate("plain", 100) == 0, "chmod");
  int folder = open("folder", O_RDONLY | O_DIRECTORY);
  must(folder >= 0 && fstatat(folder, "moved", &status, 0) == 0, "fstatat");
  must(unlinkat(folder, "linked", 0) == 0 && close(folder) == 0, "unlinkat");
  DIR *directory = opendir("folder");
  int entries = 0;
  while (readdir(directory)) entries++;
  must(entries == 4 && closedir(directory) == 0, "readdir");
  must(chdir("folder") == 0 && unlink("moved") == 0 && remove("soft") == 0, "remove");
  must(chdir("..") == 0 && rmdir("folder") == 0, "rmdir");

  // Streams: 30,000 bytes written in lines, read in lines, by characters, and in a block from the middle.
  FILE *stream = fopen("stream", "w");
  for (int each = 0; each < 1500; each++) must(fprintf(stream, "%018d\n", each) == 19, "fprintf");
  for (int each = 0; each < 1500; each++) must(putc('x', stream) == 'x', "putc");
  must(fclose(stream) == 0, "fclose");
  stream = fopen("stream", "r");
  char *line = 0;
  size_t room = 0;
  for (int each = 0; each < 1000; each++) must(getline(&line, &room, stream) == 19, "getline");
  while (getc(stream) != EOF) continue;
  must(fseek(stream, 10000, SEEK_SET) == 0 && fread(buffer, 1, 15000, stream) == 15000, "fread");
  must(fclose(stream) == 0 && unlink("stream") == 0, "fclose");

  // One that is written, read and written by turns, as linkers do.
  stream = fopen("turns", "w+");
  must(fwrite(buffer, 1, 50, stream) == 50 && fseek(stream, 10, SEEK_SET) == 0, "fwrite");
  must(fwrite(buffer, 1, 5, stream) == 5 && fseek(stream, 0, SEEK_SET) == 0, "fwrite");
  must(fread(buffer, 1, 20, stream) == 20 && fclose(stream) == 0, "fread");

  // A child that goes on with what is open, and one that is lent the memory.
  file = open("shared", O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (fork() == 0) _exit(write(file, buffer, 10) != 10);
  int ended;
  must(wait(&ended) > 0 && ended == 0, "fork");
  if (vfork() == 0) {
    dup2(file, 1);
    close(file);
    execl("/bin/echo", "echo", "eleven byte", (char *)0);
    _exit(127);
  }
  must(wait(&ended) > 0 && ended == 0, "vfork");
  must(write(file, buffer, 20) == 20 && fstat(file, &status) == 0 && status.st_size == 42, "shared");
  // Left in the buffer: the C library writes it when this ends.
  must(dup2(file, 1) == 1 && close(file) == 0 && printf("last words") == 10, "printf");
  return 0;
}
