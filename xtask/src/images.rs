//! Container images without a container engine.

pub(crate) mod archive;
mod layer;
