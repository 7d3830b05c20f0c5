//! What changes a draft, in this order: the step's `image`.

use bk_api::BuildJob;

use super::Draft;

/// Applies patches to a draft.
pub(super) fn apply(draft: &mut Draft, job: &BuildJob) {
    if let Some(image) = &job.spec.image {
        for container in &mut draft.spec.containers {
            if draft.commands.contains(&container.name) {
                container.image = Some(image.clone());
            }
        }
    }
}
