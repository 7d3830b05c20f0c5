//! Links the shim without a C library when it is built to ship.
//!
//! The `shim` profile is the only one that optimises for size, and a build script is not told the
//! profile's name, so the optimisation level stands for it.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(freestanding)");
    if env::var("OPT_LEVEL").is_ok_and(|level| level == "z") {
        println!("cargo:rustc-cfg=freestanding");
        for argument in ["-static", "-no-pie", "-nostdlib", "-nostartfiles", "-Wl,--build-id=none"] {
            println!("cargo:rustc-link-arg-bins={argument}");
        }
    }
}
