//! The table of the contenders' results.

use weft_testkit::{figure_row, json};

/// Writes the rows of X-RDMA's figure 7: one per contender and round.
pub(crate) fn rows(size: u32, names: &[&str], figures: &[Vec<Option<f64>>]) {
    for (name, own) in names.iter().zip(figures) {
        for latency in own.iter().flatten() {
            let row = json!({ "bytes": size, "who": name, "latency": latency });
            figure_row("x-rdma-fig7", &row);
        }
    }
}

/// Prints a row per contender: its time, and its ratio to the first contender in the same round.
pub(crate) fn print(title: &str, names: &[&str], figures: &[Vec<Option<f64>>]) {
    println!("\n{title} (us one way, {} rounds)", figures[0].len());
    println!("{:<26} {:>9} {:>20} {:>8} {:>15}", "", "median", "least to most", "ratio", "spread");
    for (name, own) in names.iter().zip(figures) {
        let measured: Vec<f64> = own.iter().copied().flatten().collect();
        let ratios: Vec<f64> =
            figures[0].iter().zip(own).filter_map(|(bare, own)| Some((*own)? / (*bare)?)).collect();
        let Some(typical) = median(measured.clone()) else {
            println!("{name:<26} {:>9}", "failed");
            continue;
        };
        let (least, most) = ends(&measured);
        let ratio = median(ratios.clone()).unwrap_or(f64::NAN);
        let (lower, upper) = ends(&ratios);
        println!(
            "{name:<26} {typical:>9.3} {:>20} {ratio:>8.2} {:>15}",
            format!("{least:.3} to {most:.3}"),
            format!("{lower:.2} to {upper:.2}"),
        );
    }
}

fn ends(of: &[f64]) -> (f64, f64) {
    let least = of.iter().copied().fold(f64::INFINITY, f64::min);
    let most = of.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (least, most)
}

/// Returns the median.
pub(crate) fn median(mut of: Vec<f64>) -> Option<f64> {
    of.sort_by(f64::total_cmp);
    let middle = of.len().checked_sub(1)? / 2;
    Some((of[middle] + of[of.len() / 2]) / 2.0)
}
