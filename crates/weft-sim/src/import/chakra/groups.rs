//! The groups of ranks of a trace: from a JSON file beside it, or from a node that PyTorch writes.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::super::error::ImportError;

/// The ranks of each named group.
pub(super) type Groups = BTreeMap<String, Vec<u32>>;

/// The largest file of groups, bytes.
const MAX_FILE: u64 = 256 << 20;

/// Reads ASTRA-sim's file of communicator groups, `{"5": [0, 4]}`.
///
/// # Errors
/// The file cannot be read, or is something else.
pub(super) fn read(file: &Path) -> Result<Groups, ImportError> {
    let unreadable = |error: std::io::Error| ImportError::new(file, error);
    let size = std::fs::metadata(file).map_err(unreadable)?.len();
    if size > MAX_FILE {
        return Err(ImportError::new(
            file,
            format!("it has {size} bytes, expected at most {MAX_FILE}"),
        ));
    }
    let text = std::fs::read_to_string(file).map_err(unreadable)?;
    serde_json::from_str(&text).map_err(|error| {
        let expected = "groups such as {\"5\": [0, 4]}";
        ImportError::new(file, format!("expected {expected}: {error}"))
    })
}

/// A group as PyTorch describes it.
#[derive(Deserialize)]
struct ProcessGroup {
    pg_name: String,
    /// No ranks are all ranks.
    #[serde(default)]
    ranks: Vec<u32>,
}

/// Returns the groups in the inputs of a metadata node: a list in JSON, as a text of a list. Any other text has none.
pub(super) fn of_inputs(inputs: &str, ranks: u32) -> Groups {
    let list = inputs.find("[{").zip(inputs.rfind("}]"));
    let Some(list) = list.and_then(|(start, end)| inputs.get(start..end + 2)) else {
        return Groups::new();
    };
    let plain = list.replace("\\\"", "\"");
    let groups: Vec<ProcessGroup> = serde_json::from_str(&plain).unwrap_or_default();
    let all = |ranks_of: Vec<u32>| match ranks_of.is_empty() {
        true => (0..ranks).collect(),
        false => ranks_of,
    };
    groups.into_iter().map(|group| (group.pg_name, all(group.ranks))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_pytorch_are_found_in_a_text() {
        let inputs =
            r#"["[{\"pg_name\": \"0\", \"ranks\": []}, {\"pg_name\": \"1\", \"ranks\": [0, 2]}]"]"#;
        let want = [("0".to_owned(), vec![0, 1, 2, 3]), ("1".to_owned(), vec![0, 2])];
        assert_eq!(of_inputs(inputs, 4), Groups::from(want));
        for other in ["", "[]", "[{", "}][{", "[{}]", "\u{e9}[{\u{e9}}]"] {
            assert_eq!(of_inputs(other, 4), Groups::new(), "{other:?}");
        }
    }
}
