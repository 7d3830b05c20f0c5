//! The guide for authors of pipelines: what it shows becomes pods, with the options that it shows.

use std::collections::BTreeMap;

use bk_api::{BuildEnvironmentSpec, BuildJob, config::Config};
use bk_plan::{
    intake::{self, Candidate, JobDetails},
    pod,
    surroundings::Surroundings,
};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::documents::{blocks, settings, yaml};

const PIPELINES: &str = include_str!("../../../../docs/pipelines.md");
const PLUGIN: &str = include_str!("../../../../plugin/README.md");

/// The job that Buildkite makes of a step.
fn details(step: &Value, defaults: &Map<String, Value>) -> JobDetails {
    let own = step["env"].as_object().cloned().unwrap_or_default();
    let mut env: BTreeMap<String, String> = defaults
        .iter()
        .chain(&own)
        .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect();
    if let Some(plugins) = step.get("plugins") {
        env.insert("BUILDKITE_PLUGINS".to_owned(), plugins.to_string());
    }
    JobDetails { env, command: step["command"].as_str().unwrap_or_default().to_owned() }
}

/// The BuildJobs of all steps in a document.
fn jobs(document: &str) -> Vec<BuildJob> {
    let pipelines = blocks(document, "yaml").into_iter().map(|block| yaml(&block));
    let jobs = pipelines.flat_map(|pipeline| {
        let defaults = pipeline["env"].as_object().cloned().unwrap_or_default();
        let steps = pipeline["steps"].as_array().cloned().expect("the guide shows pipelines");
        steps.into_iter().map(move |step| job(&details(&step, &defaults)))
    });
    jobs.collect()
}

fn job(details: &JobDetails) -> BuildJob {
    let candidate = Candidate {
        uuid: "0198f0a0-0000-4000-8000-000000000001".to_owned(),
        pipeline: None,
        priority: 0,
        scheduled_at: Timestamp::UNIX_EPOCH,
        rules: Vec::new(),
    };
    let job = intake::build_job(&candidate, &Config::default().spawner.main_queue(), "ci", details);
    intake::complete(&job, details, &[]).unwrap_or_else(|error| panic!("{error}: {details:?}"))
}

#[test]
fn steps_in_the_guide_become_pods() {
    let jobs = jobs(PIPELINES);
    assert_eq!(jobs.len(), 8);
    let environment =
        BuildEnvironmentSpec { image: "golang:1.25".to_owned(), ..BuildEnvironmentSpec::default() };
    let found = Surroundings {
        environments: BTreeMap::from([("name-of-build-environment".to_owned(), Some(environment))]),
        ..Surroundings::default()
    };
    for job in &jobs {
        pod::render(job, 0, &found, &settings()).unwrap_or_else(|error| panic!("{error}: {:?}", job.spec));
    }
}

#[test]
fn both_ways_to_set_options_mean_the_same() {
    let jobs = jobs(PIPELINES);
    let asked = |job: &BuildJob| (job.spec.environment.clone(), job.spec.log_exporter.clone());
    let alike: Vec<_> = jobs.iter().map(asked).filter(|(environment, _)| environment.is_some()).collect();
    assert_eq!(alike.len(), 2);
    assert_eq!(alike[0], alike[1]);
    assert_eq!(self::jobs(PLUGIN).iter().map(asked).collect::<Vec<_>>(), alike[..1]);
}

#[test]
fn the_plugin_goes_before_the_pipelines_variables() {
    let jobs = jobs(PIPELINES);
    let timeouts: Vec<_> = jobs
        .iter()
        .filter(|job| job.spec.image.as_deref() == Some("node:24"))
        .map(|job| job.spec.timeout.map(|timeout| std::time::Duration::from(timeout).as_secs() / 60))
        .collect();
    assert_eq!(timeouts, [Some(20), Some(60)]);
}
