use std::{fs, path::Path};

use bk_api::exporters::ChosenSink;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rstest::rstest;

use crate::{
    receiver::Receiver,
    world::{World, loki, numbers, otlp, search},
};

/// An authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// A server with a certificate that this authority has signed.
    fn server(&self) -> Receiver {
        bk_ops::http::install_crypto_provider();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Receiver::secure(certificate, key.serialize_pem())
    }
}

/// A job whose sink has a Secret in which `put` puts something.
fn world(mut sink: ChosenSink, put: impl FnOnce(&Path)) -> World {
    let mut world = World::new(vec![]);
    let secret = world.path("secret");
    fs::create_dir(&secret).unwrap();
    put(&secret.join("ca.crt"));
    sink.directory = Some(secret.display().to_string());
    world.document.sinks = vec![sink];
    world.document.drain_seconds = 2;
    world
}

#[rstest]
#[tokio::test]
async fn a_server_whose_authority_is_named_is_trusted(
    #[values(search, loki, otlp)] kind: fn(&Receiver) -> ChosenSink,
) {
    let authority = Authority::new();
    let receiver = authority.server();
    let world = world(kind(&receiver), |path| fs::write(path, &authority.certificate).unwrap());
    let lines = world.write_lines("a.log", 0..10);
    let report = world.finish(world.export()).await;
    assert_eq!(numbers(&report), (10, 0, 0), "{report:?}");
    assert_eq!(receiver.received().messages(), lines);
}

#[rstest]
#[case::another_authority(Some(Authority::new().certificate))]
#[case::only_those_of_the_system(None)]
#[tokio::test]
async fn no_other_server_is_trusted(#[case] named: Option<String>) {
    let receiver = Authority::new().server();
    let world = world(search(&receiver), |path| {
        if let Some(certificate) = named {
            fs::write(path, certificate).unwrap();
        }
    });
    world.write_lines("a.log", 0..10);
    let report = world.finish(world.export()).await;
    assert_eq!(numbers(&report), (0, 10, 0), "{report:?}");
    let reason = report.sinks[0].reason.as_deref().unwrap();
    assert!(reason.contains("certificate"), "{reason}");
    assert!(receiver.received().requests.is_empty(), "nothing was said to it");
}

/// Whoever names authorities does not mean those of the system.
#[tokio::test]
async fn authorities_that_cannot_be_read_are_no_reason_to_trust_others() {
    let receiver = Receiver::start([]);
    let world = world(search(&receiver), |path| fs::create_dir(path).unwrap());
    world.write_lines("a.log", 0..10);
    let report = world.finish(world.export()).await;
    assert_eq!(numbers(&report), (0, 10, 0), "{report:?}");
    let reason = report.sinks[0].reason.as_deref().unwrap();
    assert!(reason.starts_with("cannot read ") && reason.contains("/ca.crt: "), "{reason}");
    assert!(receiver.received().requests.is_empty());
}
