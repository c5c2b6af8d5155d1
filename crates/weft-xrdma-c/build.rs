//! Sets the soname, by which the loader finds the library for programs that were linked with it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libxrdma.so.1");
}
