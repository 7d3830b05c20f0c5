//! `checkout`: how the agent gets the code, as the variables that it reads.

use serde_json::{Map, Value as Json};

use super::PipelineProblem;
use super::attributes::{Attributes, boolean, integer, wrong};
use super::node::{Node, Value};
use super::rules;
use super::step::Env;

/// The settings of a `checkout` by name, as written.
pub type Checkout = Map<String, Json>;

/// What the agent clones and fetches with when nobody says otherwise; a depth is added to it.
const CLONE_FLAGS: &str = "-v";
const FETCH_FLAGS: &str = "-v --prune";

/// Reads and checks `checkout`. A secret key is for one step only.
pub(crate) fn checkout(attributes: &mut Attributes, of_step: bool) -> Result<Checkout, PipelineProblem> {
    let Some(node) = attributes.take(&["checkout"])? else { return Ok(Checkout::new()) };
    match &node.value {
        Value::Null => return Ok(Checkout::new()),
        Value::Map(_) => {}
        _ => return Err(wrong(&node, "checkout", "a map; to leave it out write checkout: {skip: true}")),
    }
    let mut parts = Attributes::of(&node);
    for flag in ["skip", "submodules", "lfs"] {
        if let Some(value) = parts.take(&[flag])?.filter(|value| boolean(value).is_none()) {
            return Err(wrong(&value, flag, "true or false"));
        }
    }
    if let Some(depth) = parts.take(&["depth"])?.filter(|depth| integer(depth).is_none_or(|depth| depth < 1))
    {
        return Err(wrong(&depth, "depth", "a whole number of at least 1"));
    }
    if let Some(secret) = parts.take(&["ssh_secret"])? {
        if !of_step {
            return Err(PipelineProblem::at(&secret, "ssh_secret belongs to a step, not to the pipeline"));
        }
        secret.scalar().ok_or_else(|| wrong(&secret, "ssh_secret", "the name of a secret"))?;
    }
    if let Some(mode) = parts.take(&["commit_verification"])? {
        let known = matches!(mode.scalar().as_deref(), Some("" | "strict" | "warn"));
        if !known {
            return Err(wrong(&mode, "commit_verification", "strict or warn"));
        }
    }
    if let Some(sparse) = parts.take(&["sparse"])? {
        check_sparse(&sparse)?;
    }
    if let Some(flags) = parts.take(&["flags"])? {
        check_flags(&flags)?;
    }
    parts.finish()?;
    match node.to_json() {
        Json::Object(settings) => Ok(settings),
        _ => Ok(Checkout::new()),
    }
}

fn check_sparse(node: &Node) -> Result<(), PipelineProblem> {
    let Value::Map(_) = &node.value else { return Err(wrong(node, "sparse", "a map with paths")) };
    let mut parts = Attributes::of(node);
    if let Some(paths) = parts.take(&["paths"])? {
        rules::texts(&paths, "paths")?;
    }
    parts.text(&["mode"])?;
    parts.finish()
}

fn check_flags(node: &Node) -> Result<(), PipelineProblem> {
    let Value::Map(_) = &node.value else { return Err(wrong(node, "flags", "a map")) };
    let mut parts = Attributes::of(node);
    for name in ["clone", "fetch", "checkout", "clean"] {
        match parts.take(&[name])? {
            Some(Node { value: Value::Text(_) | Value::Null, .. }) | None => {}
            Some(other) => return Err(wrong(&other, name, "a string")),
        }
    }
    parts.finish()
}

/// The pipeline's settings with the step's: a step replaces them one by one.
pub(crate) fn merged(pipeline: &Checkout, step: Checkout) -> Checkout {
    let mut all = pipeline.clone();
    for (name, value) in step {
        match (all.get_mut(&name), value) {
            (Some(Json::Object(outer)), Json::Object(own)) if name == "flags" => outer.extend(own),
            (_, value) => {
                all.insert(name, value);
            }
        }
    }
    all
}

