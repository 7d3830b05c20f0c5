//! Certificates that the operator makes for its own endpoints.

use jiff::{SignedDuration, Timestamp, Zoned, tz::TimeZone};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyUsagePurpose};

/// How long a certificate is good for, and how long before its end another takes its place.
pub(crate) const LIFE: SignedDuration = SignedDuration::from_hours(24 * 90);
pub(crate) const RENEWAL: SignedDuration = SignedDuration::from_hours(24 * 30);

/// What describes an authority that signs certificates of endpoints, and nothing else.
pub(crate) fn authority(name: &str, from: Timestamp, until: Timestamp) -> CertificateParams {
    let mut authority = of_days(CertificateParams::default(), from, until);
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    authority.distinguished_name.push(DnType::CommonName, name);
    authority
}

/// Good from the day before, as clocks differ.
pub(crate) fn of_days(mut params: CertificateParams, from: Timestamp, until: Timestamp) -> CertificateParams {
    let day = |at: Timestamp| {
        let at: Zoned = at.to_zoned(TimeZone::UTC);
        rcgen::date_time_ymd(at.year().into(), at.month().cast_unsigned(), at.day().cast_unsigned())
    };
    params.not_before = day(from - SignedDuration::from_hours(24));
    params.not_after = day(until + SignedDuration::from_hours(24));
    params
}
