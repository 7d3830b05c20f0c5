//! The command line.

use crate::layout::{AGENT, Layout, Name};
use crate::text::LONGEST_PATH;
use core::ffi::CStr;
use core::fmt;

/// Exit status for a command line that makes no sense: `EX_USAGE`.
pub const USAGE_STATUS: u8 = 64;

/// The answer to `--help`.
pub const HELP: &str = "\
PID 1 of every container of a job pod: start fence, turns, signals, reaping.

Usage:
  buildkite-shim agent --jobs NAME[,NAME...] [OPTIONS] -- COMMAND...
  buildkite-shim agent --jobs NAME[,NAME...] --standalone [OPTIONS]
  buildkite-shim job --name NAME [--after NAME] [--standalone] [OPTIONS] -- COMMAND...
  buildkite-shim deliver [OPTIONS]

agent    Deliver the agent binary, wait until all of --jobs have started, then run COMMAND.
         With --standalone wait until they have ended, and exit with the first status that is not 0.
job      Say that this container has started, wait for its turn, then run COMMAND.
deliver  Deliver the agent binary ahead of the others, from an init container.

  --jobs NAMES            the job's containers, in order
  --no-fence              do not wait until they have started
  --agent-binary PATH     what to deliver [/usr/local/bin/buildkite-agent]
  --link                  do not copy it: all of --jobs have the same image
  --make PATH[,PATH...]   directories to make beside the agent's own
  --name NAME             this container
  --after NAME            the container that must have ended with 0 before
  --private FROM=TO[,...] files of which to make copies that only this user can read, where they exist
  --entrypoint NAME       a program on PATH that gets COMMAND's arguments instead, where the image has it
  --shared                let other users write what COMMAND makes
  --last                  no container comes after this one: its end is that of the job
  --keep STREAM[,STREAM]  keep what COMMAND writes to stdout, stderr, for whoever reads output/NAME
  --standalone            there is no agent socket
  --run ID                unique for each attempt on the same workspace [0]
  --workspace DIR         shared by all containers of the pod [/workspace]
  --termination-log PATH  gets the reason of an abnormal end, if it exists [/dev/termination-log]
";

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Invocation<'a> {
    /// Print [`HELP`].
    Help,
    /// Print the version.
    Version,
    /// Be the agent's container.
    Agent(Agent<'a>),
    /// Be one of the job's containers.
    Job(Job<'a>),
    /// Deliver the agent from an init container.
    Deliver(Deliver<'a>),
}

/// What both roles have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pod<'a> {
    /// Where the marks are.
    pub layout: Layout<'a>,
    /// No agent process serves a socket.
    pub standalone: bool,
    /// The kubelet's file for the reason of an end.
    pub termination_log: &'a CStr,
}

/// The agent's container.
#[derive(Clone, Debug, PartialEq)]
pub struct Agent<'a> {
    /// What both roles have.
    pub pod: Pod<'a>,
    /// The job's containers.
    pub jobs: Names<'a>,
    /// Whether to wait until they have started.
    pub fenced: bool,
    /// What comes before everything else.
    pub delivery: Deliver<'a>,
    /// Where the command starts, counted after the program's own name; none when standalone.
    pub command: Option<usize>,
}

/// What the job's containers wait for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deliver<'a> {
    /// What all roles have.
    pub pod: Pod<'a>,
    /// What is delivered to the workspace.
    pub binary: &'a CStr,
    /// Whether every container has it under this name, so that a link does.
    pub linked: bool,
    /// Further directories to make.
    pub directories: Paths<'a>,
}

/// One of the job's containers.
#[derive(Clone, Debug, PartialEq)]
pub struct Job<'a> {
    /// What both roles have.
    pub pod: Pod<'a>,
    /// Its own name.
    pub name: Name<'a>,
    /// The one that must have ended before.
    pub after: Option<Name<'a>>,
    /// Files of which it needs copies of its own.
    pub private: Copies<'a>,
    /// A program that gets the command's arguments instead of the command, where there is one.
    pub entrypoint: Option<&'a CStr>,
    /// Whether other users may write what the command makes.
    pub shared: bool,
    /// Whether no container comes after it.
    pub last: bool,
    /// What is kept of what the command prints.
    pub keep: Kept,
    /// Where the command starts, counted after the program's own name.
    pub command: usize,
}

