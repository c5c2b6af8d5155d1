//! The writes of a term. Each is a transaction that compares two keys: that of the leader, which shuts out earlier terms, and
//! that of the last write, which shuts out attempts of this term whose answer was lost and that reach etcd late. Without
//! the second, such an attempt would overwrite what later writes have made.

use weft_etcd::{Compare, Outcome, Revision, Transaction};

use super::records::{LAST_WRITE, LEADER, Write};

/// Limits of a transaction: operations, and bytes of values.
const MAX_WRITES: usize = 100;
const MAX_BYTES: usize = 1 << 20;

/// The numbers of a term's writes.
#[derive(Debug)]
pub(super) struct Writes {
    prefix: String,
    term: Revision,
    /// The revision of the last write of this or an earlier term; 0 if there was none.
    last: Revision,
    /// Number of writes of this term.
    count: u64,
}

/// A write, which may be tried any number of times: it is made once.
#[derive(Debug)]
pub(super) struct NumberedWrite {
    pub(super) transaction: Transaction,
    /// The term and the number, which no other write has.
    number: String,
}

impl Writes {
    /// Returns the numbers of a new term. `last` is the revision at which [`LAST_WRITE`] was changed last, 0 without one.
    pub(super) const fn new(prefix: String, term: Revision, last: Revision) -> Self {
        Self { prefix, term, last, count: 0 }
    }

    /// Returns the next write.
    pub(super) fn next(&mut self, batch: &[Write]) -> NumberedWrite {
        self.count += 1;
        let number = format!("{}/{}", self.term, self.count);
        let key = |key: &str| format!("{}{key}", self.prefix);
        let (leader, last) = (key(LEADER), key(LAST_WRITE));
        let transaction = Transaction::new()
            .when(Compare::created(&leader, self.term))
            .when(Compare::modified(&last, self.last));
        let transaction = batch.iter().fold(transaction, |it, (name, value)| match value {
            Some(value) => it.put(&key(name), value),
            None => it.delete(&key(name)),
        });
        let transaction = transaction.put(&last, number.as_bytes()).otherwise_get(&last);
        NumberedWrite { transaction, number }
    }

    /// Takes the outcome of an attempt. Returns `true` if this or an earlier attempt made the write, `false` if the term is over.
    pub(super) fn on_outcome(&mut self, write: &NumberedWrite, outcome: &Outcome) -> bool {
        let made_before = || outcome.found.iter().find(|it| it.value == write.number.as_bytes());
        let made = match outcome.succeeded {
            true => Some(outcome.revision),
            false => made_before().map(|it| it.modified),
        };
        self.last = made.unwrap_or(self.last);
        made.is_some()
    }
}

/// Returns the writes in groups that fit into a transaction each.
pub(super) fn batches(writes: &[Write]) -> Vec<&[Write]> {
    let (mut batches, mut first, mut bytes) = (Vec::new(), 0, 0);
    for (place, (_, value)) in writes.iter().enumerate() {
        let length = value.as_ref().map_or(0, Vec::len);
        if place > first && (place - first >= MAX_WRITES || bytes + length > MAX_BYTES) {
            batches.push(&writes[first..place]);
            (first, bytes) = (place, 0);
        }
        bytes += length;
    }
    if first < writes.len() {
        batches.push(&writes[first..]);
    }
    batches
}

#[cfg(test)]
mod tests {
    use weft_etcd::{Client, EtcdSettings};
    use weft_testkit::etcd::{Etcd, etcd_is_missing};

    use super::*;

    #[test]
    fn writes_are_divided_by_number_and_by_length() {
        let write = |length: usize| (String::new(), Some(vec![0; length]));
        let sizes = |lengths: &[usize]| -> Vec<usize> {
            let writes: Vec<Write> = lengths.iter().map(|&length| write(length)).collect();
            batches(&writes).iter().map(|it| it.len()).collect()
        };
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(sizes(&[1; 250]), [100, 100, 50]);
        assert_eq!(sizes(&[600 << 10, 600 << 10, 1, 1]), [1, 3]);
        assert_eq!(sizes(&[2 << 20, 1]), [1, 1]);
    }

    #[test]
    fn a_write_is_made_once_and_a_late_attempt_of_any_term_overwrites_nothing() {
        if etcd_is_missing("writes of a term") {
            return;
        }
        let etcd = Etcd::start_plain("steer-writes", 1);
        let settings: EtcdSettings = toml::from_str(&etcd.toml()).unwrap();
        let client = Client::new(&settings).unwrap();
        let key = |name: &str| format!("/weft/route/t/{name}");
        let elect = || {
            let term = client.put(&key(LEADER), b"{}").unwrap();
            let last = client.get(&key(LAST_WRITE)).unwrap().map(|it| it.modified);
            Writes::new(key(""), term, last.unwrap_or_default())
        };
        let batch = |value: &str| [("jobs/a".to_owned(), Some(value.as_bytes().to_vec()))];
        let job = || String::from_utf8(client.get(&key("jobs/a")).unwrap().unwrap().value).unwrap();
        let try_to = |writes: &mut Writes, write: &NumberedWrite| {
            let outcome = client.transact(&write.transaction).unwrap();
            writes.on_outcome(write, &outcome)
        };
        let mut first_term = elect();
        let first = first_term.next(&batch("first"));
        assert!(try_to(&mut first_term, &first));
        assert!(try_to(&mut first_term, &first), "the answer of an attempt was lost");
        let second = first_term.next(&batch("second"));
        assert!(try_to(&mut first_term, &second));
        assert!(!client.transact(&first.transaction).unwrap().succeeded, "it comes late");
        assert_eq!(job(), "second");

        let never_sent = first_term.next(&batch("never sent"));
        client.delete(&key(LEADER)).unwrap();
        let mut second_term = elect();
        assert!(!try_to(&mut first_term, &never_sent), "its term is over");
        let third = second_term.next(&batch("third"));
        assert!(try_to(&mut second_term, &third));
        for late in [&first, &second, &never_sent] {
            assert!(!client.transact(&late.transaction).unwrap().succeeded);
        }
        assert_eq!(job(), "third");
    }
}
