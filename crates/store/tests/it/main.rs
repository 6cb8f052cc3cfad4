//! The store through its public face.

mod support;

mod semantics;
