//! The command: starting it, passing signals on, and clearing away what it leaves.

use crate::errno::Errno;
use crate::failure::{Failure, ending};
use crate::home::{self, Home};
use crate::output::{Outlets, Output};
use crate::proof::Proof;
use crate::sys::{self, Fd, Pid, Process, Strings};
use crate::text::Path;
use crate::waiting::Signals;
use core::ffi::CStr;

/// Where programs are looked for if `PATH` is not set.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A command to run.
#[derive(Clone)]
pub struct Command<'a> {
    file: &'static CStr,
    entrypoint: Option<&'a CStr>,
    arguments: Strings,
    environment: Strings,
    home: Option<Home>,
    proof: Option<&'a Proof>,
    umask: u32,
}

impl<'a> Command<'a> {
    /// The command that starts at the argument `position`, to run with the container's own `umask`.
    pub fn new(process: &Process, position: usize, umask: u32) -> Self {
        let arguments = process.arguments.after(1 + position);
        let file = arguments.into_iter().next().unwrap_or_default();
        let environment = process.environment;
        Self { file, entrypoint: None, arguments, environment, home: None, proof: None, umask }
    }

    /// The same with a program that gets its arguments instead, if there is one on the path.
    #[must_use]
    pub fn through(self, entrypoint: Option<&'a CStr>) -> Self {
        Self { entrypoint, ..self }
    }

    /// The same with another home.
    #[must_use]
    pub fn at_home(self, home: Option<Home>) -> Self {
        Self { home, ..self }
    }

    /// The same with a proof beside the agent's token.
    #[must_use]
    pub fn with_proof(self, proof: Option<&'a Proof>) -> Self {
        Self { proof, ..self }
    }

    /// Starts the command, which writes to `outlets` if there are any. When this returns, the program has taken its place in the child.
    pub fn start(self, signals: &Signals, outlets: Option<Outlets>) -> Result<Running, Failure<'static>> {
        let failed = |errno| Failure::Execute(self.file, errno);
        let (problem, report) = sys::pipe().map_err(failed)?;
        let pid = sys::fork(|| self.become_it(signals, outlets.as_ref(), &report)).map_err(failed)?;
        drop((report, outlets));
        // The pipe ends without a word when the program has taken the child's place.
        let mut buffer = [0; 4];
        match sys::read(&problem, &mut buffer).ok().and_then(|read| read.first_chunk().copied()) {
            Some(errno) => Err(failed(Errno(i32::from_ne_bytes(errno)))),
            None => Ok(Running { file: self.file, pid }),
        }
    }

    /// In the child: becomes the command, or reports why it cannot and gives the status to exit with.
    fn become_it(&self, signals: &Signals, outlets: Option<&Outlets>, report: &Fd) -> u8 {
        sys::umask(self.umask);
        let _ = sys::hold_signals(signals.inherited);
        let errno = match outlets.map_or(Ok(()), Outlets::take) {
            Ok(()) => self.execute(),
            Err(errno) => errno,
        };
        let _ = sys::write(report, &errno.0.to_ne_bytes());
        127
    }

    fn execute(&self) -> Errno {
        // A script gets its own name and the arguments after the first, a program the command's name and the arguments.
        if let Some(entrypoint) = self.entrypoint {
            match self.look_for(entrypoint) {
                Errno(libc::ENOENT) => {}
                errno => return errno,
            }
        }
        self.look_for(self.file)
    }

    fn look_for(&self, file: &CStr) -> Errno {
        let home = self.home.as_ref().map(|home| (home::NONE, Some(home.as_c_str())));
        let proof = self.proof.map(Proof::changes);
        let changes = || home.into_iter().chain(proof.into_iter().flatten());
        let attempt = |file: &CStr| sys::execute(file, self.arguments, self.environment, changes());
        if file.to_bytes().contains(&b'/') {
            return attempt(file);
        }
        let variable = self.environment.into_iter().find_map(|entry| entry.to_bytes().strip_prefix(b"PATH="));
        let path = variable.map_or(Ok(DEFAULT_PATH), core::str::from_utf8).unwrap_or(DEFAULT_PATH);
        let name = file.to_str().unwrap_or_default();
        search(path, name, attempt)
    }
}

