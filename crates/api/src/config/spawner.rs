//! `job_spawner_config`: which queues are served, and on what terms.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names;

/// The queue that is served if none is named.
pub const DEFAULT_QUEUE: &str = "bk-operator";

/// The default queue of a Buildkite cluster, and outside clusters that of jobs that name none, as the service is sent it.
pub const CLUSTER_DEFAULT_QUEUE: &str = "_default";

/// Spellings that all mean it.
const CLUSTER_DEFAULT: [&str; 4] = [CLUSTER_DEFAULT_QUEUE, "__default__", "~", "-"];

/// By which way jobs are found and taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum IntakeKind {
    /// The Stacks API: for queues of Buildkite clusters.
    #[default]
    Stacks,
    /// The GraphQL API: for agents that are in no cluster.
    Graphql,
}

/// `job_spawner_config`: how jobs are taken from Buildkite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SpawnerConfig {
    /// By which way jobs are found and taken.
    pub intake: IntakeKind,
    /// The organisation's slug, for GraphQL; the agent token's if absent.
    pub organization: Option<String>,
    /// The GraphQL API's address.
    pub graphql_endpoint: Option<String>,
    /// Name of the Secret with the API token for GraphQL, in the job namespace.
    pub api_token_secret: String,
    /// The Agent API's address, for the operator and for the agents in pods.
    pub endpoint: Option<String>,
    /// Name of this operator at Buildkite, unique in the organisation; after the job namespace's UID if absent.
    pub stack_key: Option<String>,
    /// The most BuildJobs that may be under way at once, from whatever queue.
    pub max_in_flight: usize,
    /// The queue to serve, if it is only one.
    pub queue: Option<String>,
    /// The queues to serve, if they are several.
    pub queues: Vec<QueueConfig>,
    /// Further tags that jobs of all queues may ask for, as `key=value`.
    pub tags: Vec<String>,
    /// The most BuildJobs of one pipeline under way at once, for each queue that does not say.
    pub max_in_flight_per_pipeline: Option<usize>,
    /// What jobs get where neither they nor their queue say anything.
    pub defaults: JobDefaults,
    /// Options that no step may set.
    pub forbid: Vec<String>,
}

/// One of several queues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct QueueConfig {
    /// The queue's key.
    pub key: String,
    /// Tags besides those of all queues.
    pub tags: Vec<String>,
    /// The most BuildJobs from this queue under way at once; only the limit for all counts if absent.
    pub max_in_flight: Option<usize>,
    /// The most BuildJobs of one pipeline from this queue under way at once.
    pub max_in_flight_per_pipeline: Option<usize>,
    /// What jobs of this queue get where they say nothing.
    pub defaults: JobDefaults,
    /// Options that steps of this queue may not set, besides those that none may.
    pub forbid: Vec<String>,
}

/// What jobs get where their steps say nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct JobDefaults {
    /// The BuildEnvironment of jobs that name neither one, nor an image, nor a pod of their own.
    pub environment: Option<String>,
    /// The image of such jobs.
    pub image: Option<String>,
    /// The resource class of jobs that name none.
    pub resource_class: Option<String>,
}

/// A queue to serve, with everything that applies to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The queue's key.
    pub key: String,
    /// Name of the stack that serves it, unique in the organisation.
    pub stack_key: String,
    /// Tags that its jobs may ask for, as `key=value`.
    pub tags: Vec<String>,
    /// The most BuildJobs from it under way at once.
    pub max_in_flight: Option<usize>,
    /// The most BuildJobs of one pipeline from it under way at once.
    pub max_in_flight_per_pipeline: Option<usize>,
    /// What its jobs get where they say nothing.
    pub defaults: JobDefaults,
    /// Options that its steps may not set.
    pub forbid: Vec<String>,
}

impl Default for SpawnerConfig {
    fn default() -> Self {
        Self {
            intake: IntakeKind::default(),
            organization: None,
            graphql_endpoint: None,
            api_token_secret: "buildkite-api-token".to_owned(),
            endpoint: None,
            stack_key: None,
            max_in_flight: 25,
            queue: None,
            queues: Vec::new(),
            tags: Vec::new(),
            max_in_flight_per_pipeline: None,
            defaults: JobDefaults::default(),
            forbid: Vec::new(),
        }
    }
}

impl SpawnerConfig {
    /// The queues to serve: one at least.
    pub fn queues(&self) -> Vec<Queue> {
        if self.queues.is_empty() {
            let key = self.queue.as_deref().unwrap_or(DEFAULT_QUEUE).to_owned();
            let alone = QueueConfig { key, ..QueueConfig::default() };
            return vec![Queue { stack_key: self.operator().to_owned(), ..self.resolve(&alone) }];
        }
        self.queues.iter().map(|queue| self.resolve(queue)).collect()
    }

