//! The monitor and its agents: agents that are lost and found, programs that cannot be read, and a collector that is away.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use crate::{Folder, Log, Running};

/// Starts `weft monitor` with these words, and returns it when it listens.
fn start(log: &Log, folder: &Folder, words: &[&str], variables: &[(&str, &str)]) -> Running {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("weft"));
    command.arg("monitor").args(words).args(["--log", "json", "--every", "200ms"]);
    command.env("WEFT_STAT", folder.path("programs")).envs(variables.iter().copied());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Running(command.spawn().unwrap());
    log.follow(process.0.stderr.take().unwrap());
    let mut line = String::new();
    BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("http://"), "{line}");
    process
}

/// Returns an address where nobody listens.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

pub(crate) fn agents(log: &Log, folder: &Folder) {
    let programs = folder.path("programs");
    fs::create_dir_all(&programs).unwrap();
    let (at, collector) = (free_address(), free_address());
    let words = ["serve", "--listen", "127.0.0.1:0", "--hosts", &at];
    let _monitor = start(log, folder, &words, &[]);
    log.wait("agent-lost", &[("host", &at)], || ());
    let url = format!("http://{collector}");
    let words = ["agent", "--listen", &at, "--otlp", &url];
    let _agent = start(log, folder, &words, &[("OTEL_METRIC_EXPORT_INTERVAL", "500")]);
    log.wait("agent-found", &[("host", &at)], || ());

    log.wait("export-failed", &[("collector", &url)], || ());
    let listener = TcpListener::bind(&collector).unwrap();
    std::thread::spawn(move || listener.incoming().flatten().for_each(|it| drop(accept(it))));
    log.wait("export-resumed", &[("collector", &url)], || ());

    fs::remove_dir_all(&programs).unwrap();
    fs::write(&programs, "no folder").unwrap();
    log.wait("programs-unread", &[], || ());
    fs::remove_file(&programs).unwrap();
    fs::create_dir_all(&programs).unwrap();
    let read = log.wait("programs-read", &[], || ());
    assert!(read["seconds"].as_f64().unwrap() > 0.0, "{read:?}");
}

/// Answers every request with success and an empty message, which says that all was taken.
fn accept(mut stream: std::net::TcpStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    let mut body = vec![0; length.and_then(|it| it.trim().parse().ok()).unwrap_or(0)];
    stream.read_exact(&mut body)?;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
}
