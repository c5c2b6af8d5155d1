//! Compiles gNMI's messages from `proto/`, which is openconfig/gnmi's as published.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["github.com/openconfig/gnmi/proto/gnmi/gnmi.proto"], ["proto"])?;
    let mut config = prost_build::Config::new();
    // The keys of a path's element in an order that does not change.
    config.btree_map(["."]);
    for message in [".gnmi.Path", ".gnmi.PathElem"] {
        config.type_attribute(message, "#[derive(Eq)]");
    }
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .compile_fds_with_config(files, config)?;
    Ok(())
}
