//! Amounts of processor, memory and whatever else nodes have and pods ask for.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, Node, Pod, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

/// Kubernetes knows nothing finer than a billionth.
const BILLION: i128 = 1_000_000_000;
/// The resource of which each pod takes one.
pub(crate) const PODS: &str = "pods";

/// Amounts by the name of the resource, in billionths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts(BTreeMap<String, i128>);

impl Amounts {
    /// What a pod asks of its node: its containers and native sidecars together, or what its init containers need before them if
    /// that is more, and the overhead of its runtime class.
    pub fn of_pod(spec: &PodSpec) -> Self {
        let mut beside = Self::default();
        let mut before = Self::default();
        for container in spec.init_containers.iter().flatten() {
            if container.restart_policy.as_deref() == Some("Always") {
                beside.add(&Self::of_container(container));
                before.raise(&beside);
            } else {
                let mut with_sidecars = beside.clone();
                with_sidecars.add(&Self::of_container(container));
                before.raise(&with_sidecars);
            }
        }
        for container in &spec.containers {
            beside.add(&Self::of_container(container));
        }
        beside.raise(&before);
        // What the pod says as a whole stands in place of what its containers add up to.
        if let Some(whole) = &spec.resources {
            beside.0.extend(of_requirements(whole).0);
        }
        beside.add(&Self::of(spec.overhead.as_ref()));
        beside.0.insert(PODS.to_owned(), BILLION);
        beside
    }

    /// What pods that have not ended ask for together, by their node.
    pub fn by_node<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> BTreeMap<String, Self> {
        let mut nodes: BTreeMap<String, Self> = BTreeMap::new();
        for pod in pods {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let Some(spec) = pod.spec.as_ref().filter(|_| !matches!(phase, Some("Succeeded" | "Failed")))
            else {
                continue;
            };
            if let Some(node) = &spec.node_name {
                nodes.entry(node.clone()).or_default().add(&Self::of_pod(spec));
            }
        }
        nodes
    }

    /// What a container asks for by itself.
    pub(crate) fn of_container(container: &Container) -> Self {
        container.resources.as_ref().map(of_requirements).unwrap_or_default()
    }

    /// What a node has for pods in all.
    pub(crate) fn of_node(node: &Node) -> Self {
        Self::of(node.status.as_ref().and_then(|status| status.allocatable.as_ref()))
    }

    /// The amounts in a map of quantities.
    fn of(quantities: Option<&BTreeMap<String, Quantity>>) -> Self {
        let read = |(name, quantity): (&String, &Quantity)| Some((name.clone(), billionths(&quantity.0)?));
        Self(quantities.into_iter().flatten().filter_map(read).collect())
    }

    /// How much there is of a resource.
    pub(crate) fn get(&self, name: &str) -> i128 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Everything of which there is some.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, i128)> {
        self.0.iter().filter(|(_, amount)| **amount > 0).map(|(name, amount)| (name.as_str(), *amount))
    }

    /// An amount as people write it.
    pub(crate) fn shown(name: &str, amount: i128) -> String {
        let is_bytes =
            ["memory", "ephemeral-storage", "storage"].contains(&name) || name.starts_with("hugepages-");
        if is_bytes {
            return shown_bytes(amount);
        }
        let thousandths = amount / (BILLION / 1000);
        if thousandths % 1000 == 0 { (thousandths / 1000).to_string() } else { format!("{thousandths}m") }
    }

    fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let own = self.0.entry(name.clone()).or_default();
            *own = own.saturating_add(*amount);
        }
    }

    fn raise(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let own = self.0.entry(name.clone()).or_default();
            *own = (*own).max(*amount);
        }
    }
}

/// What is limited and not requested is requested up to the limit.
fn of_requirements(resources: &ResourceRequirements) -> Amounts {
    let mut amounts = Amounts::of(resources.limits.as_ref());
    amounts.0.extend(Amounts::of(resources.requests.as_ref()).0);
    amounts
}

