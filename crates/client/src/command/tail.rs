//! The end of a stream, in bounded memory.

/// Most bytes of a command's output that a run keeps, of each stream.
pub const TAIL_BYTES_MAX: usize = 64 << 10;

/// Keeps the last [`TAIL_BYTES_MAX`] bytes of what goes through it.
#[derive(Debug, Default)]
pub struct Tail {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Tail {
    /// Takes the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        let kept = &bytes[bytes.len().saturating_sub(TAIL_BYTES_MAX)..];
        self.is_cut |= self.bytes.len() + bytes.len() > TAIL_BYTES_MAX;
        // Moved to the front only now and then: a byte is copied twice at most.
        if self.bytes.len() + kept.len() > 2 * TAIL_BYTES_MAX {
            let surplus = (self.bytes.len() + kept.len()).saturating_sub(TAIL_BYTES_MAX);
            self.bytes.drain(..surplus.min(self.bytes.len()));
        }
        self.bytes.extend_from_slice(kept);
    }

    /// What is kept, as text: bytes that are no UTF-8 become `U+FFFD`, and when something in front
    /// was let go the text begins with a whole line, where it has one.
    pub fn text(&self) -> String {
        let mut bytes = &self.bytes[self.bytes.len().saturating_sub(TAIL_BYTES_MAX)..];
        if self.is_cut
            && let Some(at) = bytes.iter().position(|byte| *byte == b'\n').filter(|at| at + 1 < bytes.len())
        {
            bytes = &bytes[at + 1..];
        }
        let text = String::from_utf8_lossy(bytes);
        let mut start = text.len().saturating_sub(TAIL_BYTES_MAX);
        while !text.is_char_boundary(start) {
            start += 1;
        }
        text[start..].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(pieces: &[&[u8]]) -> String {
        let mut tail = Tail::default();
        for piece in pieces {
            tail.push(piece);
        }
        assert!(tail.bytes.capacity() <= 4 * TAIL_BYTES_MAX, "{}", tail.bytes.capacity());
        tail.text()
    }

    #[test]
    fn a_short_stream_is_kept_whole() {
        assert_eq!(tail(&[b"one\n", b"two"]), "one\ntwo");
        assert_eq!(tail(&[]), "");
        assert_eq!(tail(&[b"a\xffb"]), "a\u{fffd}b");
    }

    #[test]
    fn a_long_stream_keeps_its_last_lines() {
        let line = |n: usize| format!("line {n}\n");
        let whole: String = (0..100_000).map(line).collect();
        for size in [1, 7, 4096, whole.len()] {
            let pieces: Vec<&[u8]> = whole.as_bytes().chunks(size).collect();
            let text = tail(&pieces);
            assert!(whole.ends_with(&text) && text.starts_with("line "), "{size}");
            assert!(
                text.len() <= TAIL_BYTES_MAX && text.len() > TAIL_BYTES_MAX - 16,
                "{size}: {}",
                text.len()
            );
        }
    }

    #[test]
    fn text_that_is_no_text_stays_within_the_bound() {
        let text = tail(&[&vec![0xff; 3 * TAIL_BYTES_MAX]]);
        assert!(text.len() <= TAIL_BYTES_MAX && text.chars().all(|c| c == '\u{fffd}'));
    }
}
