//! Which BuildJob somebody means: by its name, or by the Buildkite job behind it.

use anyhow::{Result, bail};
use bk_api::{BuildJob, names};
use kube::{Api, Client, ResourceExt, api::ListParams};
use uuid::Uuid;

use super::connection::failed;

/// How somebody calls a BuildJob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// By its name.
    Name(String),
    /// By the UUID of the Buildkite job behind it.
    JobUuid(String),
}

impl Address {
    /// A name, also as `get -o name` prints it; a UUID; or the address of a job's page at Buildkite, which ends in one.
    pub(super) fn of(text: &str) -> Self {
        let last = text.rsplit(['#', '/', '=']).next().unwrap_or(text);
        match Uuid::try_parse(last) {
            Ok(uuid) => Self::JobUuid(uuid.to_string()),
            Err(_) => Self::Name(last.to_owned()),
        }
    }
}

/// The BuildJob that is meant.
pub(super) async fn find(client: &Client, namespace: &str, text: &str) -> Result<BuildJob> {
    let jobs = Api::<BuildJob>::namespaced(client.clone(), namespace);
    let uuid = match Address::of(text) {
        Address::Name(name) => {
            let attempt = format!("read BuildJob {namespace}/{name}");
            return match jobs.get_opt(&name).await.map_err(failed(attempt))? {
                Some(job) => Ok(job),
                None => bail!(
                    "there is no BuildJob {name} in namespace {namespace}; `get` lists those that are there"
                ),
            };
        }
        Address::JobUuid(uuid) => uuid,
    };
    let list = async |params: &ListParams| {
        let attempt = format!("list BuildJobs in namespace {namespace}");
        jobs.list(params).await.map(|list| list.items).map_err(failed(attempt))
    };
    // Those that were made by hand need not have the label.
    let mut found = list(&ListParams::default().labels(&format!("{}={uuid}", names::LABEL_JOB_UUID))).await?;
    if found.is_empty() {
        found = list(&ListParams::default()).await?;
        found.retain(|job| job.job_uuid() == Some(&uuid));
    }
    only(found, &uuid, namespace)
}

fn only(mut found: Vec<BuildJob>, uuid: &str, namespace: &str) -> Result<BuildJob> {
    match (found.pop(), found.as_slice()) {
        (Some(job), []) => Ok(job),
        (None, _) => bail!(
            "no BuildJob in namespace {namespace} is for the Buildkite job {uuid}: it has not come yet, has ended and gone, or is in another \
             namespace or cluster"
        ),
        (Some(job), others) => {
            let mut all: Vec<_> = others.iter().chain([&job]).map(ResourceExt::name_any).collect();
            all.sort();
            bail!("several BuildJobs are for the Buildkite job {uuid}: {}; name one of them", all.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use bk_api::BuildJobSpec;
    use rstest::rstest;

    use super::*;

    const UUID: &str = "0198f0a0-7b1e-4c3d-9a55-2f6e8d7c1b0a";

    #[rstest]
    #[case("nightly", "nightly")]
    #[case("buildjob/nightly", "nightly")]
    #[case("buildjob.buildkite-operator.dev/nightly", "nightly")]
    #[case(
        "buildkite-0198f0a0-7b1e-4c3d-9a55-2f6e8d7c1b0a",
        "buildkite-0198f0a0-7b1e-4c3d-9a55-2f6e8d7c1b0a"
    )]
    fn names(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(Address::of(text), Address::Name(expected.to_owned()));
    }

    #[rstest]
    #[case("0198f0a0-7b1e-4c3d-9a55-2f6e8d7c1b0a")]
    #[case("0198F0A0-7B1E-4C3D-9A55-2F6E8D7C1B0A")]
    #[case("https://buildkite.com/acme/demo/builds/12#0198f0a0-7b1e-4c3d-9a55-2f6e8d7c1b0a")]
    #[case("https://buildkite.com/acme/demo/builds/12/steps/canvas?jid=0198f0a0-7b1e-4c3d-9a55-2f6e8d7c1b0a")]
    #[case(
        "https://buildkite.com/organizations/acme/pipelines/demo/builds/12/jobs/0198f0a0-7b1e-4c3d-9a55-2f6e8d7c1b0a"
    )]
    fn buildkite_jobs(#[case] text: &str) {
        assert_eq!(Address::of(text), Address::JobUuid(UUID.to_owned()));
    }

    #[test]
    fn one_is_meant_or_it_is_said_that_it_is_not_clear_which() {
        let job = |name: &str| BuildJob::new(name, BuildJobSpec::default());
        assert_eq!(only(vec![job("a")], UUID, "ci").unwrap().name_any(), "a");
        let said = |found| only(found, UUID, "ci").unwrap_err().to_string();
        insta::assert_snapshot!(said(vec![job("b"), job("a")]), @"several BuildJobs are for the Buildkite job 0198f0a0-7b1e-4c3d-9a55-2f6e8d7c1b0a: a, b; name one of them");
        insta::assert_snapshot!(said(vec![]), @"no BuildJob in namespace ci is for the Buildkite job 0198f0a0-7b1e-4c3d-9a55-2f6e8d7c1b0a: it has not come yet, has ended and gone, or is in another namespace or cluster");
    }
}