/// Tries the file in each directory of `path`. A file that may not be executed is worth telling only if none is found
/// further on.
fn search(path: &str, name: &str, mut attempt: impl FnMut(&CStr) -> Errno) -> Errno {
    let mut worst = Errno(libc::ENOENT);
    for directory in path.split(':') {
        let directory = if directory.is_empty() { "." } else { directory };
        let candidate = Path::new(format_args!("{directory}/{name}"));
        if !candidate.is_whole() {
            continue;
        }
        match attempt(candidate.as_c_str()) {
            Errno(libc::ENOENT | libc::ENOTDIR) => {}
            Errno(libc::EACCES) => worst = Errno(libc::EACCES),
            errno => return errno,
        }
    }
    worst
}

/// A command that runs.
#[derive(Debug)]
pub struct Running {
    file: &'static CStr,
    pid: Pid,
}

impl Running {
    /// Passes signals and output on and reaps whatever ends, until the command has ended; gives its exit status.
    pub fn finish(self, signals: &Signals, output: Option<Output<'_>>) -> Result<u8, Failure<'static>> {
        self.finish_looking(None, signals, output, || ())
    }

    /// The same, with a look at something else every so many milliseconds, and whenever there is something to do anyway.
    pub fn finish_looking(
        self,
        interval: Option<u32>,
        signals: &Signals,
        mut output: Option<Output<'_>>,
        mut look: impl FnMut(),
    ) -> Result<u8, Failure<'static>> {
        loop {
            let signal = signals.next(output.as_ref().map_or([None, None], Output::pipes), interval);
            look();
            if let Some(output) = &mut output {
                output.pass_on();
            }
            let Some(signal) = signal else { continue };
            if signal != libc::SIGCHLD {
                // It fails only for a command that has just ended.
                let _ = sys::kill(self.pid, signal);
                continue;
            }
            let mut ended = None;
            reap_all(|pid, status| {
                if pid == self.pid {
                    ended = Some(status);
                }
            });
            if let Some(status) = ended {
                if let Some(output) = output {
                    output.finish();
                }
                return ending(status).map_err(|signal| Failure::Killed(self.file, signal));
            }
        }
    }
}

/// Takes all children that have ended. As PID 1 the shim inherits every orphan of the container.
pub fn reap_all(mut each: impl FnMut(Pid, i32)) {
    while let Ok(Some((pid, status))) = sys::reap() {
        each(pid, status);
    }
}

#[cfg(test)]
mod tests {
    use super::search;
    use crate::errno::Errno;
    use std::ffi::CString;
    use std::vec::Vec;

    fn tried(path: &str, answers: &[i32]) -> (Vec<CString>, i32) {
        let mut tried = Vec::new();
        let errno = search(path, "x", |file| {
            tried.push(file.into());
            Errno(answers[tried.len() - 1])
        });
        (tried, errno.0)
    }

    #[test]
    fn every_directory_is_tried_in_order() {
        let (tried, errno) = tried("/a::/b", &[libc::ENOENT, libc::ENOTDIR, libc::ENOENT]);
        assert_eq!(tried, [c"/a/x".into(), c"./x".into(), c"/b/x".into()] as [CString; 3]);
        assert_eq!(errno, libc::ENOENT);
    }

    #[test]
    fn a_forbidden_file_is_told_if_no_other_is_found() {
        assert_eq!(tried("/a:/b", &[libc::EACCES, libc::ENOENT]).1, libc::EACCES);
    }

    #[test]
    fn a_broken_file_ends_the_search() {
        assert_eq!(tried("/a:/b", &[libc::ENOEXEC]).0.len(), 1);
    }
}
