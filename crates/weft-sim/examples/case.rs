//! Prints the swarm's case of a seed and its result: `cargo run --release -p weft-sim --example case -- 1103`, or `...
//! -- 1103 sealed`.

use weft_sim::swarm::{Case, run_case, run_sealed_case};
use weft_units::Seed;

fn main() {
    let seed = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(0);
    if std::env::args().any(|arg| arg == "sealed") {
        println!("{:#?}", Case::draw_sealed(Seed(seed)));
        println!("{:#?}", run_sealed_case(seed));
    } else {
        println!("{:#?}", Case::draw(Seed(seed)));
        println!("{:#?}", run_case(seed));
    }
}
