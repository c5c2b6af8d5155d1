//! The edge colouring of a bipartite multigraph (König 1916): if there are as many colours as the busiest
//! vertex has edges, no two edges of a vertex need the same colour.
//!
//! Edges are flows, from the switch where a flow goes up to the switch where it comes down; colours are links.
//! If no colour is free at both ends of an edge, colours are swapped along an alternating path, as in König's
//! proof.

use alloc::vec;
use alloc::vec::Vec;

/// A colouring under construction. Vertices of both sides share one numbering.
#[derive(Debug)]
pub struct Colouring {
    colours: usize,
    /// Number of words in a vertex's set of free colours.
    words: usize,
    /// `free[vertex * words ..]`: a bit for each colour that no edge of the vertex has.
    free: Vec<u64>,
    /// `edge_at[vertex * colours + colour]`: the edge, [`NO_EDGE`] or [`BLOCKED`].
    edge_at: Vec<u32>,
    ends: Vec<[u32; 2]>,
    colour_of: Vec<u32>,
}

const NO_EDGE: u32 = u32::MAX;
const BLOCKED: u32 = u32::MAX - 1;
const UNCOLOURED: u32 = u32::MAX;
/// Maximum number of colour pairs tried for an edge when colours are blocked.
const MAX_PAIRS: usize = 64;

impl Colouring {
    /// Returns a colouring without edges. It allocates `4 · vertices · colours` bytes.
    pub fn new(vertices: usize, colours: usize, edges: usize) -> Self {
        let words = colours.div_ceil(64);
        let mut free = vec![!0; vertices * words];
        if let (used @ 1.., Some(_)) = (colours % 64, words.checked_sub(1)) {
            free.iter_mut().skip(words - 1).step_by(words).for_each(|word| *word = (1 << used) - 1);
        }
        let (ends, colour_of) = (Vec::with_capacity(edges), Vec::with_capacity(edges));
        Self { colours, words, free, edge_at: vec![NO_EDGE; vertices * colours], ends, colour_of }
    }

    /// Forbids a colour at a vertex.
    pub fn block(&mut self, vertex: u32, colour: usize) {
        self.set_free(vertex, colour, false);
        self.edge_at[vertex as usize * self.colours + colour] = BLOCKED;
    }

    /// Adds an edge between vertices of different sides, colours it, and returns its number. The edge stays
    /// uncoloured if no colour is possible; this cannot happen while no colour is blocked and no vertex has
    /// more edges than there are colours.
    pub fn add(&mut self, from: u32, to: u32) -> u32 {
        let edge = u32::try_from(self.ends.len()).expect("fewer than 2^32 edges");
        self.ends.push([from, to]);
        self.colour_of.push(UNCOLOURED);
        if let Some(colour) = self.common(from, to).or_else(|| self.make_common(from, to)) {
            self.paint(edge, colour);
        }
        edge
    }

    /// Returns the colour of an edge; `None` if it is uncoloured.
    pub fn colour(&self, edge: u32) -> Option<usize> {
        let colour = self.colour_of[edge as usize];
        (colour != UNCOLOURED).then_some(colour as usize)
    }

    /// Returns the lowest colour that is free at both vertices.
    fn common(&self, a: u32, b: u32) -> Option<usize> {
        let (a, b) = (self.free_words(a), self.free_words(b));
        a.iter()
            .zip(b)
            .enumerate()
            .find(|(_, (a, b))| *a & *b != 0)
            .map(|(word, (a, b))| 64 * word + (a & b).trailing_zeros() as usize)
    }

    fn free_words(&self, vertex: u32) -> &[u64] {
        &self.free[vertex as usize * self.words..][..self.words]
    }

