//! The system calls the shim makes, as safe functions. All `unsafe` of the library is here.
//!
//! They go to the kernel directly rather than through a C library: a static glibc alone would be thirty times
//! the size of the shim.
#![allow(unsafe_code, reason = "system calls take raw pointers; nothing outside this module sees one")]

use crate::errno::Errno;
use core::ffi::{CStr, c_char};
use core::{fmt, ptr};
use trap::call;

mod trap;

/// What a system call gives, or the kernel's error number.
pub type Result<T> = core::result::Result<T, Errno>;

/// A process id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pid(pub i32);

impl fmt::Display for Pid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// A set of signals, one bit for each, as the kernel takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalSet(u64);

impl SignalSet {
    /// The set of the signals named.
    pub fn of(signals: impl IntoIterator<Item = i32>) -> Self {
        Self(signals.into_iter().fold(0, |set, signal| set | 1 << (signal - 1)))
    }
}

/// An open file, closed when dropped.
#[derive(Debug)]
pub struct Fd(i32);

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours alone and not used again.
        let _ = unsafe { call(libc::SYS_close, [arg(self.0), 0, 0, 0, 0, 0]) };
    }
}

/// The streams that are open for as long as the process lives.
#[derive(Clone, Copy, Debug)]
pub enum Standard {
    /// Descriptor 0.
    Input = 0,
    /// Descriptor 1.
    Output = 1,
    /// Descriptor 2.
    Error = 2,
}

/// What the kernel gave the process at its start.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// The command line, beginning with the program's own name.
    pub arguments: Strings,
    /// The environment.
    pub environment: Strings,
}

impl Process {
    /// # Safety
    /// `arguments` and `environment` must be the NULL-ended vectors of C strings that the kernel put on the stack,
    /// and nothing else may change them.
    pub unsafe fn new(arguments: *const *const c_char, environment: *const *const c_char) -> Self {
        Self { arguments: Strings(arguments), environment: Strings(environment) }
    }
}

/// A NULL-ended vector of C strings that live as long as the process.
#[derive(Clone, Copy, Debug)]
pub struct Strings(*const *const c_char);

impl Strings {
    /// The vector after its first `count` strings; empty if there are fewer.
    #[must_use]
    pub fn after(self, count: usize) -> Self {
        let mut rest = self.into_iter();
        rest.by_ref().take(count).for_each(drop);
        rest.0
    }
}

impl IntoIterator for Strings {
    type Item = &'static CStr;
    type IntoIter = StringsIter;

    fn into_iter(self) -> StringsIter {
        StringsIter(self)
    }
}

/// The strings of a vector, one after the other.
#[derive(Debug)]
pub struct StringsIter(Strings);

impl Iterator for StringsIter {
    type Item = &'static CStr;

    fn next(&mut self) -> Option<&'static CStr> {
        // SAFETY: `Process::new` demands NULL-ended vectors of lasting strings, and NULL is never stepped over.
        unsafe {
            let string = *self.0.0;
            if string.is_null() {
                return None;
            }
            self.0.0 = self.0.0.add(1);
            Some(CStr::from_ptr(string))
        }
    }
}

/// Ends the process at once.
pub fn exit(status: u8) -> ! {
    loop {
        // SAFETY: takes no pointer; does not return.
        let _ = unsafe { call(libc::SYS_exit_group, [usize::from(status), 0, 0, 0, 0, 0]) };
    }
}

/// Opens `path`, never inherited by a child that is executed.
pub fn open(path: &CStr, flags: i32, mode: u32) -> Result<Fd> {
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: `path` is a C string.
    let fd = unsafe {
        call(libc::SYS_openat, [arg(libc::AT_FDCWD), address(path), arg(flags), mode as usize, 0, 0])
    }?;
    Ok(descriptor(fd))
}

/// Reads into `buffer` and gives the part that was filled; empty at the end.
pub fn read<'a>(fd: &Fd, buffer: &'a mut [u8]) -> Result<&'a mut [u8]> {
    let target = buffer.as_mut_ptr() as usize;
    // SAFETY: pointer and length are those of one exclusive slice.
    let count = retrying(|| unsafe { call(libc::SYS_read, [arg(fd.0), target, buffer.len(), 0, 0, 0]) })?;
    Ok(&mut buffer[..count])
}

/// Writes all of `bytes`.
pub fn write(fd: &Fd, bytes: &[u8]) -> Result<()> {
    write_all(fd.0, bytes)
}

/// Writes all of `bytes` to standard output or standard error.
pub fn print(stream: Standard, bytes: &[u8]) -> Result<()> {
    write_all(stream as i32, bytes)
}

