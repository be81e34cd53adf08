// Which file it is, and what it is called.
#ifndef COMB_FILES_H
#define COMB_FILES_H

#include "state.h"

enum {
  TYPE_MASK = 0170000,
  TYPE_DIRECTORY = 0040000,
  TYPE_BLOCK = 0060000,
  TYPE_REGULAR = 0100000,
  TYPE_LINK = 0120000,
};

#define WORKING_DIRECTORY (-100)
#define NAME_TOO_LONG 36
#define MODE_CREATED 0x100000
#define OPEN_APPENDS 02000

// What stands for an event, a timer and the like has from 6.16 on the type of a regular file, and this flag. Before, it had no type.
#define INODE_ANONYMOUS (1 << 19)

// A part of a name is no longer, with its end.
#define MOST_NAME_BYTES 256

// As many parts as the longest text has: each one has a byte and its end at least, and mounts that are crossed have none.
#define MOST_STEPS (MOST_TEXT_BYTES / 2 + 256)

INLINE int is_file(u32 mode, u32 flags) {
  u32 type = mode & TYPE_MASK;
  if (type == TYPE_REGULAR) return !(flags & INODE_ANONYMOUS);
  return type == TYPE_DIRECTORY || type == TYPE_BLOCK || type == TYPE_LINK;
}

// Of an inode that was come by along pointers that the kernel's checker knows.
INLINE void identify(struct inode *inode, struct identity *identity) {
  struct super_block *system = FAST(inode, i_sb);
  identity->inode = FAST(inode, i_ino);
  identity->generation = FAST(inode, i_generation);
  identity->device = FAST(system, s_dev);
}

INLINE int same(const struct identity *one, const struct identity *other) {
  return one->inode == other->inode && one->device == other->device && one->generation == other->generation;
}

// The file behind a descriptor of the running thread, or nothing.
INLINE struct file *file_of(struct task_struct *task, s32 descriptor) {
  struct files_struct *files = NEXT(task, files);
  struct fdtable *table = FAST(files, fdt);
  if (descriptor < 0 || (u32)descriptor >= FAST(table, max_fds)) return 0;
  struct file **place = FAST(table, fd) + descriptor;
  // What the checker is told is not what it is, only what it begins with: a pointer to a file.
  if (has_cast) return ((struct kiocb *)cast(place, __builtin_btf_type_id(*(struct kiocb *)0, 1)))->ki_filp;
  struct file *file = 0;
  read_kernel(&file, sizeof file, place);
  return file;
}

// What an event says of its file. Zero if there is none, or it is no file but a pipe, a socket, a device.
INLINE int describe(struct subject *about, struct file *open) {
  if (!open) return 0;
  struct file *file = TYPED(open);
  struct inode *inode = FAST(file, f_inode);
  about->mode = FAST(inode, i_mode);
  if (!is_file(about->mode, FAST(inode, i_flags))) return 0;
  about->handle = (u64)open;
  about->size = FAST(inode, i_size);
  about->offset = FAST(file, f_pos);
  identify(inode, &about->file);
  return 1;
}

// Where one is on the way from a file up to the root of what is mounted at the root.
struct walk {
  struct vfsmount *mounted;
  struct dentry *entry;
};

// Writes down one part of a name, or crosses a mount; one when there is nothing above. How much has been written stands in the draft: of
// what is there the kernel's checker knows nothing, and so is sooner done than if it followed how that grows.
static long step_up(u32 number, struct walk *walk) {
  (void)number;
  struct vfsmount *mounted = TYPED(walk->mounted);
  struct dentry *entry = TYPED(walk->entry);
  if (walk->entry == FAST(mounted, mnt_root)) {
    struct mount *mount = TYPED((struct mount *)((void *)walk->mounted - __builtin_preserve_field_info(((struct mount *)0)->mnt, 0)));
    struct mount *below = FAST(mount, mnt_parent);
    if (below == mount || !below) return 1;
    walk->entry = FAST(mount, mnt_mountpoint);
    walk->mounted = __builtin_preserve_access_index(&below->mnt);
    return 0;
  }
  struct dentry *parent = FAST(entry, d_parent);
  if (parent == walk->entry || !parent) return 1;
  struct draft *name = draft(DRAFT_NAME);
  if (!name) return 1;
  u32 at = name->event.text_bytes;
  name->event.result = -NAME_TOO_LONG;
  const long most = sizeof(struct text) + MOST_TEXT_BYTES;
  if (at > most) return 1;
  long bytes = read_kernel_text(name->text + at, MOST_NAME_BYTES, FAST(entry, d_name.name));
  if (bytes <= 0 || at + bytes > most) return 1;
  name->event.result = 0;
  name->event.text_bytes = at + bytes;
  walk->entry = parent;
  return 0;
}

