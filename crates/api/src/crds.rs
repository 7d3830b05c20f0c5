//! The custom resource definitions as they are installed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::{BuildEnvironment, BuildJob};

/// All definitions, in the order in which they should be applied.
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![BuildJob::crd(), BuildEnvironment::crd()]
}

#[cfg(test)]
mod tests {
    #[test]
    fn definitions_stay_small_enough_for_client_side_apply() {
        for crd in super::all() {
            let size = serde_json::to_vec(&crd).unwrap().len();
            // kubectl keeps the whole object in an annotation of at most 262,144 bytes.
            assert!(size < 200_000, "{:?} has {size} bytes", crd.metadata.name);
        }
    }

    #[test]
    fn the_definition_of_build_jobs() {
        let yaml = serde_saphyr::to_string(&super::all()[0]).unwrap();
        insta::assert_snapshot!(yaml);
    }
}
