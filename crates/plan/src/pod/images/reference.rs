//! The grammar of image references: `[registry[:port]/]name[/name…][:tag][@algorithm:digest]`.

/// The longest name that registries take.
const MAX_NAME: usize = 255;
/// The longest tag that registries take.
const MAX_TAG: usize = 128;

/// Says what is wrong with a reference. The node would say so too, but only once the pod is there.
pub(super) fn check(reference: &str) -> Result<(), &'static str> {
    let (rest, digest) = match reference.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (reference, None),
    };
    // A colon before the last slash belongs to the registry's port.
    let (name, tag) = match rest.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (rest, None),
    };
    let (registry, path) = match name.split_once('/') {
        Some((first, path)) if is_registry(first) => (Some(first), path),
        _ => (None, name),
    };
    if path.is_empty() {
        return Err("it names no image");
    }
    if name.len() > MAX_NAME {
        return Err("it has more than 255 characters");
    }
    if registry.is_some_and(|registry| !is_host(registry)) {
        return Err("its registry is not the name of a host with an optional port");
    }
    if path.contains(|c: char| c.is_ascii_uppercase()) {
        return Err("images are named in lower case");
    }
    if !path.split('/').all(is_component) {
        return Err("names consist of a-z, 0-9 and single separators (. _ __ -) between them");
    }
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Err("its tag may have letters, digits, _, . and -, and 128 characters");
    }
    if digest.is_some_and(|digest| !is_digest(digest)) {
        return Err("its digest must be an algorithm and hexadecimal digits, such as sha256:…");
    }
    Ok(())
}

/// Whether what comes before the first slash names a registry rather than the beginning of a path.
fn is_registry(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.contains(|c: char| c.is_ascii_uppercase())
}

fn is_host(registry: &str) -> bool {
    let (host, port) = if let Some(rest) = registry.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        let valid = address.contains(':') && address.chars().all(|c| c.is_ascii_hexdigit() || c == ':');
        return valid && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
    } else {
        match registry.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (registry, None),
        }
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

fn is_port(port: &str) -> bool {
    !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// Runs of letters and digits, with one separator between two: `.`, `_`, `__` or any number of `-`.
fn is_component(component: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let separators = component.split(is_plain).filter(|run| !run.is_empty());
    component.starts_with(is_plain)
        && component.ends_with(is_plain)
        && separators.into_iter().all(|run| matches!(run, "." | "_" | "__") || run.chars().all(|c| c == '-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= MAX_TAG
        && tag.starts_with(is_word)
        && tag.chars().all(|c| is_word(c) || matches!(c, '.' | '-'))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic()) && part.chars().all(|c| c.is_ascii_alphanumeric())
    };
    let long_enough = if algorithm == "sha256" { hex.len() == 64 } else { hex.len() >= 32 };
    algorithm.split(['+', '.', '-', '_']).all(is_part)
        && long_enough
        && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[rstest]
    #[case("busybox")]
    #[case("golang:1.13")]
    #[case("buildkite/agent:3.137.2")]
    #[case("registry.example.com/ci/image")]
    #[case("registry.example.com:5000/ci/image:dev")]
    #[case("localhost/image")]
    #[case("localhost:5000/image")]
    #[case("10.200.0.1:5000/image")]
    #[case("[2001:db8::1]:5000/image:1")]
    #[case("x/a.b-c__d---e/f_g:V1.0_x-y")]
    #[case("EXAMPLE.com/image")]
    #[case(&format!("busybox@{DIGEST}"))]
    #[case(&format!("registry.example.com:5000/a/b:1@{DIGEST}"))]
    fn references(#[case] reference: &str) {
        assert_eq!(check(reference), Ok(()));
    }

    #[rstest]
    #[case("", "it names no image")]
    #[case("registry.example.com/", "it names no image")]
    #[case(":latest", "it names no image")]
    #[case("Golang", "images are named in lower case")]
    #[case("buildkite/Agent", "images are named in lower case")]
    #[case("golang 1", "names consist")]
    #[case("golang::1", "names consist")]
    #[case("-golang", "names consist")]
    #[case("a..b", "names consist")]
    #[case("a//b", "names consist")]
    #[case("https://example.com/image", "its registry")]
    #[case("-x.example.com/image", "its registry")]
    #[case("example.com:/image", "its registry")]
    #[case("golang:", "its tag")]
    #[case("golang:-1", "its tag")]
    #[case("golang:1 ", "its tag")]
    #[case("golang@sha256:12", "its digest")]
    #[case("golang@latest", "its digest")]
    fn no_references(#[case] reference: &str, #[case] expected: &str) {
        let problem = check(reference).unwrap_err();
        assert!(problem.starts_with(expected), "{problem}");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_one_or_not(reference in ".*") {
            let _ = check(&reference);
        }
    }
}
