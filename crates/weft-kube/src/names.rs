//! The names of the controller's policies in the fleet. Each begins with the owner, `k8s.CLUSTER.`, which no operator's
//! policy may.

use std::fmt::Write;

use ring::digest::{SHA256, digest};

/// Longest name of a cluster.
const MAX_CLUSTER: usize = 12;

/// Longest part of a name that is there for people.
const MAX_READABLE: usize = 20;

/// Bytes of a digest in a name. Tenants choose what is digested, so that it must be hard to find two of one digest.
const DIGEST: usize = 12;

/// The owner of objects in the fleet: the controller of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner(String);

/// The error of a cluster's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cluster's name {0:?} is none of 1 to {MAX_CLUSTER} small letters, digits and hyphens")]
pub struct OwnerError(String);

impl Owner {
    /// Returns the owner of a cluster's objects.
    ///
    /// # Errors
    /// The name cannot be part of a key.
    pub fn new(cluster: &str) -> Result<Self, OwnerError> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let fits = (1..=MAX_CLUSTER).contains(&cluster.len()) && cluster.chars().all(allowed);
        fits.then(|| Self(format!("k8s.{cluster}"))).ok_or_else(|| OwnerError(cluster.to_owned()))
    }

    /// Returns the text by which objects name it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns `true` if a name is that of a policy of this owner.
    pub fn owns(&self, name: &str) -> bool {
        name.strip_prefix(&self.0).is_some_and(|rest| rest.starts_with('.'))
    }

    /// Returns the name of a policy that there is one of.
    pub fn named(&self, word: &str) -> String {
        format!("{}.{word}", self.0)
    }

    /// Returns the name of a policy that is made for `of`; `readable` is for people.
    pub fn derived(&self, readable: &str, of: &str) -> String {
        let plain = |c: &char| c.is_ascii_alphanumeric() || "-.".contains(*c);
        let readable: String = readable.chars().filter(plain).take(MAX_READABLE).collect();
        let hash = digest(&SHA256, of.as_bytes());
        let mut name = format!("{}.{readable}.", self.0);
        for byte in &hash.as_ref()[..DIGEST] {
            write!(name, "{byte:02x}").expect("a text grows");
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_into_keys_and_show_their_owner() {
        let owner = Owner::new("prod-eu-west").unwrap();
        let name = owner.derived(&"a".repeat(300), "shop/web");
        assert_eq!(name.len(), 62);
        assert!(owner.owns(&name) && !Owner::new("prod").unwrap().owns(&name));
        assert_eq!(owner.derived("web", "x"), owner.derived("web", "x"));
        assert_ne!(owner.derived("web", "x"), owner.derived("web", "y"));
        for wrong in ["", "Prod", "a.b", "a234567890123"] {
            assert!(Owner::new(wrong).is_err(), "{wrong}");
        }
    }
}
