//! What conditions can ask about.

use std::collections::BTreeMap;

use super::Literal;
use crate::step::Env;

/// The variables of a build, as conditions name them.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    variables: BTreeMap<&'static str, Literal>,
    env: Env,
}

impl Facts {
    /// Variables such as `build.branch`, and the environment of the build.
    pub fn new(variables: impl IntoIterator<Item = (&'static str, Literal)>, env: Env) -> Self {
        Self { variables: variables.into_iter().collect(), env }
    }

    /// The value of a variable; null when there is none.
    pub(super) fn variable(&self, name: &str) -> Literal {
        self.variables.get(name).cloned().unwrap_or(Literal::Null)
    }

    /// The value of an environment variable of the build; null when it is not set.
    pub(super) fn env(&self, name: &str) -> Literal {
        self.env.get(name).map_or(Literal::Null, |value| Literal::Text(value.clone()))
    }
}