/// Streams that are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Kept {
    /// Standard output.
    pub output: bool,
    /// Standard error.
    pub error: bool,
}

/// A comma-separated list of valid names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Names<'a>(&'a str);

impl<'a> Names<'a> {
    /// The names in order.
    pub fn iter(self) -> impl Iterator<Item = Name<'a>> + Clone {
        self.0.split(',').filter_map(Name::new)
    }
}

/// A comma-separated list of absolute paths.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Paths<'a>(&'a str);

impl<'a> Paths<'a> {
    /// The paths in order.
    pub fn iter(self) -> impl Iterator<Item = &'a str> {
        self.0.split_terminator(',')
    }
}

/// A comma-separated list of pairs of absolute paths, with `=` between.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Copies<'a>(&'a str);

impl<'a> Copies<'a> {
    /// From where and to where, in order.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.split_terminator(',').filter_map(|pair| pair.split_once('='))
    }
}

/// What is wrong with a command line.
#[derive(Clone, Debug, PartialEq)]
pub enum Error<'a> {
    /// The first argument is neither role.
    Role(&'a CStr),
    /// No such flag, or not in this role.
    Unknown(&'a CStr),
    /// The flag is the last argument.
    NoValue(&'a str),
    /// The flag is needed.
    Missing(&'a str),
    /// Not a name that a container can have.
    BadName(&'a str, &'a CStr),
    /// Not an absolute path, too long, or not UTF-8.
    BadPath(&'a str, &'a CStr),
    /// Not a list of absolute paths, or of pairs of them.
    BadPaths(&'a str, &'a CStr),
    /// Not a list of streams.
    BadStreams(&'a str, &'a CStr),
    /// The name of the agent's own mark.
    Reserved(&'a str),
    /// A container cannot wait for itself.
    AfterItself,
    /// Nothing to run.
    NoCommand,
    /// Nothing may be run.
    CommandStandalone,
    /// Nothing is run by this role.
    CommandDeliver,
}

impl fmt::Display for Error<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &CStr, out: &mut fmt::Formatter<'_>| match value.to_str() {
            Ok(text) => write!(out, "`{text}`"),
            Err(_) => write!(out, "text that is not UTF-8"),
        };
        match self {
            Self::Role(word) => {
                out.write_str("the first argument must be agent, job, deliver, --help or --version, not ")?;
                shown(word, out)
            }
            Self::Unknown(flag) => {
                out.write_str("unknown flag for this role: ")?;
                shown(flag, out)
            }
            Self::NoValue(flag) => write!(out, "{flag} needs a value"),
            Self::Missing(flag) => write!(out, "{flag} is missing"),
            Self::BadName(flag, value) => {
                write!(
                    out,
                    "{flag} takes names of at most 63 of [a-z0-9.-] that do not begin with a dot, not "
                )?;
                shown(value, out)
            }
            Self::BadPath(flag, value) => {
                write!(out, "{flag} takes an absolute path of at most {LONGEST_PATH} bytes, not ")?;
                shown(value, out)
            }
            Self::BadPaths(flag, value) => {
                write!(out, "{flag} takes absolute paths as its help says, not ")?;
                shown(value, out)
            }
            Self::BadStreams(flag, value) => {
                write!(out, "{flag} takes stdout, stderr, or both with a comma between, not ")?;
                shown(value, out)
            }
            Self::Reserved(flag) => {
                write!(out, "{flag} cannot be `agent`: that is the agent container's own mark")
            }
            Self::AfterItself => write!(out, "--after names the container itself"),
            Self::NoCommand => write!(out, "a command is missing: put it after --"),
            Self::CommandStandalone => write!(out, "agent --standalone runs no command: leave out --"),
            Self::CommandDeliver => write!(out, "deliver runs no command: leave out --"),
        }
    }
}

/// What the first argument says.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Agent,
    Job,
    Deliver,
}

