//! The command lines of the shim, PID 1 of every container that takes part in a job.

use k8s_openapi::api::core::v1::Container;

/// Where the shim's ConfigMap is mounted.
pub(super) const DIRECTORY: &str = "/buildkite/shim";
const BINARY: &str = "/buildkite/shim/buildkite-shim";

/// One run of a pod: the shims of its containers find each other's marks by its id.
pub(super) struct Run {
    /// Unique per pod, so that marks on a volume that outlives pods are never mistaken for this pod's.
    pub(super) id: String,
    /// The managed containers, in the order of their turns.
    pub(super) names: Vec<String>,
}

impl Run {
    /// The agent's container: waits until all managed containers run, then runs `command`.
    pub(super) fn agent(&self, command: &[&str]) -> Vec<String> {
        self.line("agent", &["--jobs", &self.names.join(",")], command)
    }

    /// The agent's container of a standalone job: waits until all managed containers have ended.
    pub(super) fn standalone_agent(&self) -> Vec<String> {
        self.line("agent", &["--standalone", "--jobs", &self.names.join(",")], &[])
    }

    /// A managed container: waits for its turn, then runs `command`.
    pub(super) fn job(&self, name: &str, standalone: bool, command: &[&str]) -> Vec<String> {
        let mut flags = vec!["--name", name];
        if standalone {
            flags.push("--standalone");
        }
        if let Some(before) = self.before(name) {
            flags.extend(["--after", before]);
        }
        self.line("job", &flags, command)
    }

    fn before(&self, name: &str) -> Option<&str> {
        let at = self.names.iter().position(|other| other == name)?;
        at.checked_sub(1).map(|before| self.names[before].as_str())
    }

    fn line(&self, role: &str, flags: &[&str], command: &[&str]) -> Vec<String> {
        let mut line = vec![BINARY, role, "--run", &self.id];
        line.extend(flags);
        if !command.is_empty() {
            line.push("--");
            line.extend(command);
        }
        line.into_iter().map(str::to_owned).collect()
    }
}

/// Whether a container takes its turn under the shim.
pub(super) fn is_managed(container: &Container) -> bool {
    container.command.as_ref().is_some_and(|line| line.first().is_some_and(|first| first == BINARY))
}
