//! Saying goodbye to Buildkite, if nobody serves the queues after us.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client};

use crate::{intake::Intake, settings::Deployed};

/// How long a goodbye may take, and the question before it.
const GOODBYE: Duration = Duration::from_secs(5);

/// Whether the operator may read its own Deployment, as it has to in the end. It says so now if not.
pub(super) async fn can_tell(client: Client, deployed: Option<&Deployed>) -> bool {
    let Some(Deployed { namespace, name }) = deployed else {
        return true;
    };
    match Api::<Deployment>::namespaced(client, namespace).get_opt(name).await {
        Ok(Some(_)) => return true,
        Ok(None) => tracing::warn!(deployment = name, namespace, "--deployment names one that is not there"),
        Err(error) => {
            let error = bk_ops::report::one_line(&error);
            tracing::warn!(
                error,
                deployment = name,
                "cannot read the operator's own Deployment: the queues will not be deregistered when it is deleted"
            );
        }
    }
    false
}

/// Whether no other replica of this operator goes on. A rolling update must not make the queue look abandoned: only what
/// says plainly that nobody is left counts as that, and so does an operator that is no Deployment.
pub(super) async fn is_last(client: Client, deployed: Option<&Deployed>, could_tell: bool) -> bool {
    let Some(Deployed { namespace, name }) = deployed else {
        return true;
    };
    let api = Api::<Deployment>::namespaced(client, namespace);
    match tokio::time::timeout(GOODBYE, api.get_opt(name)).await {
        Ok(Ok(deployment)) => deployment.is_none_or(|deployment| is_ending(&deployment)),
        // Together with the Deployment its permissions are taken away. Those that it never had say nothing.
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403) => could_tell,
        Ok(Err(error)) => {
            let error = bk_ops::report::one_line(&error);
            tracing::warn!(error, deployment = name, "cannot tell whether another replica goes on");
            false
        }
        Err(_) => false,
    }
}

fn is_ending(deployment: &Deployment) -> bool {
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    deployment.metadata.deletion_timestamp.is_some() || replicas == 0
}

/// Best effort: Buildkite notices by itself after a while.
pub(super) async fn leave(intake: &dyn Intake) {
    let queue = intake.queue();
    match tokio::time::timeout(GOODBYE, intake.leave()).await {
        Ok(Ok(())) => tracing::info!(queue, "deregistered from Buildkite"),
        Ok(Err(error)) => {
            let error = bk_ops::report::one_line(&error);
            tracing::warn!(error, queue, "cannot deregister from Buildkite");
        }
        Err(_) => tracing::warn!(queue, "Buildkite did not answer in time to deregister"),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::api_server::{ApiServer, refusal};

    #[rstest]
    #[case::taken_away(403, true, true)]
    #[case::never_had(403, false, false)]
    #[case::deleted(404, false, true)]
    #[case::in_trouble(500, true, false)]
    #[tokio::test]
    async fn only_permissions_that_were_there_can_have_gone_with_the_deployment(
        #[case] code: u16,
        #[case] could_tell: bool,
        #[case] expected: bool,
    ) {
        let reason = if code == 404 { "NotFound" } else { "Other" };
        let server = ApiServer::start(move |_, _| refusal(code, reason)).await;
        let deployed = Deployed { namespace: "ci".to_owned(), name: "operator".to_owned() };
        assert_eq!(is_last(server.cluster.calls, Some(&deployed), could_tell).await, expected);
    }

    #[rstest]
    #[case::running(json!({"metadata": {}, "spec": {"replicas": 1}}), false)]
    #[case::one_by_default(json!({"metadata": {}, "spec": {}}), false)]
    #[case::scaled_down(json!({"metadata": {}, "spec": {"replicas": 0}}), true)]
    #[case::deleted(json!({"metadata": {"deletionTimestamp": "2026-11-16T07:00:00Z"}, "spec": {"replicas": 2}}), true)]
    fn only_a_deployment_that_ends_leaves_nobody(
        #[case] mut deployment: serde_json::Value,
        #[case] expected: bool,
    ) {
        deployment["spec"]["selector"] = json!({});
        deployment["spec"]["template"] = json!({});
        assert_eq!(is_ending(&serde_json::from_value(deployment).unwrap()), expected);
    }
}