fn write_all(fd: i32, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        let source = bytes.as_ptr() as usize;
        // SAFETY: pointer and length are those of one slice.
        let count = retrying(|| unsafe { call(libc::SYS_write, [arg(fd), source, bytes.len(), 0, 0, 0]) })?;
        bytes = &bytes[count..];
    }
    Ok(())
}

/// Moves the position to the start of the file.
pub fn rewind(fd: &Fd) -> Result<()> {
    seek_to(fd, 0)
}

/// Moves the position to `offset` bytes from the start of the file.
pub fn seek_to(fd: &Fd, offset: usize) -> Result<()> {
    seek(fd, offset, libc::SEEK_SET).map(drop)
}

/// Moves the position to the end of the file and gives its size.
pub fn seek_end(fd: &Fd) -> Result<usize> {
    seek(fd, 0, libc::SEEK_END)
}

fn seek(fd: &Fd, offset: usize, whence: i32) -> Result<usize> {
    // SAFETY: takes no pointer.
    unsafe { call(libc::SYS_lseek, [arg(fd.0), offset, arg(whence), 0, 0, 0]) }
}

/// Cuts the file to `size` bytes.
pub fn truncate(fd: &Fd, size: usize) -> Result<()> {
    // SAFETY: takes no pointer.
    unsafe { call(libc::SYS_ftruncate, [arg(fd.0), size, 0, 0, 0, 0]) }.map(drop)
}

/// Lets the kernel move up to `count` bytes from one file to another, and gives how many it moved.
pub fn sendfile(to: &Fd, from: &Fd, count: usize) -> Result<usize> {
    // SAFETY: the offset pointer is NULL: the files' own positions are used.
    retrying(|| unsafe { call(libc::SYS_sendfile, [arg(to.0), arg(from.0), 0, count, 0, 0]) })
}

/// Lets reads from `fd` fail rather than wait.
pub fn never_wait(fd: &Fd) -> Result<()> {
    // SAFETY: takes no pointer.
    unsafe { call(libc::SYS_fcntl, [arg(fd.0), arg(libc::F_SETFL), arg(libc::O_NONBLOCK), 0, 0, 0]) }
        .map(drop)
}

/// Makes `fd` one of this process's streams, which programs that it executes inherit.
pub fn replace(stream: Standard, fd: &Fd) -> Result<()> {
    // SAFETY: takes no pointer.
    unsafe { call(libc::SYS_dup3, [arg(fd.0), stream as usize, 0, 0, 0, 0]) }.map(drop)
}

