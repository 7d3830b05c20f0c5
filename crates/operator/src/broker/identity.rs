//! What the broker proves itself with, and what it seals one-time tokens with: all in one Secret, which the replicas share.
//!
//! Its authority stays: pods that trust it are not surprised by a new certificate. It is good for the broker's host and no other, as agents trust it
//! wherever they go.

use std::net::{IpAddr, Ipv4Addr};

use bk_api::names;
use bk_plan::broker::{Key, ticket::KEY_BYTES};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use rcgen::{CertificateParams, CidrSubnet, GeneralSubtree, Issuer, KeyPair, NameConstraints};
use ring::rand::{SecureRandom, SystemRandom};

use crate::certificates::{self, Certified, LIFE, RENEWAL, of_days};

/// How long the authority is good for.
const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(24 * 3650);

/// What the authority is called. It signs again by this name and its key.
const AUTHORITY: &str = "buildkite-operator broker";

/// The entry of the Secret with the certificate, as PEM.
pub(crate) const CERTIFICATE: &str = "tls.crt";
const CERTIFICATE_KEY: &str = "tls.key";
/// The entry with the authority's certificate, as PEM.
pub(crate) const AUTHORITY_CERTIFICATE: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const SEAL: &str = "seal.key";
/// The entry with the host that the certificate is for.
pub(crate) const HOST: &str = "host";

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
    pub(super) ticket_key: Key,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Identity")
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.certificate == other.certificate
            && self.authority == other.authority
            && self.ticket_key == other.ticket_key
    }
}

