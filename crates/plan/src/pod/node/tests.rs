use rstest::rstest;

use super::*;

fn spec(yaml: &str) -> PodSpec {
    serde_saphyr::from_str(yaml).expect("the fixture is a pod's spec")
}

fn affinity(terms: &str) -> String {
    format!(
        "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: {terms}}}}}}}"
    )
}

#[rstest]
#[case::nothing("{}", &["amd64", "arm64"])]
#[case::selector("nodeSelector: {kubernetes.io/arch: arm64}", &["arm64"])]
#[case::old_selector("nodeSelector: {beta.kubernetes.io/arch: amd64}", &["amd64"])]
#[case::not_offered("nodeSelector: {kubernetes.io/arch: s390x}", &["s390x"])]
#[case::contradiction("nodeSelector: {kubernetes.io/arch: arm64, beta.kubernetes.io/arch: amd64}", &[])]
#[case::other_labels("nodeSelector: {disk: fast}", &["amd64", "arm64"])]
#[case::required(
    &affinity("[{matchExpressions: [{key: kubernetes.io/arch, operator: In, values: [arm64]}]}]"),
    &["arm64"]
)]
#[case::excluded(
    &affinity("[{matchExpressions: [{key: kubernetes.io/arch, operator: NotIn, values: [arm64]}]}]"),
    &["amd64"]
)]
#[case::either_term(
    &affinity(
        "[{matchExpressions: [{key: kubernetes.io/arch, operator: In, values: [arm64]}]}, \
          {matchExpressions: [{key: disk, operator: Exists}]}]"
    ),
    &["amd64", "arm64"]
)]
#[case::both_expressions(
    &affinity(
        "[{matchExpressions: [{key: kubernetes.io/arch, operator: In, values: [arm64, amd64]}, \
          {key: kubernetes.io/arch, operator: NotIn, values: [amd64]}]}]"
    ),
    &["arm64"]
)]
#[case::exists(
    &affinity("[{matchExpressions: [{key: kubernetes.io/arch, operator: Exists}]}]"),
    &["amd64", "arm64"]
)]
fn architectures_that_a_pod_may_land_on(#[case] yaml: &str, #[case] expected: &[&str]) {
    let offered = BTreeSet::from(["amd64".to_owned(), "arm64".to_owned()]);
    let found = architectures(&spec(yaml), &offered);
    assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[rstest]
#[case("{}", false)]
#[case("nodeSelector: {kubernetes.io/os: linux}", false)]
#[case("nodeSelector: {kubernetes.io/os: windows}", true)]
#[case("os: {name: windows}", true)]
#[case(&affinity("[{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [windows]}]}]"), true)]
#[case(&affinity("[{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [windows, linux]}]}]"), false)]
#[case(&affinity("[{matchExpressions: [{key: kubernetes.io/os, operator: NotIn, values: [windows]}]}]"), false)]
fn windows_is_recognised(#[case] yaml: &str, #[case] expected: bool) {
    assert_eq!(is_windows(&spec(yaml)), expected);
}
