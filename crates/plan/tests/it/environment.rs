//! BuildJobs and BuildEnvironments → containers, and what is wrong with them.

mod errors;
mod properties;
mod wanted;

use std::collections::BTreeMap;

use bk_api::BuildEnvironmentSpec;
use bk_plan::surroundings::Surroundings;

/// The BuildEnvironments of a namespace, as YAML: by name, their spec.
pub(crate) fn surroundings(environments: &str) -> Surroundings {
    let found: BTreeMap<String, BuildEnvironmentSpec> =
        serde_saphyr::from_str(environments).expect("the fixture is a map of environments");
    Surroundings {
        environments: found.into_iter().map(|(name, spec)| (name, Some(spec))).collect(),
        ..Surroundings::default()
    }
}