/// Values of the flags as far as they were given.
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
struct Flags<'a> {
    jobs: Option<Names<'a>>,
    name: Option<Name<'a>>,
    after: Option<Name<'a>>,
    private: Copies<'a>,
    entrypoint: Option<&'a CStr>,
    shared: bool,
    last: bool,
    keep: Kept,
    fenced: bool,
    binary: &'a CStr,
    linked: bool,
    directories: Paths<'a>,
    run: Name<'a>,
    workspace: &'a str,
    termination_log: &'a CStr,
    standalone: bool,
    command: Option<usize>,
}

/// Reads the arguments after the program's own name.
pub fn parse<'a>(mut arguments: impl Iterator<Item = &'a CStr>) -> Result<Invocation<'a>, Error<'a>> {
    let role = arguments.next().ok_or(Error::Missing("agent, job or deliver"))?;
    match role.to_bytes() {
        b"--help" | b"-h" => Ok(Invocation::Help),
        b"--version" | b"-V" => Ok(Invocation::Version),
        b"agent" => agent(&flags(Role::Agent, arguments)?).map(Invocation::Agent),
        b"job" => job(&flags(Role::Job, arguments)?).map(Invocation::Job),
        b"deliver" => deliver(&flags(Role::Deliver, arguments)?).map(Invocation::Deliver),
        _ => Err(Error::Role(role)),
    }
}

fn agent<'a>(flags: &Flags<'a>) -> Result<Agent<'a>, Error<'a>> {
    let jobs = flags.jobs.ok_or(Error::Missing("--jobs"))?;
    match (flags.command, flags.standalone) {
        (None, false) => Err(Error::NoCommand),
        (Some(_), true) => Err(Error::CommandStandalone),
        (command, _) => {
            let (pod, delivery) = (flags.pod(), flags.delivery());
            Ok(Agent { pod, jobs, fenced: flags.fenced, delivery, command })
        }
    }
}

fn deliver<'a>(flags: &Flags<'a>) -> Result<Deliver<'a>, Error<'a>> {
    if flags.command.is_some() { Err(Error::CommandDeliver) } else { Ok(flags.delivery()) }
}

fn job<'a>(flags: &Flags<'a>) -> Result<Job<'a>, Error<'a>> {
    let name = flags.name.ok_or(Error::Missing("--name"))?;
    if flags.after == Some(name) {
        return Err(Error::AfterItself);
    }
    let command = flags.command.ok_or(Error::NoCommand)?;
    Ok(Job {
        pod: flags.pod(),
        name,
        after: flags.after,
        private: flags.private,
        entrypoint: flags.entrypoint,
        shared: flags.shared,
        last: flags.last,
        keep: flags.keep,
        command,
    })
}

impl<'a> Flags<'a> {
    fn pod(&self) -> Pod<'a> {
        Pod {
            layout: Layout::new(self.workspace, self.run),
            standalone: self.standalone,
            termination_log: self.termination_log,
        }
    }

    fn delivery(&self) -> Deliver<'a> {
        Deliver { pod: self.pod(), binary: self.binary, linked: self.linked, directories: self.directories }
    }
}

