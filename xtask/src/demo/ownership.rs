//! Whose things in a cluster are: the demo takes over and removes only its own.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{NAMESPACE, RELEASE};

/// The label of the demo's namespace.
pub(super) const LABEL: &str = "buildkite-operator.dev/demo";

/// Whose an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// There is no such object.
    Nobody,
    /// It has the demo's label, or Helm has made it for the demo.
    Demo,
    /// It is neither.
    Somebody,
}

impl Owner {
    /// From what `kubectl get --ignore-not-found --output=json` prints.
    pub(super) fn of(printed: &str) -> Result<Self> {
        if printed.trim().is_empty() {
            return Ok(Self::Nobody);
        }
        let object: Value =
            serde_json::from_str(printed).context("reading an object as kubectl prints it")?;
        let metadata = &object["metadata"];
        let release = ["name", "namespace"]
            .map(|part| &metadata["annotations"][format!("meta.helm.sh/release-{part}")]);
        let ours = metadata["labels"][LABEL] == "true" || release == [RELEASE, NAMESPACE];
        Ok(if ours { Self::Demo } else { Self::Somebody })
    }
}

/// Whether the demo may be installed where these are the owners of its namespace and of the definition of BuildJobs.
pub(super) fn may_install(namespace: Owner, definition: Owner) -> Result<()> {
    if namespace == Owner::Somebody {
        bail!(
            "this cluster has a namespace {NAMESPACE} that is not the demo's (it lacks the label {LABEL}=true), and the demo \
             would change what is in it: use another cluster, or delete that namespace if nobody needs it"
        );
    }
    if definition == Owner::Somebody {
        bail!(
            "this cluster has BuildJobs that are not the demo's (their definition is not of its release {RELEASE} of Helm), \
             and the demo would change their definition: use a cluster without a Buildkite Operator"
        );
    }
    Ok(())
}

/// Whether the demo's namespace may be removed if this is its owner.
pub(super) fn may_remove(namespace: Owner) -> Result<()> {
    if namespace == Owner::Somebody {
        bail!(
            "the namespace {NAMESPACE} of this cluster is not the demo's (it lacks the label {LABEL}=true): nothing was removed"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_label_and_the_release_make_an_object_the_demos() {
        let helm = |name: &str, namespace: &str| {
            let annotations = serde_json::json!({ "meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": namespace });
            serde_json::json!({ "metadata": { "annotations": annotations } }).to_string()
        };
        let cases = [
            (&*helm("demo", "buildkite"), Owner::Demo),
            (&*helm("buildkite-operator", "buildkite"), Owner::Somebody),
            (&*helm("demo", "ci"), Owner::Somebody),
            ("", Owner::Nobody),
            (r#"{"metadata": {"name": "buildkite"}}"#, Owner::Somebody),
            (r#"{"metadata": {"labels": {"buildkite-operator.dev/demo": "false"}}}"#, Owner::Somebody),
            (r#"{"metadata": {"labels": {"buildkite-operator.dev/demo": "true"}}}"#, Owner::Demo),
        ];
        for (printed, owner) in cases {
            assert_eq!(Owner::of(printed).unwrap(), owner, "{printed}");
        }
        Owner::of("Error from server").unwrap_err();
    }

    #[test]
    fn what_is_somebody_elses_is_left_alone() {
        let owners = [Owner::Nobody, Owner::Demo, Owner::Somebody];
        for namespace in owners {
            for definition in owners {
                let foreign = namespace == Owner::Somebody || definition == Owner::Somebody;
                assert_eq!(
                    may_install(namespace, definition).is_err(),
                    foreign,
                    "{namespace:?} {definition:?}"
                );
            }
            assert_eq!(may_remove(namespace).is_err(), namespace == Owner::Somebody);
        }
    }
}
