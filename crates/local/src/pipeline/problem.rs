//! Why a pipeline is refused.

use std::fmt;

use super::node::Node;

/// A pipeline that cannot be accepted: where, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PipelineProblem {
    line: u64,
    step: Option<String>,
    reason: String,
}

impl PipelineProblem {
    /// A problem with the value at `node`.
    pub(crate) fn at(node: &Node, reason: impl Into<String>) -> Self {
        Self::line(node.line, reason)
    }

    /// A problem on a line; 0 stands for an unknown one.
    pub(crate) fn line(line: u64, reason: impl Into<String>) -> Self {
        Self { line, step: None, reason: reason.into() }
    }

    /// A problem with the document as a whole.
    pub(crate) fn whole(reason: impl Into<String>) -> Self {
        Self::line(0, reason)
    }

    /// Names the step, unless an inner step is already named.
    pub(crate) fn in_step(mut self, step: &str) -> Self {
        self.step.get_or_insert_with(|| step.to_owned());
        self
    }
}

impl fmt::Display for PipelineProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        if let Some(step) = &self.step {
            write!(f, "step {step}: ")?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for PipelineProblem {}
