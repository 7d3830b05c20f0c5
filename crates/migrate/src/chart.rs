//! The chart's own values.

use serde_json::{Map, Value};

use crate::{
    Draft, Fate,
    convert::same,
    settings::{
        Rule::{self, Apart, Keep, NotNeeded, NotSupported},
        apply,
    },
};

/// Every value, in the order of the chart's documentation.
pub(crate) const VALUES: &[(&str, Rule)] = &[
    ("agentToken", Apart),
    (
        "agentStackSecret",
        Keep(
            "config.pod_config.agentTokenSecret",
            same,
            Some("the same Secret, with the key BUILDKITE_AGENT_TOKEN"),
        ),
    ),
    ("image", NotSupported("the operator is another program: set image.repository and image.tag to its own")),
    ("nameOverride", Keep("nameOverride", same, None)),
    ("fullnameOverride", Keep("fullnameOverride", same, None)),
    ("controllerEnv", Keep("extraEnv", same, Some("variables that stand for settings are not read here"))),
    ("nodeSelector", Keep("nodeSelector", same, None)),
    ("tolerations", Keep("tolerations", same, None)),
    ("labels", Keep("labels", same, None)),
    ("annotations", Keep("podAnnotations", same, None)),
    ("secretsMetadata", NotSupported("make the Secret yourself, and leave agentToken out")),
    ("serviceAccountMetadata", Apart),
    (
        "resources",
        Keep(
            "resources",
            same,
            Some("the operator asks for 100m and 64Mi, and is limited to 256Mi, by default"),
        ),
    ),
    ("config", Apart),
    ("monitoring", Apart),
    ("graphqlToken", NotNeeded("the controller did not use it any more")),
];

/// Whether an entry is one of the chart's rather than of the configuration. Both have an `image`, and in the configuration `config`
/// is a path.
pub(crate) fn is_value(key: &str, value: &Value) -> bool {
    match key {
        "image" => false,
        "config" => value.is_object(),
        _ => VALUES.iter().any(|(known, _)| *known == key),
    }
}

/// Translates the chart's values besides the configuration.
pub(crate) fn translate(values: &Map<String, Value>, draft: &mut Draft) {
    apply(VALUES, values, draft);
    if let Some(Value::Object(metadata)) = values.get("serviceAccountMetadata") {
        for (key, value) in metadata {
            let setting = format!("serviceAccountMetadata.{key}");
            match key.as_str() {
                "annotations" => draft.keep(&setting, "serviceAccount.annotations", value.clone(), None),
                "labels" => {
                    let note = "`labels` are those of all objects; or make the account yourself and name it in serviceAccount.name";
                    draft.say(&setting, Fate::NotSupported(note.to_owned()));
                }
                _ => draft.unknown(&setting, key, ["annotations", "labels"].into_iter()),
            }
        }
    }
    if let Some(Value::Object(monitoring)) = values.get("monitoring") {
        translate_monitoring(monitoring, draft);
    }
    let text = |key: &str| values.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    match text("agentToken") {
        Some(_) if text("agentStackSecret").is_some() => {
            draft.say("agentToken", Fate::NotNeeded("`agentStackSecret` goes before it".to_owned()));
        }
        Some(token) => draft.keep("agentToken", "agentToken", token.into(), None),
        None if values.contains_key("agentToken") => {
            draft.say("agentToken", Fate::NotNeeded("it is empty".to_owned()));
        }
        None => {}
    }
}

fn translate_monitoring(monitoring: &Map<String, Value>, draft: &mut Draft) {
    for (key, value) in monitoring {
        let setting = format!("monitoring.{key}");
        match (key.as_str(), value) {
            ("podMonitor", Value::Object(monitor)) => {
                for (key, value) in monitor {
                    let setting = format!("{setting}.{key}");
                    match key.as_str() {
                        "deploy" => draft.keep(&setting, "podMonitor.enabled", value.clone(), None),
                        "scrapeInterval" => draft.keep(&setting, "podMonitor.interval", value.clone(), None),
                        _ => draft.unknown(&setting, key, ["deploy", "scrapeInterval"].into_iter()),
                    }
                }
            }
            ("namespace", _) => {
                let note = "the PodMonitor is in the release's namespace; let Prometheus look there";
                draft.say(&setting, Fate::NotSupported(note.to_owned()));
            }
            ("deployGrafanaDashboard", _) => {
                draft.say(
                    &setting,
                    Fate::NotSupported(
                        "the operator's metrics are others, and so are their dashboards".to_owned(),
                    ),
                );
            }
            _ => draft.unknown(
                &setting,
                key,
                ["podMonitor", "namespace", "deployGrafanaDashboard"].into_iter(),
            ),
        }
    }
}
