//! Words to the user: data on stdout, the rest on stderr, failures as `error:` and `hint:`.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

/// A failure with its next step, or the quiet end when nobody reads any more.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
    is_quiet: bool,
    code: u8,
}

impl Failure {
    /// A failure.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, is_quiet: false, code: 2 }
    }

    /// Adds the next step; an empty one is none.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        let hint = hint.into();
        self.hint = (!hint.is_empty()).then_some(hint);
        self
    }

    /// Ends the program with this code instead of 2.
    #[must_use]
    pub(crate) fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// What went wrong.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// What to do about it, where that is known.
    pub(crate) fn next_step(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Writes it to stderr and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        if self.is_quiet {
            return ExitCode::SUCCESS;
        }
        note(format_args!("error: {}", printable(&self.message)));
        if let Some(hint) = &self.hint {
            note(format_args!("hint: {}", printable(hint)));
        }
        ExitCode::from(self.code)
    }
}

impl From<io::Error> for Failure {
    /// A failure to write what was asked for; a reader that went away, as `| head` does, is none.
    fn from(error: io::Error) -> Self {
        let mut failure = Self::new(format!("cannot write the output: {error}"));
        failure.is_quiet = is_broken_pipe(&error);
        failure
    }
}

/// Whether the reader went away.
pub(crate) fn is_broken_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// Writes bytes to stdout.
pub(crate) fn print(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Writes a line to stdout.
pub(crate) fn print_line(line: &str) -> io::Result<()> {
    print(format!("{line}\n").as_bytes())
}

/// Writes JSON to stdout, readable.
pub(crate) fn print_json(value: &serde_json::Value) -> io::Result<()> {
    print_line(&format!("{value:#}"))
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
    let hidden = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
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

/// Starts the log on stderr, in the format that the settings name.
pub(crate) fn start_log(format: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("TRUEGAUGE_LOG")
        .unwrap_or_else(|_unset| tracing_subscriber::EnvFilter::new("info"));
    let terminal = stderr_is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let as_text = match format {
        "text" => true,
        "json" => false,
        _ => terminal,
    };
    // Only the first subscriber of a process counts; this is the only one there is.
    let _ = if as_text {
        builder.with_ansi(terminal).with_target(false).try_init()
    } else {
        builder.json().flatten_event(true).try_init()
    };
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn a_terminal_is_not_commanded_by_names() {
        assert_eq!(printable("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(printable("x\u{202e}y"), "x\\u{202e}y");
        assert_eq!(printable("x\u{2028}y"), "x\\u{2028}y");
        assert_eq!(printable("θ loss"), "θ loss");
    }
}
