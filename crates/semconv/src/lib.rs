//! The world's vocabularies as data: what others call things, and what hardware can do. Layer 1.
//!
//! Tables and lookups, no code paths: nothing here reads, sends or judges. A name, a unit or a figure
//! of somebody else's stands here once, with where it is from.

pub mod attributes;
pub mod canonical;
pub mod export;
pub mod instruments;
pub mod peaks;
pub mod spans;
pub mod vocabulary;
pub mod xid;
