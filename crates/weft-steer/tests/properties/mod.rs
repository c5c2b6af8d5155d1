//! The properties of every configuration and every router's answer. The mutation tests and the fuzz
//! targets both call these.
#![allow(dead_code, unreachable_pub, reason = "each user of this file calls what it needs")]

use std::sync::LazyLock;

use weft_plan::output::{PortRow, port_csv};
use weft_route::{Fabric, Installed};
use weft_steer::{Inventory, SteerConfig, read_job_table};

/// The router whose answers are read.
static INVENTORY: LazyLock<Inventory> = LazyLock::new(|| {
    let inventory = "[[router]]\nname = 'l0'\nagent = '10.0.0.1'\n[[router.port]]\nname = 's0'\nto.host = '10.1.0.2'";
    toml::from_str(inventory).expect("it is one")
});

/// A router with a gNMI server, whose answers are read.
static GNMI: LazyLock<Inventory> = LazyLock::new(|| {
    let inventory = "[[router]]\nname = 'l0'\nagent = '10.0.0.1'\napply.gnmi.address = 'l0:9339'\n\
                     [[router.port]]\nname = 'Ethernet0'\nspeed = '100Gbps'\nto.host = '10.1.0.2'\n\
                     [[router.port]]\nname = 'Ethernet4'\nspeed = '100Gbps'\nto.host = '10.1.0.3'";
    toml::from_str(inventory).expect("it is one")
});

/// Parses the data tree of a gNMI server and builds a fabric from it. Returns `true` if the tree is valid.
pub fn gnmi_answer(bytes: &[u8]) -> bool {
    answer(&GNMI, bytes)
}

/// Parses a router's answer with its tables and builds a fabric from it. Returns `true` if the answer is valid.
pub fn tables(bytes: &[u8]) -> bool {
    answer(&INVENTORY, bytes)
}

fn answer(inventory: &Inventory, bytes: &[u8]) -> bool {
    match inventory.routers[0].parse_answer(&String::from_utf8_lossy(bytes)) {
        Ok(router) => {
            // Tables that do not form a fabric are refused with a message and cause no panic.
            if let Err(error) = Fabric::new(Installed { routers: vec![router] }) {
                refused(&error.to_string());
            }
            true
        }
        Err(error) => refused(&error.to_string()),
    }
}

/// Parses a configuration and checks that it reads back as it is written. Returns `true` if it is valid.
pub fn steer_config(bytes: &[u8]) -> bool {
    match SteerConfig::parse(&String::from_utf8_lossy(bytes)) {
        Ok(config) => {
            let text = toml::to_string(&config).expect("a configuration is TOML");
            assert_eq!(SteerConfig::parse(&text), Ok(config), "{text}");
            true
        }
        Err(why) => refused(&why.to_string()),
    }
}

/// Parses a job's table, CSV or JSON, and checks that it reads back as JSON and, if no name contains a line break, as
/// CSV. Returns `true` if it is a table.
pub fn job_table(bytes: &[u8]) -> bool {
    let rows = match read_job_table(bytes) {
        Ok(rows) => rows,
        Err(why) => return refused(&why.to_string()),
    };
    let json = serde_json::json!({ "queue_pairs": rows }).to_string();
    assert_eq!(read_job_table(json.as_bytes()).expect("a table was written"), rows);
    let names = |row: &PortRow| {
        [&row.from, &row.to].into_iter().chain(&row.path).cloned().collect::<String>()
    };
    if !rows.iter().any(|row| names(row).contains(['\n', '\r'])) {
        assert!(read_job_table(port_csv(&rows).as_bytes()).is_ok());
    }
    true
}

fn refused(why: &str) -> bool {
    assert!(!why.is_empty(), "a refusal says why");
    false
}
