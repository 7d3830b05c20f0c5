//! How many places are taken, and by whom.

use std::collections::HashMap;

use super::Holder;

/// Counts of places that are taken.
#[derive(Debug)]
pub(super) struct Usage {
    all: usize,
    queues: Vec<OfQueue>,
}

#[derive(Clone, Debug, Default)]
struct OfQueue {
    places: usize,
    pipelines: HashMap<String, usize>,
}

impl Usage {
    pub(super) fn new(queues: usize) -> Self {
        Self { all: 0, queues: vec![OfQueue::default(); queues] }
    }

    pub(super) fn add(&mut self, holder: &Holder) {
        self.all += 1;
        let Some(queue) = holder.queue.and_then(|queue| self.queues.get_mut(queue)) else {
            return;
        };
        queue.places += 1;
        if let Some(pipeline) = &holder.pipeline {
            *queue.pipelines.entry(pipeline.clone()).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, holder: &Holder) {
        // A slip here must not stop the intake for good, as a count below nothing would.
        self.all = self.all.saturating_sub(1);
        let Some(queue) = holder.queue.and_then(|queue| self.queues.get_mut(queue)) else {
            return;
        };
        queue.places = queue.places.saturating_sub(1);
        let Some(pipeline) = &holder.pipeline else {
            return;
        };
        if let Some(count) = queue.pipelines.get_mut(pipeline) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                queue.pipelines.remove(pipeline);
            }
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> usize {
        self.all
    }

    /// Those of a queue; those of no queue, if `None`.
    pub(super) fn of(&self, queue: Option<usize>) -> usize {
        match queue {
            Some(queue) => self.queues.get(queue).map_or(0, |queue| queue.places),
            None => self.all.saturating_sub(self.queues.iter().map(|queue| queue.places).sum()),
        }
    }

    /// Those of a pipeline in a queue.
    pub(super) fn of_pipeline(&self, queue: usize, pipeline: &str) -> usize {
        self.queues.get(queue).and_then(|queue| queue.pipelines.get(pipeline)).copied().unwrap_or_default()
    }
}
