//! Names of containers and the places of their marks in the workspace.

use crate::text::Path;
use core::fmt;

/// The agent container's mark.
pub const AGENT: Name<'static> = Name("agent");

/// A name that is safe as the name of a file and as that of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a>(&'a str);

impl<'a> Name<'a> {
    /// Takes `text` if it is 1 to 63 of `[a-z0-9.-]` and does not begin with a dot, as drafts of marks do.
    pub fn new(text: &'a str) -> Option<Self> {
        let known =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-');
        let valid = (1..=63).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(known);
        valid.then_some(Self(text))
    }
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0)
    }
}

/// A workspace, for one attempt to run a pod on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layout<'a> {
    workspace: &'a str,
    run: Name<'a>,
}

/// A place in a workspace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place<'a> {
    layout: Layout<'a>,
    spot: Spot<'a>,
}

/// What can be in a workspace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spot<'a> {
    /// The workspace itself.
    Workspace,
    /// Something that the agent knows under this name.
    Shared(&'static str),
    /// The directory of all attempts.
    Runs,
    /// This attempt's own directory.
    Run,
    /// The directory of start marks.
    AllStarted,
    /// The directory of end marks.
    AllEnded,
    /// Exists once the agent is delivered and an old socket is gone.
    Ready,
    /// Exists once the container has started.
    Started(Name<'a>),
    /// Holds the status with which the container has ended.
    Ended(Name<'a>),
    /// An end mark that nobody may read yet.
    EndDraft(Name<'a>),
    /// The agent while it is copied.
    AgentDraft,
    /// Where users that have no home are at home.
    Home,
    /// The directory of what containers print.
    AllOutput,
    /// The directory of what this container prints.
    Output(Name<'a>),
    /// A part of what the container prints, counted from 0.
    Segment(Name<'a>, u32),
    /// Holds the status with which the job has ended.
    JobEnded,
    /// The same before anybody may read it, as this container has it.
    JobEndDraft(Name<'a>),
    /// The directory of wishes that artifacts be uploaded.
    AllWishes,
    /// Exists once the container wants its artifacts to be uploaded.
    Wish(Name<'a>),
    /// The directory of such wishes fulfilled.
    AllFulfilled,
    /// Exists once the container's artifacts are uploaded.
    Fulfilled(Name<'a>),
    /// Is touched as long as somebody is about to fulfil wishes.
    Alive,
}

impl Spot<'_> {
    /// The socket that the running agent serves.
    pub const SOCKET: Self = Self::Shared("buildkite.sock");
    /// The delivered agent.
    pub const AGENT: Self = Self::Shared("buildkite-agent");
    /// Directories that the agent's programs need.
    pub const AGENT_DIRECTORIES: [Self; 3] =
        [Self::Shared("build"), Self::Shared("plugins"), Self::Shared("sockets")];
    /// Directories that every container needs, parents first.
    pub const MARK_DIRECTORIES: [Self; 4] = [Self::Runs, Self::Run, Self::AllStarted, Self::AllEnded];
}

impl<'a> Layout<'a> {
    /// The places for the attempt `run`. `workspace` must not be longer than [`crate::text::LONGEST_PATH`].
    pub fn new(workspace: &'a str, run: Name<'a>) -> Self {
        Self { workspace, run }
    }

    /// Where `spot` is.
    pub fn at(self, spot: Spot<'a>) -> Place<'a> {
        Place { layout: self, spot }
    }
}

impl Place<'_> {
    /// The path for the kernel.
    pub fn path(self) -> Path {
        let path = Path::new(format_args!("{self}"));
        assert!(path.is_whole(), "the command line bounds the lengths of workspace, run and names");
        path
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Layout { workspace, run } = self.layout;
        match self.spot {
            Spot::Workspace => return out.write_str(workspace),
            Spot::Shared(name) => return write!(out, "{workspace}/{name}"),
            Spot::Runs => return write!(out, "{workspace}/.buildkite-operator"),
            _ => write!(out, "{workspace}/.buildkite-operator/{run}")?,
        }
        match self.spot {
            Spot::AllStarted => out.write_str("/started"),
            Spot::AllEnded => out.write_str("/ended"),
            Spot::Ready => out.write_str("/ready"),
            Spot::Started(name) => write!(out, "/started/{name}"),
            Spot::Ended(name) => write!(out, "/ended/{name}"),
            Spot::EndDraft(name) => write!(out, "/ended/.{name}"),
            Spot::AgentDraft => out.write_str("/buildkite-agent"),
            Spot::Home => out.write_str("/home"),
            Spot::AllOutput => out.write_str("/output"),
            Spot::Output(name) => write!(out, "/output/{name}"),
            Spot::Segment(name, number) => write!(out, "/output/{name}/{number}"),
            Spot::JobEnded => out.write_str("/job-ended"),
            Spot::JobEndDraft(name) => write!(out, "/.job-ended-{name}"),
            Spot::AllWishes => out.write_str("/drain"),
            Spot::Wish(name) => write!(out, "/drain/{name}"),
            Spot::AllFulfilled => out.write_str("/drained"),
            Spot::Fulfilled(name) => write!(out, "/drained/{name}"),
            Spot::Alive => out.write_str("/drained/.alive"),
            Spot::Workspace | Spot::Shared(_) | Spot::Runs | Spot::Run => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Layout, Name, Spot};
    use std::string::ToString;

    #[test]
    fn names() {
        let longest = "a".repeat(63);
        for good in ["checkout", "container-0", "0", "a.b", &longest] {
            assert_eq!(Name::new(good).map(|name| name.to_string()).as_deref(), Some(good));
        }
        let too_long = "a".repeat(64);
        for bad in ["", ".", "..", ".a", "a/b", "A", "a_b", "a b", "ä", "a,b", &too_long] {
            assert_eq!(Name::new(bad), None, "{bad}");
        }
    }

    #[test]
    fn places() {
        let layout = Layout::new("/w", Name::new("7").unwrap());
        let name = Name::new("checkout").unwrap();
        for (spot, path) in [
            (Spot::Workspace, "/w"),
            (Spot::SOCKET, "/w/buildkite.sock"),
            (Spot::AGENT, "/w/buildkite-agent"),
            (Spot::Runs, "/w/.buildkite-operator"),
            (Spot::Run, "/w/.buildkite-operator/7"),
            (Spot::AllStarted, "/w/.buildkite-operator/7/started"),
            (Spot::AllEnded, "/w/.buildkite-operator/7/ended"),
            (Spot::Ready, "/w/.buildkite-operator/7/ready"),
            (Spot::Started(name), "/w/.buildkite-operator/7/started/checkout"),
            (Spot::Ended(name), "/w/.buildkite-operator/7/ended/checkout"),
            (Spot::EndDraft(name), "/w/.buildkite-operator/7/ended/.checkout"),
            (Spot::Output(name), "/w/.buildkite-operator/7/output/checkout"),
            (Spot::Segment(name, 12), "/w/.buildkite-operator/7/output/checkout/12"),
            (Spot::JobEnded, "/w/.buildkite-operator/7/job-ended"),
            (Spot::JobEndDraft(name), "/w/.buildkite-operator/7/.job-ended-checkout"),
            (Spot::Wish(name), "/w/.buildkite-operator/7/drain/checkout"),
            (Spot::Fulfilled(name), "/w/.buildkite-operator/7/drained/checkout"),
            (Spot::Alive, "/w/.buildkite-operator/7/drained/.alive"),
        ] {
            assert_eq!(layout.at(spot).path().as_str(), path);
        }
    }

    #[test]
    fn the_longest_workspace_and_names_fit() {
        let workspace = "/".repeat(crate::text::LONGEST_PATH);
        let longest = "a".repeat(63);
        let name = Name::new(&longest).unwrap();
        for spot in [Spot::EndDraft(name), Spot::Segment(name, u32::MAX), Spot::JobEndDraft(name)] {
            assert!(Layout::new(&workspace, name).at(spot).path().is_whole(), "{spot:?}");
        }
    }
}
