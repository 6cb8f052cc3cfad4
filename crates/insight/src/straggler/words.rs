//! Numbers as people read them.

/// Seconds, such as `0.150 s`.
pub(crate) fn seconds(value: f64) -> String {
    format!("{value:.3} s")
}

/// A share, such as `17.1 %`.
pub(crate) fn percent(value: f64) -> String {
    format!("{:.1} %", value * 100.0)
}

/// A count, such as `4,120`.
pub(crate) fn count(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if value < 0 {
        text.push('-');
    }
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Ranks in order, such as `rank 17` or `ranks 3, 24-31`.
pub(crate) fn ranks(ranks: &[u32]) -> String {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    let rows: Vec<String> = sorted
        .chunk_by(|a, b| a.checked_add(1) == Some(*b))
        .map(|row| match row {
            [one] => one.to_string(),
            [one, two] => format!("{one}, {two}"),
            row => format!("{}-{}", row[0], row[row.len() - 1]),
        })
        .collect();
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{word} {}", rows.join(", "))
}

/// The same at the start of a sentence.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    first + letters.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(count(4_120), "4,120");
        assert_eq!(count(-1_234_567), "-1,234,567");
        assert_eq!(count(0), "0");
        assert_eq!(count(i64::MIN), "-9,223,372,036,854,775,808");
        assert_eq!(ranks(&[17]), "rank 17");
        assert_eq!(ranks(&[31, 24, 25, 26, 3]), "ranks 3, 24-26, 31");
        assert_eq!(ranks(&[4, 5]), "ranks 4, 5");
        assert_eq!(percent(0.171_4), "17.1 %");
        assert_eq!(seconds(0.399_7), "0.400 s");
        assert_eq!(capital("rank 1"), "Rank 1");
    }
}
