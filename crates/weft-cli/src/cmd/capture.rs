//! `weft capture`: writes the packets of a program or of an interface to a file for Wireshark.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use serde_json::json;
use weft_perf::sniffer::{Sniffed, Sniffer, is_sealed};
use weft_report::Unit;
use weft_trace::pcapng::{Direction, InterfaceId, LinkType, Record, Writer};
use weft_udp::sockets::CaptureConfig;
use weft_udp::{Clock, EncryptionSettings};
use weft_units::{Duration, Instant};

use weft_report::terminal::Output;

/// The longest wait for packets between two checks for an interrupt.
const INTERRUPT_CHECK: Duration = Duration::from_millis(100);

/// Write packets to a file for Wireshark: those of a program, or of an interface
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  weft capture -w perf.pcapng -- weft perf client 10.2.0.2 --duration 1s
  weft capture -w perf.pcapng --keys keys -- weft perf client 10.2.0.2 --duration 1s
  sudo weft capture -w eth0.pcapng -i eth0               until interrupted
  sudo weft lab exec h0 -- weft capture -w h0.pcapng -i eth0 --duration 5s
  weft sim run mine.toml --capture sim.pcapng            what simulated hosts sent

A program's capture needs no privileges: Weft in the program writes what it gives to its sockets and takes \
from them. An interface's needs root or CAP_NET_RAW, and has the packets that arrived there. Both have each datagram \
as it is on the wire, where the kernel hands out whole batches.

  tshark -X lua_script:dissector/weft.lua -o weft.keys:keys -r perf.pcapng
shows the headers, also of what is encrypted; docs/capture.md has how to install the dissector."
)]
pub(crate) struct Args {
    /// The file; one that exists is replaced
    #[arg(short, long, value_name = "FILE")]
    write: PathBuf,
    /// Bytes to keep of each packet, headers included [default: all]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    snap: u32,
    /// Listen to this interface
    #[arg(short, long, value_name = "NAME", required_unless_present = "program")]
    interface: Option<String>,
    /// Keep what goes to or comes from this UDP port [default: packets that look like Weft's]
    #[arg(long, requires = "interface")]
    port: Option<u16>,
    /// Stop after this time [default: when interrupted]
    #[arg(long, requires = "interface")]
    duration: Option<Duration>,
    /// Stop after this number of packets
    #[arg(long, requires = "interface")]
    packets: Option<u64>,
    /// Append the keys of the program's connections to this file; the dissector decrypts with them
    #[arg(long, value_name = "FILE", requires = "program")]
    keys: Option<PathBuf>,
    /// Run this program, and keep what it sends and receives through Weft
    #[arg(last = true, conflicts_with = "interface")]
    program: Vec<String>,
}

pub(crate) fn run(arguments: Args, output: Output) -> Result<ExitCode> {
    match &arguments.interface {
        Some(interface) => listen(&arguments, interface, output).map(|()| ExitCode::SUCCESS),
        None => run_program(&arguments, output),
    }
}

/// Returns a flag that an interrupt sets.
fn interrupted() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))
        .context("cannot listen for an interrupt")?;
    Ok(stop)
}

