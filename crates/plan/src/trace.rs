//! Which trace and which spans are a job's. Whoever knows the job's UUID knows them, so that its agent can join its own spans to
//! those of the operator, and nobody has to ask anybody.

use bk_api::BuildJob;
use uuid::Uuid;

/// A job's trace: its id is the job's UUID, or a standalone BuildJob's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace(Uuid);

impl Trace {
    /// The trace of a job; none before the API server has given a standalone one its id.
    pub fn of(job: &BuildJob) -> Option<Self> {
        let id = job.job_uuid().or(job.metadata.uid.as_deref())?;
        id.parse().ok().map(Self)
    }

    /// The trace's id: 32 hexadecimal digits.
    pub fn id(self) -> String {
        self.0.simple().to_string()
    }

    /// The id of one of its spans, by number; 0 is the one that all others are within.
    pub fn span(self, number: u64) -> String {
        // The lower half of a UUID is never 0, and few numbers are used.
        let (_, low) = self.0.as_u64_pair();
        format!("{:016x}", low ^ number)
    }

    /// What makes other spans part of it, in the form of the W3C's `traceparent`.
    pub fn parent(self) -> String {
        format!("00-{}-{}-01", self.id(), self.span(0))
    }
}

#[cfg(test)]
mod tests {
    use bk_api::{BuildJobSpec, build_job::BuildkiteJob};

    use super::*;

    #[test]
    fn the_trace_is_called_after_the_job() {
        let mut job = BuildJob::new("a", BuildJobSpec::default());
        assert_eq!(Trace::of(&job), None);
        job.metadata.uid = Some("3f2504e0-4f89-41d3-9a0c-0305e82c3301".to_owned());
        assert_eq!(Trace::of(&job).unwrap().id(), "3f2504e04f8941d39a0c0305e82c3301");
        let job_uuid = "0198f0a0-7b1e-4c3d-9a55-2f6e8d7c1b0a".to_owned();
        job.spec.buildkite = Some(BuildkiteJob { job_uuid, ..BuildkiteJob::default() });
        let trace = Trace::of(&job).unwrap();
        assert_eq!(trace.parent(), "00-0198f0a07b1e4c3d9a552f6e8d7c1b0a-9a552f6e8d7c1b0a-01");
        assert_ne!(trace.span(1), trace.span(0));
    }
}
