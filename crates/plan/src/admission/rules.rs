//! What users demand of jobs and environments: the rules of `validation_config`.

use bk_api::{
    BuildEnvironment, BuildJob, Verdict, VerdictCode,
    config::{RuleAction, RuleKind, ValidationConfig, ValidationRule},
};
use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;
use serde_json::Value;

use super::{Certainty, Finding};
use crate::{
    pattern, slim,
    surroundings::{self, Surroundings},
};

/// Which rules a BuildJob breaks, and those BuildEnvironments that it refers to: they may have come while nobody asked about
/// them, or before the rule. Rules that speak of its pod are left out while there is none.
pub fn of_job(
    job: &BuildJob,
    pod: Option<&Pod>,
    surroundings: &Surroundings,
    config: &ValidationConfig,
) -> Vec<Finding> {
    let mut findings = of_job_alone(job, pod, config);
    if config.rules.iter().any(|rule| rule.kind == RuleKind::BuildEnvironment) {
        findings.extend(of_surroundings(job, surroundings, config));
    }
    findings
}

fn of_job_alone(job: &BuildJob, pod: Option<&Pod>, config: &ValidationConfig) -> Vec<Finding> {
    let buildkite = job.spec.buildkite.as_ref();
    let queue = buildkite.and_then(|own| own.queue.as_deref());
    let pipeline = buildkite.and_then(|own| own.pipeline.as_deref());
    let concerns = |rule: &ValidationRule| {
        (rule.queues.is_empty() || is_among(&rule.queues, queue))
            && (rule.pipelines.is_empty() || is_among(&rule.pipelines, pipeline))
            && (pod.is_some() || !rule.expression.mentions("pod"))
    };
    let namespace = job.metadata.namespace.as_deref();
    broken(config, RuleKind::BuildJob, namespace, concerns, || {
        let mut variables = vec![("self", json(slim::labelled(job).as_ref()))];
        variables.extend(pod.map(|pod| ("pod", json(pod))));
        variables
    })
}

/// Which rules a BuildEnvironment breaks.
pub fn of_environment(environment: &BuildEnvironment, config: &ValidationConfig) -> Vec<Finding> {
    let namespace = environment.metadata.namespace.as_deref();
    broken(config, RuleKind::BuildEnvironment, namespace, |_| true, || vec![("self", json(environment))])
}

fn of_surroundings(job: &BuildJob, found: &Surroundings, config: &ValidationConfig) -> Vec<Finding> {
    let named = surroundings::environments(job, found).into_iter();
    let environments = named.filter_map(|name| {
        let spec = found.environments.get(&name)?.clone()?;
        let mut environment = BuildEnvironment::new(&name, spec);
        environment.metadata.namespace.clone_from(&job.metadata.namespace);
        if let Some(metadata) = found.metadata.get(&name) {
            environment.metadata.clone_from(metadata);
        }
        Some((name, environment))
    });
    environments
        .flat_map(|(name, environment)| {
            of_environment(&environment, config).into_iter().map(move |finding| Finding {
                path: format!("BuildEnvironment \"{name}\": {}", finding.path),
                ..finding
            })
        })
        .collect()
}

/// The verdict on a job that the rules refuse.
pub fn refusal(
    job: &BuildJob,
    pod: Option<&Pod>,
    surroundings: &Surroundings,
    config: &ValidationConfig,
) -> Option<Verdict> {
    let findings = of_job(job, pod, surroundings, config);
    let refusals: Vec<String> = findings
        .iter()
        .filter(|finding| finding.certainty == Certainty::Refusal)
        .map(ToString::to_string)
        .collect();
    (!refusals.is_empty()).then(|| Verdict::new(VerdictCode::ValidationRefused, refusals.join("; ")))
}

fn broken(
    config: &ValidationConfig,
    kind: RuleKind,
    namespace: Option<&str>,
    concerns: impl Fn(&ValidationRule) -> bool,
    variables: impl FnOnce() -> Vec<(&'static str, Value)>,
) -> Vec<Finding> {
    let applies = |rule: &ValidationRule| {
        rule.kind == kind
            && (rule.namespaces.is_empty() || is_among(&rule.namespaces, namespace))
            && concerns(rule)
    };
    let mut rules = config.rules.iter().enumerate().filter(|(_, rule)| applies(rule)).peekable();
    // Most jobs meet no rule, and are not written as JSON in vain.
    if rules.peek().is_none() {
        return Vec::new();
    }
    let variables = variables();
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value)).collect();
    rules.filter_map(|(index, rule)| finding(index, rule, &variables)).collect()
}

/// A rule that cannot be applied is not kept: whoever wrote it meant to be asked.
fn finding(index: usize, rule: &ValidationRule, variables: &[(&str, &Value)]) -> Option<Finding> {
    let problem = match rule.expression.holds(variables) {
        Ok(true) => return None,
        Ok(false) => rule.message.trim().to_owned(),
        Err(why) => format!("{} (the rule cannot be applied: {why})", rule.message.trim()),
    };
    let certainty = match rule.action {
        RuleAction::Refuse => Certainty::Refusal,
        RuleAction::Warn => Certainty::Warning,
    };
    Some(Finding::new(certainty, format!("rules[{index}] of validation_config"), problem))
}

fn json<T: Serialize>(object: &T) -> Value {
    // Types that were read from JSON can be written as JSON.
    serde_json::to_value(object).unwrap_or_default()
}

fn is_among(patterns: &[String], name: Option<&str>) -> bool {
    name.is_some_and(|name| patterns.iter().any(|pattern| pattern::matches(pattern, name)))
}