/// The variables that these settings stand for.
pub fn variables(checkout: &Checkout) -> Env {
    let mut env = Env::new();
    let text = |value: &Json| match value {
        Json::String(text) => text.clone(),
        Json::Null => String::new(),
        other => other.to_string(),
    };
    let mut set = |name: &str, value: String| {
        env.insert(format!("BUILDKITE_{name}"), value);
    };
    for (setting, variable) in [
        ("skip", "SKIP_CHECKOUT"),
        ("submodules", "GIT_SUBMODULES"),
        ("lfs", "GIT_LFS_ENABLED"),
        ("commit_verification", "GIT_COMMIT_VERIFICATION"),
    ] {
        if let Some(value) = checkout.get(setting).filter(|value| !value.is_null()) {
            set(variable, text(value));
        }
    }
    let sparse = checkout.get("sparse");
    match sparse.and_then(|sparse| sparse.get("paths")) {
        Some(Json::Array(paths)) => {
            set("GIT_SPARSE_CHECKOUT_PATHS", paths.iter().map(text).collect::<Vec<_>>().join(","));
        }
        Some(Json::Null) | None => {}
        Some(path) => set("GIT_SPARSE_CHECKOUT_PATHS", text(path)),
    }
    if let Some(mode) = sparse.and_then(|sparse| sparse.get("mode")).filter(|mode| !mode.is_null()) {
        set("GIT_SPARSE_CHECKOUT_MODE", text(mode));
    }
    let flags =
        |name| checkout.get("flags").and_then(|flags| flags.get(name)).filter(|flags| !flags.is_null());
    let depth = checkout.get("depth").filter(|depth| !depth.is_null());
    for (name, variable, default) in [
        ("clone", "GIT_CLONE_FLAGS", Some(CLONE_FLAGS)),
        ("fetch", "GIT_FETCH_FLAGS", Some(FETCH_FLAGS)),
        ("checkout", "GIT_CHECKOUT_FLAGS", None),
        ("clean", "GIT_CLEAN_FLAGS", None),
    ] {
        match (flags(name), depth.zip(default)) {
            (Some(own), Some((depth, _))) => set(variable, format!("{} --depth={}", text(own), text(depth))),
            (Some(own), None) => set(variable, text(own)),
            (None, Some((depth, default))) => set(variable, format!("{default} --depth={}", text(depth))),
            (None, None) => {}
        }
    }
    env
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn read(yaml: &str, of_step: bool) -> Result<Checkout, PipelineProblem> {
        checkout(&mut Attributes::of(&Node::from_yaml(yaml).unwrap()), of_step)
    }

    #[rstest]
    #[case("{skip: true}", "SKIP_CHECKOUT=true")]
    #[case("{submodules: false, lfs: true}", "GIT_LFS_ENABLED=true GIT_SUBMODULES=false")]
    #[case("{sparse: {paths: [a, b/c]}}", "GIT_SPARSE_CHECKOUT_PATHS=a,b/c")]
    #[case("{flags: {clean: '', checkout: -f}}", "GIT_CHECKOUT_FLAGS=-f GIT_CLEAN_FLAGS=")]
    #[case("{depth: 3}", "GIT_CLONE_FLAGS=-v --depth=3 GIT_FETCH_FLAGS=-v --prune --depth=3")]
    #[case(
        "{depth: 3, flags: {clone: -q}}",
        "GIT_CLONE_FLAGS=-q --depth=3 GIT_FETCH_FLAGS=-v --prune --depth=3"
    )]
    #[case("{commit_verification: strict, ssh_secret: key}", "GIT_COMMIT_VERIFICATION=strict")]
    #[case("~", "")]
    fn settings_become_variables(#[case] yaml: &str, #[case] expected: &str) {
        let env = variables(&read(&format!("checkout: {yaml}"), true).unwrap());
        let shown: Vec<_> =
            env.iter().map(|(name, value)| format!("{}={value}", &name["BUILDKITE_".len()..])).collect();
        assert_eq!(shown.join(" "), expected);
    }

    #[test]
    fn a_step_overrides_key_by_key() {
        let outer = read("checkout: {skip: true, depth: 1, flags: {clone: a, fetch: b}}", false).unwrap();
        let own = read("checkout: {skip: false, flags: {fetch: c}}", true).unwrap();
        let all = Json::Object(merged(&outer, own));
        assert_eq!(
            all,
            serde_json::json!({"skip": false, "depth": 1, "flags": {"clone": "a", "fetch": "c"}})
        );
    }

    #[rstest]
    #[case("false", "checkout must be a map; to leave it out write checkout: {skip: true}")]
    #[case("{skip: maybe}", "skip must be true or false")]
    #[case("{depth: 0}", "depth must be a whole number of at least 1")]
    #[case("{flags: {clone: true}}", "clone must be a string")]
    #[case("{submodule: true}", "unknown attribute submodule; did you mean submodules?")]
    #[case("{ssh_secret: key}", "ssh_secret belongs to a step")]
    #[case("{commit_verification: maybe}", "must be strict or warn")]
    fn refusals(#[case] yaml: &str, #[case] expected: &str) {
        let text = read(&format!("checkout: {yaml}"), false).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
}
