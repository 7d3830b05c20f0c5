//! The configuration files of a cluster. JSON where the reader takes YAML: every JSON document is one.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::network::Block;
use super::node::CLUSTER;

/// The image of a pod's sandbox.
pub(crate) const PAUSE_IMAGE: &str = "localhost/pause:1";

/// Where containerd looks, before each pull, how a registry is reached: `HOST:PORT/hosts.toml`. In the cluster's
/// directory, and empty unless somebody has a registry without TLS.
pub(crate) const REGISTRIES: &str = "registries";

/// What the files depend on.
pub(crate) struct Settings<'a> {
    /// The cluster's name, and its node's.
    pub(crate) name: &'a str,
    pub(crate) block: Block,
    /// Where the network plugins are.
    pub(crate) network_plugins: &'a str,
    /// The machine's name servers, as far as the node can reach them.
    pub(crate) name_servers: &'a [Ipv4Addr],
}

/// All files: name and contents.
pub(crate) fn files(settings: &Settings<'_>) -> Vec<(String, String)> {
    let mut files = vec![
        ("containerd.toml".to_owned(), containerd(settings)),
        ("network/10-bridge.conflist".to_owned(), network(settings).to_string()),
        ("kubelet.json".to_owned(), kubelet(settings).to_string()),
        ("kube-proxy.json".to_owned(), proxy(settings).to_string()),
        ("audit.json".to_owned(), audit_policy().to_string()),
        ("Corefile".to_owned(), corefile(settings)),
        ("resolv.conf".to_owned(), resolv_conf(settings)),
        ("objects.json".to_owned(), objects(settings).to_string()),
    ];
    for user in ["kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "coredns"] {
        files.push((format!("{user}.kubeconfig"), kubeconfig_with_files(user, settings.block).to_string()));
    }
    files
}

fn containerd(Settings { network_plugins, .. }: &Settings<'_>) -> String {
    // Where processes may not lower their score for the out-of-memory killer, no container would start without
    // `restrict_oom_score_adj`. An AppArmor profile would be the whole machine's, and stay in its kernel.
    format!(
        r#"version = 2

[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{CLUSTER}/{REGISTRIES}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{network_plugins}"
    conf_dir = "{CLUSTER}/config/network"
"#
    )
}

fn network(Settings { block, .. }: &Settings<'_>) -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": block.pods().to_string()}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

fn kubelet(Settings { block, .. }: &Settings<'_>) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": block.node(),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": format!("{CLUSTER}/pki/ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        // A machine may run several clusters.
        "cgroupRoot": format!("/{}", block.tag()),
        "clusterDNS": [block.dns_service()],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "enforceNodeAllocatable": [],
        "eventRecordQPS": 0,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        // Version 1 still serves; the kubelet would refuse it.
        "failCgroupV1": false,
        "failSwapOn": false,
        // Imported images cannot be pulled again, so none may be cleaned away.
        "imageGCHighThresholdPercent": 100,
        "kubeAPIQPS": 500,
        "kubeAPIBurst": 1000,
        "maxPods": 250,
        "readOnlyPort": 0,
        "resolvConf": format!("{CLUSTER}/config/resolv.conf"),
        "serializeImagePulls": false,
        "tlsCertFile": format!("{CLUSTER}/pki/kubelet-server.crt"),
        "tlsPrivateKeyFile": format!("{CLUSTER}/pki/kubelet-server.key"),
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
    })
}

/// Which requests are recorded: one line for each that a service account made and that is over, so that tests can count
/// what a program asks for. The cluster's own controllers would drown them.
fn audit_policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [
            {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
            {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
            {"level": "None"},
        ],
    })
}

fn proxy(Settings { name, block, .. }: &Settings<'_>) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": format!("{CLUSTER}/config/kube-proxy.kubeconfig")},
        "clusterCIDR": block.pods().to_string(),
        // These settings belong to the machine. Zero leaves them alone.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "healthzBindAddress": "127.0.0.1:10256",
        "hostnameOverride": name,
        "iptables": {
            // Else an answer from a pod to its neighbour would pass the bridge without the Service's address, unless
            // the machine has loaded br_netfilter.
            "masqueradeAll": true,
            // Services answer soon after they appear, also those that a test has just made.
            "minSyncPeriod": "100ms",
        },
        "metricsBindAddress": "127.0.0.1:10249",
        "mode": "iptables",
        "nodePortAddresses": ["primary"],
    })
}

