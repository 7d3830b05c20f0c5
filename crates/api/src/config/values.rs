//! The configuration as a JSON schema, for the values of the chart: what is misspelt is refused before anything is installed.

use k8s_openapi::api::{
    core::v1::{
        Affinity, EnvFromSource, EnvVar, LocalObjectReference, PodSecurityContext, Probe,
        ResourceRequirements, SecurityContext, Toleration, TopologySpreadConstraint, Volume, VolumeMount,
    },
    networking::v1::{NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer},
};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::{
    ArtifactExporterConfig, KEYS, LogExporterConfig, MetricsExporterConfig, MirrorConfig, PodConfig,
    ResourceClasses, SpawnerConfig, ValidationConfig,
};

/// What Kubernetes' own types are called; their descriptions are longer than all of ours, and known.
const KUBERNETES: &str = "io.k8s.";

/// A schema of the configuration, and the definitions that it and the rest of the chart's values refer to.
pub struct ValuesSchema {
    /// The configuration: one property for each key of the ConfigMap.
    pub config: Value,
    /// What `#/$defs` holds.
    pub definitions: Value,
}

impl ValuesSchema {
    /// The schema of this version.
    pub fn new() -> Self {
        let mut generator = SchemaSettings::draft2020_12().into_generator();
        let properties = KEYS.map(|key| (key.to_owned(), of_key(key, &mut generator)));
        refer_to_kubernetes(&mut generator);
        let mut definitions = Value::Object(generator.take_definitions(true));
        let mut config = json!({
            "type": "object",
            "additionalProperties": false,
            "properties": Map::from_iter(properties),
        });
        for (name, definition) in definitions.as_object_mut().into_iter().flatten() {
            strict(definition, !name.starts_with(KUBERNETES));
        }
        forgive_names(&mut definitions);
        strict(&mut config, true);
        Self { config, definitions }
    }
}

impl Default for ValuesSchema {
    fn default() -> Self {
        Self::new()
    }
}

fn of_key(key: &str, generator: &mut SchemaGenerator) -> Value {
    match key {
        "artifact_exporter_config" => schema::<ArtifactExporterConfig>(generator),
        "job_spawner_config" => schema::<SpawnerConfig>(generator),
        "log_exporter_config" => schema::<LogExporterConfig>(generator),
        "metrics_exporter_config" => schema::<MetricsExporterConfig>(generator),
        "pod_config" => schema::<PodConfig>(generator),
        "repo_syncer_config" => schema::<MirrorConfig>(generator),
        "resource_classes" => schema::<ResourceClasses>(generator),
        "validation_config" => schema::<ValidationConfig>(generator),
        // A scalar.
        _ => json!({ "type": "string" }),
    }
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().into()
}

/// The chart's own values name these.
fn refer_to_kubernetes(generator: &mut SchemaGenerator) {
    schema::<Affinity>(generator);
    schema::<EnvFromSource>(generator);
    schema::<EnvVar>(generator);
    schema::<LocalObjectReference>(generator);
    schema::<NetworkPolicyEgressRule>(generator);
    schema::<NetworkPolicyIngressRule>(generator);
    schema::<NetworkPolicyPeer>(generator);
    schema::<PodSecurityContext>(generator);
    schema::<Probe>(generator);
    schema::<ResourceRequirements>(generator);
    schema::<SecurityContext>(generator);
    schema::<Toleration>(generator);
    schema::<TopologySpreadConstraint>(generator);
    schema::<Volume>(generator);
    schema::<VolumeMount>(generator);
}

/// A volume of the configuration may go without a name: there is one for each that the operator gives it. Volumes of the chart's own values
/// are those of a list, and Kubernetes asks for theirs.
fn forgive_names(definitions: &mut Value) {
    const VOLUME: &str = "io.k8s.api.core.v1.Volume";
    // Documents call it what it is to people, by the last part.
    const UNNAMED: &str = "io.k8s.unnamed.Volume";
    let mut unnamed = definitions[VOLUME].clone();
    if let Some(fields) = unnamed.as_object_mut() {
        fields.remove("required");
    }
    for (_, definition) in
        definitions.as_object_mut().into_iter().flatten().filter(|(name, _)| !name.starts_with(KUBERNETES))
    {
        point(definition, &format!("#/$defs/{VOLUME}"), &format!("#/$defs/{UNNAMED}"));
    }
    definitions[UNNAMED] = unnamed;
}

/// Has references to one definition point to another.
fn point(schema: &mut Value, from: &str, to: &str) {
    match schema {
        Value::String(reference) if reference == from => to.clone_into(reference),
        Value::Object(fields) => fields.values_mut().for_each(|value| point(value, from, to)),
        Value::Array(items) => items.iter_mut().for_each(|item| point(item, from, to)),
        _ => {}
    }
}

/// Refuses properties that are not listed, as the operator itself does, and says what only people read in as few words as can be.
fn strict(schema: &mut Value, described: bool) {
    match schema {
        Value::Object(fields) => {
            if fields.contains_key("properties") && !fields.contains_key("additionalProperties") {
                fields.insert("additionalProperties".to_owned(), Value::Bool(false));
            }
            fields.remove("format");
            if fields.get("default").is_some_and(Value::is_null) {
                fields.remove("default");
            }
            match fields.get_mut("description") {
                Some(Value::String(text)) if described => *text = text.replace('\n', " "),
                // A property may be called that, too.
                Some(Value::String(_)) => drop(fields.remove("description")),
                _ => {}
            }
            one_of_words(fields);
            fields.values_mut().for_each(|value| strict(value, described));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| strict(item, described)),
        _ => {}
    }
}

/// A choice of words is refused with all of them, not with a line for each.
fn one_of_words(schema: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = schema.get("oneOf") else { return };
    let words: Option<Vec<Value>> = choices.iter().map(|choice| choice.get("const").cloned()).collect();
    if let Some(words) = words {
        schema.remove("oneOf");
        schema.insert("enum".to_owned(), Value::Array(words));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_schema_that_refers_to_what_is_there() {
        let ValuesSchema { config, definitions } = ValuesSchema::new();
        assert_eq!(config["properties"].as_object().unwrap().len(), KEYS.len());
        let text = format!("{config}{definitions}");
        let mut seen = 0;
        for reference in text.split("\"$ref\":\"#/$defs/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(definitions.get(name).is_some(), "{name}");
            seen += 1;
        }
        assert!(seen > 50, "{seen}");
    }

    #[test]
    fn nothing_that_is_not_listed_is_taken() {
        let definitions = ValuesSchema::new().definitions;
        assert_eq!(definitions["PodConfig"]["additionalProperties"], false);
        assert_eq!(definitions["io.k8s.api.core.v1.Toleration"]["additionalProperties"], false);
        assert_eq!(definitions["AgentDelivery"]["enum"], json!(["shim", "init"]));
    }

    #[test]
    fn a_volume_of_the_configuration_needs_no_name() {
        let definitions = ValuesSchema::new().definitions;
        let hooks = definitions["AgentConfig"]["properties"]["hooksVolume"].to_string();
        assert!(hooks.contains("#/$defs/io.k8s.unnamed.Volume"), "{hooks}");
        assert_eq!(definitions["io.k8s.unnamed.Volume"].get("required"), None);
        assert_eq!(definitions["io.k8s.api.core.v1.Volume"]["required"], json!(["name"]));
    }
}
