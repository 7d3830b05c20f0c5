//! The order of a merged list.

use serde_json::Value;

/// Puts `items` in order. Those that `wanted` names stand as it says, the others as in `before`, the list before the
/// merge. Where the two meet, `before` decides; what it does not know comes first.
pub(super) fn arrange(
    items: Vec<Value>,
    wanted: &[Value],
    before: &[Value],
    identity: impl Fn(&Value) -> &Value,
) -> Vec<Value> {
    let place = |list: &[Value], item: &Value| list.iter().position(|other| other == identity(item));
    let (mut named, mut others): (Vec<_>, Vec<_>) =
        items.into_iter().partition(|item| place(wanted, item).is_some());
    named.sort_by_key(|item| place(wanted, item));
    others.sort_by_key(|item| place(before, item));

    let mut arranged = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in named {
        let here = place(before, &item);
        let earlier =
            |other: &Value| matches!((place(before, other), here), (Some(there), Some(here)) if there < here);
        while let Some(other) = others.next_if(earlier) {
            arranged.push(other);
        }
        arranged.push(item);
    }
    arranged.extend(others);
    arranged
}