fn flags<'a>(role: Role, mut arguments: impl Iterator<Item = &'a CStr>) -> Result<Flags<'a>, Error<'a>> {
    let mut flags = Flags {
        jobs: None,
        name: None,
        after: None,
        private: Copies::default(),
        entrypoint: None,
        shared: false,
        last: false,
        keep: Kept::default(),
        fenced: true,
        directories: Paths::default(),
        binary: c"/usr/local/bin/buildkite-agent",
        linked: false,
        run: Name::new("0").expect("the default is a valid name"),
        workspace: "/workspace",
        termination_log: c"/dev/termination-log",
        standalone: false,
        command: None,
    };
    // The role is the argument before the flags.
    let mut position = 1;
    while let Some(argument) = arguments.next() {
        position += 1;
        let flag = argument.to_str().map_err(|_| Error::Unknown(argument))?;
        let mut value = || {
            position += 1;
            arguments.next().ok_or(Error::NoValue(flag))
        };
        match flag {
            "--" => {
                flags.command = arguments.next().map(|_| position);
                break;
            }
            "--standalone" if role != Role::Deliver => flags.standalone = true,
            "--jobs" if role == Role::Agent => flags.jobs = Some(names(flag, value()?)?),
            "--no-fence" if role == Role::Agent => flags.fenced = false,
            "--agent-binary" if role != Role::Job => flags.binary = path(flag, value()?)?,
            "--link" if role == Role::Agent => flags.linked = true,
            "--make" if role != Role::Job => flags.directories = paths(flag, value()?)?,
            "--name" if role == Role::Job => flags.name = Some(job_name(flag, value()?)?),
            "--after" if role == Role::Job => flags.after = Some(job_name(flag, value()?)?),
            "--private" if role == Role::Job => flags.private = copies(flag, value()?)?,
            "--entrypoint" if role == Role::Job => flags.entrypoint = Some(value()?),
            "--shared" if role == Role::Job => flags.shared = true,
            "--last" if role == Role::Job => flags.last = true,
            "--keep" if role == Role::Job => flags.keep = streams(flag, value()?)?,
            "--run" => flags.run = name(flag, value()?)?,
            "--workspace" => {
                let directory = path(flag, value()?)?;
                flags.workspace = directory.to_str().map_err(|_| Error::BadPath(flag, directory))?;
            }
            "--termination-log" => flags.termination_log = path(flag, value()?)?,
            _ => return Err(Error::Unknown(argument)),
        }
    }
    Ok(flags)
}

fn name<'a>(flag: &'a str, value: &'a CStr) -> Result<Name<'a>, Error<'a>> {
    value.to_str().ok().and_then(Name::new).ok_or(Error::BadName(flag, value))
}

fn job_name<'a>(flag: &'a str, value: &'a CStr) -> Result<Name<'a>, Error<'a>> {
    name(flag, value).and_then(|name| if name == AGENT { Err(Error::Reserved(flag)) } else { Ok(name) })
}

fn names<'a>(flag: &'a str, value: &'a CStr) -> Result<Names<'a>, Error<'a>> {
    let list = value.to_str().map_err(|_| Error::BadName(flag, value))?;
    for part in list.split(',') {
        match Name::new(part) {
            None => return Err(Error::BadName(flag, value)),
            Some(AGENT) => return Err(Error::Reserved(flag)),
            Some(_) => {}
        }
    }
    Ok(Names(list))
}

fn path<'a>(flag: &'a str, value: &'a CStr) -> Result<&'a CStr, Error<'a>> {
    let fits = value.count_bytes() <= LONGEST_PATH && value.to_bytes().starts_with(b"/");
    if fits { Ok(value) } else { Err(Error::BadPath(flag, value)) }
}

fn paths<'a>(flag: &'a str, value: &'a CStr) -> Result<Paths<'a>, Error<'a>> {
    let list = Paths(value.to_str().map_err(|_| Error::BadPaths(flag, value))?);
    if list.iter().all(is_path) { Ok(list) } else { Err(Error::BadPaths(flag, value)) }
}

fn copies<'a>(flag: &'a str, value: &'a CStr) -> Result<Copies<'a>, Error<'a>> {
    let list = value.to_str().map_err(|_| Error::BadPaths(flag, value))?;
    let is_pair = |pair: &str| pair.split_once('=').is_some_and(|(from, to)| is_path(from) && is_path(to));
    if list.split_terminator(',').all(is_pair) { Ok(Copies(list)) } else { Err(Error::BadPaths(flag, value)) }
}

fn streams<'a>(flag: &'a str, value: &'a CStr) -> Result<Kept, Error<'a>> {
    let mut keep = Kept::default();
    for stream in value.to_bytes().split(|byte| *byte == b',') {
        match stream {
            b"stdout" => keep.output = true,
            b"stderr" => keep.error = true,
            _ => return Err(Error::BadStreams(flag, value)),
        }
    }
    Ok(keep)
}

fn is_path(text: &str) -> bool {
    text.starts_with('/') && text.len() <= LONGEST_PATH
}

#[cfg(test)]
mod tests;
