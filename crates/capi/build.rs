//! Gives libcomb.so its name: programs find it by that, wherever they were linked with it.

fn main() {
    // Without a number: until 1.0 a program is built anew for each release.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcomb.so");
    println!("cargo:rerun-if-changed=build.rs");
}
