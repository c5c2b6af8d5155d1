//! The golden files: frames after their virtio-net headers, in hexadecimal, annotated.
#![allow(dead_code, reason = "each test binary uses what it needs")]

macro_rules! golden {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../golden/", $name, ".hex")))),+]
    };
}

/// The name and text of every golden file.
pub(crate) const FILES: &[(&str, &str)] = golden![
    "tcp_v4_super",
    "udp_v6_super",
    "udp_v4_many",
    "arp",
    "tagged_udp_v4",
    "fragment_v4",
    "fragment_v6",
    "solicitation",
    "unreachable_v4",
    "chain_v6",
];

/// Returns the bytes of the golden file `name`.
///
/// # Panics
/// If there is no such file or if it is not hexadecimal.
pub(crate) fn golden(name: &str) -> Vec<u8> {
    let (_, text) = FILES.iter().find(|(file, _)| *file == name).expect("a golden file");
    decode(text)
}

/// Returns the bytes of every golden file.
///
/// # Panics
/// If one is not hexadecimal.
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
