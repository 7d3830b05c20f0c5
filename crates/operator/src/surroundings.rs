//! Looks up what a BuildJob refers to by name. Reads only.

use bk_api::{BuildEnvironment, BuildJob};
use bk_plan::surroundings::{Surroundings, wanted};
use k8s_openapi::api::core::v1::{PodTemplate, PodTemplateSpec};
use kube::{Api, Client, runtime::reflector::ObjectRef};

use crate::{cache::Cache, error::Error};

/// Where to look.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) client: &'a Client,
    pub(crate) namespace: &'a str,
    /// What is known without asking.
    pub(crate) environments: Option<&'a Cache<BuildEnvironment>>,
}

/// Everything that the BuildJob refers to, and what that refers to in turn, beyond what was found before.
pub(crate) async fn find(
    place: Place<'_>,
    job: &BuildJob,
    mut found: Surroundings,
) -> Result<Surroundings, Error> {
    loop {
        let wanted = wanted(job, &found);
        if wanted.is_empty() {
            return Ok(found);
        }
        for name in wanted.environments {
            let environment = environment(place, &name).await?;
            found.add(name, environment);
        }
        for name in wanted.pod_templates {
            let template = pod_template(place, &name).await?;
            found.pod_templates.insert(name, template);
        }
    }
}

/// A cache may lag, and a job fails by what is not there: the API server has the last word.
async fn environment(place: Place<'_>, name: &str) -> Result<Option<BuildEnvironment>, Error> {
    if !is_object_name(name) {
        return Ok(None);
    }
    let Place { client, namespace, environments } = place;
    if let Some(environments) = environments {
        environments.complete().await;
        if let Some(cached) = environments.get(&ObjectRef::new(name).within(namespace)) {
            return Ok(Some(cached.as_ref().clone()));
        }
    }
    let api = Api::<BuildEnvironment>::namespaced(client.clone(), namespace);
    let attempt = format!("read BuildEnvironment {namespace}/{name}");
    api.get_opt(name).await.map_err(Error::kubernetes(attempt))
}

async fn pod_template(place: Place<'_>, name: &str) -> Result<Option<PodTemplateSpec>, Error> {
    if !is_object_name(name) {
        return Ok(None);
    }
    let Place { client, namespace, .. } = place;
    let api = Api::<PodTemplate>::namespaced(client.clone(), namespace);
    let attempt = format!("read PodTemplate {namespace}/{name}");
    let found = api.get_opt(name).await.map_err(Error::kubernetes(attempt))?;
    Ok(found.and_then(|template| template.template))
}

/// Whether an object can have this name. Nothing else may become part of a request's path.
pub(crate) fn is_object_name(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    (1..=253).contains(&name.len()) && name.chars().all(legal) && !name.contains("..")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::is_object_name;

    #[rstest]
    #[case("golang-1.13", true)]
    #[case("", false)]
    #[case("../secrets/token", false)]
    #[case("..", false)]
    #[case("a?watch=1", false)]
    fn only_names_are_asked_for(#[case] name: &str, #[case] expected: bool) {
        assert_eq!(is_object_name(name), expected);
    }
}
