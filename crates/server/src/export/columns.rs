//! What the columns of an export are called.

use std::collections::BTreeSet;

/// Columns that every export has, in this order; the labels follow.
pub(super) const FIXED: [&str; 5] = ["metric", "time", "step", "attempt", "value"];

/// Labels that have no column: their value is the column `metric`.
const NAMES: [&str; 2] = ["__name__", "display"];

/// A label and the column that has its values.
#[derive(Debug, Clone)]
pub(super) struct LabelColumn {
    pub(super) label: String,
    pub(super) column: String,
}

/// The columns of one export: those of [`FIXED`], then one for each label.
#[derive(Debug, Clone)]
pub(super) struct Columns {
    pub(super) labels: Vec<LabelColumn>,
}

impl Columns {
    /// Columns for these labels. One named as a fixed column gets `label_` in front of its name, as
    /// often as it takes.
    pub(super) fn of(labels: BTreeSet<String>) -> Self {
        let wanted: Vec<String> = labels.into_iter().filter(|label| !NAMES.contains(&&**label)).collect();
        let mut taken: BTreeSet<String> =
            wanted.iter().map(String::as_str).chain(FIXED).map(str::to_owned).collect();
        let labels = wanted.into_iter().map(|label| {
            let mut column = label.clone();
            if FIXED.contains(&&*label) {
                while taken.contains(&column) {
                    column.insert_str(0, "label_");
                }
                taken.insert(column.clone());
            }
            LabelColumn { label, column }
        });
        Self { labels: labels.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::Columns;

    #[test]
    fn a_label_named_as_a_column_of_ours_has_a_name_of_its_own() {
        let labels = ["__name__", "display", "label_step", "rank", "step"].map(str::to_owned);
        let columns: Vec<String> =
            Columns::of(labels.into()).labels.into_iter().map(|one| one.column).collect();
        assert_eq!(columns, ["label_step", "rank", "label_label_step"]);
    }
}