/// Takes the lock on a file, which lasts until the file is closed, or the process that holds it is gone. Whether it was free.
pub fn lock(fd: &Fd) -> Result<bool> {
    // SAFETY: takes no pointer.
    match unsafe { call(libc::SYS_flock, [arg(fd.0), arg(libc::LOCK_EX | libc::LOCK_NB), 0, 0, 0, 0]) } {
        Ok(_) => Ok(true),
        Err(Errno(libc::EWOULDBLOCK)) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Nanoseconds since 1970.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let target = ptr::from_mut(&mut time) as usize;
    // SAFETY: the pointer is to a live time.
    let _ = unsafe { call(libc::SYS_clock_gettime, [arg(libc::CLOCK_REALTIME), target, 0, 0, 0, 0]) };
    nanoseconds(time.tv_sec, time.tv_nsec)
}

/// When the file was last changed, in nanoseconds since 1970.
pub fn changed(path: &CStr) -> Result<u64> {
    // SAFETY: all zero is a valid value of this plain structure.
    let mut about: libc::stat = unsafe { core::mem::zeroed() };
    let target = ptr::from_mut(&mut about) as usize;
    // SAFETY: `path` is a C string, and the pointer is to what the kernel fills.
    unsafe { call(libc::SYS_newfstatat, [arg(libc::AT_FDCWD), address(path), target, 0, 0, 0]) }?;
    Ok(nanoseconds(about.st_mtime, about.st_mtime_nsec))
}

fn nanoseconds(seconds: i64, rest: i64) -> u64 {
    let seconds = u64::try_from(seconds).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(rest.unsigned_abs())
}

/// Makes a directory.
pub fn mkdir(path: &CStr, mode: u32) -> Result<()> {
    // SAFETY: `path` is a C string.
    unsafe { call(libc::SYS_mkdirat, [arg(libc::AT_FDCWD), address(path), mode as usize, 0, 0, 0]) }.map(drop)
}

/// Renames a file, replacing what has the new name.
pub fn rename(from: &CStr, to: &CStr) -> Result<()> {
    let here = arg(libc::AT_FDCWD);
    // SAFETY: both paths are C strings.
    unsafe { call(libc::SYS_renameat2, [here, address(from), here, address(to), 0, 0]) }.map(drop)
}

/// Makes `path` a name that leads to `target`.
pub fn symlink(target: &CStr, path: &CStr) -> Result<()> {
    // SAFETY: both are C strings.
    unsafe { call(libc::SYS_symlinkat, [address(target), arg(libc::AT_FDCWD), address(path), 0, 0, 0]) }
        .map(drop)
}

/// Removes a file.
pub fn unlink(path: &CStr) -> Result<()> {
    // SAFETY: `path` is a C string.
    unsafe { call(libc::SYS_unlinkat, [arg(libc::AT_FDCWD), address(path), 0, 0, 0, 0]) }.map(drop)
}

/// Whether something has this name.
pub fn exists(path: &CStr) -> bool {
    // SAFETY: `path` is a C string.
    unsafe { call(libc::SYS_faccessat, [arg(libc::AT_FDCWD), address(path), arg(libc::F_OK), 0, 0, 0]) }
        .is_ok()
}

/// The user that this process acts as.
pub fn user_id() -> usize {
    // SAFETY: takes no pointer. It cannot fail.
    unsafe { call(libc::SYS_geteuid, [0; 6]) }.unwrap_or(0)
}

/// Sets the mask for new files and gives the one before.
pub fn umask(mask: u32) -> u32 {
    // SAFETY: takes no pointer. It cannot fail.
    let before = unsafe { call(libc::SYS_umask, [mask as usize, 0, 0, 0, 0, 0]) };
    before.ok().and_then(|mask| u32::try_from(mask).ok()).unwrap_or(0)
}

/// Opens an inotify queue that never blocks.
pub fn inotify() -> Result<Fd> {
    // SAFETY: takes no pointer.
    let fd =
        unsafe { call(libc::SYS_inotify_init1, [arg(libc::IN_CLOEXEC | libc::IN_NONBLOCK), 0, 0, 0, 0, 0]) }?;
    Ok(descriptor(fd))
}

/// Watches a directory for names that appear in it.
pub fn watch_names(inotify: &Fd, directory: &CStr) -> Result<()> {
    let mask = (libc::IN_CREATE | libc::IN_MOVED_TO | libc::IN_ONLYDIR) as usize;
    // SAFETY: `directory` is a C string.
    unsafe { call(libc::SYS_inotify_add_watch, [arg(inotify.0), address(directory), mask, 0, 0, 0]) }
        .map(drop)
}

/// Waits until one of `fds` can be read, or for `timeout` milliseconds. Says nothing about which.
pub fn wait_readable<const N: usize>(fds: [Option<&Fd>; N], timeout: Option<u32>) -> Result<()> {
    // The kernel skips negative descriptors.
    let mut polls =
        fds.map(|fd| libc::pollfd { fd: fd.map_or(-1, |fd| fd.0), events: libc::POLLIN, revents: 0 });
    let limit = timeout.map(|limit| libc::timespec {
        tv_sec: i64::from(limit / 1000),
        tv_nsec: i64::from(limit % 1000) * 1_000_000,
    });
    let limit = limit.as_ref().map_or(0, |limit| ptr::from_ref(limit) as usize);
    // SAFETY: the array and the time limit live until the call returns; no signal mask is given.
    retrying(|| unsafe { call(libc::SYS_ppoll, [polls.as_mut_ptr() as usize, N, limit, 0, 0, 0]) }).map(drop)
}

/// Sets the signals that are held back and gives those before.
pub fn hold_signals(set: SignalSet) -> Result<SignalSet> {
    let mut before = SignalSet(0);
    let arguments = [
        arg(libc::SIG_SETMASK),
        ptr::from_ref(&set) as usize,
        ptr::from_mut(&mut before) as usize,
        size_of::<SignalSet>(),
    ];
    // SAFETY: both pointers are to eight bytes, the size that is given.
    unsafe {
        call(libc::SYS_rt_sigprocmask, [arguments[0], arguments[1], arguments[2], arguments[3], 0, 0])
    }?;
    Ok(before)
}

/// Gives a signal its default action.
pub fn default_action(signal: i32) -> Result<()> {
    // The kernel's `sigaction` is at most this long on Linux; all zero means the default action and no flags.
    let action = [0_usize; 4];
    let size = size_of::<SignalSet>();
    // SAFETY: the action is read only, and no old action is asked for.
    unsafe { call(libc::SYS_rt_sigaction, [arg(signal), action.as_ptr() as usize, 0, size, 0, 0]) }.map(drop)
}

/// Opens a queue of the signals in `set`, which must be held back.
pub fn signal_queue(set: SignalSet) -> Result<Fd> {
    let flags = arg(libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
    let size = size_of::<SignalSet>();
    // SAFETY: the pointer is to eight bytes, the size that is given.
    let fd =
        unsafe { call(libc::SYS_signalfd4, [usize::MAX, ptr::from_ref(&set) as usize, size, flags, 0, 0]) }?;
    Ok(descriptor(fd))
}

/// Sends a signal to a process.
pub fn kill(pid: Pid, signal: i32) -> Result<()> {
    // SAFETY: takes no pointer.
    unsafe { call(libc::SYS_kill, [arg(pid.0), arg(signal), 0, 0, 0, 0]) }.map(drop)
}

/// The process that started this one.
pub fn parent() -> Pid {
    // SAFETY: takes no pointer. It cannot fail.
    Pid(small(unsafe { call(libc::SYS_getppid, [0; 6]) }.unwrap_or_default()))
}

/// Something that can be read once the process has ended.
pub fn watch_process(pid: Pid) -> Result<Fd> {
    // SAFETY: takes no pointer.
    unsafe { call(libc::SYS_pidfd_open, [arg(pid.0), 0, 0, 0, 0, 0]) }.map(descriptor)
}

/// Leaves the terminal and the group of processes that this one was started in.
pub fn leave_session() -> Result<()> {
    // SAFETY: takes no pointer.
    unsafe { call(libc::SYS_setsid, [0; 6]) }.map(drop)
}

/// Takes one child that has ended, if there is one, and gives its wait status.
pub fn reap() -> Result<Option<(Pid, i32)>> {
    let mut status = 0_i32;
    let target = ptr::from_mut(&mut status) as usize;
    // SAFETY: the status pointer is to a live i32; no resource usage is asked for.
    let pid = unsafe { call(libc::SYS_wait4, [arg(-1), target, arg(libc::WNOHANG), 0, 0, 0]) }?;
    Ok((pid != 0).then_some((Pid(small(pid)), status)))
}

/// A pipe: the end to read and the end to write. Both vanish when a program is executed.
pub fn pipe() -> Result<(Fd, Fd)> {
    let mut fds = [0_i32; 2];
    // SAFETY: the array holds the two descriptors that the kernel writes.
    unsafe { call(libc::SYS_pipe2, [fds.as_mut_ptr() as usize, arg(libc::O_CLOEXEC), 0, 0, 0, 0]) }?;
    Ok((Fd(fds[0]), Fd(fds[1])))
}

/// Starts a copy of this process that runs `child` and exits with the status it gives.
pub fn fork(child: impl FnOnce() -> u8) -> Result<Pid> {
    // SAFETY: with SIGCHLD alone this is fork: the child has its own copy of the memory. The shim has one
    // thread, so no lock is left held in the child.
    let pid = unsafe { call(libc::SYS_clone, [arg(libc::SIGCHLD), 0, 0, 0, 0, 0]) }?;
    if pid == 0 {
        exit(child());
    }
    Ok(Pid(small(pid)))
}

/// An entry of an environment, and what a program gets instead of it, if anything.
pub type Change<'a> = (&'a CStr, Option<&'a CStr>);

/// Replaces this process; returns only with the reason why it could not. Entries of the environment that `changes` name are
/// others then, or gone.
pub fn execute<'a>(
    file: &CStr,
    arguments: Strings,
    environment: Strings,
    changes: impl Iterator<Item = Change<'a>>,
) -> Errno {
    for (old, new) in changes {
        let Some(at) = environment.into_iter().position(|entry| entry == old) else { continue };
        let rest = environment.after(at);
        let place = rest.0.cast_mut();
        // SAFETY: the position is one of the vector's, whose memory the kernel made for this process to write. There are as many
        // pointers after it, with NULL, as strings from it on. `new` lives until the kernel has copied it, and if it cannot, the
        // caller exits.
        unsafe {
            match new {
                Some(new) => place.write(new.as_ptr()),
                None => ptr::copy(place.add(1), place, rest.into_iter().count()),
            }
        }
    }
    let vectors = (arguments.0 as usize, environment.0 as usize);
    // SAFETY: `Strings` are NULL-ended vectors of C strings.
    match unsafe { call(libc::SYS_execve, [address(file), vectors.0, vectors.1, 0, 0, 0]) } {
        Ok(_) => unreachable!("execve returns only on failure"),
        Err(errno) => errno,
    }
}

fn retrying(mut attempt: impl FnMut() -> Result<usize>) -> Result<usize> {
    loop {
        match attempt() {
            Err(Errno(libc::EINTR)) => {}
            result => return result,
        }
    }
}

fn address(path: &CStr) -> usize {
    path.as_ptr() as usize
}

#[allow(clippy::cast_sign_loss, reason = "the kernel takes negative numbers sign-extended to the register")]
fn arg(number: i32) -> usize {
    number as isize as usize
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "descriptors and pids fit i32"
)]
fn small(number: usize) -> i32 {
    number as i32
}

fn descriptor(number: usize) -> Fd {
    Fd(small(number))
}
