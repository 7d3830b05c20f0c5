//! The cluster's certificates: one authority, and one identity for each program.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::config;
use super::state::{Home, State};
use crate::process;

/// Longer than any cluster for development lives.
const DAYS: &str = "3650";
const KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

/// A certificate to be made.
struct Certificate {
    file: &'static str,
    subject: String,
    /// Names and addresses of a server.
    names: Vec<String>,
}

/// Makes the certificates, unless they are there.
pub(crate) fn ensure(home: &Home, state: &State) -> Result<()> {
    let target = home.pki();
    if target.exists() {
        return Ok(());
    }
    let scratch = tempfile::Builder::new().prefix("pki-").tempdir_in(home.root())?;
    create(scratch.path(), &certificates(state)).context("making the cluster's certificates")?;
    // All or nothing: a run that is killed leaves no half of a set.
    fs::rename(scratch.keep(), &target).with_context(|| format!("creating {}", target.display()))
}

fn certificates(state: &State) -> Vec<Certificate> {
    let client = |file, subject: String| Certificate { file, subject, names: Vec::new() };
    let server =
        |file, subject: &str, names: Vec<String>| Certificate { file, subject: subject.to_owned(), names };
    let block = state.block;
    let api_names = ["", ".default", ".default.svc", ".default.svc.cluster.local"];
    let api_names = api_names.map(|suffix| format!("DNS:kubernetes{suffix}"));
    let api_addresses =
        [block.node(), block.api_service(), [127, 0, 0, 1].into()].map(|ip| format!("IP:{ip}"));
    vec![
        server("kube-apiserver", "/CN=kube-apiserver", [&api_names[..], &api_addresses[..]].concat()),
        server(
            "kubelet-server",
            &format!("/CN={}", state.name),
            vec![format!("DNS:{}", state.name), format!("IP:{}", block.node())],
        ),
        client("admin", "/O=system:masters/CN=admin".to_owned()),
        client("kubelet", format!("/O=system:nodes/CN=system:node:{}", state.name)),
        client("kube-controller-manager", "/CN=system:kube-controller-manager".to_owned()),
        client("kube-scheduler", "/CN=system:kube-scheduler".to_owned()),
        client("kube-proxy", "/CN=system:kube-proxy".to_owned()),
        client("coredns", "/CN=coredns".to_owned()),
    ]
}

fn create(directory: &Path, certificates: &[Certificate]) -> Result<()> {
    let openssl =
        |arguments: &[&str]| process::run(Command::new("openssl").args(arguments).current_dir(directory));
    let authority = ["-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=local", "-days", DAYS];
    openssl(&[&["req", "-x509"], &KEY[..], &authority].concat())?;
    openssl(&["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "service-accounts.key"])?;
    for certificate in certificates {
        let [key, request, signed] = ["key", "csr", "crt"].map(|kind| format!("{}.{kind}", certificate.file));
        let asked = ["-keyout", &key, "-out", &request, "-subj", &certificate.subject];
        openssl(&[&["req"], &KEY[..], &asked].concat())?;
        fs::write(directory.join("extensions"), extensions(certificate))?;
        openssl(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-out",
            &signed,
            "-days",
            DAYS,
            "-extfile",
            "extensions",
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
        ])?;
    }
    Ok(())
}

fn extensions(certificate: &Certificate) -> String {
    if certificate.names.is_empty() {
        return "extendedKeyUsage=clientAuth\n".to_owned();
    }
    // The API server is a client too: of the kubelet.
    format!("extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName={}\n", certificate.names.join(","))
}

/// Writes the administrator's access, with everything in one file.
pub(crate) fn write_kubeconfig(home: &Home, state: &State) -> Result<()> {
    let read = |file: &str| -> Result<String> {
        let path = home.pki().join(file);
        let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(STANDARD.encode(bytes))
    };
    let kubeconfig = config::kubeconfig(
        &format!("buildkite-operator-{}", state.name),
        state.block,
        json!({"certificate-authority-data": read("ca.crt")?}),
        &json!({"client-certificate-data": read("admin.crt")?, "client-key-data": read("admin.key")?}),
    );
    crate::cluster::write_private(&home.kubeconfig(), &format!("{kubeconfig:#}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::network::Block;

    #[test]
    fn the_certificates_are_signed_and_carry_their_names() {
        let directory = tempfile::tempdir().unwrap();
        let state = State { name: "dev".to_owned(), block: Block::candidates().next().unwrap(), node: None };
        create(directory.path(), &certificates(&state)).unwrap();
        let openssl = |arguments: &[&str]| {
            process::run(Command::new("openssl").args(arguments).current_dir(directory.path())).unwrap()
        };
        for certificate in certificates(&state) {
            openssl(&["verify", "-CAfile", "ca.crt", &format!("{}.crt", certificate.file)]);
        }
        let api_server = openssl(&["x509", "-in", "kube-apiserver.crt", "-noout", "-ext", "subjectAltName"]);
        for name in ["kubernetes.default.svc", "10.200.0.2", "10.200.16.1"] {
            assert!(api_server.contains(name), "{api_server}");
        }
        let kubelet = openssl(&["x509", "-in", "kubelet.crt", "-noout", "-subject"]);
        assert!(kubelet.contains("system:nodes") && kubelet.contains("system:node:dev"), "{kubelet}");
    }
}
