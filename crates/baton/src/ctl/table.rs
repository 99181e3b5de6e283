//! Tables for a terminal.

/// Columns as wide as they have to be; numbers to the right.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(heads: &[&str]) -> Self {
        let heads = heads.iter().map(|head| (*head).to_owned()).collect();
        Self { rows: vec![heads] }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        let cells = cells.iter().map(|cell| readable(cell));
        self.rows.push(cells.collect());
    }

    pub fn text(&self) -> String {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let is_number = |column: usize| {
            let mut cells = self.rows.iter().skip(1).filter_map(|row| row.get(column));
            cells.all(|cell| cell.starts_with(|first: char| first.is_ascii_digit()) || cell == "-")
        };
        let columns: Vec<(usize, bool)> = (0..count)
            .map(|column| (width(column), is_number(column)))
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&columns);
            let cells = cells.map(|(cell, (width, is_number))| match is_number {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            });
            let line = cells.collect::<Vec<_>>().join("  ");
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// What others wrote, such as a client its URI, must not steer the terminal.
pub fn readable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["app", "busy", "uri"]);
        table.row(vec!["shop".into(), "7".into(), "/a".into()]);
        table.row(vec!["b".into(), "12".into(), "/\u{1b}[2J\u{9b}x".into()]);
        let expected = "app   busy  uri\nshop     7  /a\nb       12  /[2Jx\n";
        assert_eq!(table.text(), expected);
    }
}