// Tells a file's name; whether it got there. A name that is longer than any text has its innermost parts, and says so by its result.
// Functions like this one are checked once, and not again wherever they are called.
FUNCTION int tell_name(const struct identity *file, u64 mounted, u64 entry, u32 mode) {
  if (!file) return 0;
  struct draft *draft_ = draft(DRAFT_NAME);
  if (!draft_) return 0;
  begin(&draft_->event, current_task(), NOTE_NAME);
  draft_->event.about.file = *file;
  draft_->event.about.mode = mode;
  struct text *text = (void *)draft_->text;
  __builtin_memset(text, 0, sizeof *text);
  draft_->event.text_bytes = sizeof *text;
  struct walk walk = {(void *)mounted, (void *)entry};
  repeat(MOST_STEPS, step_up, &walk, 0);
  text->bytes = draft_->event.text_bytes - sizeof *text;
  u8 yes = 1;
  if (!tell(draft_)) return 0;
  update(&named, file, &yes, ANY);
  return 1;
}

// The same, if that has not been done; whether it has been now.
INLINE int tell_name_of(struct identity *identity, struct file *file, u32 mode) {
  if (lookup(&named, identity)) return 1;
  return tell_name(identity, (u64)FIELD(file, f_path.mnt), (u64)FIELD(file, f_path.dentry), mode);
}

INLINE int is_told_of(struct subject *about, struct file *file, int is_new) {
  // A new file may have the number of an old one, and all else that is known of that, but for its name.
  if (!is_new) return tell_name_of(&about->file, file, about->mode);
  return tell_name(&about->file, (u64)FIELD(file, f_path.mnt), (u64)FIELD(file, f_path.dentry), about->mode);
}

INLINE struct dentry *working_directory(struct task_struct *task) {
  struct fs_struct *places = NEXT(task, fs);
  return FAST(places, pwd.dentry);
}

INLINE int tell_working_directory(struct task_struct *task, struct identity *identity) {
  if (lookup(&named, identity)) return 1;
  struct fs_struct *places = NEXT(task, fs);
  return tell_name(identity, (u64)FIELD(places, pwd.mnt), (u64)FIELD(places, pwd.dentry), TYPE_DIRECTORY);
}

INLINE void describe_working_directory(struct subject *about, struct task_struct *task) {
  struct dentry *entry = working_directory(task);
  struct inode *inode = FAST(entry, d_inode);
  about->mode = FAST(inode, i_mode);
  about->size = FAST(inode, i_size);
  identify(inode, &about->file);
}

// The directory that a path starts from; its name is told first.
INLINE void base_of(struct task_struct *task, struct thread *thread, s32 directory, struct identity *base) {
  if (directory == WORKING_DIRECTORY) {
    struct dentry *entry = working_directory(task);
    identify(FAST(entry, d_inode), base);
    if (!same(&thread->base, base) && tell_working_directory(task, base)) thread->base = *base;
    return;
  }
  struct file *file = file_of(task, directory);
  if (!file) return;
  struct file *typed = TYPED(file);
  identify(FAST(typed, f_inode), base);
  if (!same(&thread->base, base) && tell_name_of(base, file, TYPE_DIRECTORY)) thread->base = *base;
}

#endif