    /// The queue of jobs that name none.
    pub fn main_queue(&self) -> Queue {
        self.queues().swap_remove(0)
    }

    /// Serves one queue only, whatever was to be served before.
    pub fn serve_only(&mut self, queue: String) {
        self.queues.clear();
        self.queue = Some(queue);
    }

    /// On what terms jobs are seen through that a stack of another name has taken, from a queue that may be served no longer.
    pub fn former(&self, queue: &str, stack_key: String) -> Queue {
        let served = self.queues().into_iter().find(|served| served.key == queue);
        let former = || self.resolve(&QueueConfig { key: queue.to_owned(), ..QueueConfig::default() });
        Queue { stack_key, ..served.unwrap_or_else(former) }
    }

    /// What the operator is called at Buildkite.
    fn operator(&self) -> &str {
        self.stack_key.as_deref().unwrap_or("buildkite-operator")
    }

    fn resolve(&self, queue: &QueueConfig) -> Queue {
        let key = resolved_key(&queue.key).to_owned();
        Queue {
            stack_key: names::stack(self.operator(), &key),
            key,
            tags: both(&self.tags, &queue.tags),
            max_in_flight: queue.max_in_flight,
            max_in_flight_per_pipeline: queue.max_in_flight_per_pipeline.or(self.max_in_flight_per_pipeline),
            defaults: queue.defaults.or(&self.defaults),
            forbid: both(&self.forbid, &queue.forbid),
        }
    }

    /// What cannot be meant.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.queue.is_some() && !self.queues.is_empty() {
            return Err("`queue` and `queues` exclude one another".to_owned());
        }
        if self.queue.as_deref() == Some("") {
            return Err("`queue` must not be empty".to_owned());
        }
        let key = self.operator();
        let printable = key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        if !printable || !(1..=80).contains(&key.len()) {
            return Err(format!("`stackKey: {key}` must be 1 to 80 letters, digits, `_` or `-`"));
        }
        if self.intake == IntakeKind::Stacks {
            let unused = [("organization", &self.organization), ("graphqlEndpoint", &self.graphql_endpoint)];
            if let Some((name, _)) = unused.iter().find(|(_, value)| value.is_some()) {
                return Err(format!("`{name}` needs `intake: graphql`"));
            }
        }
        check_terms("", &self.tags, Some(self.max_in_flight), self.max_in_flight_per_pipeline)?;
        self.defaults.check("")?;
        let mut keys = BTreeSet::new();
        for (index, queue) in self.queues.iter().enumerate() {
            let path = format!("queues[{index}].");
            if queue.key.is_empty() {
                return Err(format!("`{path}key` must not be empty"));
            }
            if !keys.insert(resolved_key(&queue.key)) {
                return Err(format!("`{path}key: {}` is there already", queue.key));
            }
            check_terms(&path, &queue.tags, queue.max_in_flight, queue.max_in_flight_per_pipeline)?;
            queue.defaults.check(&path)?;
        }
        Ok(())
    }
}

impl JobDefaults {
    /// These, and the others where these say nothing. What a job runs in is one choice.
    fn or(&self, others: &Self) -> Self {
        let chosen = if self.environment.is_some() || self.image.is_some() { self } else { others };
        Self {
            environment: chosen.environment.clone(),
            image: chosen.image.clone(),
            resource_class: self.resource_class.clone().or_else(|| others.resource_class.clone()),
        }
    }

    fn check(&self, path: &str) -> Result<(), String> {
        if self.environment.is_some() && self.image.is_some() {
            return Err(format!("`{path}defaults`: `environment` and `image` exclude one another"));
        }
        Ok(())
    }
}

fn check_terms(
    path: &str,
    tags: &[String],
    max_in_flight: Option<usize>,
    per_pipeline: Option<usize>,
) -> Result<(), String> {
    if let Some(tag) = tags.iter().find(|tag| !tag.contains('=')) {
        return Err(format!("`{path}tags`: tag `{tag}` must have the form key=value"));
    }
    if max_in_flight == Some(0) {
        return Err(format!("`{path}maxInFlight` must be at least 1"));
    }
    if per_pipeline == Some(0) {
        return Err(format!("`{path}maxInFlightPerPipeline` must be at least 1"));
    }
    Ok(())
}

fn resolved_key(key: &str) -> &str {
    if CLUSTER_DEFAULT.contains(&key) { CLUSTER_DEFAULT_QUEUE } else { key }
}

fn both(one: &[String], other: &[String]) -> Vec<String> {
    one.iter().chain(other).cloned().collect()
}

#[cfg(test)]
mod tests;
