//! Compiles the one function that cannot be written in Rust.

fn main() {
    println!("cargo::rerun-if-changed=csrc");
    cc::Build::new()
        .std("gnu11")
        .warnings(true)
        .extra_warnings(true)
        .file("csrc/fork.c")
        .compile("baton_guest_fork");
}
