//! The programs of a cluster, in the order in which they start.

use std::fmt;

use super::network::Block;
use super::node::{CLUSTER, PROGRAMS};

/// The record of what service accounts ask of the API server, among the components' logs.
pub(crate) const AUDIT_LOG: &str = "audit";

/// One of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Component {
    Containerd,
    Etcd,
    ApiServer,
    ControllerManager,
    Scheduler,
    Dns,
    Proxy,
    Kubelet,
}

impl Component {
    /// All of them.
    pub(crate) const ALL: [Self; 8] = [
        Self::Containerd,
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Dns,
        Self::Proxy,
        Self::Kubelet,
    ];

    /// Its name, in the list of processes too.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Dns => "coredns",
            Self::Proxy => "kube-proxy",
            Self::Kubelet => "kubelet",
        }
    }

    /// The program, inside the node.
    pub(crate) fn program(self) -> String {
        match self {
            Self::Containerd => self.name().to_owned(),
            _ => format!("{PROGRAMS}/{}", self.name()),
        }
    }

    /// Where it listens. Loopback is the node's, which the machine does not see.
    pub(crate) fn address(self, block: Block) -> String {
        match self {
            Self::Containerd => "/run/containerd/containerd.sock".to_owned(),
            Self::Etcd => "127.0.0.1:2379".to_owned(),
            Self::ApiServer => format!("{}:6443", block.node()),
            Self::ControllerManager => "127.0.0.1:10257".to_owned(),
            Self::Scheduler => "127.0.0.1:10259".to_owned(),
            Self::Dns => format!("{}:53", block.dns_service()),
            Self::Proxy => "127.0.0.1:10256".to_owned(),
            Self::Kubelet => format!("{}:10250", block.node()),
        }
    }

    /// What it is called with.
    pub(crate) fn arguments(self, node: &str, block: Block) -> Vec<String> {
        match self {
            Self::Containerd => vec!["--config".to_owned(), config("containerd.toml")],
            Self::Etcd => etcd(),
            Self::ApiServer => api_server(block),
            Self::ControllerManager => controller_manager(),
            Self::Scheduler => control_plane_client("kube-scheduler"),
            Self::Dns => vec!["-conf".to_owned(), config("Corefile")],
            Self::Proxy => flags([("config", config("kube-proxy.json"))]),
            Self::Kubelet => flags([
                ("config", config("kubelet.json")),
                ("kubeconfig", config("kubelet.kubeconfig")),
                ("hostname-override", node.to_owned()),
                ("node-ip", block.node().to_string()),
            ]),
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn etcd() -> Vec<String> {
    let mut arguments = flags([
        ("data-dir", format!("{CLUSTER}/etcd")),
        ("listen-client-urls", "http://127.0.0.1:2379".to_owned()),
        ("advertise-client-urls", "http://127.0.0.1:2379".to_owned()),
        ("listen-peer-urls", "http://127.0.0.1:2380".to_owned()),
        ("log-level", "warn".to_owned()),
    ]);
    // A crash of the machine may cost the data of a cluster that is for development. Writes are ten times faster.
    arguments.push("--unsafe-no-fsync".to_owned());
    arguments
}

fn api_server(block: Block) -> Vec<String> {
    flags([
        ("advertise-address", block.node().to_string()),
        ("allow-privileged", "true".to_owned()),
        // In megabytes: its readers do not follow it into another file.
        ("audit-log-maxsize", "2000".to_owned()),
        ("audit-log-path", format!("{CLUSTER}/log/{AUDIT_LOG}.log")),
        ("audit-policy-file", config("audit.json")),
        ("authorization-mode", "Node,RBAC".to_owned()),
        ("client-ca-file", pki("ca.crt")),
        ("enable-admission-plugins", "NodeRestriction".to_owned()),
        ("etcd-servers", "http://127.0.0.1:2379".to_owned()),
        ("kubelet-certificate-authority", pki("ca.crt")),
        ("kubelet-client-certificate", pki("kube-apiserver.crt")),
        ("kubelet-client-key", pki("kube-apiserver.key")),
        ("kubelet-preferred-address-types", "InternalIP".to_owned()),
        // For API servers behind this one. Their requests carry the user's name, signed for by the same authority.
        ("proxy-client-cert-file", pki("kube-apiserver.crt")),
        ("proxy-client-key-file", pki("kube-apiserver.key")),
        ("requestheader-allowed-names", "kube-apiserver".to_owned()),
        ("requestheader-client-ca-file", pki("ca.crt")),
        ("requestheader-extra-headers-prefix", "X-Remote-Extra-".to_owned()),
        ("requestheader-group-headers", "X-Remote-Group".to_owned()),
        ("requestheader-username-headers", "X-Remote-User".to_owned()),
        ("secure-port", "6443".to_owned()),
        ("service-account-issuer", "https://kubernetes.default.svc.cluster.local".to_owned()),
        ("service-account-key-file", pki("service-accounts.key")),
        ("service-account-signing-key-file", pki("service-accounts.key")),
        ("service-cluster-ip-range", block.services().to_string()),
        ("tls-cert-file", pki("kube-apiserver.crt")),
        ("tls-private-key-file", pki("kube-apiserver.key")),
    ])
}

fn controller_manager() -> Vec<String> {
    let mut arguments = control_plane_client("kube-controller-manager");
    arguments.extend(flags([
        ("cluster-signing-cert-file", pki("ca.crt")),
        ("cluster-signing-key-file", pki("ca.key")),
        ("root-ca-file", pki("ca.crt")),
        ("service-account-private-key-file", pki("service-accounts.key")),
        ("use-service-account-credentials", "true".to_owned()),
    ]));
    arguments
}

/// What the scheduler and the controller manager have in common.
fn control_plane_client(name: &str) -> Vec<String> {
    let kubeconfig = config(&format!("{name}.kubeconfig"));
    flags([
        ("kubeconfig", kubeconfig.clone()),
        ("authentication-kubeconfig", kubeconfig.clone()),
        ("authorization-kubeconfig", kubeconfig),
        ("bind-address", "127.0.0.1".to_owned()),
        // The defaults protect large clusters, and let the controllers start one after the other for seconds.
        ("kube-api-qps", "500".to_owned()),
        ("kube-api-burst", "1000".to_owned()),
        // There is one of each, and an election would cost seconds after each restart.
        ("leader-elect", "false".to_owned()),
    ])
}

fn flags<const N: usize>(flags: [(&str, String); N]) -> Vec<String> {
    flags.map(|(name, value)| format!("--{name}={value}")).to_vec()
}

fn config(file: &str) -> String {
    format!("{CLUSTER}/config/{file}")
}

fn pki(file: &str) -> String {
    format!("{CLUSTER}/pki/{file}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> Block {
        Block::candidates().next().unwrap()
    }

    #[test]
    fn all_paths_are_those_inside_the_node() {
        for component in Component::ALL {
            for argument in component.arguments("dev", block()) {
                let value = argument.split_once('=').map_or(&*argument, |(_, value)| value);
                assert!(!value.starts_with('/') || value.starts_with(CLUSTER), "{component} {argument}");
            }
        }
    }

    #[test]
    fn the_api_server_advertises_the_node_and_gives_out_the_services_of_the_block() {
        let arguments = Component::ApiServer.arguments("dev", block());
        assert!(arguments.contains(&"--advertise-address=10.200.0.2".to_owned()));
        assert!(arguments.contains(&"--service-cluster-ip-range=10.200.16.0/20".to_owned()));
    }

    #[test]
    fn only_what_others_need_to_reach_listens_beyond_loopback() {
        let open: Vec<_> =
            Component::ALL.into_iter().filter(|c| c.address(block()).starts_with("10.")).collect();
        assert_eq!(open, [Component::ApiServer, Component::Dns, Component::Kubelet]);
    }

    #[test]
    fn names_are_unique_because_processes_are_found_by_them() {
        let names: std::collections::HashSet<_> = Component::ALL.map(Component::name).into();
        assert_eq!(names.len(), Component::ALL.len());
    }
}
