//! Reading JSON that people wrote into Kubernetes types, without losing what does not fit.

use bk_api::config::unknown_field;
use k8s_openapi::serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::RenderError;

/// Reads `value` as a `T`. A field of the wrong type and a field that `T` does not have are refused with
/// their path below `path`; Kubernetes' own types would ignore the latter.
pub(crate) fn read<T: DeserializeOwned + Serialize>(value: &Value, path: &str) -> Result<T, RenderError> {
    let typed: T = serde_path_to_error::deserialize(value).map_err(|error| {
        let inner = error.path().to_string();
        let path = if inner == "." { path.to_owned() } else { format!("{path}.{inner}") };
        RenderError { path, problem: error.into_inner().to_string() }
    })?;
    match unknown_field(value, &typed) {
        Some(inner) => Err(RenderError {
            path: format!("{path}{}{inner}", if inner.starts_with('[') { "" } else { "." }),
            problem: "there is no such field".to_owned(),
        }),
        None => Ok(typed),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodSpec;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(json!({"containers": [{"image": "a", "comand": ["x"]}]}), "podSpec.containers[0].comand: there is no such field")]
    #[case(json!({"container": [{"image": "a"}]}), "podSpec.container: there is no such field")]
    #[case(json!({"containers": [{"image": 3}]}), "podSpec.containers[0].image: invalid type: integer `3`, expected a string")]
    #[case(json!("x"), "podSpec: invalid type: string \"x\", expected PodSpec")]
    fn faults_are_named_with_their_path(#[case] value: Value, #[case] expected: &str) {
        let error = read::<PodSpec>(&value, "podSpec").unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn quantities_and_empty_values_pass() {
        let value = json!({
            "volumes": [],
            "nodeSelector": null,
            "containers": [{"image": "a", "resources": {"requests": {"cpu": "500m"}, "limits": {}}}],
        });
        let spec: PodSpec = read(&value, "podSpec").unwrap();
        assert_eq!(spec.containers.len(), 1);
    }
}
