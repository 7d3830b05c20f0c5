//! `podSecurity`: what the operator's own containers may do.

use bk_api::config::PodSecurity;
use k8s_openapi::api::core::v1::{Capabilities, Container, PodSpec, SeccompProfile, SecurityContext};

use super::{PodSettings, identity};

/// The user of our containers where nobody names one: `buildkite-agent` in the agent's image.
pub(super) const USER: i64 = 1000;

/// Keeps the *restricted* Pod Security Standard for one of our containers, if the configuration asks for it. What somebody
/// has set stays.
pub(super) fn restrict(container: &mut Container, spec: &PodSpec, settings: &PodSettings) {
    if settings.config.pod_security != PodSecurity::Restricted {
        return;
    }
    let user = identity::user(container, spec);
    let context = container.security_context.get_or_insert_default();
    if user.is_none_or(|user| user == 0) {
        context.run_as_user = Some(USER);
    }
    let SecurityContext {
        allow_privilege_escalation, capabilities, run_as_non_root, seccomp_profile, ..
    } = context;
    allow_privilege_escalation.get_or_insert(false);
    run_as_non_root.get_or_insert(true);
    capabilities.get_or_insert_with(|| Capabilities { add: None, drop: Some(vec!["ALL".to_owned()]) });
    seccomp_profile.get_or_insert_with(|| SeccompProfile {
        type_: "RuntimeDefault".to_owned(),
        ..SeccompProfile::default()
    });
}
