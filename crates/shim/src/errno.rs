//! The kernel's error numbers, in words.

use core::fmt;

/// An error number as the kernel returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    fn words(self) -> Option<&'static str> {
        Some(match self.0 {
            libc::EPERM => "operation not permitted",
            libc::ENOENT => "no such file or directory",
            libc::EIO => "input/output error",
            libc::E2BIG => "arguments and environment are too long",
            libc::ENOEXEC => "not an executable for this machine",
            libc::EAGAIN => "resource limit reached",
            libc::ENOMEM => "out of memory",
            libc::EACCES => "permission denied",
            libc::ENOTDIR => "not a directory",
            libc::EISDIR => "is a directory",
            libc::EMFILE | libc::ENFILE => "too many open files",
            libc::ENOSPC => "no space left on device",
            libc::EROFS => "read-only file system",
            libc::ENAMETOOLONG => "name too long",
            libc::EDQUOT => "disk quota exceeded",
            _ => return None,
        })
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.words() {
            Some(words) => write!(out, "{words} (errno {})", self.0),
            None => write!(out, "errno {}", self.0),
        }
    }
}
