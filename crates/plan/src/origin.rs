//! Which BuildJob an object was made for, and for which of its attempts: said by a label and an annotation.

use bk_api::names;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use k8s_openapi::{Metadata, apimachinery::pkg::apis::meta::v1::ObjectMeta};

/// An object that may have been made for a BuildJob.
pub trait Origin {
    /// The BuildJob that it says it belongs to.
    fn build_job(&self) -> Option<&str>;

    /// The attempt that the operator made it for, if the operator made it.
    fn attempt(&self) -> Option<u32>;

    /// The BuildJob that the operator made it for, if the operator made it.
    fn made_for(&self) -> Option<&str> {
        self.attempt().and(self.build_job())
    }
}

/// Where what is kept as it is says so.
macro_rules! by_metadata {
    ($($kind:ty),*) => {$(
        impl Origin for $kind {
            fn build_job(&self) -> Option<&str> {
                label(self.metadata())
            }

            fn attempt(&self) -> Option<u32> {
                annotation(self.metadata())
            }
        }
    )*};
}

by_metadata!(Job, Pod);

/// What the label says.
pub(crate) fn label(meta: &ObjectMeta) -> Option<&str> {
    meta.labels.as_ref()?.get(names::LABEL_BUILD_JOB).map(String::as_str)
}

/// What the annotation says. Whoever has altered it does not make the object somebody else's.
pub(crate) fn annotation(meta: &ObjectMeta) -> Option<u32> {
    let attempt = meta.annotations.as_ref()?.get(names::ANNOTATION_ATTEMPT)?;
    Some(attempt.parse().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn only_what_the_operator_made_is_its_own() {
        let one = |key: &str, value: &str| Some(BTreeMap::from([(key.to_owned(), value.to_owned())]));
        let labels = one(names::LABEL_BUILD_JOB, "nightly");
        let annotations = one(names::ANNOTATION_ATTEMPT, "2");
        let strangers = ObjectMeta { labels: labels.clone(), ..ObjectMeta::default() };
        let altered = one(names::ANNOTATION_ATTEMPT, "two");
        let of = |metadata| Pod { metadata, ..Pod::default() };
        let ours = of(ObjectMeta { labels: labels.clone(), annotations, ..ObjectMeta::default() });
        let altered = of(ObjectMeta { labels, annotations: altered, ..ObjectMeta::default() });
        assert_eq!((ours.made_for(), ours.attempt()), (Some("nightly"), Some(2)));
        assert_eq!((altered.made_for(), altered.attempt()), (Some("nightly"), Some(0)));
        assert_eq!((of(strangers.clone()).made_for(), of(strangers).build_job()), (None, Some("nightly")));
    }
}
