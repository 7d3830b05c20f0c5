//! A job as it goes on: its BuildJob, its pod and what its containers print.
//!
//! - [`watched`]: the BuildJob and its pod, as they change
//! - [`log`]: what its containers print
//! - [`position`]: how far a log has been read

mod log;
mod position;
mod watched;

pub(super) use self::{
    log::{Selection, print, print_so_far},
    watched::{Known, Watched},
};
