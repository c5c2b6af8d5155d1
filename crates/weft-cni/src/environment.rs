//! The variables that a runtime sets: the verb, the container, its interface, and arguments.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::failure::{Code, Failure};

/// Longest container id, bytes; runtimes use 64.
const MAX_ID: usize = 128;

/// Longest value of a label, bytes: names of Kubernetes have 253 at most.
pub(crate) const MAX_LABEL: usize = 253;

/// The longest name of an interface, bytes (`IFNAMSIZ`).
const MAX_INTERFACE: usize = 15;

/// The arguments that become labels of the port: the variable's name, and the label's.
const LABELS: [(&str, &str); 3] =
    [("K8S_POD_NAMESPACE", "namespace"), ("K8S_POD_NAME", "pod"), ("K8S_POD_UID", "uid")];

/// A verb of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Connects a container.
    Add,
    /// Disconnects a container.
    Del,
    /// Compares a container's network with the result of ADD.
    Check,
    /// Reports whether ADD can be served.
    Status,
    /// Removes what belongs to no container any more.
    Gc,
    /// Reports the supported versions.
    Version,
}

impl Verb {
    /// Returns the verb of a name.
    ///
    /// # Errors
    /// Code 4: there is no such verb.
    pub fn parse(name: &OsStr) -> Result<Self, Failure> {
        Ok(match name.to_str() {
            Some("ADD") => Self::Add,
            Some("DEL") => Self::Del,
            Some("CHECK") => Self::Check,
            Some("STATUS") => Self::Status,
            Some("GC") => Self::Gc,
            Some("VERSION") => Self::Version,
            _ => {
                let message = format!("CNI_COMMAND is {name:?}");
                let known = "it may be ADD, DEL, CHECK, STATUS, GC or VERSION";
                return Err(Failure::new(Code::InvalidEnvironment, message).with_details(known));
            }
        })
    }
}

/// The interface of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The container's id.
    pub container: String,
    /// The interface's name in the container.
    pub interface: String,
}

/// Reads a variable.
pub(crate) type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Returns the interface that the variables name.
///
/// # Errors
/// Code 4: a variable is missing, or is no id or no name.
pub(crate) fn endpoint(variables: Variables<'_>) -> Result<Endpoint, Failure> {
    let container = text(variables, "CNI_CONTAINERID")?;
    let interface = text(variables, "CNI_IFNAME")?;
    Endpoint::new(container, interface)
        .map_err(|message| Failure::new(Code::InvalidEnvironment, message))
}

impl Endpoint {
    /// Returns the interface `interface` of a container.
    ///
    /// # Errors
    /// The reason that one of the two is no id or no name.
    pub fn new(container: String, interface: String) -> Result<Self, String> {
        if !is_identifier(&container) || container.len() > MAX_ID {
            return Err(format!(
                "{container:?} is no container id: 1 to {MAX_ID} letters, digits, dots, underscores and hyphens, \
                 the first a letter or a digit"
            ));
        }
        let fits = (1..=MAX_INTERFACE).contains(&interface.len());
        let is_wrong = |byte: u8| byte == b'/' || byte == b':' || byte <= b' ' || byte == 0x7f;
        if !fits || [".", ".."].contains(&&*interface) || interface.bytes().any(is_wrong) {
            return Err(format!(
                "{interface:?} is no name of an interface: 1 to {MAX_INTERFACE} bytes, no slash, colon or space"
            ));
        }
        Ok(Self { container, interface })
    }
}

/// Returns `true` for names of networks and ids of containers.
pub(crate) fn is_identifier(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_alphanumeric()) && text.bytes().all(inside)
}

/// Returns the file of the container's network namespace.
///
/// # Errors
/// Code 4: the variable is missing.
pub(crate) fn namespace(variables: Variables<'_>) -> Result<PathBuf, Failure> {
    present(variables, "CNI_NETNS").map(PathBuf::from)
}

/// Returns the file of the container's network namespace, if the runtime names one and it is there.
pub(crate) fn namespace_left(variables: Variables<'_>) -> Option<PathBuf> {
    let path = variables("CNI_NETNS").map(PathBuf::from);
    path.filter(|path| !path.as_os_str().is_empty() && path.exists())
}

fn present(variables: Variables<'_>, name: &str) -> Result<OsString, Failure> {
    let missing = || Failure::new(Code::InvalidEnvironment, format!("{name} is not set"));
    variables(name).filter(|value| !value.is_empty()).ok_or_else(missing)
}

fn text(variables: Variables<'_>, name: &str) -> Result<String, Failure> {
    present(variables, name)?.into_string().map_err(|value| {
        Failure::new(Code::InvalidEnvironment, format!("{name} is {value:?}, which is no UTF-8"))
    })
}

/// Returns the folders in which plugins are.
pub(crate) fn plugin_folders(variables: Variables<'_>) -> Vec<PathBuf> {
    let path = variables("CNI_PATH").unwrap_or_default();
    std::env::split_paths(Path::new(&path)).filter(|it| !it.as_os_str().is_empty()).collect()
}

/// The arguments of `CNI_ARGS`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments(BTreeMap<String, String>);

impl Arguments {
    /// Parses `KEY=VALUE;KEY=VALUE`.
    ///
    /// # Errors
    /// Code 4: a part has no `=`.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let parts = text.split(';').filter(|part| !part.is_empty());
        let pair = |part: &str| {
            let pair = part.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
            pair.ok_or_else(|| {
                let message = format!("CNI_ARGS has {part:?}, expected KEY=VALUE");
                Failure::new(Code::InvalidEnvironment, message)
            })
        };
        parts.map(pair).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn of(variables: Variables<'_>) -> Result<Self, Failure> {
        match variables("CNI_ARGS").filter(|value| !value.is_empty()) {
            None => Ok(Self::default()),
            Some(_) => Self::parse(&text(variables, "CNI_ARGS")?),
        }
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Returns the labels of the container's port. Values that no Kubernetes would give are left out.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let label = |(key, label): (&str, &str)| {
            let value = self.get(key).filter(|value| !value.is_empty() && value.len() <= MAX_LABEL);
            let value = value.filter(|value| !value.chars().any(char::is_control));
            value.map(|value| (label.to_owned(), value.to_owned()))
        };
        LABELS.into_iter().filter_map(label).collect()
    }
}
