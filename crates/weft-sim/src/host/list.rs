//! The hosts of a world, or of a part of it.

use std::ops::{Deref, DerefMut, Index, IndexMut};

use super::Host;

/// Hosts of consecutive numbers, by their number in the world. As a slice, the first one has index 0.
#[derive(Debug, Default)]
pub struct Hosts {
    /// The number of the first host.
    first: usize,
    list: Vec<Host>,
}

impl Hosts {
    /// Returns hosts whose numbers start at `first`.
    pub fn new(first: usize, list: Vec<Host>) -> Self {
        Self { first, list }
    }

    /// Returns the host of this number; `None` if it is not among these.
    #[inline]
    pub fn get(&self, number: usize) -> Option<&Host> {
        self.list.get(number.wrapping_sub(self.first))
    }

    /// Returns two different hosts; `None` if one is not among these.
    pub fn get_pair_mut(&mut self, numbers: [usize; 2]) -> Option<[&mut Host; 2]> {
        let places = numbers.map(|number| number.wrapping_sub(self.first));
        self.list.get_disjoint_mut(places).ok()
    }

    /// Takes the hosts from number `first` on out of these.
    pub fn split_off(&mut self, first: usize) -> Self {
        if first == self.first {
            return Self { first, list: std::mem::take(&mut self.list) };
        }
        Self { first, list: self.list.split_off(first - self.first) }
    }

    /// Moves the hosts of `others`, whose numbers follow, into these.
    pub fn append(&mut self, others: &mut Self) {
        assert_eq!(others.first, self.first + self.list.len(), "hosts stay in order");
        if self.list.is_empty() {
            // Nothing moves, and the list keeps the memory for all hosts that it had before they were divided.
            std::mem::swap(&mut self.list, &mut others.list);
        } else {
            self.list.append(&mut others.list);
        }
    }
}

impl Index<usize> for Hosts {
    type Output = Host;

    #[inline]
    fn index(&self, number: usize) -> &Host {
        &self.list[number.wrapping_sub(self.first)]
    }
}

impl IndexMut<usize> for Hosts {
    #[inline]
    fn index_mut(&mut self, number: usize) -> &mut Host {
        &mut self.list[number.wrapping_sub(self.first)]
    }
}

impl Deref for Hosts {
    type Target = [Host];

    fn deref(&self) -> &[Host] {
        &self.list
    }
}

impl DerefMut for Hosts {
    fn deref_mut(&mut self) -> &mut [Host] {
        &mut self.list
    }
}

impl<'a> IntoIterator for &'a Hosts {
    type Item = &'a Host;
    type IntoIter = std::slice::Iter<'a, Host>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}
