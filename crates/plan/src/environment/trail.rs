//! The way from a BuildJob's field to a container.

use std::fmt;

use crate::pod::RenderError;

/// A path that may lead through environments, such as
/// `spec.environment: go → extraContainers[0]: postgres → container.ports`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trail {
    text: String,
    environments: Vec<String>,
    /// Whether the last step was into an environment.
    inside: bool,
}

impl Trail {
    /// A field of the object that the trail has reached.
    pub(crate) fn below(&self, field: &str) -> Self {
        let text = match (self.text.as_str(), self.inside) {
            ("", _) => format!("spec.{field}"),
            (text, true) => format!("{text} → {field}"),
            (text, false) => format!("{text}.{field}"),
        };
        Self { text, environments: self.environments.clone(), inside: false }
    }

    /// Into the environment that the field names.
    pub(super) fn into(&self, environment: &str) -> Self {
        let mut environments = self.environments.clone();
        environments.push(environment.to_owned());
        Self { text: format!("{}: {environment}", self.text), environments, inside: true }
    }

    /// Whether the trail leads through an environment.
    pub(super) fn passes(&self, environment: &str) -> bool {
        self.environments.iter().any(|passed| passed == environment)
    }

    /// How many environments the trail leads through.
    pub(super) fn depth(&self) -> usize {
        self.environments.len()
    }

    /// What is wrong at the trail's end.
    pub(crate) fn refuse(&self, problem: String) -> RenderError {
        RenderError { path: self.text.clone(), problem }
    }
}

impl fmt::Display for Trail {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}
