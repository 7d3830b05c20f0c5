//! A namespace of the test's own on the cluster, with the operator's service account in it.

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use anyhow::{Context, Result, ensure};
use bk_api::{BuildJob, config::CONFIG_MAP};
use k8s_openapi::{
    ByteString,
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::{ConfigMap, Namespace, Pod, Secret, ServiceAccount},
        rbac::v1::ClusterRoleBinding,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::{environment::Environment, eventually, eventually_for};

const SERVICE_ACCOUNT: &str = "buildkite-operator";

/// What a real installation has for the broker.
const BROKER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/broker.yaml");

/// What it lets the operator see of the cluster.
const BROKER_ROLE: &str = "buildkite-buildkite-operator-broker";

/// The permissions that a real installation gives the operator.
const RBAC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rbac.yaml");

/// The custom resources are the cluster's, not a test's: installed once.
static CRDS: OnceCell<()> = OnceCell::const_new();

/// A namespace.
pub struct Cluster {
    /// Its name.
    pub namespace: String,
    /// The operator's own namespace: the same, unless it is installed by Helm.
    pub home: String,
    /// The administrator's client.
    pub client: Client,
    environment: Environment,
}

impl Cluster {
    /// Makes a namespace with the operator's service account and permissions, unless Helm is to bring them.
    pub async fn prepare(environment: &Environment) -> Result<Self> {
        let kubeconfig = Kubeconfig::read_from(&environment.kubeconfig)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let namespace = format!("e2e-{}", &Uuid::new_v4().simple().to_string()[..12]);
        // Quotas, policies and counts of a test are about its jobs, not about the operator's pods.
        let home = if environment.installed { format!("{namespace}-operator") } else { namespace.clone() };
        let client = Client::try_from(config)?;
        let cluster = Self { namespace, home, client, environment: environment.clone() };
        CRDS.get_or_try_init(async || cluster.install_crds()).await?;
        let namespaces = Api::<Namespace>::all(cluster.client.clone());
        namespaces.create(&PostParams::default(), &named::<Namespace>(&cluster.namespace)).await?;
        if !environment.installed {
            cluster.kubectl(&["apply", "-f", RBAC], None)?;
            cluster.provide_broker().await?;
        }
        Ok(cluster)
    }

    /// What the chart brings for the broker.
    async fn provide_broker(&self) -> Result<()> {
        self.kubectl(&["apply", "-f", BROKER], None)?;
        // The manifest's own is for the namespace that its documents use.
        self.bind_role("broker", BROKER_ROLE).await
    }

    /// Gives the operator what a role allows in the whole cluster.
    pub async fn bind_role(&self, what: &str, role: &str) -> Result<()> {
        let (group, home) = ("rbac.authorization.k8s.io", &self.home);
        let binding = serde_json::from_value(serde_json::json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": format!("{home}-{what}"), "labels": { "e2e": home } },
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": role },
            "subjects": [{ "kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": home }],
        }))?;
        Api::<ClusterRoleBinding>::all(self.client.clone()).create(&PostParams::default(), &binding).await?;
        Ok(())
    }

    fn install_crds(&self) -> Result<()> {
        let crds = Command::new(&self.environment.operator).arg("crds").output()?;
        self.kubectl(&["apply", "-f", "-"], Some(&String::from_utf8(crds.stdout)?))?;
        self.kubectl(&["wait", "--for=condition=Established", "crd", "--all"], None).map(drop)
    }

    /// Puts a Secret with one entry into the namespace.
    pub async fn create_secret(&self, name: &str, key: &str, value: &str) -> Result<()> {
        let data = [(key.to_owned(), ByteString(value.into()))].into();
        let secret = Secret { data: Some(data), ..named(name) };
        Api::namespaced(self.client.clone(), &self.namespace).create(&PostParams::default(), &secret).await?;
        Ok(())
    }

    /// Puts the operator's configuration into the namespace.
    pub async fn configure(&self, key: &str, value: &str) -> Result<()> {
        self.configure_all([(key, value)]).await
    }

    /// The same with several keys.
    pub async fn configure_all(&self, entries: impl IntoIterator<Item = (&str, &str)>) -> Result<()> {
        self.config_maps().create(&PostParams::default(), &configuration(entries)).await?;
        Ok(())
    }

    /// Replaces the operator's configuration as a whole.
    pub async fn reconfigure(&self, entries: impl IntoIterator<Item = (&str, &str)>) -> Result<()> {
        self.config_maps().replace(CONFIG_MAP, &PostParams::default(), &configuration(entries)).await?;
        Ok(())
    }

    /// What the test has configured, by key.
    pub async fn configured(&self) -> Result<BTreeMap<String, String>> {
        let config = self.config_maps().get_opt(CONFIG_MAP).await?;
        Ok(config.and_then(|config| config.data).unwrap_or_default())
    }

    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Writes a kubeconfig with the operator's service account's permissions and nothing more, for the API server or a
    /// way to it.
    pub async fn operator_kubeconfig(&self, directory: &Path, way: Option<&str>) -> Result<PathBuf> {
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), &self.home);
        let request = TokenRequest { spec: TokenRequestSpec::default(), ..TokenRequest::default() };
        let token = accounts.create_token_request(SERVICE_ACCOUNT, &PostParams::default(), &request).await?;
        let token = token.status.context("the API server answers with a token")?.token;
        let admin: serde_json::Value =
            serde_saphyr::from_str(&std::fs::read_to_string(&self.environment.kubeconfig)?)?;
        let direct = admin["clusters"][0]["cluster"].clone();
        let cluster = way.map_or(direct, |way| serde_json::json!({ "server": way }));
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "operator",
            "clusters": [{ "name": "test", "cluster": cluster }],
            "users": [{ "name": "operator", "user": { "token": token } }],
            "contexts": [{ "name": "operator",
                "context": { "cluster": "test", "user": "operator", "namespace": self.namespace } }],
        });
        let path = directory.join("kubeconfig");
        std::fs::write(&path, kubeconfig.to_string())?;
        Ok(path)
    }

    /// The operator, as the API server calls it.
    pub fn operator_user(&self) -> String {
        format!("system:serviceaccount:{}:{SERVICE_ACCOUNT}", self.home)
    }

    /// Runs kubectl in the namespace as the administrator; fails if it does.
    pub fn kubectl(&self, args: &[&str], input: Option<&str>) -> Result<String> {
        let output = self.try_kubectl(args, input)?;
        ensure!(
            output.status.success(),
            "kubectl {args:?} failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs kubectl in the namespace as the administrator.
    pub fn try_kubectl(&self, args: &[&str], input: Option<&str>) -> Result<Output> {
        let mut child = Command::new(&self.environment.kubectl)
            .arg("--kubeconfig")
            .arg(&self.environment.kubeconfig)
            .args(["--namespace", &self.namespace])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run kubectl")?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.unwrap_or_default().as_bytes())?;
        }
        Ok(child.wait_with_output()?)
    }

    /// The namespace's pods.
    pub async fn pods(&self) -> Result<Vec<Pod>> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), &self.namespace);
        Ok(pods.list(&ListParams::default()).await?.items)
    }

    /// Waits until no pod is left.
    pub async fn no_pods(&self) -> Result<()> {
        eventually("no pod is left", async || {
            let left = self.pods().await?;
            Ok(left.is_empty().then_some(()))
        })
        .await
    }

    /// Waits until so many BuildJobs say that a quota leaves no room for their pods.
    pub async fn wait_for_room(&self, count: usize) -> Result<()> {
        eventually_for(count, "the jobs wait for room", async || {
            let paths = "jsonpath={range .items[*]}{.status.waitingFor}{'\\n'}{end}";
            let waiting = self.kubectl(&["get", "buildjobs", "-o", paths], None)?;
            let waiting = waiting.matches("exceeded quota").count();
            ensure!(waiting == count, "{waiting} of {count} wait");
            Ok(Some(()))
        })
        .await
    }

    /// A BuildJob, if it exists.
    pub async fn build_job(&self, name: &str) -> Result<Option<BuildJob>> {
        Ok(Api::<BuildJob>::namespaced(self.client.clone(), &self.namespace).get_opt(name).await?)
    }

    /// Waits until a BuildJob is as `test` wants it.
    pub async fn build_job_with(
        &self,
        name: &str,
        what: &str,
        test: impl Fn(&BuildJob) -> bool,
    ) -> Result<BuildJob> {
        eventually(&format!("BuildJob {name} is {what}"), async || {
            let job = self.build_job(name).await?.context("it does not exist")?;
            if test(&job) { Ok(Some(job)) } else { anyhow::bail!("its status is {:?}", job.status) }
        })
        .await
    }

    /// Lets there be this many pods, from when the quota's controller has looked at the namespace.
    pub async fn quota(&self, pods: usize) -> Result<()> {
        let manifest = format!(
            "apiVersion: v1\nkind: ResourceQuota\nmetadata: {{name: pods}}\nspec: {{hard: {{pods: '{pods}'}}}}\n"
        );
        self.kubectl(&["apply", "-f", "-"], Some(&manifest))?;
        eventually("the quota counts", async || {
            let jsonpath = "jsonpath={.status.hard.pods}";
            let hard = self.kubectl(&["get", "resourcequota", "pods", "-o", jsonpath], None)?;
            Ok((hard == pods.to_string()).then_some(()))
        })
        .await
    }

    /// Deletes the namespace, and the operator's; what is in them goes with them, later.
    pub async fn remove(&self) -> Result<()> {
        let bindings = Api::<ClusterRoleBinding>::all(self.client.clone());
        let ours = ListParams::default().labels(&format!("e2e={}", self.home));
        bindings.delete_collection(&DeleteParams::default(), &ours).await?;
        let namespaces = Api::<Namespace>::all(self.client.clone());
        // A test need not have started an operator.
        if self.home != self.namespace && namespaces.get_opt(&self.home).await?.is_some() {
            namespaces.delete(&self.home, &DeleteParams::default()).await?;
        }
        namespaces.delete(&self.namespace, &DeleteParams::default()).await?;
        Ok(())
    }
}

fn configuration<'a, 'b>(entries: impl IntoIterator<Item = (&'a str, &'b str)>) -> ConfigMap {
    let data = entries.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    ConfigMap { data: Some(data), ..named(CONFIG_MAP) }
}

fn named<T: Default + kube::Resource>(name: &str) -> T {
    let mut object = T::default();
    *object.meta_mut() = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    object
}
