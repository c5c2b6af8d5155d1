//! The line of a value in the text of a configuration, for errors that are found after the text was read.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Returns the line, from 1, of the value at a dotted key such as `port.mac`. `index` selects one of the first key's
/// tables. Where the value is left out, returns the line of the table that lacks it; `None` for a text without either.
pub(super) fn line_of(text: &str, key: &str, index: Option<usize>) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let mut keys = key.split('.');
    let (name, first) = entry(root.get_ref(), keys.next()?)?;
    let (mut line, mut value) = (name, first);
    if let (Some(items), Some(index)) = (first.get_ref().as_array(), index) {
        value = items.get(index)?;
        line = value.span().start;
    }
    for key in keys {
        let Some((name, inner)) = value.get_ref().as_table().and_then(|it| entry(it, key)) else {
            break;
        };
        (line, value) = (name, inner);
    }
    Some(line_at(text, line))
}

/// Returns the line, from 1, of the first key of this name in any table.
pub(super) fn line_of_key(text: &str, key: &str) -> Option<usize> {
    fn within(table: &DeTable<'_>, key: &str) -> Option<usize> {
        let tables = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
            DeValue::Table(table) => within(table, key),
            DeValue::Array(items) => {
                let table = |item: &Spanned<DeValue<'_>>| within(item.get_ref().as_table()?, key);
                items.iter().filter_map(table).min()
            }
            _ => None,
        };
        let own = entry(table, key).map(|(start, _)| start);
        own.or_else(|| table.iter().filter_map(|(_, value)| tables(value)).min())
    }
    Some(line_at(text, within(DeTable::parse(text).ok()?.get_ref(), key)?))
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset].iter().filter(|&&byte| byte == b'\n').count()
}

/// Returns the index of the first of a key's tables that has the text `value` at `name`.
pub(super) fn index_of(text: &str, key: &str, name: &str, value: &str) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let (_, tables) = entry(root.get_ref(), key)?;
    let is_named = |table: &Spanned<DeValue<'_>>| {
        let found = table.get_ref().as_table().and_then(|it| entry(it, name));
        found.is_some_and(|(_, found)| found.get_ref().as_str() == Some(value))
    };
    tables.get_ref().as_array()?.iter().position(is_named)
}

/// Returns where a key of a table begins, and its value.
fn entry<'a>(table: &'a DeTable<'_>, key: &str) -> Option<(usize, &'a Spanned<DeValue<'a>>)> {
    let (name, value) = table.iter().find(|(name, _)| name.get_ref().as_ref() == key)?;
    Some((name.span().start, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[host]\naddress = '10.0.0.1'\nencryption = { mode = 'off' }\n\n[[port]]\nname = 'a'\n\n\
                        [[port]]\nname = 'b'\nmac = '02:00:00:00:00:01'\n";

    #[test]
    fn a_value_has_the_line_of_its_key_and_a_missing_one_that_of_its_table() {
        for (key, index, line) in [
            ("host.address", None, Some(2)),
            ("host.encryption.mode", None, Some(3)),
            ("host.paths", None, Some(1)),
            ("port.name", Some(0), Some(6)),
            ("port.mac", Some(1), Some(10)),
            ("port.mac", Some(0), Some(5)),
            ("port", Some(1), Some(8)),
            ("port.mac", Some(2), None),
            ("network.vni", Some(0), None),
        ] {
            assert_eq!(line_of(TEXT, key, index), line, "{key} {index:?}");
        }
        assert_eq!(line_of("[host", "host", None), None);
        for (key, line) in [("mac", Some(10)), ("mode", Some(3)), ("port", Some(5)), ("x", None)] {
            assert_eq!(line_of_key(TEXT, key), line, "{key}");
        }
    }

    #[test]
    fn a_table_is_found_by_its_name() {
        assert_eq!(index_of(TEXT, "port", "name", "b"), Some(1));
        assert_eq!(index_of(TEXT, "port", "name", "c"), None);
        assert_eq!(index_of(TEXT, "acl", "name", "b"), None);
    }
}