fn corefile(Settings { name_servers, .. }: &Settings<'_>) -> String {
    let servers = name_servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let forward = if servers.is_empty() { String::new() } else { format!("    forward . {servers}\n") };
    format!(
        ".:53 {{
    errors
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {CLUSTER}/config/coredns.kubeconfig
        pods insecure
        fallthrough in-addr.arpa
        ttl 5
    }}
{forward}    cache 5
}}
"
    )
}

/// For pods that ask for the node's name servers.
fn resolv_conf(Settings { name_servers, .. }: &Settings<'_>) -> String {
    name_servers
        .iter()
        .flat_map(|server| ["nameserver ".to_owned(), server.to_string(), "\n".to_owned()])
        .collect()
}

/// The name servers in a `resolv.conf` that can be reached from elsewhere: a stub on loopback cannot.
pub(crate) fn name_servers(resolv_conf: &str) -> Vec<Ipv4Addr> {
    let addresses = resolv_conf.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse().ok()).flatten()
    });
    addresses.filter(|address: &Ipv4Addr| !address.is_loopback()).collect()
}

/// Access for a program in the node, which reads its certificates from files.
fn kubeconfig_with_files(user: &str, block: Block) -> Value {
    let file = |name: &str| format!("{CLUSTER}/pki/{name}");
    kubeconfig(
        "local",
        block,
        json!({"certificate-authority": file("ca.crt")}),
        &json!({"client-certificate": file(&format!("{user}.crt")), "client-key": file(&format!("{user}.key"))}),
    )
}

/// Access to the API server.
pub(crate) fn kubeconfig(context: &str, block: Block, mut cluster: Value, user: &Value) -> Value {
    cluster["server"] = format!("https://{}:6443", block.node()).into();
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": context, "user": user}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
        "current-context": context,
    })
}

/// What has to be in the cluster before it is of use.
fn objects(Settings { block, .. }: &Settings<'_>) -> Value {
    let labels = json!({"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS"});
    let binding = |name: &str, user: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("local:{user}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        })
    };
    let ports = json!([
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]);
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "local:coredns"},
            "rules": [
                {"apiGroups": [""], "resources": ["namespaces", "pods", "services"], "verbs": ["list", "watch"]},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
            ],
        },
        binding("local:coredns", "coredns"),
        binding("system:kubelet-api-admin", "kube-apiserver"),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": labels},
            "spec": {"clusterIP": block.dns_service(), "ports": ports},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kube-dns-node",
                "namespace": "kube-system",
                "labels": {"kubernetes.io/service-name": "kube-dns"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [block.node()], "conditions": {"ready": true}}],
            "ports": ports,
        },
    ]})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(name_servers: &[Ipv4Addr]) -> Settings<'_> {
        let block = Block::candidates().next().unwrap();
        Settings { name: "dev", block, network_plugins: "/usr/lib/cni", name_servers }
    }

    #[test]
    fn the_forwarder_is_there_only_if_somebody_can_answer() {
        assert!(!corefile(&settings(&[])).contains("forward"));
        let servers = ["192.0.2.53", "192.0.2.54"].map(|server| server.parse().unwrap());
        assert!(corefile(&settings(&servers)).contains("    forward . 192.0.2.53 192.0.2.54\n    cache 5\n"));
        assert_eq!(resolv_conf(&settings(&servers)), "nameserver 192.0.2.53\nnameserver 192.0.2.54\n");
    }

    #[test]
    fn stubs_on_loopback_and_other_lines_are_no_name_servers() {
        let text = "# nameserver 192.0.2.1\nsearch lan\nnameserver 127.0.0.53\nnameserver  192.0.2.53\nnameserver ::1";
        assert_eq!(name_servers(text), [Ipv4Addr::new(192, 0, 2, 53)]);
    }

    #[test]
    fn pods_ask_the_address_that_the_service_has() {
        let settings = settings(&[]);
        let service = &objects(&settings)["items"][3];
        assert_eq!(service["kind"], "Service");
        assert_eq!(service["spec"]["clusterIP"], kubelet(&settings)["clusterDNS"][0]);
    }

    #[test]
    fn each_client_has_its_own_identity() {
        let settings = settings(&[]);
        let users = files(&settings).into_iter().filter(|(name, _)| name.ends_with(".kubeconfig"));
        for (name, contents) in users {
            let user = name.trim_end_matches(".kubeconfig");
            assert!(contents.contains(&format!("/run/cluster/pki/{user}.crt")), "{name}");
            assert!(contents.contains("https://10.200.0.2:6443"), "{name}");
        }
    }
}
