//! A home for users that the image does not know: the runtime gives them `/`, where they may not write.

use crate::delivery::make_each;
use crate::layout::{Layout, Spot};
use crate::sys::{self, Process};
use crate::text::Text;
use core::ffi::CStr;

/// The variable as the runtime sets it for a user that the image does not know.
pub const NONE: &CStr = c"HOME=/";

/// The variable with a better value.
pub type Home = Text<1600>;

/// A home in the workspace, made for this pod alone, if the process has none.
pub fn instead(process: &Process, layout: Layout<'_>) -> Option<Home> {
    let homeless = || process.environment.into_iter().any(|entry| entry == NONE);
    let place = layout.at(Spot::Home);
    let made = sys::user_id() != 0 && homeless() && make_each(place.path().as_str(), 0o777).is_ok();
    made.then(|| Text::new(format_args!("HOME={place}")))
}
