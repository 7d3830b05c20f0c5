//! Repositories that are not for everybody: over SSH and over HTTP, with Secrets as files and as variables.

use anyhow::Result;
use bk_e2e::{
    World,
    private_repository::{HttpRepository, PASSWORD, SshRepository, USER},
    scenario,
};
use rstest::rstest;

/// Runs `hello.sh` of the repository at `url` in a step with these further lines, and returns status and log.
async fn run(world: &World, url: &str, step: &str) -> Result<(Option<i32>, String)> {
    let steps = format!("agents: {{queue: bk-operator}}\nsteps:\n- key: clone\n{step}");
    let build = world.buildkite.build(url, &steps).await?;
    let id = build.jobs[0].id;
    let job = world.buildkite.ended(id).await?;
    Ok((job.exit_status, world.buildkite.log(id).await?))
}

/// The command must see neither the Secrets nor how git uses them.
const COMMAND: &str = "env | grep '^GIT_[CS]' && exit 5; ls /buildkite | grep git && exit 6; ./hello.sh";

fn assert_cloned(outcome: &(Option<i32>, String)) {
    let (status, log) = outcome;
    assert_eq!(*status, Some(0), "{log}");
    assert!(log.contains("hello from the repository"), "{log}");
    assert!(!log.contains(PASSWORD), "{log}");
}

fn create_ssh_secret(world: &World, name: &str, files: &[(&str, std::path::PathBuf)]) -> Result<()> {
    let files: Vec<_> =
        files.iter().map(|(key, path)| format!("--from-file={key}={}", path.display())).collect();
    let mut args = vec!["create", "secret", "generic", name];
    args.extend(files.iter().map(String::as_str));
    world.cluster.kubectl(&args, None).map(drop)
}

#[rstest]
#[case::as_root_in_the_agents_image(false, "")]
#[case::as_root_in_another_image(true, "")]
#[case::as_somebody_that_no_image_knows(true, "securityContext: {runAsUser: 4321, runAsGroup: 4321}")]
#[case::as_somebody_with_a_group_for_files(true, "securityContext: {runAsUser: 4321, fsGroup: 99}")]
#[tokio::test(flavor = "multi_thread")]
async fn a_key_opens_a_repository_over_ssh(#[case] other_image: bool, #[case] pod: &str) {
    scenario(async |world| {
        let repository = SshRepository::serve(world.environment.host, &world.repository.path())?;
        let files = [("ssh-privatekey", repository.key()), ("known_hosts", repository.known_hosts())];
        create_ssh_secret(world, "git-ssh", &files)?;
        world.cluster.configure("pod_config", "gitCredentials: {sshSecret: git-ssh}").await?;
        let _operator = world.operator().await?;
        let container = if other_image {
            format!("containers: [{{image: {}}}]", world.environment.toolbox_image)
        } else {
            String::new()
        };
        let separator = if pod.is_empty() || container.is_empty() { "" } else { ", " };
        let step = format!(
            "  command: \"{COMMAND}\"\n  plugins: [{{kubernetes: {{podSpec: {{{pod}{separator}{container}}}}}}}]"
        );
        assert_cloned(&run(world, &repository.url, &step).await?);
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_another_key_than_the_secret_says_is_not_trusted() {
    scenario(async |world| {
        let repository = SshRepository::serve(world.environment.host, &world.repository.path())?;
        let files = [("ssh-privatekey", repository.key()), ("known_hosts", repository.wrong_hosts())];
        create_ssh_secret(world, "git-ssh", &files)?;
        world.cluster.configure("pod_config", "gitCredentials: {sshSecret: git-ssh}").await?;
        let _operator = world.operator().await?;
        let build = world
            .buildkite
            .build(&repository.url, "agents: {queue: bk-operator}\nsteps: [{command: ./hello.sh}]")
            .await?;
        // The agent tries again and again; what it says is enough.
        world.buildkite.log_with(build.jobs[0].id, "Host key verification failed").await?;
        world.buildkite.cancel(build.jobs[0].id).await?;
        let log = world.buildkite.log(build.jobs[0].id).await?;
        assert!(!log.contains("hello from the repository"), "{log}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_set_up_ssh_as_in_buildkites_own_image() {
    scenario(async |world| {
        let repository = SshRepository::serve(world.environment.host, &world.repository.path())?;
        let files =
            [("SSH_PRIVATE_RSA_KEY", repository.key()), ("SSH_KNOWN_HOSTS", repository.known_hosts())];
        create_ssh_secret(world, "my-git", &files)?;
        let _operator = world.operator().await?;
        for pod in ["{}", "{securityContext: {runAsUser: 4321}}"] {
            let step = format!(
                "  command: ./hello.sh\n  plugins: [{{kubernetes: {{podSpec: {pod}, \
                 gitEnvFrom: [{{secretRef: {{name: my-git}}}}]}}}}]"
            );
            assert_cloned(&run(world, &repository.url, &step).await?);
        }
        Ok(())
    })
    .await;
}

#[rstest]
#[case::user_and_password(&["--from-literal=username=reader", "--from-literal=password=a-secret-of-git"])]
#[case::urls(&["--from-literal=.git-credentials=http://reader:a-secret-of-git@HOST"])]
#[tokio::test(flavor = "multi_thread")]
async fn a_password_opens_a_repository_over_http(#[case] literals: &[&str]) {
    scenario(async |world| {
        let repository = HttpRepository::serve(world.environment.host, &world.repository.path()).await?;
        let host = repository.url.trim_start_matches("http://").split('/').next().unwrap_or_default();
        assert!(
            literals
                .iter()
                .all(|literal| !literal.contains("HOST") || literal.contains(&format!("{USER}:{PASSWORD}")))
        );
        let literals: Vec<_> = literals.iter().map(|literal| literal.replace("HOST", host)).collect();
        let mut args = vec!["create", "secret", "generic", "git-https"];
        args.extend(literals.iter().map(String::as_str));
        world.cluster.kubectl(&args, None)?;
        world.cluster.configure("pod_config", "gitCredentials: {httpsSecret: git-https}").await?;
        let _operator = world.operator().await?;
        assert_cloned(&run(world, &repository.url, &format!("  command: \"{COMMAND}\"")).await?);
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_brings_a_secret_with_urls() {
    scenario(async |world| {
        let repository = HttpRepository::serve(world.environment.host, &world.repository.path()).await?;
        let url = repository.url.replace("http://", &format!("http://{USER}:{PASSWORD}@"));
        let url = url.trim_end_matches("/repo.git");
        world.cluster.create_secret("urls", ".git-credentials", url).await?;
        let _operator = world.operator().await?;
        let step = format!(
            "  command: \"{COMMAND}\"\n  plugins: [{{kubernetes: {{podSpec: {{securityContext: {{runAsUser: 4321}}}}, \
             checkout: {{gitCredentialsSecret: {{secretName: urls}}}}}}}}]"
        );
        assert_cloned(&run(world, &repository.url, &step).await?);
        Ok(())
    })
    .await;
}
