//! The known word that was probably meant.

/// The candidate with the fewest edits to `word`, when that is close enough to be a slip: at most a
/// third of its length, and at least one edit is always forgiven. Ties go to the first.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let bound = (word.chars().count() / 3).max(1) + 1;
    let mut best: Option<(usize, &str)> = None;
    for candidate in known {
        let edits =
            if candidate.starts_with(word) && !word.is_empty() { 1 } else { distance(word, candidate) };
        if edits <= bound && best.is_none_or(|(fewest, _)| edits < fewest) {
            best = Some((edits, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Levenshtein distance over characters; words over 256 bytes are never near.
fn distance(a: &str, b: &str) -> usize {
    if a.len() > 256 || b.len() > 256 {
        return usize::MAX;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_finds_its_word_and_a_stranger_does_not() {
        let known = ["state", "started", "host", "listen"];
        assert_eq!(nearest("stat", known), Some("state"));
        assert_eq!(nearest("lissten", known), Some("listen"));
        assert_eq!(nearest("hots", known), Some("host"));
        assert_eq!(nearest("wavelength", known), None);
    }
}
