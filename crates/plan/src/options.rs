//! Options that a step sets for its own job, as environment variables or in the `buildkite-operator` plugin.
//!
//! The plugin goes before the variables; where neither says anything, others may. What is not understood is refused under the name
//! that its author gave it.
//!
//! - [`table`]: every option there is
//! - [`value`]: what an option's value may look like
//! - [`shorthand`]: nodes and taints on a few characters
//! - [`spec`]: the part of a BuildJob that options describe

mod shorthand;
mod spec;
mod table;
mod value;

use std::collections::BTreeMap;

use bk_api::{BuildJobSpec, container_use::ContainerUse, spelling};
use serde_json::{Map, Value};

use crate::plugin::{self, PluginError};

pub use table::{ALL, KUBERNETES, PREFIX, StepOption};
pub use value::Kind;

/// Where Buildkite puts the step's own `image`. It is no option, but where images are forbidden, so is this.
const STEP_IMAGE: &str = "BUILDKITE_IMAGE";

/// What is wrong with one option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The option as its author wrote it: a variable, or a key of the plugin.
    pub place: String,
    /// What is wrong.
    pub problem: String,
}

/// What a step asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// What the options describe. Everything else is absent.
    spec: BuildJobSpec,
    /// Each option that counts, by its name, and where its author wrote it.
    places: BTreeMap<&'static str, String>,
}

/// An option that was set.
struct Given {
    option: &'static StepOption,
    place: String,
    value: Value,
}

/// What a step asks for in its environment and in the JSON list that `BUILDKITE_PLUGINS` holds.
pub fn of(env: &BTreeMap<String, String>, plugins: &str) -> Result<Asked, PluginError> {
    let mut problems = Vec::new();
    let mut given = variables(env, &mut problems);
    let content = plugin::operator(plugins)?.unwrap_or_default();
    for own in keys(&content, &mut problems) {
        // What a job runs in is one choice, whichever of the two options makes it.
        given.retain(|other| {
            other.place.starts_with(plugin::OPERATOR) || !is_same_choice(own.option, other.option)
        });
        given.push(own);
    }
    let mut asked = spec::read(&given, &mut problems);
    if !problems.is_empty() {
        return Err(PluginError::Options(problems));
    }
    let image = env.get(STEP_IMAGE).filter(|image| !image.trim().is_empty());
    if image.is_some() && asked.spec.environment.is_none() {
        asked.places.entry("image").or_insert_with(|| "the step's image".to_owned());
    }
    if plugin::kubernetes(plugins)?.is_some() {
        asked.places.insert(KUBERNETES, "kubernetes plugin".to_owned());
    }
    Ok(asked)
}

/// The options among a job's variables. One that is set to nothing is not set.
fn variables(env: &BTreeMap<String, String>, problems: &mut Vec<Problem>) -> Vec<Given> {
    let mut given = Vec::new();
    for (variable, text) in env.iter().filter(|(variable, _)| variable.starts_with(PREFIX)) {
        if text.trim().is_empty() {
            continue;
        }
        let place = variable.clone();
        let Some(option) = ALL.iter().find(|option| option.variable() == *variable) else {
            let known: Vec<_> = ALL.iter().map(StepOption::variable).collect();
            let problem = stranger(variable, known.iter().map(String::as_str));
            problems.push(Problem { place, problem });
            continue;
        };
        given.push(Given { option, place, value: Value::String(text.clone()) });
    }
    given
}

/// The options in the plugin. Null means that one is not set.
fn keys(content: &Map<String, Value>, problems: &mut Vec<Problem>) -> Vec<Given> {
    let mut given = Vec::new();
    for (key, value) in content.iter().filter(|(_, value)| !value.is_null()) {
        let place = format!("{}: {key}", plugin::OPERATOR);
        let Some(option) = ALL.iter().find(|option| option.name == key) else {
            let problem = stranger(key, ALL.iter().map(|option| option.name));
            problems.push(Problem { place, problem });
            continue;
        };
        given.push(Given { option, place, value: value.clone() });
    }
    given
}

