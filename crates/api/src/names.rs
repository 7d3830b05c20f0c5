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
/// Annotation: somebody reads the log of the BuildJob's pod, which stays for a while after the job's end.
pub const ANNOTATION_FOLLOWED: &str = "buildkite-operator.dev/followed";
/// Annotation: the stack that has reserved a BuildJob's job at Buildkite.
pub const ANNOTATION_STACK: &str = "buildkite-operator.dev/stack";
/// Annotation: when Buildkite had a BuildJob's job wait for an agent.
pub const ANNOTATION_SCHEDULED_AT: &str = "buildkite-operator.dev/scheduled-at";
/// Annotation: when the operator had reserved it.
pub const ANNOTATION_RESERVED_AT: &str = "buildkite-operator.dev/reserved-at";
/// Annotation: which attempt at its BuildJob a pod is, counted from 0.
pub const ANNOTATION_ATTEMPT: &str = "buildkite-operator.dev/attempt";
/// Annotation: the users that a pod's containers run as, in the form of `/etc/passwd`, where images may not know them.
pub const ANNOTATION_PASSWD: &str = "buildkite-operator.dev/passwd";
/// Annotation: what a BuildEnvironment has by default, as paths.
pub const ANNOTATION_DEFAULTED: &str = "buildkite-operator.dev/defaulted";
/// Annotation: `none` for a BuildEnvironment that is to get nothing by default.
pub const ANNOTATION_DEFAULTS: &str = "buildkite-operator.dev/defaults";
/// Annotation: until when the certificate in the Secret of the webhooks is good.
pub const ANNOTATION_NOT_AFTER: &str = "buildkite-operator.dev/not-after";
/// On RepoMirrors: when a fetch was asked for, and by which node's syncer.
pub const ANNOTATION_SYNC_REQUESTED: &str = "buildkite-operator.dev/sync-requested";

/// What a BuildEnvironment says that is to get nothing by default.
pub const NO_DEFAULTS: &str = "none";

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

/// The name of the ConfigMap that holds what the JobSpawner is about to take for a stack.
pub fn intent(stack: &str) -> String {
    let label = dns_label(stack);
    // Two stacks may look alike as part of a name.
    let mark = if label == stack { String::new() } else { format!("-{:08x}", digest(stack)) };
    format!("buildkite-operator-intent-{label}{mark}")
}

/// The name at Buildkite of the stack that serves one of an operator's queues: at most 80 letters, digits, `_` and `-`.
pub fn stack(operator: &str, queue: &str) -> String {
    const LONGEST: usize = 80;
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let key = format!("{operator}-{queue}");
    if key.len() <= LONGEST && key.chars().all(legal) {
        return key;
    }
    let mark = format!("-{:08x}", digest(queue));
    let legible: String =
        key.chars().map(|c| if legal(c) { c } else { '-' }).take(LONGEST - mark.len()).collect();
    legible + &mark
}

/// What an operator is called at Buildkite if its configuration does not say: after the namespace that its jobs are in, by its UID.
/// No other cluster has one like it.
pub fn operator(namespace_uid: &str) -> String {
    let mark: String = namespace_uid.chars().filter(char::is_ascii_hexdigit).take(8).collect();
    format!("buildkite-operator-{}", mark.to_ascii_lowercase())
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
    !name.is_empty() && is_label_value(name) && domain.is_none_or(is_object_name)
}

/// Whether `name` may be the name of an object such as a Secret.
pub fn is_object_name(name: &str) -> bool {
    let is_part = |part: &str| {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        part.starts_with(is_plain)
            && part.ends_with(is_plain)
            && part.chars().all(|c| is_plain(c) || c == '-')
    };
    name.len() <= 253 && name.split('.').all(is_part)
}

/// Tells texts apart that look alike in a name (FNV-1a).
fn digest(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |digest, byte| (digest ^ u32::from(byte)).wrapping_mul(0x0100_0193))
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
    #[case("gpu-large", "buildkite-operator-intent-gpu-large")]
    #[case("GPU_large", "buildkite-operator-intent-gpu-large-8a777799")]
    #[case("_default", "buildkite-operator-intent-default-8c4f6b13")]
    #[case("~", "buildkite-operator-intent-default-fb0c4d61")]
    fn intents_are_named_after_their_stack(#[case] stack: &str, #[case] expected: &str) {
        assert_eq!(intent(stack), expected);
    }

    #[rstest]
    #[case("ops", "linux", "ops-linux")]
    #[case("ops", "_default", "ops-_default")]
    #[case("ops", "a b", "ops-a-b-10a3f9f2")]
    #[case("ops", "a.b", "ops-a-b-108bf50c")]
    #[case("ops", &"x".repeat(90), "ops-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-0197ebcd")]
    fn stacks_are_named_after_operator_and_queue(
        #[case] operator: &str,
        #[case] queue: &str,
        #[case] expected: &str,
    ) {
        assert_eq!(stack(operator, queue), expected);
        assert!(expected.len() <= 80, "{expected}");
    }

    #[test]
    fn operators_are_named_after_their_jobs_namespace() {
        assert_eq!(operator("3F2504E0-4f89-41d3-9a0c-0305e82c3301"), "buildkite-operator-3f2504e0");
        assert_ne!(operator("3f2504e1-4f89-41d3-9a0c-0305e82c3301"), "buildkite-operator-3f2504e0");
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
