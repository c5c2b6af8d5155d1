//! Compiles the part of kubelet's interfaces that this program serves.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["dra.proto", "registration.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .btree_map(".")
        .build_client(true)
        .build_transport(false)
        .compile_fds(files)?;
    Ok(())
}
