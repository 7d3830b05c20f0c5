//! The binary: its entry point is in `start`, everything else in the library.
#![no_main]
#![cfg_attr(freestanding, no_std)]

mod start;
