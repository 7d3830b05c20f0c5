//! Names, labels and annotations. Those under `buildkite.com/` are the ones that users of Buildkite's own
//! controller know; their policies and habits carry over.

/// The API group of the custom resources.
pub const GROUP: &str = "buildkite-operator.dev";

/// Field manager of everything the operator writes.
pub const FIELD_MANAGER: &str = "buildkite-operator";

/// Label: the Buildkite job a BuildJob or pod belongs to.
pub const LABEL_JOB_UUID: &str = "buildkite.com/job-uuid";
/// Label: the BuildJob a pod belongs to.
pub const LABEL_BUILD_JOB: &str = "buildkite-operator.dev/build-job";
/// Label: the Buildkite queue a BuildJob was taken from. Only the JobSpawner sets it.
pub const LABEL_SPAWNED_FROM: &str = "buildkite-operator.dev/spawned-from";
/// Label: what an object of the operator is for (`shim`, `intent`).
pub const LABEL_COMPONENT: &str = "buildkite-operator.dev/component";
/// Label prefix: one label per agent query rule of the job.
pub const LABEL_TAG_PREFIX: &str = "tag.buildkite.com/";

/// Annotation: address of the build.
pub const ANNOTATION_BUILD_URL: &str = "buildkite.com/build-url";
/// Annotation: the build's branch.
pub const ANNOTATION_BUILD_BRANCH: &str = "buildkite.com/build-branch";
/// Annotation: the build's repository.
pub const ANNOTATION_BUILD_REPO: &str = "buildkite.com/build-repo";
/// Annotation: the pipeline's slug.
pub const ANNOTATION_PIPELINE_SLUG: &str = "buildkite.com/pipeline-slug";
/// Annotation: the step's key.
pub const ANNOTATION_STEP_KEY: &str = "buildkite.com/step-key";
/// Annotation: address of the job.
pub const ANNOTATION_JOB_URL: &str = "buildkite.com/job-url";
/// Annotation: the job's priority.
pub const ANNOTATION_JOB_PRIORITY: &str = "buildkite.com/job-priority";
/// Annotation: the PodTemplate that a pod began with.
pub const ANNOTATION_POD_TEMPLATE: &str = "buildkite.com/pod-template-name";
/// Annotation prefix: the name of each sidecar of the step, by its number.
pub const ANNOTATION_SIDECAR_PREFIX: &str = "buildkite.com/sidecar-";
/// Annotation: keeps the cluster autoscaler from moving a running job.
pub const ANNOTATION_SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
/// Annotation: which attempt at its BuildJob a pod is, counted from 0.
pub const ANNOTATION_ATTEMPT: &str = "buildkite-operator.dev/attempt";
/// Annotation: the users that a pod's containers run as, in the form of `/etc/passwd`, where images may not know them.
pub const ANNOTATION_PASSWD: &str = "buildkite-operator.dev/passwd";

/// The name of the BuildJob, and of the first pod, of a Buildkite job.
pub fn build_job(job_uuid: &str) -> String {
    format!("buildkite-{job_uuid}")
}

/// The name of an attempt's pod. The attempt is part of the name, so that a second one can never be mistaken
/// for the first. As no BuildJob may have a name that ends in this way, no two have pods of the same name; and
/// none gets one by `generateName`, which makes no vowels and no `y`.
pub fn pod(build_job: &str, attempt: u32) -> String {
    if attempt == 0 { build_job.to_owned() } else { format!("{build_job}-try{attempt}") }
}

/// The name of the ConfigMap that holds what the JobSpawner is about to take from a queue.
pub fn intent(queue: &str) -> String {
    format!("buildkite-operator-intent-{}", dns_label(queue))
}

/// The name of the ConfigMap that holds a version of the shim.
pub fn shim(digest: &str) -> String {
    format!("buildkite-shim-{}", &digest[..digest.len().min(12)])
}

/// Whether `value` may be the value of a label.
pub fn is_label_value(value: &str) -> bool {
    value.is_empty()
        || (value.len() <= 63
            && value.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
            && value.starts_with(|c: char| c.is_ascii_alphanumeric())
            && value.ends_with(|c: char| c.is_ascii_alphanumeric()))
}

/// Whether `key` may be the key of a label or an annotation: a name, with a domain before it or without.
pub fn is_label_key(key: &str) -> bool {
    let (domain, name) = key.split_once('/').map_or((None, key), |(domain, name)| (Some(domain), name));
    let is_part = |part: &str| {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        part.starts_with(is_plain)
            && part.ends_with(is_plain)
            && part.chars().all(|c| is_plain(c) || c == '-')
    };
    !name.is_empty()
        && is_label_value(name)
        && domain.is_none_or(|domain| domain.len() <= 253 && domain.split('.').all(is_part))
}

/// `text` as part of an object name: lower case, everything else a dash.
fn dns_label(text: &str) -> String {
    let mapped: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let trimmed = mapped.trim_matches('-');
    if trimmed.is_empty() { "default".to_owned() } else { trimmed.to_owned() }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("buildkite-0198f0a0", 0, "buildkite-0198f0a0")]
    #[case("buildkite-0198f0a0", 2, "buildkite-0198f0a0-try2")]
    #[case("nightly", 0, "nightly")]
    #[case("nightly", 1, "nightly-try1")]
    #[case("nightly-1", 0, "nightly-1")]
    #[case("buildkite-nightly", 0, "buildkite-nightly")]
    fn pods_carry_their_attempt(#[case] build_job: &str, #[case] attempt: u32, #[case] expected: &str) {
        assert_eq!(pod(build_job, attempt), expected);
    }

    #[test]
    fn no_two_build_jobs_share_a_pod() {
        let names = [
            "nightly",
            "nightly-1",
            "nightly-try",
            "nightly-try1-try",
            "buildkite-nightly",
            "try1",
            "nightly.try1",
        ];
        let pods = names.iter().flat_map(|name| (0..12).map(|attempt| pod(name, attempt)));
        let distinct: std::collections::BTreeSet<_> = pods.collect();
        assert_eq!(distinct.len(), names.len() * 12);
    }

    #[rstest]
    #[case("kubernetes", "buildkite-operator-intent-kubernetes")]
    #[case("GPU_large", "buildkite-operator-intent-gpu-large")]
    #[case("_default", "buildkite-operator-intent-default")]
    #[case("~", "buildkite-operator-intent-default")]
    fn intents_are_named_after_their_queue(#[case] queue: &str, #[case] expected: &str) {
        assert_eq!(intent(queue), expected);
    }

    #[rstest]
    #[case("linux", true)]
    #[case("", true)]
    #[case("-linux", false)]
    #[case("a b", false)]
    #[case(&"x".repeat(64), false)]
    fn label_values_follow_kubernetes(#[case] value: &str, #[case] valid: bool) {
        assert_eq!(is_label_value(value), valid);
    }

    #[rstest]
    #[case("team", true)]
    #[case("example.com/Team_1", true)]
    #[case("", false)]
    #[case("example.com/", false)]
    #[case("/team", false)]
    #[case("Example.com/team", false)]
    #[case("a/b/c", false)]
    #[case("te am", false)]
    fn label_keys_follow_kubernetes(#[case] key: &str, #[case] valid: bool) {
        assert_eq!(is_label_key(key), valid);
    }
}
