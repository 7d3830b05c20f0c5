//! What was read → what to say about it.

use std::collections::BTreeMap;

use bk_api::{
    RepoMirror,
    config::{CONFIG_MAP, LogSink},
    repo_mirror::CONDITION_READY,
};
use bk_buildkite::stacks::TokenIdentity;
use jiff::Timestamp;
use k8s_openapi::{
    api::{apps::v1::Deployment, authorization::v1::ResourceAttributes, coordination::v1::Lease},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::ResourceExt;

use super::{finding::Finding, webhook::Webhook};
use crate::{
    VERSION, admission,
    cli::{elapsed, installation::Installation},
    permissions::{self, Permission},
    settings::deployment::image,
};

/// The first version of Kubernetes that has native sidecars switched on.
const OLDEST: u32 = 29;

/// What to do if some of the operator's own objects are missing, or not as they should be.
pub(super) const REINSTALL: &str = "upgrade the chart, or apply deploy/rbac.yaml and deploy/broker.yaml";

/// The version of Kubernetes.
pub(super) fn kubernetes(minor: &str, version: &str) -> Finding {
    // Some add a plus sign.
    let number: String = minor.chars().take_while(char::is_ascii_digit).collect();
    match number.parse::<u32>() {
        Ok(number) if number >= OLDEST => Finding::ok("kubernetes", version),
        Ok(_) => Finding::fail(
            "kubernetes",
            format!("{version} has no native sidecars"),
            format!("upgrade the cluster to 1.{OLDEST} or later"),
        ),
        Err(_) => Finding::warn("kubernetes", format!("the version {version} is not understood"), "check it"),
    }
}

/// The custom resource definitions; those that are there, as far as they may be read.
pub(super) fn definitions(found: Result<&[CustomResourceDefinition], &String>) -> Finding {
    let (check, cure) = (
        "definitions",
        "run `buildkite-operator crds | kubectl apply --server-side -f -`, or upgrade the chart",
    );
    let found = match found {
        Ok(found) => found,
        Err(problem) => return Finding::warn(check, problem, "allow it, or ask whoever may read them"),
    };
    let ours = bk_api::crds::all();
    for own in &ours {
        let name = own.name_any();
        let Some(theirs) = found.iter().find(|theirs| theirs.name_any() == name) else {
            return Finding::fail(check, format!("{name} is missing"), cure);
        };
        let is_established = theirs.status.iter().flat_map(|status| status.conditions.iter().flatten());
        if !is_established.into_iter().any(|is| is.type_ == "Established" && is.status == "True") {
            return Finding::fail(
                check,
                format!("{name} is not established"),
                format!("see `kubectl describe crd {name}`"),
            );
        }
        let schema = |definition: &CustomResourceDefinition| {
            let versions = definition.spec.versions.iter();
            versions.map(|version| (version.name.clone(), version.schema.clone())).collect::<BTreeMap<_, _>>()
        };
        if schema(own) != schema(theirs) {
            return Finding::fail(check, format!("{name} is not the one of this program, {VERSION}"), cure);
        }
    }
    Finding::ok(check, format!("all {} are those of this program, {VERSION}", ours.len()))
}

/// The ConfigMap.
pub(super) fn configuration(installation: &Installation) -> Finding {
    let (check, namespace) = ("configuration", &installation.namespace);
    match &installation.config {
        Err(problem) => Finding::fail(check, problem, "correct it; docs/configuration.md has every key"),
        Ok(_) if !installation.is_configured => Finding::warn(
            check,
            format!("there is no ConfigMap {namespace}/{CONFIG_MAP}: defaults are in use"),
            "if the operator is in another namespace, name that one with --namespace",
        ),
        Ok(config) => {
            let queues: Vec<String> = config.spawner.queues().into_iter().map(|queue| queue.key).collect();
            Finding::ok(
                check,
                format!("queues {}, jobs in namespace {}", queues.join(", "), installation.job_namespace()),
            )
        }
    }
}

/// The operator's Deployment.
pub(super) fn deployment(installation: &Installation) -> Finding {
    let check = "operator";
    let deployment: &Deployment = match &installation.deployment {
        Ok(Some(deployment)) => deployment,
        Ok(None) => {
            return Finding::fail(
                check,
                format!("there is no Deployment of it in namespace {}", installation.namespace),
                "install the chart, or name its namespace with --namespace",
            );
        }
        Err(problem) => return Finding::warn(check, problem, "allow it, or ask whoever may read them"),
    };
    let name = deployment.name_any();
    let image = image(deployment).unwrap_or_default();
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
    let message = format!("Deployment {name}: {ready} of {wanted} replicas are ready, image {image}");
    match ready {
        0 => Finding::fail(
            check,
            message,
            format!("see `kubectl logs deployment/{name}`, and its pods' events"),
        ),
        _ if ready < wanted => Finding::warn(check, message, "see the events of the pods that are not"),
        _ => Finding::ok(check, message),
    }
}

/// Whether the operator is of this program's version, as far as its image tells. What this program says of an installation holds for its
/// own version.
pub(super) fn version(installation: &Installation) -> Option<Finding> {
    let deployment = installation.deployment()?;
    let image = image(deployment)?;
    let tag = image.split('@').next()?.rsplit('/').next()?.split_once(':').map(|(_, tag)| tag);
    let is_version = |tag: &&str| tag.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit());
    let label = deployment.labels().get("app.kubernetes.io/version").map(String::as_str);
    let installed = tag.filter(is_version).or(label)?.trim_start_matches('v');
    Some(if installed == VERSION {
        Finding::ok("version", VERSION)
    } else {
        Finding::warn(
            "version",
            format!("the operator is {installed}, and this program {VERSION}"),
            "use the program of the operator's version, or upgrade the chart",
        )
    })
}

