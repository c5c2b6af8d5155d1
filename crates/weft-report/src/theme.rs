//! The colours and the style sheet. Plots are drawn with placeholder colours, which are replaced by CSS variables of
//! the page, so that drawings follow the reader's light or dark setting.

use plotters::style::RGBColor;

/// Number of series colours before they repeat.
pub(crate) const SERIES: usize = 8;

/// The placeholder for axis labels and ticks.
pub(crate) const INK: RGBColor = RGBColor(1, 0, 250);
/// The placeholder for grid lines.
pub(crate) const GRID: RGBColor = RGBColor(1, 0, 251);
/// The placeholder for marks of events.
pub(crate) const MARK: RGBColor = RGBColor(1, 0, 252);

/// Returns the placeholder for a series' colour.
pub(crate) fn series(index: usize) -> RGBColor {
    let slot = u8::try_from(index % SERIES).expect("SERIES is small");
    RGBColor(2, slot, 250)
}

/// Replaces the placeholders by CSS variables.
pub(crate) fn resolve(svg: &str) -> String {
    let hex = |RGBColor(r, g, b): RGBColor| format!("#{r:02X}{g:02X}{b:02X}");
    let mut svg = svg
        .replace(&hex(INK), "var(--ink)")
        .replace(&hex(GRID), "var(--grid)")
        .replace(&hex(MARK), "var(--mark)");
    for slot in 0..SERIES {
        svg = svg.replace(&hex(series(slot)), &format!("var(--s{slot})"));
    }
    svg
}

/// The page's style sheet. The series colours are Okabe and Ito's (2008), which colour-blind readers can distinguish,
/// made darker or lighter for contrast with the page.
pub(crate) const STYLE: &str = "
:root { color-scheme: light dark;
  --page: #ffffff; --text: #1c2024; --ink: #5b6470; --grid: #e6e8eb; --mark: #b42318; --card: #f6f7f9;
  --s0: #0072b2; --s1: #d55e00; --s2: #009e73; --s3: #b85c93; --s4: #a07800; --s5: #3f9fd8;
  --s6: #5a5f66; --s7: #7a4fb5; }
@media (prefers-color-scheme: dark) { :root {
  --page: #14171a; --text: #e8eaed; --ink: #a2abb6; --grid: #2b3036; --mark: #ff8a7a; --card: #1e2327;
  --s0: #56b4e9; --s1: #f08a3c; --s2: #2fc79a; --s3: #e29ac4; --s4: #e6c229; --s5: #8fd0f5;
  --s6: #b7bec7; --s7: #b594e6; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 62rem; background: var(--page);
  color: var(--text); font: 16px/1.5 system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .25rem; }
p { margin: .25rem 0 .75rem; max-width: 46rem; }
.subtitle { color: var(--ink); margin-top: .35rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(10.5rem, 1fr)); gap: .6rem;
  margin: 1.25rem 0 0; }
.facts div { background: var(--card); border-radius: .5rem; padding: .55rem .75rem; }
.facts dt { color: var(--ink); font-size: .8rem; }
.facts dd { margin: 0; font-weight: 600; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; border-bottom: 2px solid var(--grid); }
th, td { padding: .3rem 1.25rem .3rem 0; vertical-align: top; }
td { border-bottom: 1px solid var(--grid); }
.number { text-align: right; white-space: nowrap; }
td:first-child { white-space: nowrap; }
figure { margin: .5rem 0 0; }
figure svg { display: block; width: 100%; height: auto; }
figure svg text { font-family: inherit; font-variant-numeric: tabular-nums; }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; list-style: none; margin: 0 0 .25rem;
  padding: 0; font-size: .9rem; }
.legend span { display: inline-block; width: 1rem; height: .25rem; border-radius: .125rem;
  margin-right: .4rem; vertical-align: middle; }
pre { background: var(--card); border-radius: .5rem; padding: .75rem 1rem; overflow-x: auto;
  font-size: .85rem; }
.empty { color: var(--ink); font-style: italic; }
@media print { :root { color-scheme: light; } body { max-width: none; padding: 0; font-size: 11pt; }
  section { break-inside: avoid; } .facts div { border: 1px solid var(--grid); } }
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_placeholder_colour_remains() {
        let drawn = "<path stroke=\"#0203FA\"/><text fill=\"#0100FA\"/>";
        assert_eq!(resolve(drawn), "<path stroke=\"var(--s3)\"/><text fill=\"var(--ink)\"/>");
    }
}
