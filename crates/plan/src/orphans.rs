//! Pods and Jobs that nobody will remove: what is left when a BuildJob went and its dependants stayed, or when
//! somebody took their owner reference away.

use bk_api::BuildJob;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// How old something is before its owner can be missed: caches lag.
const GRACE: SignedDuration = SignedDuration::from_mins(1);

/// Whether an object that was made for a BuildJob belongs to nobody, given the BuildJob of that name, if there is one.
/// The pod of a Job is the Job's to keep.
pub fn is_orphan(meta: &ObjectMeta, build_job: Option<&BuildJob>, now: Timestamp) -> bool {
    let created = meta.creation_timestamp.as_ref().map(|time| time.0);
    let is_young = created.is_none_or(|created| now.duration_since(created) < GRACE);
    if meta.deletion_timestamp.is_some() || is_young {
        return false;
    }
    let id = build_job.and_then(|job| job.metadata.uid.as_deref());
    !meta.owner_references.iter().flatten().any(|owner| owner.kind == "Job" || Some(owner.uid.as_str()) == id)
}

#[cfg(test)]
mod tests {
    use bk_api::BuildJobSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
    use rstest::rstest;

    use super::*;

    const NOW: i64 = 1_000_000;

    fn build_job(uid: &str) -> BuildJob {
        let metadata = ObjectMeta { uid: Some(uid.to_owned()), ..ObjectMeta::default() };
        BuildJob { metadata, spec: BuildJobSpec::default(), status: None }
    }

    fn meta(owner: Option<(&str, &str)>) -> ObjectMeta {
        let owner = owner.map(|(kind, uid)| OwnerReference {
            kind: kind.to_owned(),
            uid: uid.to_owned(),
            ..OwnerReference::default()
        });
        ObjectMeta {
            owner_references: owner.map(|owner| vec![owner]),
            creation_timestamp: Some(Time(Timestamp::from_second(NOW - 61).unwrap())),
            ..ObjectMeta::default()
        }
    }

    #[rstest]
    #[case::its_own(Some(("BuildJob", "a")), Some("a"), false)]
    #[case::of_one_that_is_gone(Some(("BuildJob", "a")), None, true)]
    #[case::of_an_earlier_one(Some(("BuildJob", "a")), Some("b"), true)]
    #[case::of_nobody(None, Some("a"), true)]
    #[case::of_a_job(Some(("Job", "c")), None, false)]
    fn what_belongs_to_nobody_is_found(
        #[case] owner: Option<(&str, &str)>,
        #[case] job: Option<&str>,
        #[case] expected: bool,
    ) {
        let job = job.map(build_job);
        let now = Timestamp::from_second(NOW).unwrap();
        assert_eq!(is_orphan(&meta(owner), job.as_ref(), now), expected);
    }

    #[test]
    fn the_young_and_the_leaving_are_left_alone() {
        let now = Timestamp::from_second(NOW).unwrap();
        let young = ObjectMeta { creation_timestamp: Some(Time(now)), ..meta(None) };
        let leaving = ObjectMeta { deletion_timestamp: Some(Time(now)), ..meta(None) };
        assert!(!is_orphan(&young, None, now) && !is_orphan(&leaving, None, now));
    }
}