fn shown_bytes(amount: i128) -> String {
    const UNITS: [&str; 5] = ["Ki", "Mi", "Gi", "Ti", "Pi"];
    let bytes = amount / BILLION;
    let mut unit = None;
    let mut size: i128 = 1;
    for name in UNITS {
        if bytes.abs() / size < 1024 {
            break;
        }
        (unit, size) = (Some(name), size * 1024);
    }
    let tenths = bytes * 10 / size;
    let whole = tenths / 10;
    match (unit, tenths % 10) {
        (None, _) => bytes.to_string(),
        (Some(unit), 0) => format!("{whole}{unit}"),
        (Some(unit), tenth) => format!("{whole}.{}{unit}", tenth.abs()),
    }
}

/// A quantity as Kubernetes writes them, such as `1500m`, `0.5`, `2Gi` or `1e3`; rounded up as it does.
fn billionths(quantity: &str) -> Option<i128> {
    let text = quantity.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (binary, decimal) = scale(suffix)?;
    // digits · 2^binary · 10^exponent
    let exponent = decimal + 9 - i32::try_from(fraction.len()).ok()?;
    let scaled = digits.checked_mul(1_i128.checked_shl(binary)?)?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    if exponent >= 0 {
        return scaled.checked_mul(power);
    }
    let is_cut = scaled > 0 && scaled % power != 0;
    Some(scaled / power + i128::from(is_cut))
}

/// The powers of two and of ten that a suffix stands for.
fn scale(suffix: &str) -> Option<(u32, i32)> {
    const DECIMAL: [(&str, i32); 10] = [
        ("n", -9),
        ("u", -6),
        ("m", -3),
        ("", 0),
        ("k", 3),
        ("M", 6),
        ("G", 9),
        ("T", 12),
        ("P", 15),
        ("E", 18),
    ];
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((0, *power));
    }
    if let Some((_, power)) =
        (1_u32..).zip(BINARY).map(|(at, name)| (name, 10 * at)).find(|(name, _)| *name == suffix)
    {
        return Some((power, 0));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    Some((0, exponent.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("1", Some(BILLION))]
    #[case("1500m", Some(BILLION * 3 / 2))]
    #[case("0.5", Some(BILLION / 2))]
    #[case(".5", Some(BILLION / 2))]
    #[case("2Gi", Some((2 << 30) * BILLION))]
    #[case("1.5Ki", Some(1536 * BILLION))]
    #[case("3k", Some(3000 * BILLION))]
    #[case("1e3", Some(1000 * BILLION))]
    #[case("1E3", Some(1000 * BILLION))]
    #[case("2E", Some(2_000_000_000_000_000_000 * BILLION))]
    #[case("100n", Some(100))]
    #[case("0.1n", Some(1))]
    #[case("-1", Some(-BILLION))]
    #[case("", None)]
    #[case("1x", None)]
    #[case("1e", None)]
    #[case("1e999", None)]
    #[case("99999999999999999999999999999999999999Ei", None)]
    fn quantities_are_read_as_kubernetes_does(#[case] text: &str, #[case] expected: Option<i128>) {
        assert_eq!(billionths(text), expected);
    }

    #[rstest]
    #[case("cpu", "4", "4")]
    #[case("cpu", "3.5", "3500m")]
    #[case("memory", "512", "512")]
    #[case("memory", "16Gi", "16Gi")]
    #[case("memory", "16123456Ki", "15.3Gi")]
    #[case("ephemeral-storage", "100M", "95.3Mi")]
    #[case("nvidia.com/gpu", "2", "2")]
    fn amounts_are_shown_as_people_write_them(
        #[case] name: &str,
        #[case] quantity: &str,
        #[case] expected: &str,
    ) {
        assert_eq!(Amounts::shown(name, billionths(quantity).unwrap()), expected);
    }
}
