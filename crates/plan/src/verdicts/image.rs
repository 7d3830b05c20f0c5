//! Why an image cannot be had, from the words of kubelet and containerd.

use bk_api::{Verdict, VerdictCode};

use super::{secrets, start::Blocker};
use crate::facts::ContainerFacts;

/// Signs that the registry or the way to it is the problem: that may pass.
const PASSING: [&str; 12] = [
    "toomanyrequests",
    "too many requests",
    "timeout",
    "timed out",
    "connection refused",
    "connection reset",
    "no such host",
    "server misbehaving",
    "no route to host",
    "unexpected eof",
    "internal server error",
    "service unavailable",
];

const WRONG_PLATFORM: [&str; 2] = ["no match for platform", "no matching manifest for"];

const FORBIDDEN: [&str; 8] = [
    "pull access denied",
    "unauthorized",
    "authorization failed",
    "401 ",
    "403 forbidden",
    "insufficient_scope",
    "no basic auth credentials",
    "denied:",
];

const NOT_FOUND: [&str; 6] = [
    "code = notfound",
    "manifest unknown",
    "manifest_unknown",
    "name unknown",
    "name_unknown",
    "404 not found",
];

/// The code of what a container that waits is waiting for, if that is an image which cannot be had.
pub(super) fn problem(reason: &str, message: &str) -> Option<VerdictCode> {
    match reason {
        "InvalidImageName" => Some(VerdictCode::ImageNameInvalid),
        "ErrImageNeverPull" => Some(VerdictCode::ImageNeverPulled),
        "SignatureValidationFailed" => Some(VerdictCode::ImageForbidden),
        "RegistryUnavailable" => Some(VerdictCode::RegistryUnreachable),
        "ErrImagePull" | "ImagePullBackOff" | "ImageInspectError" => Some(pull_problem(message)),
        _ => None,
    }
}

/// What a failed pull means. Only an answer of the registry that is about the image is final.
fn pull_problem(message: &str) -> VerdictCode {
    let message = message.to_ascii_lowercase();
    let says = |signs: &[&str]| signs.iter().any(|sign| message.contains(sign));
    if says(&PASSING) {
        VerdictCode::RegistryUnreachable
    } else if says(&WRONG_PLATFORM) {
        VerdictCode::ImageWrongArchitecture
    } else if says(&["invalid reference", "couldn't parse image"]) {
        VerdictCode::ImageNameInvalid
    } else if says(&FORBIDDEN) {
        VerdictCode::ImageForbidden
    } else if says(&NOT_FOUND) || message.trim_end_matches('"').ends_with("not found") {
        VerdictCode::ImageNotFound
    } else {
        VerdictCode::RegistryUnreachable
    }
}

/// The image of a container that waits cannot be had.
pub(super) fn blocker(container: &ContainerFacts, code: VerdictCode, reason: &str, message: &str) -> Blocker {
    let ContainerFacts { name, image, .. } = container;
    let separator = if message.is_empty() { "" } else { ": " };
    let text = format!("image {image} of container {name} cannot be had: {reason}{separator}{message}");
    Blocker::new(Verdict::new(code, secrets::hidden(&text)))
}
