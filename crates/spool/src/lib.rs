//! spool.
