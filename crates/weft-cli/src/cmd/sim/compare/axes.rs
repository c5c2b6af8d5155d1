//! Parses `--loads` and `--topologies`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use toml::{Table, Value};
use weft_topo::build::TopologyKind;
use weft_units::unknown_name;

/// Parses a load: `0.5` or `50%`. The workload checks its range.
pub(super) fn load(text: &str) -> Result<f64, String> {
    let (digits, scale) = match text.strip_suffix('%') {
        Some(digits) => (digits, 100.0),
        None => (text, 1.0),
    };
    let load: Result<f64, _> = digits.parse();
    load.map(|load| load / scale).map_err(|_| "expected a load such as 0.5 or 50%".to_owned())
}

/// Parses a network, and returns it with its name: a shape with the values that differ from its defaults, or a file.
///
/// # Errors
/// Returns an error if the text is neither.
pub(super) fn topology(text: &str) -> Result<(String, Table)> {
    let mut parts = text.split(':');
    let kind = parts.next().unwrap_or_default();
    let mut table = Table::new();
    if kind.parse::<TopologyKind>().is_ok() {
        table.insert("kind".into(), kind.into());
        for part in parts {
            let Some((key, value)) = part.split_once('=') else {
                bail!("--topologies {text}: expected KEY=VALUE after {kind}, found {part:?}");
            };
            table.insert(key.to_owned(), value_of(value));
        }
        return Ok((text.to_owned(), table));
    }
    if !Path::new(text).is_file() {
        let known: Vec<&str> = TopologyKind::ALL.iter().map(|kind| kind.name()).collect();
        bail!("--topologies {text}: no such file, and {}", unknown_name("topology", kind, &known));
    }
    // The path is relative to the current folder, not to the scenario's.
    let file = std::path::absolute(text).with_context(|| text.to_owned())?;
    table.insert("kind".into(), "file".into());
    table.insert("file".into(), file.display().to_string().into());
    let name = file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    Ok((name.unwrap_or_else(|| text.to_owned()), table))
}

fn value_of(text: &str) -> Value {
    let parsed = toml::from_str::<Table>(&format!("value = {text}")).ok();
    parsed.and_then(|mut table| table.remove("value")).unwrap_or_else(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_shares_or_percentages() {
        assert_eq!((load("0.5"), load("80%")), (Ok(0.5), Ok(0.8)));
        assert!(load("half").unwrap_err().contains("50%"));
    }

    #[test]
    fn a_shape_takes_values_that_differ_from_its_defaults() {
        let (name, table) = topology("leaf-spine:spines=4:host_rate=10Gbps").unwrap();
        assert_eq!(name, "leaf-spine:spines=4:host_rate=10Gbps");
        assert_eq!(table["spines"], Value::Integer(4));
        assert_eq!(table["host_rate"], Value::from("10Gbps"));
        assert!(topology("leaf-spine:spines").unwrap_err().to_string().contains("KEY=VALUE"));
        let error = topology("leaf-spin").unwrap_err().to_string();
        assert!(error.contains("did you mean \"leaf-spine\"?"), "{error}");
    }
}
