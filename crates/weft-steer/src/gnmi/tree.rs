//! A router's answer as one tree of text values.
//!
//! Servers send the same data in different forms: one JSON document or an update for each leaf, numbers of 64 bits as JSON
//! strings (RFC 7951) or protobuf integers, names with the module's prefix or without. The tree has none of these
//! differences. The entries of a list are its children, by the values of their keys: in OpenConfig's models the leaves
//! directly below an entry are exactly its keys.

use std::collections::BTreeMap;

use serde_json::Value;

use super::proto::gnmi::{Notification, Path, PathElem, TypedValue, typed_value};

/// Maximum number of nodes of an answer: forwarding tables of some 200,000 routes.
const MAX_NODES: usize = 1 << 20;
/// Maximum number of elements of a path. The JSON parser has a limit of its own, of 128.
const MAX_DEPTH: usize = 64;
/// The beginnings of module names, which are removed from names and values.
const MODULES: [&str; 4] = ["openconfig-", "ietf-", "iana-", "sonic-"];

/// The reason that an answer is no tree.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeFault {
    /// The answer has too many nodes.
    #[error("it has more than {MAX_NODES} values")]
    TooLarge,
    /// A path has too many elements.
    #[error("a path has more than {MAX_DEPTH} elements")]
    TooDeep,
    /// A value is not the JSON that it claims to be.
    #[error("{path}: {source}")]
    Json {
        /// The path of the value.
        path: String,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// A value is in an encoding that was not asked for.
    #[error("{0}: the value is neither JSON nor a scalar")]
    Encoding(String),
}

/// A node of an answer: a value, or children by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree {
    value: Option<String>,
    children: BTreeMap<String, Self>,
}

/// Builds a tree from notifications.
#[derive(Debug, Default)]
pub(super) struct TreeBuilder {
    root: Tree,
    nodes: usize,
}

impl TreeBuilder {
    /// Adds the updates of a notification. The last of several values of one path counts.
    ///
    /// # Errors
    /// Returns the first fault.
    pub(super) fn add(&mut self, notification: &Notification) -> Result<(), TreeFault> {
        let prefix = notification.prefix.as_ref().map_or(&[][..], |path| &path.elem);
        for update in &notification.update {
            let path = update.path.clone().unwrap_or_default();
            if prefix.len() + path.elem.len() > MAX_DEPTH {
                return Err(TreeFault::TooDeep);
            }
            let Some(value) = scalar_or_json(update.val.as_ref(), &path)? else { continue };
            let mut node = &mut self.root;
            for element in prefix.iter().chain(&path.elem) {
                node = descend(node, element, &mut self.nodes)?;
            }
            merge(node, value, &mut self.nodes)?;
        }
        Ok(())
    }

    /// Returns the tree.
    pub(super) fn finish(self) -> Tree {
        self.root
    }
}

/// Returns the value of an update as JSON; `None` if there is none.
fn scalar_or_json(value: Option<&TypedValue>, path: &Path) -> Result<Option<Value>, TreeFault> {
    use typed_value::Value as It;
    let json = |bytes: &[u8]| {
        let fault = |source| TreeFault::Json { path: path.to_string(), source };
        serde_json::from_slice(bytes).map_err(fault)
    };
    Ok(Some(match value.and_then(|value| value.value.as_ref()) {
        None => return Ok(None),
        Some(It::JsonIetfVal(bytes) | It::JsonVal(bytes)) => json(bytes)?,
        Some(It::StringVal(text) | It::AsciiVal(text)) => Value::from(text.as_str()),
        Some(It::UintVal(number)) => Value::from(*number),
        Some(It::IntVal(number)) => Value::from(*number),
        Some(It::BoolVal(is_so)) => Value::from(*is_so),
        Some(It::DoubleVal(number)) => Value::from(*number),
        Some(_) => return Err(TreeFault::Encoding(path.to_string())),
    }))
}

