//! What jobs are trusted with: secrets, credentials, tokens that say who they are.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use buildkite_local::Config;
use serde_json::Value;

use crate::stage::{Case, Mode, Stage, jobs};

pub(crate) const TRUST: Case = Case {
    commands: &["secret get", "git-credentials-helper"],
    steps: r"
steps:
  - command: |
      run sh -c 'buildkite-agent secret get PASSWORD --skip-redaction | rev'
      run buildkite-agent secret get NOTHING
      printf 'protocol=https\nhost=git.example.com\npath=demo.git\n' > asked
      run sh -c 'buildkite-agent git-credentials-helper get < asked'
      printf 'protocol=https\nhost=git.elsewhere.com\npath=demo.git\n' > asked
      run sh -c 'buildkite-agent git-credentials-helper get < asked'
",
    results: &["0|terces-yrev", "1|", "0|username=token~password=git-token", "1|username=fail~password=fail"],
};

#[tokio::test]
async fn jobs_get_their_secrets_and_no_others() {
    let files = tempfile::tempdir().unwrap();
    let (secrets, credentials) = (files.path().join("secrets.yml"), files.path().join("git.yml"));
    fs::write(&secrets, "PASSWORD: very-secret\n").unwrap();
    fs::write(&credentials, "git.example.com: git-token\n").unwrap();
    for file in [&secrets, &credentials] {
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let config = Config { secrets: Some(secrets), git_credentials: Some(credentials), ..Config::default() };
    let stage = Stage::with(config).await.unwrap();
    TRUST.play_on(&stage, Mode::Acquire).await;
}

pub(crate) const OIDC: Case = Case {
    commands: &["oidc request-token"],
    steps: r#"
steps:
  - key: who
    command: "buildkite-agent oidc request-token --audience test.example.com --lifetime 60 --skip-redaction | cut -d. -f1,2 | sed 's/^/TOKEN /'"
"#,
    results: &[],
};

#[tokio::test]
async fn a_token_says_which_job_it_belongs_to() {
    use base64::Engine;
    let (stage, _, build) = OIDC.play(Mode::Acquire).await;
    let job = jobs(&build).next().unwrap();
    let log = stage.log(job).await.unwrap();
    let token = log.lines().find_map(|line| line.strip_prefix("TOKEN ")).unwrap();
    let (header, claims) = token.split_once('.').unwrap();
    let read = |part: &str| -> Value {
        let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    };
    let (header, claims) = (read(header), read(claims));
    assert_eq!(
        (&claims["aud"], &claims["job_id"], &claims["step_key"]),
        (&"test.example.com".into(), &job["id"], &"who".into())
    );
    let keys: Value = reqwest::get(format!("{}/.well-known/jwks", stage.buildkite.url))
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert!(
        keys["keys"].as_array().unwrap().iter().any(|key| key["kid"] == header["kid"]),
        "{keys} {header}"
    );
}
