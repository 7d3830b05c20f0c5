//! Why a pipeline is refused.

use std::fmt;

use super::node::{Node, Place};

/// A pipeline that cannot be accepted: where, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineProblem {
    /// Where; nothing for the document as a whole.
    pub place: Option<Place>,
    /// `steps[2].matrix.setup.os`; empty for the document as a whole.
    pub path: String,
    /// Why.
    pub reason: String,
}

impl PipelineProblem {
    /// A problem with the value at `node`.
    pub fn at(node: &Node, reason: impl Into<String>) -> Self {
        Self::place(node.place, reason)
    }

    /// A problem with the key that the value at `node` stands under, or else with the value.
    pub fn at_key(node: &Node, reason: impl Into<String>) -> Self {
        Self::place(node.key.unwrap_or(node.place), reason)
    }

    /// A problem with the value that stands at `place`.
    pub fn place(place: Place, reason: impl Into<String>) -> Self {
        Self { place: Some(place), path: String::new(), reason: reason.into() }
    }

    /// A problem with a step whose path is known.
    pub fn on_path(place: Place, path: &str, reason: impl Into<String>) -> Self {
        Self { place: Some(place), path: path.to_owned(), reason: reason.into() }
    }

    /// A problem with the document as a whole.
    pub fn whole(reason: impl Into<String>) -> Self {
        Self { place: None, path: String::new(), reason: reason.into() }
    }

    /// Adds the path, once the document that the place belongs to is at hand.
    #[must_use]
    pub fn within(mut self, root: &Node) -> Self {
        if let (true, Some(place)) = (self.path.is_empty(), self.place) {
            self.path = root.path_to(place).unwrap_or_default();
        }
        self
    }
}

impl fmt::Display for PipelineProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = self.place.filter(|place| place.line > 0) {
            write!(f, "line {}, column {}: ", place.line, place.column)?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for PipelineProblem {}
