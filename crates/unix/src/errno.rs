//! The error numbers of Linux, which a program gets from a system call.

/// An error number, as a program sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("error {0}")]
pub(crate) struct Errno(pub(crate) i32);

macro_rules! numbers {
    ($($name:ident)*) => { $(pub(crate) const $name: Errno = Errno(libc::$name);)* };
}

numbers! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST ENODEV ENOTDIR EISDIR EINVAL
    EMFILE ENOTTY ENOSPC ESPIPE EPIPE ERANGE ENAMETOOLONG ENOSYS ELOOP EOVERFLOW EOPNOTSUPP
    EFBIG EAFNOSUPPORT EPROTONOSUPPORT ETIMEDOUT ENOTSOCK EMSGSIZE
}

/// What a call to the host set, taken right after the call.
pub(crate) fn last() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}
