//! Namespaces that enforce the *restricted* Pod Security Standard.

use bk_e2e::scenario;

#[tokio::test(flavor = "multi_thread")]
async fn jobs_check_out_and_run_where_only_restricted_pods_may() {
    scenario(async |world| {
        let namespace = world.cluster.namespace.clone();
        let label = "pod-security.kubernetes.io/enforce=restricted";
        world.cluster.kubectl(&["label", "namespace", &namespace, label], None)?;
        let refused = world.cluster.try_kubectl(&["run", "plain", "--image=busybox"], None)?;
        assert!(
            String::from_utf8_lossy(&refused.stderr).contains("violates PodSecurity \"restricted"),
            "it is enforced"
        );
        world.cluster.configure("pod_config", "podSecurity: restricted").await?;
        let _operator = world.operator().await?;
        let steps = format!(
            r"
agents: {{queue: bk-operator}}
steps:
  - command: ./hello.sh; id; git status --short
  - command: ./hello.sh; id; touch written
    plugins:
      - kubernetes:
          podSpec:
            containers:
              - image: {image}
                securityContext:
                  runAsUser: 2222
                  runAsNonRoot: true
                  allowPrivilegeEscalation: false
                  capabilities: {{drop: [ALL]}}
                  seccompProfile: {{type: RuntimeDefault}}
",
            image = world.environment.toolbox_image
        );
        let build = world.buildkite.build(&world.repository.url, &steps).await?;
        for (job, user) in build.jobs.iter().zip(["uid=1000", "uid=2222"]) {
            let ended = world.buildkite.ended(job.id).await?;
            let log = world.buildkite.log(job.id).await?;
            assert_eq!(ended.exit_status, Some(0), "{log}");
            assert!(log.contains("hello from the repository") && log.contains(user), "{log}");
        }
        world.cluster.no_pods().await
    })
    .await;
}
