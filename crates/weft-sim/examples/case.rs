//! Prints the swarm's case of a seed and what it shows:
//! `cargo run --release -p weft-sim --example case -- 1103`.

use weft_sim::swarm::{Case, run_case};
use weft_units::Seed;

fn main() {
    let seed = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(0);
    println!("{:#?}", Case::draw(Seed(seed)));
    println!("{:#?}", run_case(seed));
}
