// The little that the recorder needs to know of the kernel's structures: where each field is, the loader finds out from the running
// kernel's type information. And the kernel's functions for such programs, by their numbers.
#ifndef COMB_KERNEL_H
#define COMB_KERNEL_H

#include "record.h"

#define KERNEL __attribute__((preserve_access_index))
#define SECTION(name) __attribute__((section(name), used))
#define FUNCTION __attribute__((noinline))
#define INLINE static inline __attribute__((always_inline))

struct pt_regs {
  unsigned long r10, r9, r8, dx, si, di, orig_ax, cs;
} KERNEL;

struct kuid {
  u32 val;
} KERNEL;
struct cred {
  struct kuid uid;
} KERNEL;

struct super_block {
  u32 s_dev;
} KERNEL;
struct inode {
  u16 i_mode;
  u32 i_flags;
  struct super_block *i_sb;
  unsigned long i_ino;
  s64 i_size;
  u32 i_generation;
} KERNEL;
struct qstr {
  const unsigned char *name;
} KERNEL;
struct dentry {
  struct dentry *d_parent;
  struct qstr d_name;
  struct inode *d_inode;
} KERNEL;
struct vfsmount {
  struct dentry *mnt_root;
} KERNEL;
struct mount {
  struct mount *mnt_parent;
  struct dentry *mnt_mountpoint;
  struct vfsmount mnt;
} KERNEL;
struct path {
  struct vfsmount *mnt;
  struct dentry *dentry;
} KERNEL;
struct file {
  u32 f_mode;
  struct inode *f_inode;
  u32 f_flags;
  struct path f_path;
  s64 f_pos;
} KERNEL;
struct fdtable {
  u32 max_fds;
  struct file **fd;
} KERNEL;
struct files_struct {
  struct fdtable *fdt;
} KERNEL;
struct fs_struct {
  struct path pwd;
} KERNEL;
struct thread_info {
  u32 status;
} KERNEL;
typedef struct {
  s32 counter;
} atomic_t;
struct signal_struct {
  atomic_t live;
} KERNEL;
struct task_struct {
  struct thread_info thread_info;
  s32 pid, tgid;
  struct task_struct *group_leader;
  struct signal_struct *signal;
  u32 flags;
  char comm[16];
  struct cred *cred;
  struct files_struct *files;
  struct fs_struct *fs;
} KERNEL;
struct linux_binprm {
  struct file *file;
} KERNEL;

struct address_space {
  struct inode *host;
} KERNEL;
// Of a page's flags, which are the first word of `struct folio`, the one that says that it is the first of several.
enum pageflags { PG_head = 0 };
struct folio {
  struct address_space *mapping;
  unsigned long _flags_1;
} KERNEL;
struct writeback_control {
  long nr_to_write;
} KERNEL;

struct kiocb {
  struct file *ki_filp;
  s64 ki_pos;
} KERNEL;

struct io_cqe {
  s32 fd;
} KERNEL;
struct io_kiocb {
  struct file *file;
  u8 opcode;
  u64 flags;
  struct io_cqe cqe;
} KERNEL;
struct io_uring_cqe {
  s32 res;
} KERNEL;
// What is asked of a ring stands where the request begins.
struct filename {
  const char *name;
} KERNEL;
struct io_rw {
  struct kiocb kiocb;
  u64 addr;
  u32 len;
} KERNEL;
struct open_how {
  u64 flags;
} KERNEL;
struct io_open {
  s32 dfd;
  struct filename *filename;
  struct open_how how;
} KERNEL;
struct io_close {
  s32 fd;
  u32 file_slot;
} KERNEL;
struct io_statx {
  s32 dfd;
  u32 flags;
  struct filename *filename;
} KERNEL;
struct io_sync {
  s64 len, off;
  s32 flags, mode;
} KERNEL;
struct io_fadvise {
  u64 offset;
  u64 len;
  u32 advice;
} KERNEL;
struct io_ftrunc {
  s64 len;
} KERNEL;
struct io_rename {
  s32 old_dfd, new_dfd;
  struct filename *oldpath, *newpath;
  s32 flags;
} KERNEL;
struct io_unlink {
  s32 dfd, flags;
  struct filename *filename;
} KERNEL;
struct io_mkdir {
  s32 dfd;
  u16 mode;
  struct filename *filename;
} KERNEL;
struct io_link {
  s32 old_dfd, new_dfd;
  struct filename *oldpath, *newpath;
  s32 flags;
} KERNEL;
struct io_splice {
  s64 off_out, off_in;
  u64 len;
  s32 splice_fd_in;
  u32 flags;
} KERNEL;

static void *(*lookup)(void *map, const void *key) = (void *)1;
static long (*update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*forget)(void *map, const void *key) = (void *)3;
static u64 (*now_ns)(void) = (void *)5;
static long (*read_user)(void *to, u32 bytes, const void *from) = (void *)112;
static long (*read_kernel)(void *to, u32 bytes, const void *from) = (void *)113;
static long (*read_user_text)(void *to, u32 bytes, const void *from) = (void *)114;
static long (*read_kernel_text)(void *to, u32 bytes, const void *from) = (void *)115;
static long (*output)(void *ring, void *from, u64 bytes, u64 flags) = (void *)130;
static void *(*storage)(void *map, void *task, void *value, u64 flags) = (void *)156;
static void *(*current_task)(void) = (void *)158;  // with its type
static long (*repeat)(u32 times, void *step, void *context, u64 flags) = (void *)181;

#define ANY 0
#define CREATE 1
#define NO_WAKE 1

// A field of the kernel's memory, found by the loader; zero if it cannot be read. The pointer is taken first: how it is come by may be ours.
#define FIELD(pointer, field)                                                                        \
  ({                                                                                                 \
    __typeof__(pointer) pointer_ = (pointer);                                                        \
    __typeof__((pointer)->field) value_ = {};                                                        \
    read_kernel(&value_, sizeof value_, __builtin_preserve_access_index(&pointer_->field));         \
    value_;                                                                                          \
  })

// Such a field without a call, of a pointer that the kernel's checker has been told the type of. Kernels from 6.2 on let programs tell it;
// the number of their function for that is put in by the loader, which also says whether there is one.
#define CAST 0x434f4d42
static void *(*cast)(const void *pointer, u32 type) = (void *)CAST;
#define TYPED(pointer) \
  ((__typeof__(pointer))(has_cast ? cast(pointer, __builtin_btf_type_id(*(pointer), 1)) : (void *)(pointer)))
#define FAST(pointer, field) (has_cast ? (pointer)->field : FIELD(pointer, field))

// Such a field that leads on, of a pointer that the checker itself has come to trust. It is told less than it knows: for each step from
// where it trusts, it looks four names up among all of the kernel's, one after the other, and that took it most of its time.
#define NEXT(pointer, field)                          \
  ({                                                  \
    __typeof__(pointer) untrusted_ = TYPED(pointer);  \
    FAST(untrusted_, field);                          \
  })

// Maps, in the form that tells their types.
#define NUMBER(name, value) int(*name)[value]
#define TYPE(name, type) type *name
enum { MAP_PERCPU_ARRAY = 6, MAP_LRU_HASH = 9, MAP_RING = 27, MAP_TASK = 29 };

#endif
