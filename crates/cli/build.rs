//! Tells the program what it is built for and how.

fn main() {
    for variable in ["TARGET", "PROFILE"] {
        let value = std::env::var(variable).unwrap_or_default();
        println!("cargo:rustc-env=COMB_BUILD_{variable}={value}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
