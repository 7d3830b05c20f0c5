//! TLS of tests: a server's side, with a certificate that nobody else has signed, and a client's that looks like an agent.

use std::{fs, net::IpAddr, process::Command, sync::Arc};

use anyhow::{Result, ensure};
use tempfile::TempDir;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        CipherSuite, ClientConfig, RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

/// What a server of the test shows its clients.
pub struct Identity {
    /// The certificate that clients have to trust, as PEM.
    pub certificate: Vec<u8>,
    /// Makes TLS of connections.
    pub acceptor: TlsAcceptor,
}

impl Identity {
    /// A new one, for a day, at this address.
    pub fn at(host: IpAddr) -> Result<Self> {
        let directory = TempDir::new()?;
        let (certificate, key) = (directory.path().join("tls.crt"), directory.path().join("tls.key"));
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
            .args(["-days", "1", "-subj", "/CN=test", "-addext", &format!("subjectAltName=IP:{host}")])
            .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
            .arg(&key)
            .arg("-out")
            .arg(&certificate)
            .output()?;
        ensure!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
        let chain = CertificateDer::pem_file_iter(&certificate)?.collect::<Result<Vec<_>, _>>()?;
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::from_pem_file(&key)?)?;
        Ok(Self { certificate: fs::read(&certificate)?, acceptor: TlsAcceptor::from(Arc::new(config)) })
    }
}

/// The side of a client that trusts this authority alone, as PEM, and would rather have what the agent would, a program of Go.
pub fn like_an_agent(authority: &[u8]) -> Result<ClientConfig> {
    let mut provider = ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority) {
        roots.add(certificate?)?;
    }
    let config =
        ClientConfig::builder_with_provider(Arc::new(provider)).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
