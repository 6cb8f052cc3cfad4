//! Words to the user: data on stdout, the rest on stderr, failures as `error:` and `hint:`.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// A failure with its next step.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
}

impl Failure {
    /// A failure; its causes are written behind it.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    /// Adds the next step; an empty one is none.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        let hint = hint.into();
        self.hint = (!hint.is_empty()).then_some(hint);
        self
    }

    /// Writes it to stderr.
    pub(crate) fn report(&self) {
        note(format_args!("error: {}", printable(&self.message)));
        if let Some(hint) = &self.hint {
            note(format_args!("hint: {}", printable(hint)));
        }
    }
}

/// A reader that went away, as `| head` does, is a quiet end.
pub(crate) fn is_broken_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// Writes a line to stdout.
pub(crate) fn print_line(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Writes a line to stderr; a stderr that is gone is nobody's loss.
pub(crate) fn note(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Whether stderr is a terminal that can redraw a line.
pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Text from elsewhere without what a terminal would obey: control, bidirectional and zero-width
/// characters become escapes.
pub(crate) fn printable(text: &str) -> String {
    let hidden = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if (c.is_control() && c != '\n') || hidden(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn a_terminal_is_not_commanded_by_names() {
        assert_eq!(printable("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(printable("x\u{202e}y"), "x\\u{202e}y");
        assert_eq!(printable("θ loss"), "θ loss");
    }
}
