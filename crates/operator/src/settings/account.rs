//! Who the operator is to the API server. Jobs may not be the same: its account may read the tokens.

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::{Api, Client, api::PostParams};

use super::patience;

/// What usernames of service accounts begin with.
const PREFIX: &str = "system:serviceaccount:";

/// The operator's service account, if it is one of this namespace's.
pub(super) async fn own(client: &Client, namespace: &str) -> Option<String> {
    let api = Api::<SelfSubjectReview>::all(client.clone());
    let review = SelfSubjectReview::default();
    let parameters = PostParams::default();
    let asked = patience::insist("ask who the operator is", || api.create(&parameters, &review)).await;
    match asked {
        Ok(review) => in_namespace(review.status?.user_info?.username.as_deref()?, namespace),
        Err(error) => {
            let error = bk_ops::report::one_line(&error);
            tracing::warn!(
                error,
                "cannot find out who the operator is: jobs that use its service account are not refused"
            );
            None
        }
    }
}

fn in_namespace(username: &str, namespace: &str) -> Option<String> {
    let (of, name) = username.strip_prefix(PREFIX)?.split_once(':')?;
    (of == namespace).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("system:serviceaccount:ci:operator", Some("operator"))]
    #[case("system:serviceaccount:other:operator", None)]
    #[case("admin", None)]
    fn only_an_account_of_the_namespace_matters(#[case] username: &str, #[case] expected: Option<&str>) {
        assert_eq!(in_namespace(username, "ci").as_deref(), expected);
    }
}