/// What is configured, and nobody does.
pub(super) fn unheeded(installation: &Installation) -> Option<Finding> {
    let config = installation.config.as_ref().ok()?;
    let listens = Webhook::of(installation.deployment()?).is_some();
    let (problem, cure) = admission::unheeded(&config.validation, listens)?.split_once("; ")?;
    Some(Finding::warn("webhook", problem, cure))
}

/// The Lease that says which replica works.
pub(super) fn leader(lease: Option<&Lease>, name: &str, now: Timestamp) -> Finding {
    let check = "leader";
    let cure = "see the operator's log: it tells why no replica can work";
    let Some(spec) = lease.and_then(|lease| lease.spec.as_ref()) else {
        return Finding::fail(check, format!("there is no Lease {name}: no replica has worked yet"), cure);
    };
    let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty());
    let age = spec.renew_time.as_ref().map(|time| now.duration_since(time.0));
    let lasts = i64::from(spec.lease_duration_seconds.unwrap_or_default());
    match (holder, age) {
        (Some(holder), Some(age)) if age.as_secs() <= lasts => {
            Finding::ok(check, format!("{holder}, seen {} ago", elapsed::short(age)))
        }
        (Some(holder), Some(age)) => {
            Finding::fail(check, format!("{holder} was last seen {} ago", elapsed::short(age)), cure)
        }
        _ => Finding::fail(check, format!("nobody holds the Lease {name}"), cure),
    }
}

/// What Buildkite says to the agent token.
pub(super) fn buildkite(answer: Result<&TokenIdentity, &bk_buildkite::Error>, endpoint: &str) -> Finding {
    let check = "buildkite";
    match answer {
        Ok(identity) => Finding::ok(
            check,
            format!("{endpoint} takes the token, organisation {}", identity.organization_slug),
        ),
        Err(error) if error.status().is_some_and(|status| matches!(status.as_u16(), 401 | 403)) => {
            Finding::fail(
                check,
                bk_ops::report::one_line(error),
                "put an agent token of the right cluster into the Secret; the operator takes it up by itself",
            )
        }
        Err(error) => Finding::warn(
            check,
            format!("from here: {}", bk_ops::report::one_line(error)),
            "the operator may reach it all the same: see its log and `top`",
        ),
    }
}

/// What the rules of a Role stand for, one by one.
pub(super) fn attributes(permissions: &[Permission], namespace: &str) -> Vec<ResourceAttributes> {
    let mut all = Vec::new();
    for permission in permissions {
        let names: Vec<Option<String>> = match permission.names.as_slice() {
            [] => vec![None],
            names => names.iter().cloned().map(Some).collect(),
        };
        for (resource, verb) in
            permission.resources.iter().flat_map(|r| permission.verbs.iter().map(move |v| (r, v)))
        {
            let (resource, subresource) =
                resource.split_once('/').map_or((*resource, None), |(r, s)| (r, Some(s)));
            all.extend(names.iter().map(|name| ResourceAttributes {
                group: Some(permission.group.to_owned()),
                namespace: Some(namespace.to_owned()),
                resource: Some(resource.to_owned()),
                subresource: subresource.map(str::to_owned),
                name: name.clone(),
                verb: Some((*verb).to_owned()),
                ..ResourceAttributes::default()
            }));
        }
    }
    all
}

