//! Properties of the readers of a call, for any bytes. Tests and fuzz targets call this.
#![allow(unreachable_pub, reason = "public to the fuzz targets only")]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use crate::attachment::Attachment;
use crate::config::{AddressKind, Config};
use crate::environment::{Arguments, Endpoint, MAX_LABEL, endpoint};
use crate::failure::Code;
use crate::overlay::port_name;
use crate::requested::Requested;
use crate::version::Version;

/// Reads three variables, a line each, and a configuration after them. Returns `true` if all are valid.
///
/// # Panics
/// If a valid call could reach files or containers of other names, or a result changes when written and read back.
pub fn cni_call(bytes: &[u8]) -> bool {
    let mut parts = bytes.splitn(4, |&byte| byte == b'\n');
    let mut line = || OsString::from_vec(parts.next().unwrap_or_default().to_vec());
    let (container, interface, arguments) = (line(), line(), line());
    let rest = parts.next().unwrap_or_default();
    let variables = |name: &str| match name {
        "CNI_CONTAINERID" => Some(container.clone()),
        "CNI_IFNAME" => Some(interface.clone()),
        "CNI_ARGS" => Some(arguments.clone()),
        _ => None,
    };
    let endpoint = endpoint(&variables).inspect_err(|error| {
        assert_eq!(error.code, Code::InvalidEnvironment);
    });
    let arguments = Arguments::of(&variables).inspect(|arguments| {
        let labels = arguments.labels();
        assert!(labels.values().all(|value| (1..=MAX_LABEL).contains(&value.len())));
    });
    let config = match Config::parse(rest) {
        Ok(config) => config,
        Err((version, failure)) => {
            let text = format!("{:#}", failure.to_json(version));
            assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
            return false;
        }
    };
    if let Some(previous) = &config.previous {
        write_and_read(previous);
    }
    if let Ok(endpoint) = &endpoint {
        is_unambiguous(&config.name, endpoint);
    }
    let _ = (config.vni(), config.valid());
    if let Ok(Ok(requested)) = arguments.as_ref().map(|it| Requested::of(&config, it)) {
        let allowed = &config.own.allow_addresses;
        assert!(requested.mac.is_none() || allowed.contains(&AddressKind::Mac));
        assert!(requested.ips.is_empty() || allowed.contains(&AddressKind::Ips));
    }
    endpoint.is_ok() && arguments.is_ok()
}

fn write_and_read(result: &Attachment) {
    for version in Version::ALL {
        let written = result.to_json(version);
        let read = Attachment::parse(&written).expect("it was a result");
        assert!(version < Version::V1_1_0 || read == *result, "{written}");
    }
}

fn is_unambiguous(network: &str, endpoint: &Endpoint) {
    let name = port_name(network, endpoint);
    let parts: Vec<_> = name.split('/').collect();
    assert_eq!(parts, ["cni", network, &*endpoint.container, &*endpoint.interface]);
}

#[test]
fn no_call_violates_a_property() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/cni_call");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let corpus: Vec<_> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    let calls = crate::inputs::survive(&corpus, 20_000, cni_call);
    assert!(calls > 500, "only {calls} were calls: the mutants are too wild");
}