fn stranger<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match spelling::nearest(name, known.clone()) {
        Some(nearest) => format!("there is no such option; did you mean `{nearest}`?"),
        None => format!("there is no such option; known: {}", known.collect::<Vec<_>>().join(", ")),
    }
}

fn is_same_choice(a: &StepOption, b: &StepOption) -> bool {
    let chooses = |option: &StepOption| ["environment", "image"].contains(&option.field);
    a.name == b.name || (chooses(a) && chooses(b))
}

impl Asked {
    /// Fills in what the step asks for where a BuildJob's own description is silent.
    pub fn fill(self, spec: &mut BuildJobSpec) {
        spec::fill(self.spec, spec);
    }

    /// Counts the resource class that the step chooses among its agent query rules, so that it can be forbidden.
    #[must_use]
    pub fn with_rules(mut self, rules: &[String]) -> Self {
        if let Some(rule) = rules.iter().find(|rule| rule.starts_with("resource_class=")) {
            self.places.entry("resource_class").or_insert_with(|| format!("the step's agents: {rule}"));
        }
        self
    }

    /// Refuses a job that sets an option which the operator's configuration forbids. The names are those of the plugin's keys, and
    /// `kubernetes` for the whole plugin of that name.
    pub fn check_permitted(&self, forbidden: &[String]) -> Result<(), PluginError> {
        let used = self.places.iter().filter(|(name, _)| forbidden.iter().any(|other| other == *name));
        let mut places: Vec<String> = used.map(|(_, place)| place.clone()).collect();
        if forbidden.iter().any(|name| name == KUBERNETES) {
            let ways = self.ways_round().filter(|(name, _)| !forbidden.iter().any(|other| other == name));
            places.extend(ways.map(|(_, place)| place));
        }
        if places.is_empty() { Ok(()) } else { Err(PluginError::Forbidden(places)) }
    }

    /// Options that ask for what the `kubernetes` plugin is forbidden for: files of the node, claims and Secrets of others, and
    /// containers with whatever rights.
    fn ways_round(&self) -> impl Iterator<Item = (&'static str, String)> {
        let spec = &self.spec;
        let volumes = spec.workspace_volume.iter().flat_map(Map::keys);
        let volume = volumes.filter(|key| !["name", "emptyDir", "ephemeral"].contains(&key.as_str()));
        let volume = volume.map(|kind| ("workspace_volume", format!(" with `{kind}`")));
        // On a volume of the job's own there is nobody else's directory.
        let path = (spec.workspace_sub_path_expr.is_some() && spec.workspace_volume.is_none())
            .then(|| ("workspace_sub_path_expr", " without a `workspace_volume`".to_owned()));
        let of_own = |containers: &[ContainerUse]| containers.iter().any(|used| used.container.is_some());
        let containers =
            [("init_containers", &spec.init_containers), ("extra_containers", &spec.extra_containers)];
        let containers = containers.into_iter().filter(move |(_, containers)| of_own(containers));
        let containers = containers.map(|(name, _)| (name, " with a `container`".to_owned()));
        volume.chain(path).chain(containers).map(|(name, what)| {
            let place = self.places.get(name).map_or(name, String::as_str);
            (name, format!("{place}{what}"))
        })
    }
}

/// Refuses a list of forbidden options that names something which is none, as configurations have it.
pub fn check_names(forbidden: &[String]) -> Result<(), String> {
    let known = || ALL.iter().map(|option| option.name).chain([KUBERNETES]);
    match forbidden.iter().find(|name| !known().any(|option| option == *name)) {
        None => Ok(()),
        Some(name) => Err(format!("`{name}`: {}", stranger(name, known().collect::<Vec<_>>().into_iter()))),
    }
}

#[cfg(test)]
mod tests;