/// What the operator may do if it answers webhooks, besides. Whether it is to look for Secrets is not known here.
pub(super) fn of_webhooks(webhook: &Webhook, installation: &Installation) -> Vec<ResourceAttributes> {
    let Webhook { name, is_own } = webhook;
    let mut all = attributes(&permissions::webhooks_in_job_namespace(), installation.job_namespace());
    all.extend(attributes(&permissions::webhooks_in_cluster(), ""));
    if *is_own {
        all.extend(attributes(&permissions::webhooks_in_own_namespace(name), &installation.namespace));
        all.extend(attributes(&permissions::webhook_configurations(name), ""));
    }
    all
}

/// Which of them the operator's account has.
pub(super) fn permissions(user: &str, asked: usize, denied: &[ResourceAttributes]) -> Finding {
    let check = "permissions";
    if denied.is_empty() {
        return Finding::ok(check, format!("{user} has all {asked}"));
    }
    let words = |one: &ResourceAttributes| {
        let part = |text: &Option<String>, before: &str| {
            text.as_ref()
                .filter(|text| !text.is_empty())
                .map(|text| format!("{before}{text}"))
                .unwrap_or_default()
        };
        let resource = part(&one.resource, "");
        let (below, name) = (part(&one.subresource, "/"), part(&one.name, " "));
        format!("{} {resource}{below}{name}{}", part(&one.verb, ""), part(&one.namespace, " in "))
    };
    let denied: Vec<String> = denied.iter().map(words).collect();
    Finding::fail(check, format!("{user} may not {}", denied.join(", ")), REINSTALL)
}

/// The shim's ConfigMap.
pub(super) fn shim(name: Result<Option<String>, String>, namespace: &str) -> Finding {
    match name {
        Ok(Some(name)) => Finding::ok("shim", format!("ConfigMap {namespace}/{name}")),
        Ok(None) => Finding::fail(
            "shim",
            format!("no ConfigMap in namespace {namespace} has it, so no job can start"),
            "the operator makes it when it starts: see its log",
        ),
        Err(problem) => Finding::warn("shim", problem, "allow it, or ask whoever may read them"),
    }
}

/// Where a sink is, unless it is in the cluster itself.
pub(super) fn address(sink: &LogSink) -> Option<&str> {
    match sink {
        LogSink::Elasticsearch(sink) => Some(&sink.url),
        LogSink::Loki(sink) => Some(&sink.url),
        LogSink::Otlp(sink) => Some(&sink.url),
        LogSink::File(_) | LogSink::Stdout(_) => None,
    }
}

/// A sink of logs: whether its Secret is there, if it has one, and whether its server answers from here, if it has one.
pub(super) fn sink(
    name: &str,
    secret: Option<(&str, bool)>,
    reached: Option<(&str, Result<(), String>)>,
) -> Finding {
    let check = "sinks";
    if let Some((secret, false)) = secret {
        return Finding::fail(
            check,
            format!(
                "{name}: its Secret {secret} is missing in the job namespace, so jobs that use it cannot start"
            ),
            "create it; docs/logs.md has its keys",
        );
    }
    match reached {
        None => Finding::ok(check, name),
        Some((url, Ok(()))) => Finding::ok(check, format!("{name}: {url} answers")),
        Some((url, Err(problem))) => Finding::warn(
            check,
            format!("{name}: {url} does not answer from here: {problem}"),
            "it may from the cluster: see the exporters' reports in `describe`",
        ),
    }
}

/// The mirrors.
pub(super) fn mirrors(mirrors: &[RepoMirror]) -> Vec<Finding> {
    let check = "mirrors";
    let is_ready = |mirror: &&RepoMirror| {
        let conditions = mirror.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|is| is.type_ == CONDITION_READY && is.status == "True")
    };
    let problem = |mirror: &RepoMirror| mirror.status.as_ref().and_then(|status| status.error.clone());
    let (well, unwell): (Vec<_>, Vec<_>) = mirrors
        .iter()
        .filter(|mirror| !mirror.spec.suspend)
        .partition(|mirror| is_ready(mirror) && problem(mirror).is_none());
    let mut findings: Vec<Finding> = unwell
        .into_iter()
        .map(|mirror| {
            let ready = if is_ready(&mirror) { "is out of date" } else { "is not ready" };
            let problem = problem(mirror).unwrap_or_else(|| "no syncer has taken it up".to_owned());
            Finding::warn(
                check,
                format!("RepoMirror {} {ready}: {problem}", mirror.name_any()),
                "jobs clone from the repository itself meanwhile; docs/mirrors.md",
            )
        })
        .collect();
    if !well.is_empty() {
        findings.push(Finding::ok(check, format!("{} ready", well.len())));
    }
    findings
}

#[cfg(test)]
mod tests;
