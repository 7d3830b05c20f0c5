//! The steps of a build, in order, with what follows from them alone.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use super::dependencies::Graph;
use super::verdict::PlacedStep;

/// The steps of a build, in order. They change seldom and are asked often.
#[derive(Clone, Default)]
pub(crate) struct Steps {
    list: Vec<PlacedStep>,
    /// Computed when it is first asked for.
    graph: OnceLock<Arc<Graph>>,
}

impl Steps {
    /// What each step waits for.
    pub(crate) fn graph(&self) -> Arc<Graph> {
        self.graph.get_or_init(|| Arc::new(Graph::new(&self.list))).clone()
    }

    /// The steps, to be changed.
    pub(crate) fn change(&mut self) -> &mut Vec<PlacedStep> {
        self.graph = OnceLock::new();
        &mut self.list
    }
}

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list.fmt(f)
    }
}

impl From<Vec<PlacedStep>> for Steps {
    fn from(list: Vec<PlacedStep>) -> Self {
        Self { list, graph: OnceLock::new() }
    }
}

impl Deref for Steps {
    type Target = [PlacedStep];

    fn deref(&self) -> &[PlacedStep] {
        &self.list
    }
}

impl<'a> IntoIterator for &'a Steps {
    type Item = &'a PlacedStep;
    type IntoIter = std::slice::Iter<'a, PlacedStep>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}
