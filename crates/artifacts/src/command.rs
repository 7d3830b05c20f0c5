//! How the agent is asked to upload: `buildkite-agent artifact upload`, with the session of the job.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// What stands between paths. No path of a scan holds it, as none has an empty part.
const BETWEEN: &str = "//";
/// How long all paths of one call may be: the kernel takes no argument of more than 128 KiB.
const LONGEST: usize = 100_000;
/// How many files one call may have. If one of them fails, the whole call does.
pub const MOST: usize = 200;

/// The variable with the job's id.
pub const JOB: &str = "BUILDKITE_JOB_ID";
/// Variables of the job that the agent needs to upload in its name.
const NEEDED: [&str; 3] = ["BUILDKITE_AGENT_ACCESS_TOKEN", "BUILDKITE_AGENT_ENDPOINT", JOB];
/// Those that it may have, besides, for where artifacts go and how to get there.
const USEFUL: [&str; 13] = [
    "BUILDKITE_BUILD_ID",
    "BUILDKITE_ARTIFACT_UPLOAD_DESTINATION",
    "BUILDKITE_S3_",
    "BUILDKITE_GS_",
    "BUILDKITE_GCS_",
    "BUILDKITE_AZURE_",
    "BUILDKITE_ARTIFACTORY_",
    "AWS_",
    "AZURE_",
    "GOOGLE_",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

/// The variables of the job's environment, as a hook has written it down, with which the agent uploads; none if it cannot.
pub fn session(environment: &str) -> Option<Vec<(&str, &str)>> {
    let all = || environment.split_terminator('\0').filter_map(|entry| entry.split_once('='));
    let has = |name: &str| all().any(|(own, value)| own == name && !value.is_empty());
    let wanted = |name: &str| {
        NEEDED.contains(&name) || USEFUL.iter().any(|useful| name.to_ascii_uppercase().starts_with(useful))
    };
    NEEDED.iter().all(|name| has(name)).then(|| all().filter(|(name, _)| wanted(name)).collect())
}

/// The agent's arguments for these files, which it is to look for from the directory itself. It cuts off white space that a
/// name begins with, and takes one that begins with a dash for a flag, unless a directory comes before it.
pub fn arguments(paths: &[PathBuf]) -> Vec<String> {
    let list: Vec<_> = paths.iter().map(|path| format!("./{}", path.to_string_lossy())).collect();
    let flags = ["artifact", "upload", "--literal", "--delimiter", BETWEEN, "--log-level", "notice"];
    flags.into_iter().map(str::to_owned).chain([list.join(BETWEEN)]).collect()
}

/// The agent's arguments to list the job's artifacts, as [`found`] reads them.
pub fn search(job: &str) -> [&str; 9] {
    [
        "artifact",
        "search",
        "*",
        "--step",
        job,
        "--allow-empty-results",
        "--format",
        r"%s %p\x00",
        "--log-level=error",
    ]
}

/// How many artifacts there are of each path and size, as the agent lists them.
pub fn found(listed: &str) -> BTreeMap<(PathBuf, u64), usize> {
    let mut found = BTreeMap::new();
    for (size, path) in listed.split_terminator('\0').filter_map(|entry| entry.split_once(' ')) {
        if let Ok(size) = size.parse() {
            *found.entry((PathBuf::from(path), size)).or_default() += 1;
        }
    }
    found
}

/// The files, in order, in as few calls as allowed.
pub fn calls(paths: &[PathBuf], most: usize) -> Vec<&[PathBuf]> {
    let length = |path: &Path| path.as_os_str().len() + 2 + BETWEEN.len();
    let mut calls = Vec::new();
    let mut rest = paths;
    while !rest.is_empty() {
        let mut sum = 0;
        let fits = |path: &&PathBuf| {
            sum += length(path);
            sum <= LONGEST
        };
        let count = rest.iter().take(most).take_while(fits).count().max(1);
        let (call, after) = rest.split_at(count);
        calls.push(call);
        rest = after;
    }
    calls
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::{LONGEST, arguments, calls, found, session};

    #[test]
    fn the_session_is_the_jobs_and_nothing_else_of_it() {
        let environment = "BUILDKITE_AGENT_ACCESS_TOKEN=t=1\0BUILDKITE_AGENT_ENDPOINT=http://b/v3\0BUILDKITE_JOB_ID=7\0\
                           MY_SECRET=no\0BUILDKITE_S3_ACL=private\0https_proxy=http://p\0";
        let expected = [
            ("BUILDKITE_AGENT_ACCESS_TOKEN", "t=1"),
            ("BUILDKITE_AGENT_ENDPOINT", "http://b/v3"),
            ("BUILDKITE_JOB_ID", "7"),
            ("BUILDKITE_S3_ACL", "private"),
            ("https_proxy", "http://p"),
        ];
        assert_eq!(session(environment), Some(expected.to_vec()));
        assert_eq!(session("BUILDKITE_AGENT_ENDPOINT=http://b/v3\0BUILDKITE_JOB_ID=7\0"), None);
    }

    #[test]
    fn paths_are_taken_as_they_are() {
        let arguments = arguments(&["a b/*.txt".into(), "c;d".into()]);
        assert_eq!(arguments.last().unwrap(), "./a b/*.txt//./c;d");
        assert!(arguments.contains(&"--literal".to_owned()));
    }

    #[test]
    fn artifacts_are_counted_by_path_and_size() {
        let found = found(&["1 a", "1 a", "2 a", "3 b c\nd", "no size", ""].join("\0"));
        let expected = [(("a".into(), 1), 2), (("a".into(), 2), 1), (("b c\nd".into(), 3), 1)];
        assert_eq!(found, expected.into());
    }

    proptest! {
        #[test]
        fn every_file_is_in_one_call_and_calls_are_short(
            lengths in prop::collection::vec(1_usize..60_000, 0..40),
            most in 1_usize..10,
        ) {
            let paths: Vec<PathBuf> = lengths.iter().map(|length| "x".repeat(*length).into()).collect();
            let calls = calls(&paths, most);
            prop_assert_eq!(calls.concat(), paths.as_slice());
            for call in calls {
                prop_assert!(!call.is_empty() && call.len() <= most);
                let whole: usize = call.iter().map(|path| path.as_os_str().len() + 4).sum();
                prop_assert!(call.len() == 1 || whole <= LONGEST);
            }
        }
    }
}
