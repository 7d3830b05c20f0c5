//! Copies of files that only this user can read. ssh refuses a key that others can read, and the files of a Secret belong to
//! root and to everyone.

use crate::args::Copies;
use crate::delivery::{copy, make_each};
use crate::errno::Errno;
use crate::failure::Failure;
use crate::sys::{self, Result};
use crate::text::Path;

/// Makes all copies. A file that does not exist is none that anybody needs.
pub fn copy_all(copies: Copies<'_>) -> core::result::Result<(), Failure<'_>> {
    copies.iter().try_for_each(|(from, to)| match copy_one(from, to) {
        Ok(()) => Ok(()),
        Err(errno) => Err(Failure::Private(from, to, errno)),
    })
}

fn copy_one(from: &str, to: &str) -> Result<()> {
    let source = match sys::open(Path::new(format_args!("{from}")).as_c_str(), libc::O_RDONLY, 0) {
        Err(Errno(libc::ENOENT)) => return Ok(()),
        source => source?,
    };
    if let Some((directory, _)) = to.rsplit_once('/') {
        make_each(directory, 0o700)?;
    }
    let target = Path::new(format_args!("{to}"));
    // One that a container before has left may belong to another user.
    let _ = sys::unlink(target.as_c_str());
    let target = sys::open(target.as_c_str(), libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o600)?;
    copy(&source, &target)?;
    // All of them are texts of whole lines, and ssh refuses a key without the last line's end.
    if ends_line(&source)? { Ok(()) } else { sys::write(&target, b"\n") }
}

fn ends_line(file: &sys::Fd) -> Result<bool> {
    let size = sys::seek_end(file)?;
    if size == 0 {
        return Ok(true);
    }
    sys::seek_to(file, size - 1)?;
    let mut last = [0; 1];
    Ok(sys::read(file, &mut last)? == b"\n")
}
