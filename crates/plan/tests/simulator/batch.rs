//! The Job controller: one pod for each Job, never a second.

use bk_plan::batch::BatchFacts;

use super::{
    api::Batch,
    world::{Event, World, whole_seconds},
};

#[derive(Clone, Copy, Debug)]
pub(crate) enum BatchStep {
    MakesPod,
    /// It has noticed that its pod has failed or is gone.
    Fails,
    Removed,
}

impl Batch {
    pub(crate) fn facts(&self) -> BatchFacts {
        BatchFacts {
            name: self.name.to_string(),
            uid: self.uid(),
            active_since: Some(whole_seconds(self.created).0),
            is_deleting: self.deleting,
            is_suspended: false,
            has_run: self.failed,
            events: Vec::new(),
            failed: self.failed.then(|| "BackoffLimitExceeded".to_owned()),
        }
    }

    pub(crate) fn uid(&self) -> String {
        format!("batch-{}", self.number)
    }
}

impl World {
    pub(crate) fn batch_step(&mut self, number: usize, step: BatchStep) {
        let Some(batch) = self.batch.as_mut().filter(|batch| batch.number == number) else {
            return;
        };
        match step {
            BatchStep::MakesPod if batch.deleting => {}
            BatchStep::MakesPod => {
                let mut pod = (*batch.template).clone();
                let name = format!("{}-{}", batch.name, self.lives.len());
                pod.metadata.name = Some(name);
                self.store_pod(pod);
            }
            BatchStep::Fails => {
                batch.failed = true;
                self.publish_pods();
            }
            BatchStep::Removed => {
                self.batch = None;
                self.note(|_| format!("Job {number}: gone"));
                self.publish_pods();
            }
        }
    }

    /// The pod has failed or is gone: its Job, if it has one, will notice.
    pub(crate) fn tell_batch(&mut self) {
        if let Some(batch) = &self.batch {
            let (number, gone) = (batch.number, batch.deleting && self.pods.is_empty());
            let step = if gone { BatchStep::Removed } else { BatchStep::Fails };
            let delay = self.random.between(10, 1_500);
            self.after(delay, Event::Batch(number, step));
        }
    }
}
