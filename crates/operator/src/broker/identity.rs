//! What the broker proves itself with, and what it seals one-time tokens with: all in one Secret, which the replicas share.
//!
//! Its authority stays: pods that trust it are not surprised by a new certificate.

use bk_api::names;
use bk_plan::broker::{Key, ticket::KEY_BYTES};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use rcgen::{CertificateParams, Issuer, KeyPair};
use ring::rand::{SecureRandom, SystemRandom};

use crate::certificates::{self, LIFE, RENEWAL, of_days};

/// How long the authority is good for.
const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(24 * 3650);

/// What the authority is called. It signs again by this name and its key.
const AUTHORITY: &str = "buildkite-operator broker";

const CERTIFICATE: &str = "tls.crt";
const CERTIFICATE_KEY: &str = "tls.key";
const AUTHORITY_CERTIFICATE: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const SEAL: &str = "seal.key";
const HOST: &str = "host";

/// What cannot be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unmade {
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("the system has no random numbers")]
    Random,
}

/// What the broker needs to work.
#[derive(Clone)]
pub(super) struct Identity {
    /// The certificate, as PEM.
    pub(super) certificate: String,
    /// Its key, as PEM.
    pub(super) key: String,
    /// The authority that pods have to trust, as PEM.
    pub(super) authority: String,
    /// What one-time tokens are sealed with.
    pub(super) seal: Key,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Identity")
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.certificate == other.certificate && self.authority == other.authority && self.seal == other.seal
    }
}

impl Identity {
    /// The one that a Secret holds, if it is whole, for this host, and good for a while yet.
    pub(super) fn of(secret: &Secret, host: &str, now: Timestamp) -> Option<Self> {
        let until = secret.metadata.annotations.as_ref()?.get(names::ANNOTATION_NOT_AFTER)?;
        let until: Timestamp = until.parse().ok()?;
        if text(secret, HOST)? != host || until.duration_since(now) < RENEWAL {
            return None;
        }
        Some(Self {
            certificate: text(secret, CERTIFICATE)?,
            key: text(secret, CERTIFICATE_KEY)?,
            authority: text(secret, AUTHORITY_CERTIFICATE)?,
            seal: Key::new(bytes(secret, SEAL)?)?,
        })
    }
}

/// The Secret with a new certificate for this host in it, and what else it lacks. The authority and the key of tokens stay.
pub(super) fn renewed(secret: &Secret, host: &str, now: Timestamp) -> Result<Secret, Unmade> {
    let mut secret = secret.clone();
    if bytes(&secret, SEAL).and_then(Key::new).is_none() {
        let mut key = [0; KEY_BYTES];
        SystemRandom::new().fill(&mut key).map_err(|_| Unmade::Random)?;
        put(&mut secret, SEAL, key.to_vec());
    }
    let kept = text(&secret, AUTHORITY_KEY).and_then(|pem| KeyPair::from_pem(&pem).ok());
    let kept = kept.filter(|_| text(&secret, AUTHORITY_CERTIFICATE).is_some());
    let authority = certificates::authority(AUTHORITY, now, now + AUTHORITY_LIFE);
    let authority_key = if let Some(key) = kept {
        key
    } else {
        let key = KeyPair::generate()?;
        put(&mut secret, AUTHORITY_CERTIFICATE, authority.self_signed(&key)?.pem().into_bytes());
        put(&mut secret, AUTHORITY_KEY, key.serialize_pem().into_bytes());
        key
    };
    let (key, until) = (KeyPair::generate()?, now + LIFE);
    let own = of_days(CertificateParams::new([host.to_owned()])?, now, until);
    let certificate = own.signed_by(&key, &Issuer::new(authority, authority_key))?;
    put(&mut secret, CERTIFICATE, certificate.pem().into_bytes());
    put(&mut secret, CERTIFICATE_KEY, key.serialize_pem().into_bytes());
    put(&mut secret, HOST, host.as_bytes().to_vec());
    let annotations = secret.metadata.annotations.get_or_insert_default();
    annotations.insert(names::ANNOTATION_NOT_AFTER.to_owned(), until.to_string());
    Ok(secret)
}

fn bytes<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    secret.data.as_ref()?.get(key).map(|bytes| bytes.0.as_slice())
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    String::from_utf8(bytes(secret, key)?.to_vec()).ok().filter(|text| !text.is_empty())
}

fn put(secret: &mut Secret, key: &str, value: Vec<u8>) {
    secret.data.get_or_insert_default().insert(key.to_owned(), ByteString(value));
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn a_secret_is_filled_once_and_renewed_in_time() {
        let secret = renewed(&Secret::default(), "broker.ci.svc", NOW).unwrap();
        let first = Identity::of(&secret, "broker.ci.svc", NOW).unwrap();
        assert!(Identity::of(&Secret::default(), "broker.ci.svc", NOW).is_none());
        assert!(Identity::of(&secret, "10.0.0.1", NOW).is_none(), "for another host");
        let later = NOW + LIFE - RENEWAL + SignedDuration::from_secs(1);
        assert!(Identity::of(&secret, "broker.ci.svc", later).is_none(), "it ends soon");
        let again = renewed(&secret, "broker.ci.svc", later).unwrap();
        let second = Identity::of(&again, "broker.ci.svc", later).unwrap();
        assert!(first.authority == second.authority && first.seal == second.seal, "what pods rely on stays");
        assert_ne!(first.certificate, second.certificate);
    }

    #[test]
    fn keys_are_not_printed() {
        let secret = renewed(&Secret::default(), "a", NOW).unwrap();
        assert_eq!(format!("{:?}", Identity::of(&secret, "a", NOW)), "Some(Identity)");
    }
}
