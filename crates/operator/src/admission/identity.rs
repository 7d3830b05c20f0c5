//! Certificates of the webhooks, and when they are made anew.

use bk_api::names;
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use rcgen::{CertificateParams, Issuer, KeyPair};

use crate::certificates::{Certified, LIFE, RENEWAL, authority, of_days};

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const TRUST: &str = "ca.crt";

/// How the webhooks prove who they are.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// The certificate, as PEM.
    pub(super) certificate: String,
    /// Its key, as PEM.
    pub(super) key: String,
    /// What callers have to trust, as PEM: also what was before, as other replicas may still serve that.
    pub(super) trust: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Identity")
    }
}

impl Certified for Identity {
    fn pem(&self) -> (&str, &str) {
        (&self.certificate, &self.key)
    }
}

impl Identity {
    /// A new one for these hosts, and until when it is good. Its authority signs nothing else: the authority's key is not kept.
    pub(super) fn make(
        hosts: &[String],
        now: Timestamp,
        former: Option<&Self>,
    ) -> Result<(Self, Timestamp), rcgen::Error> {
        let until = now + LIFE;
        let authority_key = KeyPair::generate()?;
        // Those that trust two of them tell them apart by their names.
        let authority = authority(&format!("buildkite-operator webhooks {now}"), now, until);
        let trusted = authority.self_signed(&authority_key)?.pem();
        let key = KeyPair::generate()?;
        let own = of_days(CertificateParams::new(hosts)?, now, until);
        let certificate = own.signed_by(&key, &Issuer::new(authority, authority_key))?.pem();
        let before = former.map(|former| first(&former.trust)).unwrap_or_default();
        Ok((Self { certificate, key: key.serialize_pem(), trust: trusted + before }, until))
    }

    /// The one that a Secret holds.
    pub(super) fn of(secret: &Secret) -> Option<Self> {
        let entry = |key: &str| String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok();
        let (certificate, key, trust) = (entry(CERTIFICATE)?, entry(KEY)?, entry(TRUST)?);
        let is_complete = !(certificate.is_empty() || key.is_empty() || trust.is_empty());
        is_complete.then_some(Self { certificate, key, trust })
    }

    /// The Secret with this one in it instead.
    pub(super) fn put_into(&self, secret: &Secret, until: Timestamp) -> Secret {
        let mut secret = secret.clone();
        let entries = [(CERTIFICATE, &self.certificate), (KEY, &self.key), (TRUST, &self.trust)];
        let data = entries.map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes())));
        secret.data.get_or_insert_default().extend(data);
        let annotations = secret.metadata.annotations.get_or_insert_default();
        annotations.insert(names::ANNOTATION_NOT_AFTER.to_owned(), until.to_string());
        secret
    }
}

/// Whether the certificate in a Secret has to be made anew: there is none, it ends soon, or nobody knows when.
pub(super) fn is_due(secret: &Secret, now: Timestamp) -> bool {
    let annotation =
        secret.metadata.annotations.as_ref().and_then(|own| own.get(names::ANNOTATION_NOT_AFTER));
    let until = annotation.and_then(|text| text.parse::<Timestamp>().ok());
    Identity::of(secret).is_none() || until.is_none_or(|until| until.duration_since(now) < RENEWAL)
}

/// The first certificate of several.
fn first(pem: &str) -> &str {
    const END: &str = "-----END CERTIFICATE-----";
    pem.find(END).map_or(pem, |at| {
        let end = at + END.len();
        pem.get(..end + usize::from(pem[end..].starts_with('\n'))).unwrap_or(pem)
    })
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn identity(former: Option<&Identity>) -> (Identity, Timestamp) {
        Identity::make(&["hooks.ci.svc".to_owned(), "10.0.0.1".to_owned()], NOW, former).unwrap()
    }

    #[test]
    fn what_a_secret_holds_is_found_in_it_again() {
        let (identity, until) = identity(None);
        let secret = identity.put_into(&Secret::default(), until);
        assert!(Identity::of(&secret) == Some(identity));
        assert_eq!(Identity::of(&Secret::default()), None);
    }

    #[test]
    fn a_certificate_is_made_anew_before_it_ends() {
        let (identity, until) = identity(None);
        let secret = identity.put_into(&Secret::default(), until);
        assert!(!is_due(&secret, NOW));
        assert!(!is_due(&secret, until - RENEWAL));
        assert!(is_due(&secret, until - RENEWAL + SignedDuration::from_secs(1)));
        assert!(is_due(&Secret::default(), NOW));
        let mut unknown = secret.clone();
        unknown.metadata.annotations = None;
        assert!(is_due(&unknown, NOW), "nobody knows when it ends");
    }

    #[test]
    fn the_former_authority_is_trusted_and_the_one_before_it_is_not() {
        let certificates = |trust: &str| trust.matches("BEGIN CERTIFICATE").count();
        let (one, _) = identity(None);
        let (two, _) = identity(Some(&one));
        let (three, _) = identity(Some(&two));
        assert_eq!([&one, &two, &three].map(|identity| certificates(&identity.trust)), [1, 2, 2]);
        assert!(two.trust.ends_with(&one.trust));
        assert!(three.trust.ends_with(first(&two.trust)));
        assert!(one.trust != first(&two.trust));
    }

    #[test]
    fn keys_are_not_printed() {
        assert_eq!(format!("{:?}", identity(None).0), "Identity");
    }
}
