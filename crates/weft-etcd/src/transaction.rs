//! Writes that depend on comparisons.

use std::fmt;

use crate::proto::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::proto::request_op::Request;
use crate::proto::response_op::Response;
use crate::proto::{
    self, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, TxnResponse,
};
use crate::range::of_prefix;
use crate::{EtcdError, KeyValue, LeaseId, Revision};

/// Maximum number of comparisons, and of operations, of a transaction: etcd's default `--max-txn-ops`.
pub const MAX_OPERATIONS: usize = 128;

/// Writes that are made together, if comparisons hold.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    conditions: Vec<Compare>,
    operations: Vec<RequestOp>,
    otherwise: Vec<RequestOp>,
    /// The first key, for errors.
    first: Option<String>,
}

/// A comparison of a key.
#[derive(Clone, Debug)]
pub struct Compare(proto::Compare);

/// The result of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// `true` if all comparisons held and the writes were made.
    pub succeeded: bool,
    /// The revision of the writes, or of the reads.
    pub revision: Revision,
    /// The keys that the reads found: those of [`Transaction::get`], or else those of [`Transaction::otherwise_get`].
    pub found: Vec<KeyValue>,
}

impl Compare {
    fn new(key: &str, target: CompareTarget, value: TargetUnion) -> Self {
        Self(proto::Compare {
            result: CompareResult::Equal.into(),
            target: target.into(),
            key: key.into(),
            target_union: Some(value),
            range_end: vec![],
        })
    }

    /// The key does not exist.
    pub fn absent(key: &str) -> Self {
        Self::created(key, Revision(0))
    }

    /// No key begins with `prefix`.
    pub fn none_below(prefix: &str) -> Self {
        let Self(absent) = Self::absent(prefix);
        let (key, range_end) = of_prefix(prefix);
        Self(proto::Compare { key, range_end, ..absent })
    }

    /// The key exists.
    pub fn exists(key: &str) -> Self {
        let Self(absent) = Self::absent(key);
        Self(proto::Compare { result: CompareResult::NotEqual.into(), ..absent })
    }

    /// The key was created at a revision, and not deleted since.
    pub fn created(key: &str, at: Revision) -> Self {
        Self::new(key, CompareTarget::Create, TargetUnion::CreateRevision(at.0))
    }

    /// The key was changed last at a revision; 0 if it does not exist.
    pub fn modified(key: &str, at: Revision) -> Self {
        Self::new(key, CompareTarget::Mod, TargetUnion::ModRevision(at.0))
    }

    /// The key has a value.
    pub fn value(key: &str, value: &[u8]) -> Self {
        Self::new(key, CompareTarget::Value, TargetUnion::Value(value.into()))
    }
}

impl Transaction {
    /// Returns a transaction without operations.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a condition.
    #[must_use]
    pub fn when(mut self, condition: Compare) -> Self {
        self.conditions.push(condition);
        self
    }

    /// Sets a key.
    #[must_use]
    pub fn put(self, key: &str, value: &[u8]) -> Self {
        self.put_request(key, value, 0)
    }

    /// Sets a key that is deleted with a lease.
    #[must_use]
    pub fn put_leased(self, key: &str, value: &[u8], lease: LeaseId) -> Self {
        self.put_request(key, value, lease.0)
    }

    fn put_request(self, key: &str, value: &[u8], lease: i64) -> Self {
        let put = PutRequest { key: key.into(), value: value.into(), lease };
        self.with(key, Request::RequestPut(put))
    }

    /// Deletes a key, if there is one.
    #[must_use]
    pub fn delete(self, key: &str) -> Self {
        let delete = DeleteRangeRequest { key: key.into(), range_end: vec![] };
        self.with(key, Request::RequestDeleteRange(delete))
    }

    /// Deletes all keys that begin with `prefix`.
    #[must_use]
    pub fn delete_prefix(self, prefix: &str) -> Self {
        let (key, range_end) = of_prefix(prefix);
        self.with(prefix, Request::RequestDeleteRange(DeleteRangeRequest { key, range_end }))
    }

    /// Reads a key if all conditions hold.
    #[must_use]
    pub fn get(self, key: &str) -> Self {
        let get = RangeRequest { key: key.into(), ..RangeRequest::default() };
        self.with(key, Request::RequestRange(get))
    }

    /// Reads a key if a condition does not hold.
    #[must_use]
    pub fn otherwise_get(mut self, key: &str) -> Self {
        let get = RangeRequest { key: key.into(), ..RangeRequest::default() };
        self.otherwise.push(RequestOp { request: Some(Request::RequestRange(get)) });
        self
    }

    fn with(mut self, key: &str, request: Request) -> Self {
        self.first.get_or_insert_with(|| key.to_owned());
        self.operations.push(RequestOp { request: Some(request) });
        self
    }

    pub(crate) fn request(&self) -> Result<TxnRequest, EtcdError> {
        let (conditions, operations) = (self.conditions.len(), self.operations.len());
        let longest = conditions.max(operations).max(self.otherwise.len());
        if longest > MAX_OPERATIONS {
            return Err(EtcdError::TooManyOperations(longest));
        }
        Ok(TxnRequest {
            compare: self.conditions.iter().map(|Compare(it)| it.clone()).collect(),
            success: self.operations.clone(),
            failure: self.otherwise.clone(),
        })
    }
}

/// Writes the first key and the number of others.
impl fmt::Display for Transaction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.first.as_deref().unwrap_or("nothing");
        match self.operations.len() {
            0 | 1 => write!(out, "write {first}"),
            operations => write!(out, "write {first} and {} others", operations - 1),
        }
    }
}

impl From<TxnResponse> for Outcome {
    fn from(answer: TxnResponse) -> Self {
        let found = answer.responses.into_iter().flat_map(|it| match it.response {
            Some(Response::ResponseRange(range)) => range.kvs,
            _ => vec![],
        });
        Self {
            succeeded: answer.succeeded,
            revision: Revision(answer.header.map_or(0, |header| header.revision)),
            found: found.map(KeyValue::from).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_has_a_limit_and_a_name() {
        let put = |count: usize| {
            (0..count).fold(Transaction::new(), |it, n| it.put(&format!("/{n}"), b""))
        };
        assert_eq!(put(1).to_string(), "write /0");
        assert_eq!(put(3).to_string(), "write /0 and 2 others");
        assert!(put(MAX_OPERATIONS).request().is_ok());
        let error = put(MAX_OPERATIONS + 1).request().unwrap_err().to_string();
        assert!(error.contains("129 operations") && error.contains("accepts 128"), "{error}");
    }
}
