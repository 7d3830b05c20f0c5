//! Every setting of the controller: the keys of its configuration file, which are those of `config` in the chart's values.

use serde_json::{Map, Value, json};

use crate::{
    Draft, Fate, agent,
    convert::{self, Convert, same},
};

/// What becomes of a setting.
pub(crate) enum Rule {
    /// It is carried over: to where, how, and with what difference.
    Keep(&'static str, Convert, Option<&'static str>),
    /// It is of no use.
    NotNeeded(&'static str),
    /// There is nothing like it.
    NotSupported(&'static str),
    /// It is translated together with others.
    Apart,
}

use Rule::{Apart, Keep, NotNeeded, NotSupported};

/// What the operator sees to by itself.
const OWN_PACE: &str = "the operator finds its own pace";
const REMOVED: &str = "newer versions of the controller refuse it, too";

/// Every key, in the order of the controller's documentation.
pub(crate) const SETTINGS: &[(&str, Rule)] = &[
    ("config", NotNeeded("a path of the controller's")),
    ("debug", Apart),
    ("log-level", Apart),
    ("log-format", Keep("log.format", convert::log_format, None)),
    ("no-color", NotNeeded("only terminals see colours")),
    ("log-http-payloads", NotSupported("bodies are not logged; log.level debug tells of each call")),
    ("namespace", Keep("config.job_namespace", same, None)),
    (
        "id",
        Keep(
            "config.job_spawner_config.stackKey",
            same,
            Some("pods have no label buildkite.com/controller-id"),
        ),
    ),
    ("agent-token-secret", Keep("config.pod_config.agentTokenSecret", same, None)),
    ("image", Keep("config.pod_config.agentImage", same, None)),
    ("queue", Apart),
    ("tags", Apart),
    ("job-prefix", NotSupported("BuildJobs and pods are called buildkite- and the job's UUID")),
    (
        "job-ttl",
        Keep(
            "config.pod_config.failedTtlSeconds",
            convert::seconds,
            Some("what succeeds goes at once, unless succeededTtlSeconds is set"),
        ),
    ),
    ("job-active-deadline-seconds", Keep("config.pod_config.timeouts.runSeconds", same, None)),
    (
        "default-termination-grace-period-seconds",
        Keep("config.pod_config.terminationGracePeriodSeconds", same, None),
    ),
    (
        "max-in-flight",
        Keep(
            "config.job_spawner_config.maxInFlight",
            convert::max_in_flight,
            Some("it holds over restarts; there is always a limit, 10000 where there was none"),
        ),
    ),
    ("job-creation-concurrency", NotNeeded(OWN_PACE)),
    ("work-queue-limit", NotNeeded("no more is reserved than can start")),
    ("poll-interval", NotNeeded(OWN_PACE)),
    ("http-timeout", NotNeeded(OWN_PACE)),
    ("pagination-page-size", NotNeeded(OWN_PACE)),
    ("pagination-depth-limit", NotNeeded(OWN_PACE)),
    ("query-reset-interval", NotNeeded("it had no effect")),
    ("enable-queue-pause", NotNeeded("a paused queue is always left alone")),
    ("enable-completion-watcher", NotNeeded("a pod goes when its job has ended")),
    ("reservation-expiry-seconds", NotNeeded("reservations are extended as long as jobs wait for a pod")),
    ("k8s-client-rate-limiter-qps", NotNeeded(OWN_PACE)),
    ("k8s-client-rate-limiter-burst", NotNeeded(OWN_PACE)),
    (
        "image-pull-backoff-grace-period",
        Keep(
            "config.pod_config.imagePullGraceSeconds",
            convert::seconds,
            Some("an answer such as \"not found\" is not waited for"),
        ),
    ),
    ("job-cancel-checker-poll-interval", NotNeeded("a cancelled job goes within two seconds")),
    (
        "empty-job-grace-period",
        NotNeeded("a pod that cannot be created is tried again, and timeouts.scheduleSeconds ends that"),
    ),
    (
        "pod-pending-timeout",
        Keep(
            "config.pod_config.timeouts.scheduleSeconds",
            convert::schedule_seconds,
            Some("only the wait for a node, 40 minutes at most; pullSeconds and startSeconds limit the rest"),
        ),
    ),
    ("default-image-pull-policy", Apart),
    ("default-image-check-pull-policy", NotNeeded("a check pulls as its container does")),
    (
        "skip-image-check-containers",
        NotNeeded(
            "images are checked without init containers; config.pod_config.imageCheck: init brings those back",
        ),
    ),
    (
        "image-check-container-cpu-limit",
        Keep(
            "config.pod_config.resources.init.limits.cpu",
            same,
            Some("counts with imageCheck: init or agentDelivery: init"),
        ),
    ),
    (
        "image-check-container-memory-limit",
        Keep(
            "config.pod_config.resources.init.limits.memory",
            same,
            Some("counts with imageCheck: init or agentDelivery: init"),
        ),
    ),
    ("prohibit-kubernetes-plugin", Keep("config.pod_config.prohibitKubernetesPlugin", same, None)),
    (
        "allow-pod-spec-patch-unsafe-command-modification",
        Keep("config.pod_config.allowUnsafeCommandPatches", same, None),
    ),
    ("prometheus-port", NotNeeded("metrics are on the port `metrics`, 8080, of the operator's pods")),
    (
        "profiler-address",
        Keep("profiling.listen", convert::listen, Some("/debug/pprof/profile alone, as folded stacks")),
    ),
    ("graphql-endpoint", NotNeeded("it was for the controller's own tests")),
    ("buildkite-token", NotNeeded("it was for the controller's own tests")),
    ("integration-test-buildkite-token", NotNeeded("it was for the controller's own tests")),
    ("pod-spec-patch", Keep("config.pod_config.podSpecPatch", same, None)),
    ("workspace-volume", Keep("config.pod_config.workspaceVolume", same, None)),
    (
        "workspaceVolume",
        NotNeeded(
            "the controller did not read it; its key is workspace-volume, here it is config.pod_config.workspaceVolume",
        ),
    ),
    ("workspace-mount-sub-path-expr", Keep("config.pod_config.workspaceSubPathExpr", same, None)),
    ("agent-config", Apart),
    ("default-checkout-params", Keep("config.pod_config.checkout", same, None)),
    ("default-command-params", Keep("config.pod_config.command", same, None)),
    ("default-sidecar-params", Keep("config.pod_config.sidecar", same, None)),
    ("default-metadata", Keep("config.pod_config.metadata", same, None)),
    ("additional-redacted-vars", Keep("config.pod_config.additionalRedactedVars", same, None)),
    (
        "resource-classes",
        Keep(
            "config.resource_classes",
            convert::resource_classes,
            Some("resource is resources here, podResource is podResources"),
        ),
    ),
    ("default-resource-class-name", Keep("config.pod_config.defaultResourceClass", same, None)),
    ("container-start-timeout", NotNeeded(agent::START_TIMEOUT)),
    ("org", NotNeeded(REMOVED)),
    ("cluster-uuid", NotNeeded(REMOVED)),
    ("graphql-results-limit", NotNeeded(REMOVED)),
    ("stale-job-data-timeout", NotNeeded(REMOVED)),
];

/// Translates the controller's configuration.
pub(crate) fn translate(config: &Map<String, Value>, draft: &mut Draft) {
    apply(SETTINGS, config, draft);
    log_level(config, draft);
    queue(config, draft);
    match config.get("default-image-pull-policy").and_then(Value::as_str) {
        Some("") | None => {
            let note = "tags other than latest are pulled if the node does not have them; they were pulled each time, \
                        as config.pod_config.imagePullPolicy: Always has it";
            draft.say("default-image-pull-policy", Fate::Default(note.to_owned()));
        }
        Some(policy) => {
            draft.keep("default-image-pull-policy", "config.pod_config.imagePullPolicy", json!(policy), None);
        }
    }
    if !config.contains_key("job-active-deadline-seconds") {
        let note = "jobs may run as long as they like; they had six hours, as config.pod_config.timeouts.runSeconds: 21600 has it";
        draft.say("job-active-deadline-seconds", Fate::Default(note.to_owned()));
    }
    match config.get("agent-config") {
        Some(Value::Object(settings)) => agent::translate(settings, draft),
        Some(Value::Null) | None => {}
        Some(_) => draft.say("agent-config", Fate::Unknown(Some("it must be a map".to_owned()))),
    }
}

/// Applies the rules of a table.
pub(crate) fn apply(table: &[(&str, Rule)], given: &Map<String, Value>, draft: &mut Draft) {
    for (key, value) in given {
        match table.iter().find(|(known, _)| known == key).map(|(_, rule)| rule) {
            None => draft.unknown(key, key, table.iter().map(|(known, _)| *known)),
            Some(Apart) => {}
            Some(NotNeeded(why)) => draft.say(key, Fate::NotNeeded((*why).to_owned())),
            Some(NotSupported(why)) => draft.say(key, Fate::NotSupported((*why).to_owned())),
            Some(Keep(..)) if value.is_null() => draft.say(key, Fate::NotNeeded("it is empty".to_owned())),
            Some(Keep(to, convert, note)) => match convert(value) {
                Ok(value) => draft.keep(key, to, value, *note),
                Err(problem) => draft.say(key, Fate::NotSupported(problem)),
            },
        }
    }
}

/// `debug` goes before `log-level`.
fn log_level(config: &Map<String, Value>, draft: &mut Draft) {
    let debug = config.get("debug").and_then(Value::as_bool);
    if let Some(level) = config.get("log-level") {
        if debug == Some(true) {
            draft.say("log-level", Fate::NotNeeded("`debug` goes before it".to_owned()));
        } else {
            draft.keep("log-level", "log.level", level.clone(), None);
        }
    }
    match debug {
        None if config.contains_key("debug") => {
            draft.say("debug", Fate::NotSupported("it must be true or false".to_owned()));
        }
        Some(true) => draft.keep("debug", "log.level", json!("debug"), None),
        Some(false) => draft.say("debug", Fate::NotNeeded("it is off".to_owned())),
        None => {}
    }
}

/// The queue is a setting of its own, or else a tag, or else the cluster's default one.
fn queue(config: &Map<String, Value>, draft: &mut Draft) {
    const TO: &str = "config.job_spawner_config.queue";
    let tags: Vec<String> = match config.get("tags") {
        Some(Value::Array(tags)) => tags.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Some(Value::String(tags)) => tags.split(',').map(|tag| tag.trim().to_owned()).collect(),
        _ => Vec::new(),
    };
    let (queues, tags): (Vec<String>, Vec<String>) =
        tags.into_iter().filter(|tag| !tag.is_empty()).partition(|tag| tag.starts_with("queue="));
    let given = config.get("queue").and_then(Value::as_str).filter(|queue| !queue.is_empty());
    match (given, queues.first()) {
        (Some(queue), _) => draft.keep("queue", TO, json!(queue), None),
        (None, Some(tag)) => {
            let note = "the queue is a setting of its own";
            draft.keep("tags (queue)", TO, json!(tag.trim_start_matches("queue=")), Some(note));
        }
        (None, None) => {
            draft.put(TO, json!("_default"));
            let note =
                "it was the cluster's default queue, and is bk-operator here; now it is set to _default";
            draft.say("queue", Fate::Default(note.to_owned()));
        }
    }
    if !tags.is_empty() {
        draft.keep("tags", "config.job_spawner_config.tags", json!(tags), None);
    } else if config.contains_key("tags") && queues.is_empty() {
        draft.say("tags", Fate::NotNeeded("it is empty".to_owned()));
    }
}
