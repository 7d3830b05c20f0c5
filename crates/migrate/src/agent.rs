//! The agent's settings, below `agent-config`.

use serde_json::{Map, Value};

use crate::{Draft, Fate};

/// Why the agent need not wait for containers.
pub(crate) const START_TIMEOUT: &str = "the agent takes the job only when every container runs; config.pod_config.timeouts.startSeconds limits that";

const TO: &str = "config.pod_config.agentConfig";

/// Every key, and what it is called here. Without a name it is seen to below.
pub(crate) const SETTINGS: &[(&str, &str)] = &[
    ("endpoint", ""),
    ("no-http2", "noHttp2"),
    ("experiment", "experiment"),
    ("shell", "shell"),
    ("no-color", "noColor"),
    ("strict-single-hooks", "strictSingleHooks"),
    ("no-multipart-artifact-upload", "noMultipartArtifactUpload"),
    ("trace-context-encoding", "traceContextEncoding"),
    ("tracing-backend", "tracingBackend"),
    ("tracing-service-name", "tracingServiceName"),
    ("tracing-propagate-traceparent", "tracingPropagateTraceparent"),
    ("disable-warnings-for", "disableWarningsFor"),
    ("debug-signing", "debugSigning"),
    ("git-skip-fetch-existing-commits", "gitSkipFetchExistingCommits"),
    ("container-start-timeout", ""),
    ("no-pty", "noPty"),
    ("no-command-eval", "noCommandEval"),
    ("no-local-hooks", "noLocalHooks"),
    ("no-plugins", "noPlugins"),
    ("plugin-validation", "pluginValidation"),
    ("hooks-path", "hooksPath"),
    ("hooksVolume", "hooksVolume"),
    ("additional-hooks-paths", "additionalHooksPaths"),
    ("additional-hooks", "additionalHooks"),
    ("plugins-path", "pluginsPath"),
    ("pluginsVolume", "pluginsVolume"),
    ("signing-jwks-file", "signingJWKSFile"),
    ("signing-jwks-key-id", "signingJWKSKeyID"),
    ("signingJWKSVolume", "signingJWKSVolume"),
    ("verification-jwks-file", "verificationJWKSFile"),
    ("verification-failure-behavior", "verificationFailureBehavior"),
    ("verificationJWKSVolume", "verificationJWKSVolume"),
];

/// Translates the agent's settings.
pub(crate) fn translate(settings: &Map<String, Value>, draft: &mut Draft) {
    for (key, value) in settings {
        let setting = format!("agent-config.{key}");
        match (key.as_str(), SETTINGS.iter().find(|(known, _)| known == key)) {
            ("endpoint", _) => {
                let note = "for the operator and for agents";
                draft.keep(&setting, "config.job_spawner_config.endpoint", value.clone(), Some(note));
            }
            ("container-start-timeout", _) => draft.say(&setting, Fate::NotNeeded(START_TIMEOUT.to_owned())),
            (_, Some((_, name))) => draft.keep(&setting, &format!("{TO}.{name}"), value.clone(), None),
            (_, None) => draft.unknown(&setting, key, SETTINGS.iter().map(|(known, _)| *known)),
        }
    }
}
