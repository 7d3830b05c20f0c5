//! Delivery of the agent binary to the workspace, where containers of any image can run it.

use crate::errno::Errno;
use crate::failure::Failure;
use crate::layout::{Layout, Spot};
use crate::sys::{self, Fd, Result};
use crate::text::Path;
use core::ffi::CStr;

/// Puts `binary` at its place in the workspace, complete at once; leaves one that is there already. A link does if every container has
/// the binary under its name: then it is in memory once for all pods of a node, and nothing is written.
pub fn deliver<'a>(
    layout: Layout<'a>,
    binary: &'a CStr,
    linked: bool,
) -> core::result::Result<(), Failure<'a>> {
    let target = layout.at(Spot::AGENT);
    let (target_path, draft_path) = (target.path(), layout.at(Spot::AgentDraft).path());
    let source = sys::open(binary, libc::O_RDONLY, 0).map_err(|errno| Failure::AgentBinary(binary, errno))?;
    if same(&source, target_path.as_c_str()) {
        return Ok(());
    }
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
    let draft = || {
        if linked {
            return sys::symlink(binary, draft_path.as_c_str());
        }
        sys::open(draft_path.as_c_str(), flags, 0o755).and_then(|draft| copy(&source, &draft))
    };
    draft().and_then(|()| sys::rename(draft_path.as_c_str(), target_path.as_c_str())).map_err(|errno| {
        // Half a copy only takes room.
        let _ = sys::unlink(draft_path.as_c_str());
        Failure::at(target, "copy the agent binary to")(errno)
    })
}

/// Makes a directory that everyone may use, and those above it.
pub fn make_all(path: &str) -> core::result::Result<(), Failure<'_>> {
    make_each(path, 0o777).map_err(|errno| Failure::Directory(path, errno))
}

/// Makes a directory and those above it, each with `mode`.
pub fn make_each(path: &str, mode: u32) -> Result<()> {
    let ends = path.char_indices().skip(1).filter(|(_, c)| *c == '/').map(|(at, _)| at);
    for end in ends.chain([path.len()]) {
        match sys::mkdir(Path::new(format_args!("{}", &path[..end])).as_c_str(), mode) {
            Ok(()) | Err(Errno(libc::EEXIST)) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Whether the target is this binary: the same size, and the same first page, where an agent has its build ID. A link leads elsewhere in
/// other containers.
fn same(source: &Fd, target: &CStr) -> bool {
    let compare = || -> Result<bool> {
        let target = sys::open(target, libc::O_RDONLY | libc::O_NOFOLLOW, 0)?;
        if sys::seek_end(source)? != sys::seek_end(&target)? {
            return Ok(false);
        }
        sys::rewind(source)?;
        sys::rewind(&target)?;
        let (mut left, mut right) = ([0; 4096], [0; 4096]);
        Ok(sys::read(source, &mut left)? == sys::read(&target, &mut right)?)
    };
    compare().unwrap_or(false)
}

/// Copies all of a file.
pub fn copy(source: &Fd, target: &Fd) -> Result<()> {
    sys::rewind(source)?;
    loop {
        match sys::sendfile(target, source, 1 << 30) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            // Some file systems cannot do it inside the kernel; the positions are where it stopped.
            Err(Errno(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP)) => {
                return copy_by_hand(source, target);
            }
            Err(errno) => return Err(errno),
        }
    }
}

fn copy_by_hand(source: &Fd, target: &Fd) -> Result<()> {
    let mut buffer = [0; 16 * 1024];
    loop {
        let read = sys::read(source, &mut buffer)?;
        if read.is_empty() {
            return Ok(());
        }
        sys::write(target, read)?;
    }
}
