//! What became of a request: how much was taken, what was not, and why.

use std::borrow::Cow;
use std::fmt::Write;

/// Longest message of an answer, bytes.
pub const MESSAGE_BYTES_MAX: usize = 1_024;
/// So many refused metrics, spans or loggers are named in an answer.
const NAMED_MAX: usize = 5;
/// Longest name in an answer, characters.
const NAME_CHARS_MAX: usize = 100;

/// Why one point, span or record was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Under which it is counted; one of few.
    pub reason: &'static str,
    /// In words, with the next step.
    pub text: Cow<'static, str>,
}

impl Refusal {
    /// A refusal in fixed words.
    pub const fn new(reason: &'static str, text: &'static str) -> Self {
        Self { reason, text: Cow::Borrowed(text) }
    }

    /// A refusal in words that say what was found.
    pub fn told(reason: &'static str, text: String) -> Self {
        Self { reason, text: Cow::Owned(text) }
    }
}

/// How many elements of a request were taken and refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Points, spans or records taken, repetitions included.
    pub accepted: u64,
    /// Points, spans or records refused.
    pub rejected: u64,
    reasons: Vec<(&'static str, u64)>,
    named: Vec<Named>,
    unnamed: u64,
    advice: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    subject: String,
    reason: &'static str,
    count: u64,
    text: Cow<'static, str>,
}

impl Outcome {
    /// Counts `count` elements of `subject` as refused.
    pub fn refuse(&mut self, subject: &str, count: u64, refusal: Refusal) {
        if count == 0 {
            return;
        }
        self.rejected += count;
        match self.reasons.iter_mut().find(|(reason, _)| *reason == refusal.reason) {
            Some((_, sum)) => *sum += count,
            None => self.reasons.push((refusal.reason, count)),
        }
        let cut: String = subject.chars().take(NAME_CHARS_MAX).collect();
        let known = self.named.iter_mut().find(|n| n.reason == refusal.reason && n.subject == cut);
        if let Some(named) = known {
            named.count += count;
        } else if self.named.len() < NAMED_MAX {
            let Refusal { reason, text } = refusal;
            self.named.push(Named { subject: cut, reason, count, text });
        } else {
            self.unnamed += count;
        }
    }

    /// Takes back that `count` elements of `subject` were taken: the store refused them.
    pub fn take_back(&mut self, subject: &str, count: u64, refusal: Refusal) {
        self.accepted = self.accepted.saturating_sub(count);
        self.refuse(subject, count, refusal);
    }

    /// Adds what a sender should know of what was taken.
    pub fn advise(&mut self, text: String) {
        if self.advice.len() < NAMED_MAX {
            self.advice.push(text);
        }
    }

    /// Refused elements by reason.
    pub fn reasons(&self) -> &[(&'static str, u64)] {
        &self.reasons
    }

    /// What was refused and why, naming the first few, and what is advised; empty when there is neither.
    pub fn message(&self) -> String {
        let mut out = String::new();
        for named in &self.named {
            let _infallible = write!(
                out,
                "{}{} of {:?} refused: {}",
                if out.is_empty() { "" } else { "; " },
                named.count,
                named.subject,
                named.text
            );
        }
        if self.unnamed > 0 {
            let _infallible = write!(out, "; {} more refused", self.unnamed);
        }
        for advice in &self.advice {
            let _infallible = write!(out, "{}{advice}", if out.is_empty() { "" } else { "; " });
        }
        if out.len() > MESSAGE_BYTES_MAX {
            let cut = (0..=MESSAGE_BYTES_MAX - 3).rev().find(|at| out.is_char_boundary(*at)).unwrap_or(0);
            out.truncate(cut);
            out += "...";
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact_and_the_message_names_the_first_few() {
        let mut outcome = Outcome::default();
        let odd = || Refusal::new("odd", "it is odd");
        outcome.refuse("a", 2, odd());
        outcome.refuse("a", 1, odd());
        outcome.refuse("b", 0, odd());
        assert_eq!(outcome.message(), "3 of \"a\" refused: it is odd");
        outcome.accepted = 5;
        outcome.take_back("a", 2, odd());
        assert_eq!((outcome.accepted, outcome.rejected), (3, 5));
        assert!(outcome.message().starts_with("5 of \"a\""), "{}", outcome.message());
        outcome = Outcome::default();
        outcome.advise("mind the unit".into());
        assert_eq!((outcome.rejected, outcome.message().as_str()), (0, "mind the unit"));
    }

    #[test]
    fn a_message_is_bounded() {
        let mut outcome = Outcome::default();
        for n in 0..20 {
            outcome.refuse(&format!("m{n}"), 1, Refusal::told("other", "x".repeat(400)));
        }
        assert_eq!((outcome.rejected, outcome.reasons()), (20, &[("other", 20)][..]));
        assert!(outcome.message().len() <= MESSAGE_BYTES_MAX, "{}", outcome.message().len());
    }
}
