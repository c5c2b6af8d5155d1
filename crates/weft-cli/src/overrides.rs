//! `--set key=value` for any configuration that can be written as TOML.

use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};
use weft_units::suggest;

/// Returns `config` with each `key.key=value` of `sets` replaced.
///
/// # Errors
/// Returns an error for a text without `=`, for a key that the configuration does not have (the error has the nearest
/// one), and for a value that does not fit.
pub(crate) fn apply<T: Serialize + DeserializeOwned>(config: &T, sets: &[String]) -> Result<T> {
    let mut table =
        Table::try_from(config).context("the configuration cannot be written as TOML")?;
    for set in sets {
        let (key, value) = split(set)?;
        replace(&mut table, key, value)?;
    }
    let text = sets.join(", ");
    table.try_into().with_context(|| format!("--set {text}"))
}

fn replace(table: &mut Table, key: &str, value: &str) -> Result<()> {
    let (head, rest) = match key.split_once('.') {
        Some((head, rest)) => (head, Some(rest)),
        None => (key, None),
    };
    let Some(slot) = table.get_mut(head) else {
        let known: Vec<&str> = table.keys().map(String::as_str).collect();
        let hint = suggest(head, known.iter().copied())
            .map_or_else(String::new, |name| format!(", did you mean {name:?}?"));
        bail!("--set: no key {head:?}{hint} (known: {})", known.join(", "));
    };
    match (slot, rest) {
        (Value::Table(inner), Some(rest)) => replace(inner, rest, value),
        (Value::Table(inner), None) => {
            let known: Vec<&str> = inner.keys().map(String::as_str).collect();
            bail!("--set {head}: is a table; name a key of it ({head}.{})", known.join(", "))
        }
        (_, Some(rest)) => bail!("--set: {head} has no key {rest:?}; it is a single value"),
        (slot, None) => {
            *slot = parse_like(slot, value);
            Ok(())
        }
    }
}

/// Replaces or adds values of a table, such as `transport.paths=8` or `workload.0.size=1MB` (arrays count from zero).
/// The reader of the table checks the keys.
///
/// # Errors
/// Returns an error for a text without `=`, an index beyond the end of an array, and a key below a single value.
pub(crate) fn set(table: &mut Table, sets: &[String]) -> Result<()> {
    for set in sets {
        let (key, value) = split(set)?;
        let parts: Vec<&str> = key.split('.').collect();
        let Some((last, path)) = parts.split_last() else { continue };
        let mut target = &mut *table;
        let mut path = path.iter();
        while let Some(part) = path.next() {
            let next = target.entry(*part).or_insert_with(|| Value::Table(Table::new()));
            target = match next {
                Value::Table(inner) => inner,
                Value::Array(items) => {
                    let count = items.len();
                    let index = path.next().and_then(|index| index.parse::<usize>().ok());
                    let item = index.and_then(|index| items.get_mut(index));
                    item.and_then(Value::as_table_mut).ok_or_else(|| {
                        anyhow!("--set {set}: {part} has {count} entries; name one by its number from 0, as in {part}.0.{last}")
                    })?
                }
                _ => bail!("--set {set}: {part} is a single value and has no key below it"),
            };
        }
        let new = match target.get(*last) {
            Some(old) => parse_like(old, value),
            None => parse_like(&Value::Boolean(false), value),
        };
        target.insert((*last).to_owned(), new);
    }
    Ok(())
}

fn split(set: &str) -> Result<(&str, &str)> {
    let (key, value) = set
        .split_once('=')
        .ok_or_else(|| anyhow!("--set {set}: expected KEY=VALUE, such as paths=8"))?;
    Ok((key.trim(), value.trim()))
}

/// Parses a value. The result is a text if `old` is one, so that `name=8` and `rto_min=2ms` need no quotes.
fn parse_like(old: &Value, text: &str) -> Value {
    let parsed = toml::from_str::<Table>(&format!("value = {text}"))
        .ok()
        .and_then(|mut table| table.remove("value"));
    match (old, parsed) {
        (Value::String(_), Some(quoted @ Value::String(_))) => quoted,
        (Value::String(_), _) | (_, None) => Value::String(text.to_owned()),
        (_, Some(value)) => value,
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Config {
        paths: u16,
        policy: String,
        limits: Limits,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Limits {
        rate: f64,
        on: bool,
    }

    fn changed(sets: &[&str]) -> Result<Config> {
        let limits = Limits { rate: 1.0, on: false };
        let config = Config { paths: 4, policy: "single".into(), limits };
        apply(&config, &sets.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn values_get_the_type_of_those_they_replace() {
        let config =
            changed(&["paths=8", "policy=3", "limits.on=true", "limits.rate=2.5"]).unwrap();
        let limits = Limits { rate: 2.5, on: true };
        assert_eq!(config, Config { paths: 8, policy: "3".into(), limits });
    }

    #[test]
    fn the_error_of_an_unknown_key_has_the_nearest_one() {
        let error = changed(&["limits.rat=1"]).unwrap_err().to_string();
        assert_eq!(error, "--set: no key \"rat\", did you mean \"rate\"? (known: on, rate)");
    }

    #[test]
    fn malformed_overrides_are_refused() {
        for wrong in ["paths", "paths=many", "limits=3", "paths.x=1", "=1"] {
            assert!(changed(&[wrong]).is_err(), "{wrong} passed");
        }
    }

    #[test]
    fn tables_are_changed_in_depth_and_arrays_by_number() {
        let mut table: Table = toml::from_str("[[workload]]\nkind = 'incast'\n").unwrap();
        let sets = ["workload.0.size=1MB", "transport.paths=8", "name=128"];
        set(&mut table, &sets.map(str::to_owned)).unwrap();
        assert_eq!(table["workload"][0]["size"], Value::String("1MB".into()));
        assert_eq!(table["transport"]["paths"], Value::Integer(8));
        assert_eq!(table["name"], Value::Integer(128));
    }

    #[test]
    fn an_index_beyond_an_array_is_refused_with_its_length() {
        let mut table: Table = toml::from_str("[[workload]]\nkind = 'incast'\n").unwrap();
        for wrong in ["workload.1.size=1MB", "workload.size=1MB", "workload.0.kind.x=1"] {
            let error = set(&mut table, &[wrong.to_owned()]).unwrap_err().to_string();
            assert!(error.contains("1 entries") || error.contains("single value"), "{error}");
        }
    }
}
