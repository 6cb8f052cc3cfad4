//! The program as a user meets it: real processes on loopback, asked from outside.

mod api;
mod doors;
mod durability;
mod points;
mod process;
mod stream;
mod words;
