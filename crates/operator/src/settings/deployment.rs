//! The operator's own Deployment: it names the image that exporters in job pods run, and with it goes what the operator keeps for itself.

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Container},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Api, Client, Resource};

use super::Deployed;

/// The container of the operator in its Deployment, as in `deploy/deployment.yaml`.
const CONTAINER: &str = "operator";

/// The Deployment. Without it the operator does all that needs neither.
pub(crate) async fn read(client: &Client, deployed: &Deployed) -> Option<Deployment> {
    let Deployed { namespace, name } = deployed;
    match Api::<Deployment>::namespaced(client.clone(), namespace).get_opt(name).await {
        Ok(deployment) => deployment,
        Err(error) => {
            let error = bk_ops::report::one_line(&error);
            tracing::warn!(
                namespace,
                name,
                error,
                "cannot read the operator's Deployment: what it keeps will not go with it, and jobs have no exporters unless `operatorImage` is set"
            );
            None
        }
    }
}

/// The Deployment as the owner of other objects in its namespace.
pub(crate) fn owner(deployment: &Deployment) -> Option<OwnerReference> {
    deployment.owner_ref(&())
}

/// The image of the operator's container.
pub(crate) fn image(deployment: &Deployment) -> Option<String> {
    container(deployment)?.image.clone()
}

/// The operator's container.
pub(crate) fn container(deployment: &Deployment) -> Option<&Container> {
    let containers = &deployment.spec.as_ref()?.template.spec.as_ref()?.containers;
    let named = containers.iter().find(|container| container.name == CONTAINER);
    named.or(containers.first())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::by_name(json!([{ "name": "proxy", "image": "p" }, { "name": "operator", "image": "o:1" }]), Some("o:1"))]
    #[case::the_first(json!([{ "name": "ci", "image": "o:2" }, { "name": "proxy", "image": "p" }]), Some("o:2"))]
    #[case::none(json!([]), None)]
    fn the_image_is_that_of_the_operators_container(
        #[case] containers: serde_json::Value,
        #[case] expected: Option<&str>,
    ) {
        let deployment =
            json!({ "spec": { "selector": {}, "template": { "spec": { "containers": containers } } } });
        let deployment: Deployment = serde_json::from_value(deployment).expect("a Deployment");
        assert_eq!(image(&deployment).as_deref(), expected);
    }
}