    fn free_colours(&self, vertex: u32) -> impl Iterator<Item = usize> + '_ {
        self.free_words(vertex).iter().enumerate().flat_map(|(word, &bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| 64 * word + bit)
        })
    }

    /// Frees at `b` a colour that is free at `a`, by swapping two colours along the path that starts at `b`. In
    /// a bipartite graph that path never reaches `a`.
    fn make_common(&mut self, a: u32, b: u32) -> Option<usize> {
        let ours: Vec<usize> = self.free_colours(a).take(8).collect();
        let theirs: Vec<usize> = self.free_colours(b).take(8).collect();
        let pairs =
            ours.iter().flat_map(|&wanted| theirs.iter().map(move |&spare| (wanted, spare)));
        let mut path = Vec::new();
        for (wanted, spare) in pairs.take(MAX_PAIRS) {
            if self.alternating(b, wanted, spare, &mut path) {
                self.swap(&path, wanted, spare);
                return Some(wanted);
            }
        }
        None
    }

    /// Collects the edges from `start` that alternate between two colours. Returns `true` if they can be swapped.
    fn alternating(&self, start: u32, first: usize, second: usize, path: &mut Vec<u32>) -> bool {
        path.clear();
        let (mut at, mut colour, mut other) = (start, first, second);
        loop {
            match self.edge_at[at as usize * self.colours + colour] {
                NO_EDGE => return true,
                BLOCKED => return false,
                edge => {
                    path.push(edge);
                    let [a, b] = self.ends[edge as usize];
                    at = if a == at { b } else { a };
                    (colour, other) = (other, colour);
                }
            }
        }
    }

    fn swap(&mut self, path: &[u32], first: usize, second: usize) {
        // All edges are removed before any is added, because adjacent edges of the path exchange their colours.
        for (step, &edge) in path.iter().enumerate() {
            let old = if step % 2 == 0 { first } else { second };
            for end in self.ends[edge as usize] {
                self.edge_at[end as usize * self.colours + old] = NO_EDGE;
                self.set_free(end, old, true);
            }
        }
        for (step, &edge) in path.iter().enumerate() {
            self.paint(edge, if step % 2 == 0 { second } else { first });
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "colours are far fewer than 2^32")]
    fn paint(&mut self, edge: u32, colour: usize) {
        self.colour_of[edge as usize] = colour as u32;
        for end in self.ends[edge as usize] {
            self.edge_at[end as usize * self.colours + colour] = edge;
            self.set_free(end, colour, false);
        }
    }

    fn set_free(&mut self, vertex: u32, colour: usize, free: bool) {
        let word = &mut self.free[vertex as usize * self.words + colour / 64];
        *word = *word & !(1 << (colour % 64)) | u64::from(free) << (colour % 64);
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Seed;

    use super::*;

    /// Adds random edges; returns the colouring, all edges and the number of colours.
    fn random(seed: u64, slack: usize) -> (Colouring, Vec<[u32; 2]>, usize) {
        let mut rng = Seed(seed).child("graph", 0).rng();
        let (left, right) = (1 + rng.index(12), 1 + rng.index(12));
        let edges: Vec<[u32; 2]> = (0..1 + rng.index(400))
            .map(|_| [rng.index(left), left + rng.index(right)].map(|v| u32::try_from(v).unwrap()))
            .collect();
        let mut degree = alloc::vec![0usize; left + right];
        edges.iter().flatten().for_each(|&vertex| degree[vertex as usize] += 1);
        let colours = degree.iter().copied().max().unwrap() + slack;
        let mut colouring = Colouring::new(left + right, colours, edges.len());
        edges.iter().for_each(|&[a, b]| {
            colouring.add(a, b);
        });
        (colouring, edges, colours)
    }

    #[test]
    fn as_many_colours_as_the_busiest_vertex_has_edges_are_enough() {
        for seed in 0..500 {
            let (colouring, edges, colours) = random(seed, 0);
            let mut seen = std::collections::BTreeSet::new();
            for (edge, ends) in (0..).zip(&edges) {
                let colour = colouring.colour(edge).expect("König's theorem");
                assert!(colour < colours);
                for &end in ends {
                    assert!(seen.insert((end, colour)), "seed {seed}: {end} has {colour} twice");
                }
            }
        }
    }

    #[test]
    fn a_full_regular_graph_is_coloured_too() {
        // Eight permutations of 64 hosts on 16 leaves each: every vertex has exactly 32 edges.
        let mut colouring = Colouring::new(32, 32, 512);
        let mut rng = Seed(1).rng();
        for _ in 0..8 {
            let mut to: Vec<u32> = (0..64).collect();
            rng.shuffle(&mut to);
            for (from, &to) in (0..64).zip(&to) {
                colouring.add(from / 4, 16 + to / 4);
            }
        }
        assert!((0..512).all(|edge| colouring.colour(edge).is_some()));
    }

    #[test]
    fn blocked_colours_are_never_given() {
        let mut colouring = Colouring::new(4, 4, 8);
        colouring.block(0, 1);
        colouring.block(3, 2);
        let edges: Vec<u32> = (0..6).map(|n| colouring.add(n % 2, 2 + n / 2 % 2)).collect();
        for (n, &edge) in (0u32..).zip(&edges) {
            let colour = colouring.colour(edge).unwrap();
            assert!(n % 2 != 0 || colour != 1);
            assert!(n / 2 % 2 != 1 || colour != 2);
        }
    }
}
