//! Aligned tables for terminals.

/// Columns under their names, each as wide as its widest cell; nothing after the last.
pub fn table(names: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let heads: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let all: Vec<&[String]> =
        std::iter::once(heads.as_slice()).chain(rows.iter().map(Vec::as_slice)).collect();
    let widths = widths(&all);
    all.iter().map(|row| line(row, &widths)).collect()
}

/// How wide each column has to be.
pub fn widths(rows: &[&[String]]) -> Vec<usize> {
    let columns = rows.iter().map(|row| row.len()).max().unwrap_or_default();
    let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
    (0..columns)
        .map(|column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or_default())
        .collect()
}

/// One row of a table with columns as wide as this.
pub fn line(row: &[String], widths: &[usize]) -> String {
    let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
    cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
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
        let expected =
            ["BUILD             STATE   MESSAGE", "demo/1            passed  ü", "a-longer-name/12  failed"];
        assert_eq!(table(&["BUILD", "STATE", "MESSAGE"], &rows), expected);
    }
}
