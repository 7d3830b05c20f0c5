use rstest::rstest;

use super::*;

fn credentials(ssh: Option<&str>, https: Option<&str>) -> GitCredentials {
    GitCredentials { ssh_secret: ssh.map(str::to_owned), https_secret: https.map(str::to_owned) }
}

#[rstest]
#[case(None, None, (None, None))]
#[case(Some(credentials(Some("a"), None)), None, (Some("a"), None))]
#[case(Some(credentials(Some("a"), Some("b"))), Some(credentials(Some("c"), None)), (Some("c"), Some("b")))]
fn the_environments_secrets_go_before_the_configurations(
    #[case] configured: Option<GitCredentials>,
    #[case] environment: Option<GitCredentials>,
    #[case] expected: (Option<&str>, Option<&str>),
) {
    let found = Credentials::new(configured.as_ref(), environment.as_ref());
    assert_eq!((found.ssh.as_deref(), found.https.as_deref()), expected);
}

#[test]
fn nothing_is_added_without_secrets() {
    let none = Credentials::default();
    assert!(none.is_empty() && none.volumes().is_empty() && none.mounts().is_empty());
    assert!(none.private_files().is_empty());
}

#[test]
fn everything_that_is_copied_is_mounted_and_on_a_volume() {
    let store = SecretVolumeSource { secret_name: Some("urls".to_owned()), ..SecretVolumeSource::default() };
    let all =
        Credentials::new(Some(&credentials(Some("key"), Some("password"))), None).with_store(Some(&store));
    let volumes: Vec<_> = all.volumes().into_iter().map(|volume| volume.name).collect();
    let mounts = all.mounts();
    assert_eq!(mounts.iter().map(|mount| mount.name.clone()).collect::<Vec<_>>(), volumes);
    let private = all.private_files();
    let below = |path: &str| mounts.iter().any(|mount| path.starts_with(&format!("{}/", mount.mount_path)));
    assert!(private.iter().all(|(from, _)| below(from)));
    assert!(private.iter().all(|(_, to)| below(to)), "{private:?}");
    assert_eq!(private.len(), 3);
}

/// The helper as git calls it: with a question on its input, and a Secret's files in a directory.
#[rstest]
#[case("https://git.example.com/acme/app.git", "git.example.com", true)]
#[case("https://me@git.example.com/acme/app.git", "git.example.com", true)]
#[case("http://git.example.com:8080/app.git", "git.example.com:8080", true)]
#[case("git@git.example.com:acme/app.git", "git.example.com", true)]
#[case("https://git.example.com/acme/app.git", "example.com", false)]
#[case("https://git.example.com/acme/app.git", "evil.example", false)]
#[case("https://git.example.com/evil.example.git", "evil.example", false)]
fn a_password_goes_to_the_repositorys_own_server_alone(
    #[case] repository: &str,
    #[case] host: &str,
    #[case] given: bool,
) {
    use std::io::Write;
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("username"), "me\n").unwrap();
    std::fs::write(directory.path().join("password"), "secret").unwrap();
    let helper =
        BASIC_HELPER.trim_start_matches('!').replace(HTTPS_DIRECTORY, directory.path().to_str().unwrap());
    let mut child = std::process::Command::new("sh")
        .args(["-c", &format!("{helper} \"$@\""), "helper", "get"])
        .env("BUILDKITE_REPO", repository)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    write!(child.stdin.take().unwrap(), "protocol=https\nhost={host}\n\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let expected = if given { "username=me\npassword=secret\n" } else { "" };
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}
