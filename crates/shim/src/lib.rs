//! The shim: PID 1 of every container of a job pod.
//!
//! - [`args`]: the command line, pure
//! - [`layout`]: names of marks and where they are, pure
//! - [`decision`]: what the marks allow, pure
//! - [`failure`]: every abnormal end with its words and its exit status, pure
//! - [`agent`], [`job`]: the roles
//! - [`container`]: what both have in common
//! - [`deaths`]: containers that were killed with their shims
//! - [`hook`]: the shim under the name of one of the agent's hooks
//! - [`keeper`], [`wish`]: artifacts before a container's end is told
//! - [`marks`], [`delivery`], [`private`], [`home`], [`proof`], [`waiting`], [`child`], [`output`], [`report`]: their effects
//! - [`sys`], [`errno`], [`text`]: the kernel, without a C library and without an allocator
#![no_std]

#[cfg(test)]
extern crate std;

pub mod agent;
pub mod args;
pub mod child;
pub mod container;
pub mod deaths;
pub mod decision;
pub mod delivery;
pub mod errno;
pub mod failure;
pub mod home;
pub mod hook;
pub mod job;
pub mod keeper;
pub mod layout;
pub mod marks;
pub mod output;
pub mod private;
pub mod proof;
pub mod report;
pub mod sys;
pub mod text;
pub mod waiting;
pub mod wish;

use args::Invocation;
use sys::{Process, Standard};

/// Does what the command line asks and gives the exit status.
pub fn run(process: &Process) -> u8 {
    if let Some(hook) = process.arguments.into_iter().next().and_then(hook::Hook::named) {
        hook::run(hook, process);
        return 0;
    }
    match args::parse(process.arguments.after(1).into_iter()) {
        Ok(Invocation::Help) => show(args::HELP),
        Ok(Invocation::Version) => show(concat!("buildkite-shim ", env!("CARGO_PKG_VERSION"), "\n")),
        Ok(Invocation::Agent(agent)) => agent::run(&agent, process),
        Ok(Invocation::Job(job)) => job::run(&job, process),
        Ok(Invocation::Deliver(deliver)) => agent::deliver_ahead(&deliver),
        Err(error) => {
            report::say(format_args!("{error}"));
            args::USAGE_STATUS
        }
    }
}

fn show(text: &str) -> u8 {
    u8::from(sys::print(Standard::Output, text.as_bytes()).is_err())
}
