//! Every option that the author of a pipeline may set: the one list behind variables, the plugin and its schema, and the documents.
//!
//! Not among them is what the step says by other means: its command, source, variables and priority, and the `kubernetes` plugin.

use super::value::Kind;

/// What the names of all variables begin with.
pub const PREFIX: &str = "BK_OPERATOR_";

/// The name under which operators forbid the `kubernetes` plugin.
pub const KUBERNETES: &str = "kubernetes";

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepOption {
    /// Its key in the plugin.
    pub name: &'static str,
    /// What its value is.
    pub kind: Kind,
    /// The field of a BuildJob's spec that it sets.
    pub field: &'static str,
    /// A value as it is written in a variable.
    pub example: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

impl StepOption {
    /// The variable that sets it.
    pub fn variable(&self) -> String {
        format!("{PREFIX}{}", self.name.to_ascii_uppercase())
    }
}

/// Declares the options: name, kind, field, example, meaning.
macro_rules! options {
    ($($name:literal, $kind:expr, $field:literal, $example:literal, $meaning:literal;)*) => {
        /// All options, in the order of the documents.
        pub const ALL: &[StepOption] =
            &[$(StepOption { name: $name, kind: $kind, field: $field, example: $example, meaning: $meaning },)*];
    };
}

options! {
    "build_environment", Kind::Name, "environment", "go",
        "The BuildEnvironment in which the command runs. It goes before the step's `image`.";
    "image", Kind::Text { longest: 512 }, "image", "golang:1.25",
        "The image in which the command runs. It goes before the step's own `image`, and excludes `build_environment`.";
    "init_containers", Kind::Containers, "initContainers", "fixtures;schema",
        "BuildEnvironments, or containers, that run one after another before the job.";
    "extra_containers", Kind::Containers, "extraContainers", "postgres",
        "BuildEnvironments, or containers, that run beside the job.";
    "log_exporter", Kind::Flag, "logExporter.enabled", "true",
        "Whether logs are exported: standard output and error, unless other options say which. Absent, they are if other options say which, and else if the operator's configuration has it so for all.";
    "log_paths", Kind::Texts { most: 64 }, "logExporter.paths", "/var/log/app.log;/tmp/*.log",
        "Files and globs to export as logs.";
    "log_volume", Kind::Directory, "logExporter.volume", "/logs",
        "A directory that is mounted into the job's containers; every file in it is exported as a log.";
    "log_stdout", Kind::Flag, "logExporter.stdout", "true",
        "Whether the job's standard output is exported as a log.";
    "log_stderr", Kind::Flag, "logExporter.stderr", "true",
        "Whether the job's standard error is exported as a log.";
    "log_sinks", Kind::Texts { most: 16 }, "logExporter.sinks", "search",
        "Where logs go: names of sinks in the operator's configuration; its default if absent.";
    "artifact_exporter", Kind::Flag, "artifactExporter.enabled", "true",
        "Whether written files become artifacts. Absent, they do if `artifact_path` is set, and else if the operator's configuration has it so for all.";
    "artifact_path", Kind::Directory, "artifactExporter.path", "/artifacts",
        "A directory whose files become artifacts of the job by being written; the operator's configuration decides if absent.";
    "metrics_exporter", Kind::Flag, "metricsExporter.enabled", "true",
        "Whether metrics are exported. Absent, they are if other options say from where or how, and else if the operator's configuration has it so for all.";
    "metrics_path", Kind::Directory, "metricsExporter.path", "/metrics",
        "A directory whose files hold metrics of the job; the operator's configuration decides if absent.";
    "metrics_mode", Kind::Choice(&["scrape", "push", "otlp"]), "metricsExporter.mode", "push",
        "How metrics leave the pod; the operator's configuration decides if absent.";
    "repo_mirror", Kind::Flag, "repoMirror.enabled", "true",
        "Whether the checkout borrows from the cluster's mirror of the repository.";
    "extra_repos", Kind::Texts { most: 16 }, "repoMirror.extraRepos", "https://github.com/example/data.git",
        "Further repositories to clone from mirrors beside the checkout.";
    "node_requirements", Kind::Requirements, "nodeRequirements", "kubernetes.io/arch=arm64;!spot",
        "What a node's labels must be like.";
    "node_preferences", Kind::Preferences, "nodePreferences", "disk=ssd;50 zone=a,b",
        "What a node's labels should be like, if there is a choice; a weight of 1 to 100 may come first.";
    "tolerations", Kind::Tolerations, "tolerations", "dedicated=ci:NoSchedule",
        "Taints of nodes that the job tolerates.";
    "resources", Kind::Object, "resources", r#"{"requests": {"cpu": "2", "memory": "4Gi"}}"#,
        "Requests and limits of the container that runs the command.";
    "resource_class", Kind::Text { longest: 253 }, "resourceClass", "large",
        "A resource class of the operator's configuration. It goes before the agent rule `resource_class=NAME`.";
    "workspace_volume", Kind::Object, "workspaceVolume", r#"{"emptyDir": {"medium": "Memory"}}"#,
        "The volume behind `/workspace`, as in a pod's `volumes`; its name may be left out.";
    "workspace_sub_path_expr", Kind::Text { longest: 1024 }, "workspaceSubPathExpr", "$(BUILDKITE_PIPELINE_SLUG)",
        "A path below that volume, with variables, that is mounted instead of its root.";
    "timeout", Kind::Duration, "timeout", "1h30m",
        "How long the job may run. The step's `timeout_in_minutes` holds besides.";
    "workload", Kind::Choice(&["Pod", "Job"]), "workload", "Job",
        "What the pod stands in: nothing, or a `batch/v1` Job.";
}
