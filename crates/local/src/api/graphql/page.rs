//! Lists as GraphQL has them: edges, cursors, and how many there are.

use async_graphql::connection::{Connection, Edge, EmptyFields};
use async_graphql::{OutputType, Result, SimpleObject};

/// The most nodes of one list in one answer.
const MAX: usize = 500;

/// How many there are in all.
#[derive(SimpleObject)]
pub(super) struct Count {
    count: usize,
}

/// A list in parts.
pub(super) type Page<T> = Connection<String, T, Count, EmptyFields>;

/// Which part is asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct Part {
    pub(super) first: Option<i32>,
    pub(super) last: Option<i32>,
    pub(super) after: Option<String>,
}

impl Part {
    /// Cuts the part out of the whole.
    pub(super) fn of<T: OutputType>(self, all: Vec<T>) -> Result<Page<T>> {
        let total = all.len();
        let (from, to) = self.range(total)?;
        let mut page = Connection::with_additional_fields(from > 0, to < total, Count { count: total });
        let wanted = all.into_iter().enumerate().skip(from).take(to - from);
        page.edges.extend(wanted.map(|(index, node)| Edge::new((index + 1).to_string(), node)));
        Ok(page)
    }

    /// A cursor is the number of nodes up to and with its own.
    fn range(&self, total: usize) -> Result<(usize, usize)> {
        let after = match &self.after {
            Some(text) => text.parse().map_err(|_| format!("the cursor {text:?} is not one of this list"))?,
            None => 0_usize,
        };
        let count = |given: Option<i32>, name: &str| match given {
            Some(number) => {
                usize::try_from(number).map(Some).map_err(|_| format!("{name} must not be negative"))
            }
            None => Ok(None),
        };
        let from = after.min(total);
        if let Some(last) = count(self.last, "last")? {
            return Ok((total.saturating_sub(last.min(MAX)).max(from), total));
        }
        let first = count(self.first, "first")?.unwrap_or(MAX).min(MAX);
        Ok((from, from.saturating_add(first).min(total)))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(None, None, None, Some((0, 10)))]
    #[case(Some(3), None, None, Some((0, 3)))]
    #[case(Some(3), None, Some("9"), Some((9, 10)))]
    #[case(Some(3), None, Some("99"), Some((10, 10)))]
    #[case(None, Some(2), None, Some((8, 10)))]
    #[case(Some(0), None, None, Some((0, 0)))]
    #[case(Some(-1), None, None, None)]
    #[case(None, Some(-1), None, None)]
    #[case(None, None, Some("x"), None)]
    fn parts_are_ranges(
        #[case] first: Option<i32>,
        #[case] last: Option<i32>,
        #[case] after: Option<&str>,
        #[case] expected: Option<(usize, usize)>,
    ) {
        let part = Part { first, last, after: after.map(str::to_owned) };
        assert_eq!(part.range(10).ok(), expected);
    }
}
