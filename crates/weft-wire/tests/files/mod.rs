//! The golden files: bytes in hexadecimal, annotated field by field.
#![allow(dead_code, reason = "each test binary uses what it needs")]

macro_rules! golden {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../golden/", $name, ".hex")))),+]
    };
}

/// The name and text of every golden file.
pub(crate) const FILES: &[(&str, &str)] = golden![
    "data",
    "data_message",
    "data_rdma",
    "frame",
    "offer",
    "request",
    "close",
    "ack",
    "ack_full",
    "eth",
    "ipv4",
    "ipv4_options",
    "ipv6",
    "udp",
    "virtio_net",
    "vxlan",
    "vxlan_weft",
    "sealed",
];

/// Returns the bytes of the golden file `name`.
///
/// # Panics
/// Panics if there is no such file or if it is not hexadecimal.
pub(crate) fn golden(name: &str) -> Vec<u8> {
    let (_, text) = FILES.iter().find(|(file, _)| *file == name).expect("a golden file");
    decode(text)
}

/// Returns the bytes of every golden file.
///
/// # Panics
/// Panics if a file is not hexadecimal.
pub(crate) fn all() -> Vec<Vec<u8>> {
    FILES.iter().map(|(_, text)| decode(text)).collect()
}

fn decode(text: &str) -> Vec<u8> {
    text.lines()
        .filter_map(|line| line.split('#').next())
        .flat_map(str::split_whitespace)
        .map(|byte| u8::from_str_radix(byte, 16).expect("two hexadecimal digits"))
        .collect()
}
