//! Writes a page with every kind of section: `cargo run -p weft-report --example gallery > gallery.html`.
use weft_report::{
    Axis, BarPlot, Body, CdfPlot, Cell, Column, LinePlot, Mark, OrdinalPlot, PercentilePlot,
    Report, Section, Series, Table, Unit,
};

fn main() {
    let wave = |phase: f64, base: f64| -> Vec<(f64, f64)> {
        let at = |step: u32| f64::from(step) * 0.001;
        (0..8_000).map(|s| (at(s), base * (1.0 + 0.2 * (at(s) * 9.0 + phase).sin()))).collect()
    };
    let goodput = LinePlot {
        x: Axis::new("time", Unit::Seconds),
        y: Axis::new("goodput", Unit::BitsPerSecond),
        series: vec![
            Series::new("single path", wave(0.0, 1.1e9)),
            Series::new("Weft", wave(1.0, 3.2e9)),
        ],
        marks: vec![
            Mark { x: 2.0, label: "spine 1 loses 1%".into() },
            Mark { x: 7.5, label: "spine 2 dies".into() },
        ],
    };
    let samples = |scale: f64| (1..5_000u32).map(|i| scale / f64::from(5_001 - i)).collect();
    let tail = |scale: f64| -> Vec<(f64, f64)> {
        let shares = (0..400).map(|step| 1.0 - 10f64.powf(-f64::from(step) / 80.0));
        shares.map(|share| (share, scale / (1.0 - share).powf(0.4))).collect()
    };
    let mut table = Table::new(vec![
        Column::text("", "profile"),
        Column::number("goodput", "goodput_bps"),
        Column::number("p99", "p99_s"),
        Column::number("back after", "recovery_s"),
    ]);
    for (name, rate, p99, back) in
        [("single path", 1.1e9, 0.207, 1.9), ("Weft", 3.2e9, 0.0012, 0.009)]
    {
        table.push(vec![
            name.into(),
            Cell::new(Unit::BitsPerSecond.format(rate), rate),
            Cell::new(Unit::Seconds.format(p99), p99),
            Cell::new(Unit::Seconds.format(back), back),
        ]);
    }
    let section = |heading: &str, text: &str, body| Section {
        heading: heading.into(),
        text: text.into(),
        body,
    };
    let fact = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let report = Report {
        title: "Gallery".into(),
        subtitle: "Made-up data in every kind of section; nothing here was measured.".into(),
        facts: vec![fact("paths", "4"), fact("seed", "1"), fact("link rate", "10 Gb/s")],
        sections: vec![
            section("Table", "One row for each profile.", Body::Table(table)),
            section("Lines", "Values over time, with marks.", Body::Lines(goodput)),
            section(
                "Distribution",
                "Which share is at or below.",
                Body::Cdf(CdfPlot {
                    x: Axis::new("flow completion time", Unit::Seconds),
                    samples: vec![("single".into(), samples(0.2)), ("spray".into(), samples(0.1))],
                }),
            ),
            section(
                "Bars",
                "A value for each port.",
                Body::Bars(BarPlot {
                    y: Axis::new("load", Unit::Bytes),
                    groups: (0..8).map(|port| format!("port {port}")).collect(),
                    series: vec![
                        ("single".into(), (0..8).map(|p| f64::from(p * p % 11) * 1e9).collect()),
                        ("spray".into(), vec![4.1e9; 8]),
                    ],
                }),
            ),
            section(
                "Many bars",
                "",
                Body::Bars(BarPlot {
                    y: Axis::new("load", Unit::Share),
                    groups: (0..60).map(|port| port.to_string()).collect(),
                    series: vec![(
                        "".into(),
                        (0..60).map(|p| f64::from(p * 7 % 60) / 60.0).collect(),
                    )],
                }),
            ),
            section(
                "Percentiles",
                "Each step to the right is ten times rarer.",
                Body::Percentiles(PercentilePlot {
                    y: Axis::new("latency", Unit::Seconds),
                    series: vec![
                        Series::new("single path", tail(5e-4)),
                        Series::new("Weft", tail(8e-5)),
                    ],
                }),
            ),
            section(
                "Ordered places",
                "With whiskers where a value is uncertain.",
                Body::Ordinal(OrdinalPlot {
                    x: "flow size".into(),
                    places: ["1 KB", "10 KB", "100 KB", "more"].map(str::to_owned).to_vec(),
                    y: Axis::new("slowdown", Unit::Ratio),
                    series: vec![
                        (
                            "single path".into(),
                            vec![(1.2, 0.1), (1.5, 0.1), (3.0, 0.4), (9.5, 2.0)],
                        ),
                        ("Weft".into(), vec![(1.1, 0.0), (1.2, 0.1), (1.6, 0.2), (2.5, 0.5)]),
                    ],
                }),
            ),
            section("Scenario", "", Body::Code("[topology]\nkind = \"leaf-spine\"\n".into())),
        ],
    };
    println!("{}", report.to_html());
}
