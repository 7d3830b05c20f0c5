//! What BuildEnvironments get that do not have it.

use std::collections::BTreeMap;

use bk_api::{
    BuildEnvironment, BuildEnvironmentSpec, config::EnvironmentDefaults, container_use::ContainerUse, names,
};
use serde_json::Value;

/// Fields of an environment that are to change, from its root, and what they become.
pub type Changes = BTreeMap<&'static str, Value>;

/// What an environment lacks of the defaults: the fields of its spec, and the annotation that records them. Applied to its own
/// outcome it changes nothing.
pub fn changes(environment: &BuildEnvironment, defaults: &EnvironmentDefaults) -> Option<(Changes, String)> {
    let annotations = environment.metadata.annotations.as_ref();
    let annotation = |key: &str| annotations.and_then(|own| own.get(key)).map(String::as_str);
    if annotation(names::ANNOTATION_DEFAULTS) == Some(names::NO_DEFAULTS) {
        return None;
    }
    let recorded = annotation(names::ANNOTATION_DEFAULTED).unwrap_or_default();
    let mut given = Given { was: recorded.split(", ").collect(), entries: Vec::new() };
    let mut spec = environment.spec.clone();
    given.fill(&mut spec, defaults, environment.metadata.name.as_deref().unwrap_or_default());
    let record = given.entries.join(", ");
    let changes = difference(&environment.spec, &spec);
    (!changes.is_empty() || record != recorded).then_some((changes, record))
}

/// What an environment has by default: now, or by an earlier change.
struct Given<'a> {
    was: Vec<&'a str>,
    entries: Vec<String>,
}

impl Given<'_> {
    fn fill(&mut self, spec: &mut BuildEnvironmentSpec, defaults: &EnvironmentDefaults, own_name: &str) {
        self.one("imagePullPolicy", &mut spec.image_pull_policy, defaults.image_pull_policy.as_ref());
        self.one("resources", &mut spec.resources, defaults.resources.as_ref());
        self.one(
            "serviceAccountName",
            &mut spec.service_account_name,
            defaults.service_account_name.as_ref(),
        );
        self.list("env", &mut spec.env, &defaults.env, |variable| variable.name.clone());
        self.list("imagePullSecrets", &mut spec.image_pull_secrets, &defaults.image_pull_secrets, |secret| {
            secret.name.clone()
        });
        self.list("nodeRequirements", &mut spec.node_requirements, &defaults.node_requirements, |rule| {
            rule.key.clone()
        });
        self.list("tolerations", &mut spec.tolerations, &defaults.tolerations, |toleration| {
            let part = |part: &Option<String>| part.clone().unwrap_or_default();
            format!("{}={}:{}", part(&toleration.key), part(&toleration.value), part(&toleration.effect))
        });
        // What is brought by default would bring itself.
        let brought = defaults.init_containers.iter().chain(&defaults.extra_containers);
        if !brought.into_iter().any(|container| container.environment.as_deref() == Some(own_name)) {
            self.list("initContainers", &mut spec.init_containers, &defaults.init_containers, called);
            self.list("extraContainers", &mut spec.extra_containers, &defaults.extra_containers, called);
        }
    }

    fn one<T: Clone + PartialEq>(&mut self, field: &str, own: &mut Option<T>, default: Option<&T>) {
        let Some(default) = default else { return };
        let lacked = own.is_none();
        self.note(format!("spec.{field}"), lacked, own.as_ref() == Some(default));
        own.get_or_insert_with(|| default.clone());
    }

    fn list<T: Clone + PartialEq>(
        &mut self,
        field: &str,
        own: &mut Vec<T>,
        defaults: &[T],
        key: impl Fn(&T) -> String,
    ) {
        for default in defaults {
            let name = key(default);
            let found = own.iter().find(|item| key(item) == name);
            self.note(format!("spec.{field}[{name}]"), found.is_none(), found == Some(default));
            if found.is_none() {
                own.push(default.clone());
            }
        }
    }

    /// What is there as it would be by default is so by default, if the record says so.
    fn note(&mut self, entry: String, lacked: bool, is_default: bool) {
        if lacked || is_default && self.was.contains(&entry.as_str()) {
            self.entries.push(entry);
        }
    }
}

/// What a container is called in the pod.
fn called(container: &ContainerUse) -> String {
    let inline = container.container.as_ref().and_then(|inline| inline.get("name")?.as_str());
    let name = container.name.as_deref().or(container.environment.as_deref()).or(inline);
    name.unwrap_or_default().to_owned()
}

fn difference(before: &BuildEnvironmentSpec, after: &BuildEnvironmentSpec) -> Changes {
    // The one list of what defaults can change; others are never touched.
    const FIELDS: [&str; 9] = [
        "imagePullPolicy",
        "resources",
        "serviceAccountName",
        "env",
        "imagePullSecrets",
        "nodeRequirements",
        "tolerations",
        "initContainers",
        "extraContainers",
    ];
    let json = |spec| serde_json::to_value(spec).unwrap_or_default();
    let (before, after): (Value, Value) = (json(before), json(after));
    let changed = FIELDS.into_iter().filter(|field| before[field] != after[field]);
    changed.map(|field| (field, after[field].clone())).collect()
}
