//! A spool through its public face.

#![expect(clippy::unwrap_used, reason = "the lint's exemption covers test functions, not their helpers")]

mod damage;
mod queue;
