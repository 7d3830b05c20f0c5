//! The command lines of the shim, PID 1 of every container that takes part in a job.

use k8s_openapi::api::core::v1::Container;

/// The volume with the shim's ConfigMap.
pub(super) const VOLUME: &str = "buildkite-shim";
/// Where it is mounted.
pub(super) const DIRECTORY: &str = "/buildkite/shim";
/// Its key there.
pub(super) const FILE: &str = "buildkite-shim";
/// The shim in the ConfigMap.
pub(super) const MOUNTED: &str = "/buildkite/shim/buildkite-shim";
/// The shim where an init container has copied it.
pub(super) const COPIED: &str = "/workspace/buildkite-shim";
/// What the agent's image does before the agent: sets up ssh from variables, among other things.
const ENTRYPOINT: &str = "buildkite-agent-entrypoint";

/// How the agent's container puts the agent into the workspace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Supply {
    /// As a copy, which containers of any image can run.
    Copy,
    /// As a link to where its image has it: all containers have that image.
    Link,
}

/// One run of a pod: the shims of its containers find each other's marks by its id.
pub(super) struct Run {
    /// Unique per pod, so that marks on a volume that outlives pods are never mistaken for this pod's.
    pub(super) id: String,
    /// The managed containers, in the order of their turns.
    pub(super) names: Vec<String>,
    /// The shim.
    pub(super) binary: &'static str,
    /// Whether the agent waits until all of them run.
    pub(super) fenced: bool,
    /// How they come by the agent.
    pub(super) supply: Supply,
    /// Directories that the agent must find.
    pub(super) directories: Vec<String>,
    /// Whether the containers run as different users.
    pub(super) shared: bool,
    /// Whether there is no Buildkite.
    pub(super) standalone: bool,
    /// The container whose end is that of the job, if somebody in the pod wants to know of it.
    pub(super) last: Option<String>,
    /// The streams of its containers that are kept for a reader.
    pub(super) kept: Option<&'static str>,
}

impl Run {
    /// The agent's container: waits until all managed containers run, then runs `command`. That of a standalone job waits until
    /// they have ended.
    pub(super) fn agent(&self, command: &[String]) -> Vec<String> {
        let (names, directories) = (self.names.join(","), self.directories.join(","));
        let mut flags = vec!["--jobs", &names];
        if !self.fenced {
            flags.push("--no-fence");
        }
        if self.supply == Supply::Link {
            flags.push("--link");
        }
        if !directories.is_empty() {
            flags.extend(["--make", &directories]);
        }
        if self.standalone { self.line("agent", &flags, &[]) } else { self.line("agent", &flags, command) }
    }

    /// A managed container: waits for its turn, then runs `command`.
    pub(super) fn job(&self, name: &str, command: &[String]) -> Vec<String> {
        self.line("job", &self.job_flags(name), command)
    }

    /// The container that checks out: the same, with copies of these files, and by way of the image's own entrypoint.
    pub(super) fn checkout(&self, name: &str, files: &[(String, String)], command: &[String]) -> Vec<String> {
        let mut flags = self.job_flags(name);
        flags.extend(["--entrypoint", ENTRYPOINT]);
        let files = files.iter().map(|(from, to)| format!("{from}={to}")).collect::<Vec<_>>().join(",");
        if !files.is_empty() {
            flags.extend(["--private", &files]);
        }
        self.line("job", &flags, command)
    }

    fn job_flags<'a>(&'a self, name: &'a str) -> Vec<&'a str> {
        let mut flags = vec!["--name", name];
        if let Some(before) = self.before(name) {
            flags.extend(["--after", before]);
        }
        if self.shared {
            flags.push("--shared");
        }
        if self.last.as_deref() == Some(name) {
            flags.push("--last");
        }
        if let Some(streams) = self.kept {
            flags.extend(["--keep", streams]);
        }
        flags
    }

    fn before(&self, name: &str) -> Option<&str> {
        let at = self.names.iter().position(|other| other == name)?;
        at.checked_sub(1).map(|before| self.names[before].as_str())
    }

    fn line(&self, role: &str, flags: &[&str], command: &[String]) -> Vec<String> {
        let mut line = vec![self.binary, role, "--run", &self.id];
        line.extend(flags);
        if self.standalone {
            line.push("--standalone");
        }
        if !command.is_empty() {
            line.push("--");
            line.extend(command.iter().map(String::as_str));
        }
        line.into_iter().map(str::to_owned).collect()
    }
}

/// What a container runs under the shim: `program` with `args`, unless a patch says otherwise. Takes it out of the container.
pub(super) fn line_of(container: &mut Container, program: &str, args: &[&str]) -> Vec<String> {
    let patched = |line: Option<Vec<String>>| line.filter(|line| !line.is_empty());
    let (command, given) = (patched(container.command.take()), patched(container.args.take()));
    let usual =
        || if given.is_some() { Vec::new() } else { args.iter().map(|arg| (*arg).to_owned()).collect() };
    let mut line = command.unwrap_or_else(|| [vec![program.to_owned()], usual()].concat());
    line.extend(given.unwrap_or_default());
    line
}

/// Whether a container takes its turn under the shim.
pub(super) fn is_managed(container: &Container) -> bool {
    let first = container.command.as_ref().and_then(|line| line.first());
    first.is_some_and(|first| first == MOUNTED || first == COPIED)
}