impl Certified for Identity {
    fn pem(&self) -> (&str, &str) {
        (&self.certificate, &self.key)
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
            certificate: text(secret, CERTIFICATE)?.to_owned(),
            key: text(secret, CERTIFICATE_KEY)?.to_owned(),
            authority: text(secret, AUTHORITY_CERTIFICATE)?.to_owned(),
            ticket_key: Key::new(bytes(secret, SEAL)?)?,
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
    let mut authority = certificates::authority(AUTHORITY, now, now + AUTHORITY_LIFE);
    authority.name_constraints = Some(realm(host));
    let kept = text(&secret, AUTHORITY_KEY).and_then(|pem| KeyPair::from_pem(pem).ok());
    let is_for_host = text(&secret, HOST).is_some_and(|former| realm(former) == realm(host));
    let is_kept = kept.is_some() && is_for_host && text(&secret, AUTHORITY_CERTIFICATE).is_some();
    // For another host the key stays: pods that trust it by an older certificate for that host go on to do so.
    let authority_key = kept.map_or_else(KeyPair::generate, Ok)?;
    if !is_kept {
        put(&mut secret, AUTHORITY_CERTIFICATE, authority.self_signed(&authority_key)?.pem().into_bytes());
        put(&mut secret, AUTHORITY_KEY, authority_key.serialize_pem().into_bytes());
    }
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

/// What the authority of a host may vouch for: names of Services, which are nobody's elsewhere, if it is one, or else that host alone. A kind that
/// nothing is said about would be free, so there is a name or an address in it that nobody has.
fn realm(host: &str) -> NameConstraints {
    const NOBODY: &str = "invalid";
    let (name, address) = match host.parse() {
        Ok(address) => (NOBODY, address),
        Err(_) if host.rsplit('.').next() == Some("svc") => ("svc", IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        Err(_) => (host, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
    };
    let alone = CidrSubnet::from_addr_prefix(address, if address.is_ipv4() { 32 } else { 128 });
    let permitted = [GeneralSubtree::DnsName(name.to_owned()), GeneralSubtree::IpAddress(alone)];
    NameConstraints { permitted_subtrees: permitted.into(), excluded_subtrees: Vec::new() }
}

fn bytes<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    secret.data.as_ref()?.get(key).map(|bytes| bytes.0.as_slice())
}

/// What an entry says, if it says anything.
pub(crate) fn text<'a>(secret: &'a Secret, key: &str) -> Option<&'a str> {
    std::str::from_utf8(bytes(secret, key)?).ok().filter(|text| !text.is_empty())
}

fn put(secret: &mut Secret, key: &str, value: Vec<u8>) {
    secret.data.get_or_insert_default().insert(key.to_owned(), ByteString(value));
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use rstest::rstest;
    use rustls::{
        RootCertStore,
        client::{WebPkiServerVerifier, danger::ServerCertVerifier},
        pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    };

    use super::*;

    /// X.509 has no times before 1970.
    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    #[test]
    fn a_secret_is_filled_once_and_renewed_in_time() {
        let secret = renewed(&Secret::default(), "broker.ci.svc", now()).unwrap();
        let first = Identity::of(&secret, "broker.ci.svc", now()).unwrap();
        assert!(Identity::of(&Secret::default(), "broker.ci.svc", now()).is_none());
        assert!(Identity::of(&secret, "10.0.0.1", now()).is_none(), "for another host");
        let later = now() + LIFE - RENEWAL + SignedDuration::from_secs(1);
        assert!(Identity::of(&secret, "broker.ci.svc", later).is_none(), "it ends soon");
        let again = renewed(&secret, "broker.ci.svc", later).unwrap();
        let second = Identity::of(&again, "broker.ci.svc", later).unwrap();
        assert!(
            first.authority == second.authority && first.ticket_key == second.ticket_key,
            "what pods rely on stays"
        );
        assert_ne!(first.certificate, second.certificate);
    }

    #[test]
    fn the_authority_is_for_another_host_if_need_be_and_its_key_stays() {
        let entry = |secret: &Secret, key| bytes(secret, key).map(<[u8]>::to_vec);
        let first = renewed(&Secret::default(), "one.ci.svc", now()).unwrap();
        let same = renewed(&first, "two.ci.svc", now()).unwrap();
        assert_eq!(entry(&first, AUTHORITY_CERTIFICATE), entry(&same, AUTHORITY_CERTIFICATE));
        let other = renewed(&first, "broker.example.com", now()).unwrap();
        assert_ne!(entry(&first, AUTHORITY_CERTIFICATE), entry(&other, AUTHORITY_CERTIFICATE));
        assert_eq!(entry(&first, AUTHORITY_KEY), entry(&other, AUTHORITY_KEY));
        assert!(accepts(&other, &other, "broker.example.com"));
    }

    /// Whether whoever trusts the authority in one Secret takes the certificate in another for a host's.
    fn accepts(trusted: &Secret, served: &Secret, host: &str) -> bool {
        let certificates = |key| CertificateDer::from_pem_slice(bytes(served, key).unwrap()).unwrap();
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(bytes(trusted, AUTHORITY_CERTIFICATE).unwrap()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
        let host = ServerName::try_from(host).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::try_from(now().as_duration()).unwrap());
        verifier.verify_server_cert(&certificates(CERTIFICATE), &[], &host, &[], now).is_ok()
    }

    /// Agents trust it wherever they go.
    #[rstest]
    #[case::a_service("broker.ci.svc", "other.ci.svc", true)]
    #[case::a_service_is_not_buildkite("broker.ci.svc", "agent.buildkite.com", false)]
    #[case::a_service_is_no_address("broker.ci.svc", "10.0.0.1", false)]
    #[case::a_host_is_no_other("broker.example.com", "www.example.com", false)]
    #[case::an_address_is_no_other("10.0.0.1", "10.0.0.2", false)]
    #[case::an_address_is_no_name("10.0.0.1", "agent.buildkite.com", false)]
    #[case::an_address_of_six("fd00::1", "fd00::2", false)]
    fn the_authority_vouches_for_nobody_else(
        #[case] host: &str,
        #[case] other: &str,
        #[case] expected: bool,
    ) {
        let own = renewed(&Secret::default(), host, now()).unwrap();
        assert!(accepts(&own, &own, host));
        // By the same key, as whoever has stolen it would make it.
        let forged = renewed(&own, other, now()).unwrap();
        assert_eq!(accepts(&own, &forged, other), expected);
    }

    #[test]
    fn keys_are_not_printed() {
        let secret = renewed(&Secret::default(), "a", now()).unwrap();
        assert_eq!(format!("{:?}", Identity::of(&secret, "a", now())), "Some(Identity)");
    }
}
