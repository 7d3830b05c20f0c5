//! Certificates that the operator makes for its own endpoints, and serving them.

use std::sync::Arc;

use axum_server::tls_rustls::RustlsConfig;
use jiff::{SignedDuration, Timestamp, Zoned, tz::TimeZone};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyUsagePurpose};
use rustls::ServerConfig;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

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

/// What an endpoint proves itself with.
pub(crate) trait Certified: Clone + Send + Sync + 'static {
    /// The certificate and its key, as PEM.
    fn pem(&self) -> (&str, &str);
}

/// What is particular about an endpoint's TLS.
pub(crate) type Manner = fn(&mut ServerConfig);

/// TLS with the first certificate that can be served, and with each that follows it; connections that are open stay. Nothing comes of it if there
/// is no certificate before the shutdown.
pub(crate) async fn tls<I: Certified>(
    whose: &'static str,
    manner: Manner,
    mut identities: watch::Receiver<Option<I>>,
    shutdown: &CancellationToken,
) -> Option<RustlsConfig> {
    let tls = shutdown.run_until_cancelled(first(whose, manner, &mut identities)).await??;
    tokio::spawn(shutdown.clone().run_until_cancelled_owned(follow(whose, manner, identities, tls.clone())));
    Some(tls)
}

async fn first<I: Certified>(
    whose: &str,
    manner: Manner,
    identities: &mut watch::Receiver<Option<I>>,
) -> Option<RustlsConfig> {
    loop {
        let identity = identities.wait_for(Option::is_some).await.ok()?.clone()?;
        match config(&identity, manner).await {
            Ok(config) => return Some(RustlsConfig::from_config(config)),
            Err(error) => tracing::error!(%error, "cannot serve {whose} with the certificate there is"),
        }
        identities.changed().await.ok()?;
    }
}

async fn follow<I: Certified>(
    whose: &str,
    manner: Manner,
    mut identities: watch::Receiver<Option<I>>,
    tls: RustlsConfig,
) {
    while identities.changed().await.is_ok() {
        let Some(identity) = identities.borrow_and_update().clone() else { continue };
        match config(&identity, manner).await {
            Ok(config) => {
                tls.reload_from_config(config);
                tracing::info!("{whose} have a new certificate");
            }
            Err(error) => {
                tracing::error!(%error, "cannot serve {whose} with the new certificate; the last one stays");
            }
        }
    }
}

async fn config<I: Certified>(identity: &I, manner: Manner) -> std::io::Result<Arc<ServerConfig>> {
    let (certificate, key) = identity.pem();
    let tls = RustlsConfig::from_pem(certificate.into(), key.into()).await?;
    let mut config = ServerConfig::clone(&tls.get_inner());
    manner(&mut config);
    Ok(Arc::new(config))
}
