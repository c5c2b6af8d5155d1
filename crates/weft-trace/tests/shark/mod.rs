//! Captures for tshark, and tshark's output for them.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use weft_trace::Datagram;
use weft_trace::pcapng::{Direction, LinkType, Record, Writer};
use weft_wire::Ecn;

/// A datagram: source, destination, captured payload, and the payload's length on the wire in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) bytes: Vec<u8>,
    pub(crate) length: usize,
}

/// Returns a capture of the payloads, sent to the two ports in turn.
pub(crate) fn capture(payloads: &[Vec<u8>], ports: [u16; 2]) -> Vec<u8> {
    let datagrams = payloads.iter().zip(0..).map(|(bytes, index)| Sent {
        from: "10.0.0.1:49152".parse().unwrap(),
        to: (Ipv4Addr::new(10, 0, 0, 2), ports[index % 2]).into(),
        bytes: bytes.clone(),
        length: bytes.len(),
    });
    capture_of(datagrams)
}

/// Returns a capture of these datagrams, with times one microsecond apart.
pub(crate) fn capture_of(datagrams: impl IntoIterator<Item = Sent>) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, "a test").unwrap();
    let interface = writer.interface("h0", LinkType::Raw, 0).unwrap();
    for (Sent { from, to, bytes, length }, time_ns) in
        datagrams.into_iter().zip((0..).step_by(1000))
    {
        let mut headers = [0; Datagram::MAX_LEN];
        let payload_len = length.try_into().unwrap();
        let datagram = Datagram {
            source: from,
            destination: to,
            ecn: Ecn::Capable0,
            hop_limit: 64,
            payload_len,
        };
        let len = datagram.emit(&mut headers);
        writer
            .packet(&Record {
                interface,
                time_ns,
                direction: Direction::Out,
                bytes: &[&headers[..len], &bytes],
                length: len + length,
            })
            .unwrap();
    }
    file
}

/// A temporary file, removed when dropped.
pub(crate) struct File(pub(crate) PathBuf);

impl File {
    pub(crate) fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("weft-{name}-{}.pcapng", std::process::id()));
        fs::write(&path, bytes).unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Returns tshark's output with Weft's dissector, or `None` without tshark.
pub(crate) fn tshark(file: &File, arguments: &[&str]) -> Option<String> {
    read(&file.0, arguments)
}

/// Returns the same for a file that is not temporary.
pub(crate) fn read(file: &Path, arguments: &[&str]) -> Option<String> {
    let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dissector/weft.lua");
    let output = Command::new("tshark")
        .arg("-X")
        .arg(format!("lua_script:{}", plugin.display()))
        .arg("-r")
        .arg(file)
        .args(arguments)
        .output();
    let Ok(output) = output else {
        weft_testkit::skip("Weft's dissector", "no tshark (sudo apt-get install tshark)");
        return None;
    };
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && !errors.contains("Lua"), "{errors}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Returns the path of a file in `tests/golden`.
pub(crate) fn golden_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Compares `got` with a file in `tests/golden`; `BLESS=1` overwrites the file.
pub(crate) fn assert_golden(name: &str, got: &str) {
    let file = golden_file(name);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&file, got).unwrap();
    }
    let want = fs::read_to_string(&file).unwrap();
    assert_eq!(got, want, "{}; BLESS=1 accepts it", file.display());
}