/// Returns the node of an element, which it makes if there is none. The keys of an entry are its leaves too.
fn descend<'a>(
    node: &'a mut Tree,
    element: &PathElem,
    nodes: &mut usize,
) -> Result<&'a mut Tree, TreeFault> {
    let list = child(node, without_module(&element.name), nodes)?;
    if element.key.is_empty() {
        return Ok(list);
    }
    let name: Vec<&str> = element.key.values().map(|value| without_module(value)).collect();
    child(list, &name.join(" "), nodes)
}

fn child<'a>(node: &'a mut Tree, name: &str, nodes: &mut usize) -> Result<&'a mut Tree, TreeFault> {
    if !node.children.contains_key(name) {
        *nodes += 1;
        if *nodes > MAX_NODES {
            return Err(TreeFault::TooLarge);
        }
    }
    Ok(node.children.entry(name.to_owned()).or_default())
}

/// Adds a JSON value to a node.
fn merge(node: &mut Tree, value: Value, nodes: &mut usize) -> Result<(), TreeFault> {
    match value {
        Value::Null => {}
        Value::Object(members) => {
            for (name, value) in members {
                merge(child(node, without_module(&name), nodes)?, value, nodes)?;
            }
        }
        Value::Array(entries) => {
            for (place, entry) in entries.into_iter().enumerate() {
                let name = entry_name(&entry).unwrap_or_else(|| format!("#{place}"));
                merge(child(node, &name, nodes)?, entry, nodes)?;
            }
        }
        Value::String(text) => node.value = Some(text),
        other => node.value = Some(other.to_string()),
    }
    Ok(())
}

/// Returns the name of a list's entry: the values of its keys, in the order of their names.
fn entry_name(entry: &Value) -> Option<String> {
    let leaves: BTreeMap<&str, String> = entry
        .as_object()?
        .iter()
        .filter_map(|(name, value)| match value {
            Value::String(text) => Some((without_module(name), without_module(text).to_owned())),
            Value::Number(number) => Some((without_module(name), number.to_string())),
            _ => None,
        })
        .collect();
    (!leaves.is_empty()).then(|| leaves.into_values().collect::<Vec<_>>().join(" "))
}

/// Removes the prefix of a module of OpenConfig, the IETF, IANA or SONiC: `openconfig-policy-types:STATIC` is `STATIC`.
pub(super) fn without_module(name: &str) -> &str {
    match name.split_once(':') {
        Some((module, rest)) if MODULES.iter().any(|it| module.starts_with(it)) => rest,
        _ => name,
    }
}

impl Tree {
    /// Parses a JSON document.
    ///
    /// # Errors
    /// Returns the first fault.
    pub(super) fn of_document(document: &str) -> Result<Self, TreeFault> {
        let fault = |source| TreeFault::Json { path: "/".into(), source };
        let (mut root, mut nodes) = (Self::default(), 0);
        merge(&mut root, serde_json::from_str(document).map_err(fault)?, &mut nodes)?;
        Ok(root)
    }

    /// Returns the node below these elements, separated by `/`.
    pub(super) fn at(&self, elements: &str) -> Option<&Self> {
        elements.split('/').try_fold(self, |node, name| node.children.get(name))
    }

    /// Returns the node of a list's entry.
    pub(super) fn entry(&self, list: &str, name: &str) -> Option<&Self> {
        self.at(list)?.children.get(name)
    }

    /// Returns the value below these elements.
    pub(super) fn leaf(&self, elements: &str) -> Option<&str> {
        self.at(elements)?.value.as_deref()
    }

    /// Returns the children of the node below these elements: a list's entries by name.
    pub(super) fn entries(&self, elements: &str) -> impl Iterator<Item = (&str, &Self)> {
        self.at(elements).into_iter().flat_map(Self::children)
    }

    /// Returns the children by name.
    pub(super) fn children(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.children.iter().map(|(name, node)| (name.as_str(), node))
    }
}

#[cfg(test)]
pub(super) mod tests;
