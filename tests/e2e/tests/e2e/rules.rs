//! What roles allow, and what of it was used.

use anyhow::Result;
use bk_e2e::audit::ApiCall;
use serde::Deserialize;

#[derive(Deserialize)]
struct Object {
    kind: String,
    #[serde(default)]
    rules: Vec<Rule>,
}

/// A rule of a role.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
    verbs: Vec<String>,
}

/// The rules of the roles in some manifests.
pub(crate) fn of(manifests: &str) -> Result<Vec<Rule>> {
    let objects: Vec<Object> = serde_saphyr::from_multiple(manifests)?;
    let roles = objects.into_iter().filter(|object| ["Role", "ClusterRole"].contains(&object.kind.as_str()));
    Ok(roles.flat_map(|role| role.rules).collect())
}

/// The verbs that no call has used, but for some of some resources, each with a resource that its rule is about.
pub(crate) fn unused(rules: &[Rule], calls: &[ApiCall], but: &[(&str, &str)]) -> Vec<(String, String)> {
    let each = rules.iter().flat_map(|rule| {
        let verbs = rule.verbs.iter().map(move |verb| (rule, verb));
        verbs.flat_map(|(rule, verb)| rule.resources.iter().map(move |resource| (rule, verb, resource)))
    });
    each.filter(|(rule, verb, resource)| {
        !calls.iter().any(|call| call.verb == **verb && rule.is_about(call, resource))
            && !but.iter().any(|(other, without)| resource == other && verb == without)
    })
    .map(|(_, verb, resource)| (verb.clone(), resource.clone()))
    .collect()
}

impl Rule {
    fn is_about(&self, call: &ApiCall, resource: &str) -> bool {
        let subresource = call.subresource.iter().map(|below| format!("/{below}"));
        let asked = format!("{}{}", call.resource, subresource.collect::<String>());
        let named = call.name.as_ref().is_some_and(|name| self.resource_names.contains(name));
        self.api_groups.contains(&call.group)
            && resource == asked
            && (self.resource_names.is_empty() || named)
    }
}