fn run_program(arguments: &Args, output: Output) -> Result<ExitCode> {
    let [program, rest @ ..] = arguments.program.as_slice() else { bail!("which program?") };
    let file = &arguments.write;
    // A file that cannot be written is reported before the program runs.
    if create(file)?.metadata().is_ok_and(|metadata| metadata.is_file()) {
        fs::remove_file(file).with_context(|| format!("cannot replace {}", file.display()))?;
    }
    let file = std::path::absolute(file).context("cannot find the current folder")?;
    // The program, not this command, handles an interrupt.
    let _ = interrupted()?;
    let mut command = Command::new(program);
    command.args(rest).env(CaptureConfig::FILE, &file);
    command.env(CaptureConfig::SNAP, arguments.snap.to_string());
    if let Some(keys) = &arguments.keys {
        let keys = std::path::absolute(keys).context("cannot find the current folder")?;
        command.env(EncryptionSettings::variable("key-log"), keys);
    }
    let status = command.status().with_context(|| format!("cannot run {program}"))?;
    if !file.exists() {
        eprintln!("weft: nothing captured: {program} opened no sockets of Weft");
    } else if !output.is_json() {
        let bytes = fs::metadata(&file).map_or(0, |metadata| metadata.len());
        eprintln!("weft: captured to {}", describe(&file, bytes));
    }
    // A program killed by a signal has no exit code of its own.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

fn create(file: &Path) -> Result<File> {
    File::create(file).with_context(|| format!("cannot write {}", file.display()))
}

fn describe(file: &Path, bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let size = Unit::Bytes.format(bytes as f64);
    format!("{}, {size}", file.display())
}

/// The file to which an interface's packets are written.
struct Sink {
    writer: Writer<BufWriter<File>>,
    interface: InterfaceId,
    snap: usize,
    packets: u64,
    sealed: u64,
    bytes: u64,
}

impl Sink {
    fn create(arguments: &Args, interface: &str) -> Result<Self> {
        let out = BufWriter::with_capacity(1 << 20, create(&arguments.write)?);
        let cannot = || format!("cannot write {}", arguments.write.display());
        let mut writer = Writer::new(out, "weft capture").with_context(cannot)?;
        let id =
            writer.interface(interface, LinkType::Ethernet, arguments.snap).with_context(cannot)?;
        let snap = if arguments.snap == 0 { usize::MAX } else { arguments.snap as usize };
        Ok(Self { writer, interface: id, snap, packets: 0, sealed: 0, bytes: 0 })
    }

    fn write(&mut self, sniffed: Sniffed<'_>) -> std::io::Result<()> {
        let Sniffed { time_ns, outgoing, headers, payload } = sniffed;
        let length = headers.len() + payload.len();
        let kept = self.snap.saturating_sub(headers.len()).min(payload.len());
        let headers = &headers[..headers.len().min(self.snap)];
        self.packets += 1;
        self.sealed += u64::from(is_sealed(payload));
        self.bytes += length as u64;
        self.writer.packet(&Record {
            interface: self.interface,
            time_ns,
            direction: if outgoing { Direction::Out } else { Direction::In },
            bytes: &[headers, &payload[..kept]],
            length,
        })
    }
}

fn listen(arguments: &Args, interface: &str, output: Output) -> Result<()> {
    let mut sniffer = Sniffer::open(interface, arguments.port)?;
    let mut sink = Sink::create(arguments, interface)?;
    let stop = interrupted()?;
    if !output.is_json() {
        eprintln!("weft: listening to {interface}; interrupt to stop");
    }
    let until = arguments.duration.map_or(Instant::FAR_FUTURE, |duration| Clock.now() + duration);
    let max_packets = arguments.packets.unwrap_or(u64::MAX);
    let mut written = Ok(());
    while !stop.load(Ordering::Relaxed) && Clock.now() < until && sink.packets < max_packets {
        sniffer
            .listen(INTERRUPT_CHECK, |sniffed| {
                if written.is_ok() && sink.packets < max_packets {
                    written = sink.write(sniffed);
                }
            })
            .with_context(|| format!("cannot go on listening to {interface}"))?;
        if written.is_err() {
            break;
        }
    }
    let file = &arguments.write;
    let written = written.and_then(|()| sink.writer.flush());
    written.with_context(|| {
        format!("{} ends after {} packets: cannot write it", file.display(), sink.packets)
    })?;
    let missed = sniffer.dropped().unwrap_or(0);
    let Sink { packets, sealed, bytes, .. } = sink;
    let value = json!({ "file": file, "packets": packets, "sealed": sealed, "bytes": bytes, "missed": missed });
    output.value(&value, || {
        let mut text =
            format!("{packets} packets, {sealed} of them encrypted, in {}", describe(file, bytes));
        if missed > 0 {
            text += &format!("; {missed} more found no room: keep less of each with --snap 128");
        }
        text
    })
}
