//! What is done with files.

use std::fmt;

/// An operation on a file, whichever of several system calls asked for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Operation {
    /// `open`, `openat`, `openat2`, `creat`.
    Open = 1,
    /// `close`, `close_range`, and what a process leaves open when it ends.
    Close = 2,
    /// `read` and its vector and positional forms.
    Read = 3,
    /// `write` and its vector and positional forms.
    Write = 4,
    /// `sendfile`, `splice`, `copy_file_range`: one record for the file that is read, one for that which is written.
    Transfer = 5,
    /// `mmap` of a file.
    Map = 6,
    /// A page of a mapped file was touched that no page table had.
    PageIn = 7,
    /// Changed pages were written to where the file is kept.
    WriteBack = 8,
    /// `lseek`.
    Seek = 9,
    /// `getdents`.
    List = 10,
    /// `stat`, `lstat`, `fstat`, `newfstatat`, `statx`.
    Status = 11,
    /// `access`, `faccessat`.
    Access = 12,
    /// `readlink`.
    ReadLink = 13,
    /// `chmod`, `chown`, `utimensat` and their like.
    SetAttributes = 14,
    /// Extended attributes.
    Extended = 15,
    /// `rename`.
    Rename = 16,
    /// `unlink`.
    Delete = 17,
    /// `link`, `symlink`.
    Link = 18,
    /// `mknod`.
    Make = 19,
    /// `mkdir`.
    MakeDirectory = 20,
    /// `rmdir`.
    RemoveDirectory = 21,
    /// `truncate`, `ftruncate`.
    Truncate = 22,
    /// `fallocate`.
    Allocate = 23,
    /// `flock` and the locks of `fcntl`.
    Lock = 24,
    /// `fsync`, `fdatasync`, `sync`, `syncfs`, `sync_file_range`.
    Sync = 25,
    /// `fadvise64`, `readahead`.
    Advise = 26,
    /// `dup` and its like.
    Duplicate = 27,
    /// `ioctl`, and of `fcntl` what is neither a lock nor a duplicate.
    Control = 28,
    /// `chdir`, `fchdir`, `chroot`.
    ChangeDirectory = 29,
    /// `statfs`, `fstatfs`.
    FileSystem = 30,
    /// `execve`, `execveat`.
    Execute = 31,
    /// Not an operation: the name of a file that others speak of.
    Name = 64,
    /// Not an operation: a process or a thread begins.
    ProcessBegins = 65,
    /// Not an operation: a process or a thread ends.
    ProcessEnds = 66,
}

/// What kind of operation it is: the thesis tells data from directory and control operations. (Thesis §9.8)
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Open and close.
    Session,
    /// Bytes are read or written.
    Data,
    /// The virtual memory's own: page-ins and write-back.
    Paging,
    /// Directories are read and changed.
    Directory,
    /// All else.
    Control,
    /// No operation at all.
    Note,
}

impl Operation {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 34] = [
        Self::Open,
        Self::Close,
        Self::Read,
        Self::Write,
        Self::Transfer,
        Self::Map,
        Self::PageIn,
        Self::WriteBack,
        Self::Seek,
        Self::List,
        Self::Status,
        Self::Access,
        Self::ReadLink,
        Self::SetAttributes,
        Self::Extended,
        Self::Rename,
        Self::Delete,
        Self::Link,
        Self::Make,
        Self::MakeDirectory,
        Self::RemoveDirectory,
        Self::Truncate,
        Self::Allocate,
        Self::Lock,
        Self::Sync,
        Self::Advise,
        Self::Duplicate,
        Self::Control,
        Self::ChangeDirectory,
        Self::FileSystem,
        Self::Execute,
        Self::Name,
        Self::ProcessBegins,
        Self::ProcessEnds,
    ];

    /// The operation of this number, if there is one.
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| *operation as u8 == number)
    }

    /// Its name, in reports and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Close => "close",
            Self::Read => "read",
            Self::Write => "write",
            Self::Transfer => "transfer",
            Self::Map => "map",
            Self::PageIn => "page-in",
            Self::WriteBack => "write-back",
            Self::Seek => "seek",
            Self::List => "list",
            Self::Status => "status",
            Self::Access => "access",
            Self::ReadLink => "read-link",
            Self::SetAttributes => "set-attributes",
            Self::Extended => "extended-attributes",
            Self::Rename => "rename",
            Self::Delete => "delete",
            Self::Link => "link",
            Self::Make => "make",
            Self::MakeDirectory => "make-directory",
            Self::RemoveDirectory => "remove-directory",
            Self::Truncate => "truncate",
            Self::Allocate => "allocate",
            Self::Lock => "lock",
            Self::Sync => "sync",
            Self::Advise => "advise",
            Self::Duplicate => "duplicate",
            Self::Control => "control",
            Self::ChangeDirectory => "change-directory",
            Self::FileSystem => "file-system",
            Self::Execute => "execute",
            Self::Name => "name",
            Self::ProcessBegins => "process-begins",
            Self::ProcessEnds => "process-ends",
        }
    }

    /// What kind it is.
    pub const fn class(self) -> Class {
        match self {
            Self::Open | Self::Close => Class::Session,
            Self::Read | Self::Write | Self::Transfer => Class::Data,
            Self::PageIn | Self::WriteBack => Class::Paging,
            Self::List
            | Self::Rename
            | Self::Delete
            | Self::Link
            | Self::Make
            | Self::MakeDirectory
            | Self::RemoveDirectory
            | Self::ChangeDirectory => Class::Directory,
            Self::Name | Self::ProcessBegins | Self::ProcessEnds => Class::Note,
            _ => Class::Control,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Class {
    /// Its name, in reports and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Data => "data",
            Self::Paging => "paging",
            Self::Directory => "directory",
            Self::Control => "control",
            Self::Note => "note",
        }
    }
}
