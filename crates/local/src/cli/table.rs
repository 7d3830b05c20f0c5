//! Aligned tables, and the choice between them and JSON.

/// How lists are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    /// An aligned table, for people
    Table,
    /// What the server answered, for programs
    Json,
}

/// Columns under their names, each as wide as its widest cell; nothing after the last.
pub(super) fn table(names: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let heads = names.iter().map(|name| (*name).to_owned()).collect();
    let all: Vec<&Vec<String>> = std::iter::once(&heads).chain(rows).collect();
    let width =
        |column: usize| all.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..names.len()).map(|column| width(column).unwrap_or_default()).collect();
    all.iter()
        .map(|row| {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [
            vec!["demo/1".to_owned(), "passed".to_owned(), "ü".to_owned()],
            vec!["a-longer-name/12".to_owned(), "failed".to_owned(), String::new()],
        ];
        insta::assert_snapshot!(table(&["BUILD", "STATE", "MESSAGE"], &rows).join("\n"), @r"
        BUILD             STATE   MESSAGE
        demo/1            passed  ü
        a-longer-name/12  failed
        ");
    }
}
