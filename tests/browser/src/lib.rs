//! Drives Chromium over the `DevTools` protocol, on a pipe: no driver program, no port, nothing to download.

mod browser;
mod page;

pub use browser::Browser;
pub use page::Page;
