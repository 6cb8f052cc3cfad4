//! The client through its public face, against a peer that speaks the push protocol.

#![expect(clippy::unwrap_used, reason = "the lint's exemption covers test functions, not their helpers")]

#[cfg(tg_linux)]
mod claims;
mod crash;
mod delivery;
mod fork;
mod grpc_receiver;
mod limits;
mod peer;
mod receiver;
mod session;
mod small_disk;
mod steps;
mod support;
#[cfg(tg_linux)]
mod system;
#[cfg(tg_linux)]
mod system_gpus;
#[cfg(tg_linux)]
mod system_roles;
mod training;
mod training_faults;
mod training_grpc;
mod training_laws;
mod training_settings;
