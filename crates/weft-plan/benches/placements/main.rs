//! Astral's figure 7 at flow level: the effect of order, rails and ports on a ring all-reduce.
//!
//! `cargo bench -p weft-plan --features serde --bench placements`
//!
//! Jobs are placed on random servers, in a random order of ranks. A connection has four queue pairs,
//! distributed evenly over the ports of a NIC. All rings carry equal shares. A ring runs at the rate of its
//! slowest flow, which is the rate of the busiest link divided by its flows. The model has no other limits and
//! no other traffic.

mod measure;

use measure::{
    COUNTS, Counted, PLACEMENTS, PLACEMENTS_EACH, VARIANTS, figure_7a, figure_7b, figure_7c,
};
use weft_testkit::{Value, figure_row};

fn main() {
    let [a, b, c] =
        [("a", figure_7a()), ("b", figure_7b()), ("c", figure_7c())].map(|(part, rows)| {
            rows.iter().for_each(|row| figure_row(&format!("astral-fig7{part}"), row));
            rows
        });
    println!("Bus bandwidth of a ring all-reduce, GB/s\n");
    println!("mean and standard deviation of {PLACEMENTS} placements of 4 of 100 servers");
    for (rows, (_, links)) in b.chunks(VARIANTS.len()).zip(Counted::EACH) {
        println!("links counted: {links}");
        for row in rows {
            let [mean, deviation] = ["mean", "deviation"].map(|key| number(row, key));
            println!("{:<24} {mean:>8.1} {deviation:>8.2}", name(row));
        }
    }
    println!(
        "\nmean of {PLACEMENTS_EACH} placements by number of servers (of 512), and the gain over the first"
    );
    by_count(&a, &|row| {
        format!("{:>7.1} {:>+6.0} %", number(row, "bandwidth"), number(row, "more"))
    });
    println!("\ntransfers between servers that cross spines, %, of the same placements");
    by_count(&c, &|row| format!("{:>16.1}", number(row, "crossing")));
}

/// Prints a line for each variant and a column for each number of servers.
fn by_count(rows: &[Value], cell: &dyn Fn(&Value) -> String) {
    println!("{:<24} {}", "", COUNTS.map(|count| format!("{count:>16}")).concat());
    for variant in &VARIANTS {
        let own: Vec<&Value> = rows.iter().filter(|row| name(row) == variant.name).collect();
        if !own.is_empty() {
            println!("{:<24} {}", variant.name, own.into_iter().map(cell).collect::<String>());
        }
    }
}

fn name(row: &Value) -> &str {
    row["way"].as_str().unwrap_or_default()
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or(f64::NAN)
}
