// What the recorder in the kernel hands to the one outside: read by `src/kernel/record.rs`, whose tests compare every number below.
#ifndef COMB_RECORD_H
#define COMB_RECORD_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;

enum operation {
  NO_OPERATION = 0,
  OPERATION_OPEN = 1,
  OPERATION_CLOSE = 2,
  OPERATION_READ = 3,
  OPERATION_WRITE = 4,
  OPERATION_TRANSFER = 5,
  OPERATION_MAP = 6,
  OPERATION_PAGE_IN = 7,
  OPERATION_WRITE_BACK = 8,
  OPERATION_SEEK = 9,
  OPERATION_LIST = 10,
  OPERATION_STATUS = 11,
  OPERATION_ACCESS = 12,
  OPERATION_READ_LINK = 13,
  OPERATION_SET_ATTRIBUTES = 14,
  OPERATION_EXTENDED = 15,
  OPERATION_RENAME = 16,
  OPERATION_DELETE = 17,
  OPERATION_LINK = 18,
  OPERATION_MAKE = 19,
  OPERATION_MAKE_DIRECTORY = 20,
  OPERATION_REMOVE_DIRECTORY = 21,
  OPERATION_TRUNCATE = 22,
  OPERATION_ALLOCATE = 23,
  OPERATION_LOCK = 24,
  OPERATION_SYNC = 25,
  OPERATION_ADVISE = 26,
  OPERATION_DUPLICATE = 27,
  OPERATION_CONTROL = 28,
  OPERATION_CHANGE_DIRECTORY = 29,
  OPERATION_FILE_SYSTEM = 30,
  OPERATION_EXECUTE = 31,
  // What is told between operations.
  NOTE_NAME = 64,
  NOTE_PROCESS = 65,
  NOTE_EXIT = 66,
};

enum flag {
  // Of what reads: pages had to be read for it, and what it wanted was not, or not all, in the page cache. What writes brings pages into
  // the cache as well, and nothing of these was missed.
  FLAG_MISS = 1,
  // The open made the file.
  FLAG_CREATED = 2,
  // The offset was given, and the file's position stayed.
  FLAG_POSITIONAL = 4,
  FLAG_IO_URING = 8,
  // The second record of one call: a transfer's output.
  FLAG_SECOND = 16,
  // What was opened is a pipe, a socket or a device, of which nothing more is recorded; or such a thing took a file's descriptor.
  FLAG_NO_FILE = 32,
  // A new thread shares its maker's descriptors.
  FLAG_SHARES = 64,
  FLAG_VECTOR = 128,
};

// A file, for as long as its inode lives: numbers of deleted files are given to new ones, with another generation.
struct identity {
  u64 inode;
  u32 device;
  u32 generation;
};

// What an operation was done with.
struct subject {
  u64 handle;  // the open file's address: the same while it is open
  struct identity file;
  u64 offset;
  u64 size;
  u32 mode;
  u32 pages;
};

struct event {
  u8 operation;
  u8 flags;
  u16 text_bytes;  // what follows this structure: `struct text`, once or twice
  u32 thread;
  u32 process;
  s32 descriptor;
  u64 start_ns;  // monotonic
  u64 duration_ns;
  s64 result;
  u64 asked;
  u64 argument;
  struct subject about;
};

// A path as the program gave it, below `base`; or a name's parts, innermost first, each ended by a zero.
struct text {
  struct identity base;
  u32 bytes;
  u32 unused;
};

#define MOST_TEXT_BYTES 4096

struct counters {
  u64 lost;
  u64 foreign;  // calls of 32-bit programs
  u64 recorded;
};

#endif
