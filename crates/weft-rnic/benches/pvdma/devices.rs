//! Virtual devices: the time to create and destroy one, and its memory.

use std::time::{Duration, Instant};

use weft_rnic::{
    Access, Device, Limits, Owner, QueuePairRequest, RegionRequest, Service, VirtualDevice,
};
use weft_testkit::{figure_row, json};
use weft_transport::{EndpointConfig, Secret, TransportConfig};
use weft_units::Seed;

use crate::heap;

const NOW: weft_units::Instant = weft_units::Instant::from_nanos(1_000_000_000);

pub(crate) fn measure() {
    println!("\nvirtual devices (the paper: 1.5 s each, up to 64,000)");
    println!(
        "{:>8} {:>24} {:>14} {:>14} {:>14}",
        "devices", "", "us to make", "us to end", "bytes each"
    );
    for count in [1_000, 64_000] {
        for (name, furnish) in [("idle", false), ("with queue pair, CQ, MR", true)] {
            let row = row(count, furnish);
            let [make, end] = [row.make, row.end].map(|took| micros_each(took, count));
            let bytes = row.bytes / count as usize;
            println!("{count:>8} {name:>24} {make:>14.2} {end:>14.2} {bytes:>14}");
            let row =
                json!({ "devices": count, "with": name, "make": make, "end": end, "bytes": bytes });
            figure_row("perf-guests-devices", &row);
        }
    }
}

/// The time to create and to destroy all devices, and the bytes of heap that they occupy.
struct Row {
    make: Duration,
    end: Duration,
    bytes: usize,
}

fn micros_each(took: Duration, count: u32) -> f64 {
    took.as_secs_f64() * 1e6 / f64::from(count)
}

fn row(count: u32, furnish: bool) -> Row {
    let mut device = device();
    let before = heap::bytes();
    let mut made = Vec::with_capacity(count as usize);
    let listed = heap::bytes() - before;
    let begun = Instant::now();
    for guest in 0..count {
        let virtual_device = device.create_virtual(guest, &[]).expect("there is room");
        if furnish {
            furnish_with(&mut device, guest, &virtual_device);
        }
        made.push(virtual_device.context);
    }
    let make = begun.elapsed();
    let bytes = heap::bytes() - before - listed;
    let begun = Instant::now();
    // Destroys the last ones first: they are the worst case for a linear scan of the tables.
    let ended = made.len().min(1_000);
    for &context in made.iter().rev().take(ended) {
        device.destroy_virtual(NOW, context).expect("it was made");
    }
    let end = begun.elapsed() * count / u32::try_from(ended).expect("a thousand");
    Row { make, end, bytes }
}

/// Creates the objects that a program needs before it sends.
fn furnish_with(device: &mut Device, guest: u32, on: &VirtualDevice) {
    let cq = device.create_cq(on.context, 256).expect("there is room");
    let region = RegionRequest {
        owner: Owner::Guest(guest),
        address: 0,
        length: 2 << 20,
        iova: 0,
        access: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
    };
    device.register(on.domain, &region).expect("there is room");
    let request = QueuePairRequest {
        domain: on.domain,
        service: Service::ReliableConnected,
        send_cq: cq,
        receive_cq: cq,
        srq: None,
        max_send: 128,
        max_receive: 128,
        max_send_sge: 1,
        max_receive_sge: 1,
        max_inline: 0,
        signal_all: true,
    };
    device.create_qp(&request).expect("there is room");
}

fn device() -> Device {
    let config = EndpointConfig {
        transport: TransportConfig::stellar(),
        receive_port: 4791,
        thread_id: 0,
        accept: true,
        max_connections: 1 << 16,
    };
    let seed = Seed(1);
    Device::new(Limits::default(), config, seed, Secret::from_seed(seed)).expect("a profile")
}
