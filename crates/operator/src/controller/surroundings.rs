//! Looks up what a BuildJob refers to by name. Reads only.

use bk_api::{BuildEnvironment, BuildEnvironmentSpec, BuildJob};
use bk_plan::surroundings::{Surroundings, wanted};
use k8s_openapi::api::core::v1::{PodTemplate, PodTemplateSpec};
use kube::{Api, runtime::reflector::ObjectRef};

use super::Context;
use crate::error::Error;

/// Everything that the BuildJob refers to, and what that refers to in turn.
pub(super) async fn find(context: &Context, job: &BuildJob) -> Result<Surroundings, Error> {
    let mut found = Surroundings::default();
    loop {
        let wanted = wanted(job, &found);
        if wanted.is_empty() {
            return Ok(found);
        }
        for name in wanted.environments {
            let environment = environment(context, &name).await?;
            found.environments.insert(name, environment);
        }
        for name in wanted.pod_templates {
            let template = pod_template(context, &name).await?;
            found.pod_templates.insert(name, template);
        }
    }
}

/// A cache may lag, and a job fails by what is not there: the API server has the last word.
async fn environment(context: &Context, name: &str) -> Result<Option<BuildEnvironmentSpec>, Error> {
    if !is_object_name(name) {
        return Ok(None);
    }
    context.environments.complete().await;
    let object = ObjectRef::new(name).within(&context.namespace);
    if let Some(cached) = context.environments.get(&object) {
        return Ok(Some(cached.spec.clone()));
    }
    let api = Api::<BuildEnvironment>::namespaced(context.client.clone(), &context.namespace);
    let attempt = format!("read BuildEnvironment {}/{name}", context.namespace);
    let found = api.get_opt(name).await.map_err(Error::kubernetes(attempt))?;
    Ok(found.map(|environment| environment.spec))
}

async fn pod_template(context: &Context, name: &str) -> Result<Option<PodTemplateSpec>, Error> {
    if !is_object_name(name) {
        return Ok(None);
    }
    let api = Api::<PodTemplate>::namespaced(context.client.clone(), &context.namespace);
    let attempt = format!("read PodTemplate {}/{name}", context.namespace);
    let found = api.get_opt(name).await.map_err(Error::kubernetes(attempt))?;
    Ok(found.and_then(|template| template.template))
}

/// Whether an object can have this name. Nothing else may become part of a request's path.
fn is_object_name(name: &str) -> bool {
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
