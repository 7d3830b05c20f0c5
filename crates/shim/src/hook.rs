//! The shim as a hook of the agent: a program under a hook's name, with no arguments. What it has to know is in variables that
//! the pod's containers have. Whatever happens, the job goes on: a hook that fails would fail it.

use crate::keeper;
use crate::layout::{Layout, Name};
use crate::report;
use crate::sys::{self, Process};
use crate::text::{LONGEST_PATH, Path};
use crate::wish::Wish;
use core::ffi::CStr;

/// A directory that gets the environment of each container's job, for whoever has to know its secrets.
const ENVIRONMENTS: &str = "BUILDKITE_SHIM_ENVIRONMENTS";
/// The container's own name; set if somebody uploads its artifacts.
const NAME: &str = "BUILDKITE_SHIM_NAME";
/// The attempt.
const RUN: &str = "BUILDKITE_SHIM_RUN";
/// The workspace.
const WORKSPACE: &str = "BUILDKITE_SHIM_WORKSPACE";

/// What the bootstrap does in this container; everything, if nothing is said.
const PHASES: &str = "BUILDKITE_BOOTSTRAP_PHASES";

/// What the agent runs the shim as.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Hook {
    /// Before everything else: write down the environment, and see to it that no end is told too early.
    Begin,
    /// Before the command: write down the environment again.
    Note,
    /// After everything else: wait until artifacts are uploaded.
    Wait,
}

impl Hook {
    /// The hook whose name a program has.
    pub fn named(program: &CStr) -> Option<Self> {
        match program.to_bytes().rsplit(|byte| *byte == b'/').next()? {
            b"environment" => Some(Self::Begin),
            b"pre-command" => Some(Self::Note),
            b"pre-exit" => Some(Self::Wait),
            _ => None,
        }
    }
}

/// Does what is expected of the hook.
pub fn run(hook: Hook, process: &Process) {
    match hook {
        Hook::Begin => {
            note(process);
            begin(process);
        }
        Hook::Note => note(process),
        Hook::Wait => wait(process),
    }
}

fn note(process: &Process) {
    let (Some(directory), Some(name)) = (variable(process, ENVIRONMENTS), name(process)) else { return };
    let draft = Path::new(format_args!("{directory}/.{name}"));
    let file = Path::new(format_args!("{directory}/{name}"));
    if let Err(errno) =
        write_down(process, &draft).and_then(|()| sys::rename(draft.as_c_str(), file.as_c_str()))
    {
        report::say(format_args!(
            "cannot write down the job's environment in {file}: {errno}; secrets in log files are not redacted"
        ));
    }
}

fn write_down(process: &Process, draft: &Path) -> sys::Result<()> {
    // A draft that an earlier hook has left may belong to another user.
    let _ = sys::unlink(draft.as_c_str());
    let draft = sys::open(draft.as_c_str(), libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o644)?;
    process.environment.into_iter().try_for_each(|entry| sys::write(&draft, entry.to_bytes_with_nul()))
}

fn begin(process: &Process) {
    // Only where commands run is there a last hook whose absence means something.
    let phases = variable(process, PHASES);
    if phases.is_none_or(|phases| phases.split(',').any(|phase| phase == "command"))
        && let Some((layout, name)) = place(process)
    {
        keeper::start(layout, name);
    }
}

fn wait(process: &Process) {
    let Some((layout, name)) = place(process) else { return };
    Wish::new(layout, name).fulfilled(|_| true);
}

/// Where to wish for artifacts, and for whom, if somebody uploads them.
fn place(process: &Process) -> Option<(Layout<'static>, Name<'static>)> {
    let workspace = variable(process, WORKSPACE).filter(|path| path.len() <= LONGEST_PATH);
    let run = variable(process, RUN).and_then(Name::new);
    let (workspace, run, name) = (workspace?, run?, name(process)?);
    Some((Layout::new(workspace, run), name))
}

fn name(process: &Process) -> Option<Name<'static>> {
    variable(process, NAME).and_then(Name::new)
}

/// The value of a variable, if it is text.
fn variable(process: &Process, name: &str) -> Option<&'static str> {
    let value = |entry: &'static CStr| entry.to_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"=");
    process.environment.into_iter().find_map(value).and_then(|value| core::str::from_utf8(value).ok())
}

#[cfg(test)]
mod tests {
    use super::Hook;

    #[test]
    fn hooks_go_by_their_names() {
        for (program, hook) in [
            (c"/hooks/environment", Some(Hook::Begin)),
            (c"pre-command", Some(Hook::Note)),
            (c"/a/pre-exit", Some(Hook::Wait)),
            (c"/a/buildkite-shim", None),
            (c"/pre-exit/shim", None),
            (c"", None),
        ] {
            assert_eq!(Hook::named(program), hook, "{program:?}");
        }
    }
}
