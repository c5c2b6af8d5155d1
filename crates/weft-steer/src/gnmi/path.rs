//! Paths in a router's data tree: construction, and the text form of gNMI's path conventions.

use std::fmt;

use super::proto::gnmi::{Path, PathElem};

impl Path {
    /// Returns the path of these elements, separated by `/`, which have no keys.
    pub(super) fn of(elements: &str) -> Self {
        Self::default().at(elements)
    }

    /// Appends elements, separated by `/`, which have no keys.
    #[must_use]
    pub(super) fn at(mut self, elements: &str) -> Self {
        let element = |name: &str| PathElem { name: name.into(), ..PathElem::default() };
        self.elem.extend(elements.split('/').map(element));
        self
    }

    /// Appends the entry of a list with these keys.
    #[must_use]
    pub(super) fn entry(mut self, list: &str, keys: &[(&str, &str)]) -> Self {
        let key = keys.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        self.elem.push(PathElem { name: list.into(), key });
        self
    }

    /// Sets the target, which in SONiC selects a database.
    #[must_use]
    pub(super) fn of_target(mut self, target: &str) -> Self {
        self.target = target.into();
        self
    }
}

impl fmt::Display for Path {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.target.is_empty() {
            write!(out, "{}:", self.target)?;
        }
        for PathElem { name, key } in &self.elem {
            write!(out, "/{name}")?;
            for (key, value) in key {
                let value = value.replace('\\', r"\\").replace(']', r"\]");
                write!(out, "[{key}={value}]")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_written_as_in_gnmis_path_conventions() {
        let path = Path::of("network-instances")
            .entry("network-instance", &[("name", "default")])
            .at("protocols")
            .entry("protocol", &[("name", "static"), ("identifier", "STATIC")])
            .entry("static", &[("prefix", "fd00::1/128")]);
        assert_eq!(
            path.to_string(),
            "/network-instances/network-instance[name=default]/protocols\
             /protocol[identifier=STATIC][name=static]/static[prefix=fd00::1/128]"
        );
        let sonic = Path::of("COUNTERS/Ethernet0/Queues").of_target("COUNTERS_DB");
        assert_eq!(sonic.to_string(), "COUNTERS_DB:/COUNTERS/Ethernet0/Queues");
        let odd = Path::default().entry("interface", &[("name", r"a]\b")]);
        assert_eq!(odd.to_string(), r"/interface[name=a\]\\b]");
    }
}
